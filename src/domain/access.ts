/** Groups, their catalog roles and what those are granted (management-api.md, "Group", "Group permission"). */

/** The privilege that includes every other. */
export const everyPrivilege = "all"

/** The object type of a grant that names none. */
export const defaultObjectType = "ai_asset"

/** The catalog of a group's companion role where none is named. */
export const defaultCatalog = "default"

/** A privilege on an object; the empty `objectId` is every object of the type, the empty tenant the group's own. */
export interface Grant {
  readonly privilege: string
  readonly objectType: string
  readonly objectId: string
  readonly tenant: string
}

/** A group with its companion catalog role, which holds the grants. */
export interface Group {
  readonly id: string
  readonly tenant: string
  readonly name: string
  readonly catalogRole: { readonly id: string; readonly name: string; readonly catalog: string }
  readonly createdBy: string
  /** Unix milliseconds. */
  readonly createdAt: number
}
