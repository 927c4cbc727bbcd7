import { Data } from "effect"
import type { KeyPolicy } from "#domain/principal.ts"
import type { PolicyOwner as AnyOwner } from "#services/keys/KeyStore.ts"

/** Those whom a policy names. */
export type PolicyOwner = Exclude<AnyOwner, "budget_tier">

/** The channel on which processes tell each other what happened to keys. */
export const KEYS_CHANNEL = "keys_changed"

/** What may have changed policies: one key, somebody that keys belong to, or anything. */
export type PolicyChange = Data.TaggedEnum<{
  Key: { readonly id: string }
  Owner: { readonly owner: PolicyOwner; readonly id: string }
  Everything: {}
}>
export const PolicyChange = Data.taggedEnum<PolicyChange>()

/** The payload of a notification. */
export const changeText = (change: PolicyChange): string => {
  switch (change._tag) {
    case "Key":
      return `key:${change.id}`
    case "Owner":
      return `${change.owner}:${change.id}`
    case "Everything":
      return "everything"
  }
}

/** Reads a payload; one that says nothing known may mean anything. */
export const parseChange = (text: string): PolicyChange => {
  const colon = text.indexOf(":")
  const id = text.slice(colon + 1)
  switch (text.slice(0, Math.max(0, colon))) {
    case "key":
      return PolicyChange.Key({ id })
    case "user":
    case "team":
    case "organization":
      return PolicyChange.Owner({ owner: text.slice(0, colon) as PolicyOwner, id })
    default:
      return PolicyChange.Everything()
  }
}

/** Whether a change reaches a policy. */
export const concerns = (change: PolicyChange, policy: KeyPolicy): boolean => {
  switch (change._tag) {
    case "Key":
      return policy.id === change.id
    case "Owner":
      return (
        change.id ===
        (change.owner === "user" ? policy.userId : change.owner === "team" ? policy.teamId : policy.organizationId)
      )
    case "Everything":
      return true
  }
}
