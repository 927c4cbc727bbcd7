/** Fields that keys share, whoever makes them: an administrator for anybody, or a developer for themselves. */
import { Schema } from "effect"
import { Dollars, ModelNames, nullable, RateLimit, ShortText, text } from "#api/fields.ts"

export const keyNames = { key_name: nullable(ShortText), key_alias: nullable(ShortText) }

export const keyLimits = {
  max_budget: nullable(Dollars),
  models: nullable(ModelNames),
  rpm_limit: nullable(RateLimit),
  tpm_limit: nullable(RateLimit)
}

/** The same as answers show them. */
export const shownKeyNames = { key_name: text, key_alias: text }

export const shownKeyLimits = {
  max_budget: Schema.NullOr(Schema.Finite),
  models: Schema.Array(Schema.String),
  rpm_limit: Schema.NullOr(Schema.Int),
  tpm_limit: Schema.NullOr(Schema.Int)
}
