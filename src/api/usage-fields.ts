/** Figures that the usage and spend answers of the contract share. */
import { Schema } from "effect"

/** What was spent, in dollars, by how many calls. */
export const spendTotals = { total_spend: Schema.Finite, total_requests: Schema.Int }

export const tokenCounts = { prompt_tokens: Schema.Int, completion_tokens: Schema.Int }
