import { Effect } from "effect"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { inquiryOf, modelOf, numberOf, stringsOf } from "#layers/guardrails/config.ts"
import { CheckFailed, excerpt, type Finding, type GuardrailType } from "#layers/guardrails/GuardrailType.ts"

interface Judgement {
  readonly fires: boolean
  readonly score: number | null
}

const judged = (result: Json, categories: ReadonlyArray<string> | undefined, threshold: number | undefined) => {
  if (!isJsonObject(result) || typeof result["flagged"] !== "boolean") return undefined
  const scores = isJsonObject(result["category_scores"]) ? result["category_scores"] : {}
  const flags = isJsonObject(result["categories"]) ? result["categories"] : {}
  const names = categories ?? Object.keys(scores)
  let score: number | null = null
  for (const name of names) {
    const value = scores[name]
    if (typeof value === "number") score = Math.max(score ?? 0, value)
  }
  // Without scores, a threshold cannot be told from a pass.
  if (threshold !== undefined) return score === null ? undefined : { fires: score >= threshold, score }
  const fires = categories === undefined ? result["flagged"] : categories.some((name) => flags[name] === true)
  return { fires, score } satisfies Judgement
}

/**
 * A registered moderation model: `model`; `categories` that count (all), `threshold` in [0, 1] for their scores (what the
 * model flags).
 */
export const moderation: GuardrailType = {
  defaultStage: "pre",
  wholeAnswer: false,
  fields: ["categories"],
  nameHint: /moderat|toxic|nsfw|harmful/i,
  compile: (config) => {
    const model = modelOf(config)
    const categories = stringsOf(config, ["categories"], { count: 100, length: 100 })?.values
    const threshold = numberOf(config, "threshold", { min: 0.001, max: 1 })
    const findingOf = (texts: ReadonlyArray<string>, answer: JsonObject): Finding | undefined | CheckFailed => {
      const results = answer["results"]
      // Some upstreams judge a list as one text.
      if (!Array.isArray(results) || (results.length !== texts.length && results.length !== 1)) {
        return new CheckFailed({ why: "the model gave no result for each text" })
      }
      for (let i = 0; i < results.length; i++) {
        const judgement = judged(results[i] as Json, categories, threshold)
        if (judgement === undefined) return new CheckFailed({ why: "the model's result cannot be read" })
        if (judgement.fires) return { confidence: judgement.score, original: excerpt(texts[i]!) }
      }
      return undefined
    }
    return {
      ...inquiryOf(config, { timeout: 10_000, stream: "sentences" }),
      ask: ({ models }, { caller, texts }) => {
        const body = { model, input: [...texts] }
        return Effect.flatMap(models.ask({ caller, operation: "moderation", model, body }), (answer) => {
          const finding = findingOf(texts, answer.body)
          return finding instanceof CheckFailed ? Effect.fail(finding) : Effect.succeed(finding)
        })
      }
    }
  }
}
