import type { Operator } from "#domain/pipelines/definition.ts"
import type { Shape } from "#domain/pipelines/fields.ts"

/** What each operator's `with` holds. `branch` and `map` hold steps and are read by themselves; `transform` any value. */
export const shapes: { readonly [O in Exclude<Operator, "branch" | "map" | "transform">]: Shape } = {
  chat: {
    fields: {
      model: { type: "text", required: true },
      messages: { type: "list" },
      prompt: { type: "text" },
      system: { type: "text" }
    },
    open: true
  },
  embed: { fields: { model: { type: "text", required: true }, input: { type: "any", required: true } }, open: true },
  rerank: {
    fields: {
      model: { type: "text", required: true },
      query: { type: "text", required: true },
      documents: { type: "list", required: true },
      top_n: { type: "number" }
    },
    open: true
  },
  moderate: { fields: { model: { type: "text", required: true }, input: { type: "any", required: true } }, open: true },
  guardrail: {
    fields: {
      text: { type: ["text", "list"], required: true },
      stage: { type: "text", oneOf: ["pre", "post"] },
      on_block: { type: "text", oneOf: ["fail", "continue"] }
    },
    open: false
  },
  retrieve: { fields: { query: { type: "text", required: true } }, open: true },
  extract: { fields: {}, open: true },
  web_fetch: { fields: { url: { type: "text", required: true } }, open: true },
  sql_query: { fields: { sql: { type: "text", required: true }, args: { type: "list" } }, open: false },
  human_review: {
    fields: {
      title: { type: "text" },
      description: { type: "text" },
      reviewer_role: { type: "text" },
      context: { type: "any" }
    },
    open: false
  }
}
