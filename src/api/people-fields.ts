/** Fields that the people of the contract share: what may bind them, and how lists are paged. */
import { Schema } from "effect"
import { Dollars, ModelNames, nullable, Page, PageSize, RateLimit, ShortText, text } from "#api/fields.ts"

/** The limits of a plan: absent leaves what is there, null lifts it. */
export const planLimits = {
  max_budget: nullable(Dollars),
  soft_budget: nullable(Dollars),
  rpm_limit: nullable(RateLimit),
  tpm_limit: nullable(RateLimit),
  models: nullable(ModelNames)
}

/**
 * The limits of a user, team, organization or customer. Every one of them takes all, beyond what its operations list
 * (decisions.md, section 6.2), so that a budget can bind it directly and through a budget tier.
 */
export const limits = { ...planLimits, budget_id: nullable(ShortText) }

/** The same as an answer shows them. */
export const shownLimits = {
  max_budget: Schema.NullOr(Schema.Finite),
  soft_budget: Schema.NullOr(Schema.Finite),
  rpm_limit: Schema.NullOr(Schema.Int),
  tpm_limit: Schema.NullOr(Schema.Int),
  models: Schema.Array(Schema.String),
  budget_id: text
}

/** Lists whose query the specification leaves out are cut into pages all the same. */
export const paging = { page: Schema.optionalKey(Page), page_size: Schema.optionalKey(PageSize) }

/** The page size of a list that documents no paging: its caller expects all there is. */
export const undocumentedPageSize = 500

/** `has_more`: there is another page. */
export const listOf = <S extends Schema.Top>(row: S) =>
  Schema.Struct({ data: Schema.Array(row), has_more: Schema.Boolean })

/** The body of an operation that names a member; without a name nobody is found. */
export const membership = { user_id: nullable(ShortText), role: nullable(ShortText) }
