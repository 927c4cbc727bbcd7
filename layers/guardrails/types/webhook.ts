import { Effect, Redacted } from "effect"
import type { JsonObject } from "#domain/json.ts"
import { inquiryOf, textOf } from "#layers/guardrails/config.ts"
import { isSealed, openSecret } from "#layers/guardrails/sealed-text.ts"
import {
  CheckFailed,
  ConfigProblem,
  excerpt,
  type Finding,
  type GuardrailType
} from "#layers/guardrails/GuardrailType.ts"

const maxReason = 300
const maxSecret = 512
const maxSealedSecret = 4200

const urlOf = (config: JsonObject): string => {
  const given = textOf(config, ["url"], 2048)
  if (given === undefined) throw new ConfigProblem("url", "is required", true)
  const url = URL.canParse(given.value) ? new URL(given.value) : undefined
  if (url === undefined || (url.protocol !== "https:" && url.protocol !== "http:")) {
    throw new ConfigProblem("url", "must be an http or https URL")
  }
  if (url.username !== "" || url.password !== "") throw new ConfigProblem("url", "must not hold a password")
  return url.href
}

/** What the service said, or why that cannot be used. */
const findingOf = (texts: ReadonlyArray<string>, answer: JsonObject): Finding | undefined | CheckFailed => {
  const { blocked, reason, texts: changed } = answer
  if (typeof blocked !== "boolean") return new CheckFailed({ why: "its answer has no 'blocked'" })
  if (reason !== undefined && reason !== null && typeof reason !== "string") {
    return new CheckFailed({ why: "its 'reason' is no string" })
  }
  if (blocked) {
    const finding = { confidence: null, original: excerpt(texts.join("\n")) }
    return typeof reason === "string" && reason !== "" ? { ...finding, reason: reason.slice(0, maxReason) } : finding
  }
  if (changed === undefined || changed === null) return undefined
  if (!Array.isArray(changed) || changed.length !== texts.length) {
    return new CheckFailed({ why: "its 'texts' are not as many as it was given" })
  }
  const replaced = changed.filter((text) => typeof text === "string")
  if (replaced.length !== texts.length) return new CheckFailed({ why: "its 'texts' are not all strings" })
  const first = replaced.findIndex((text, i) => text !== texts[i])
  if (first === -1) return undefined
  return {
    confidence: null,
    original: excerpt(texts[first]!),
    masked: { texts: replaced, excerpt: excerpt(replaced[first]!) }
  }
}

/**
 * A service of the operator's own: `url`, `secret` to sign with. It is sent `{stage, texts, guardrail}` and answers
 * `{blocked, reason?, texts?}`; other texts than it was given mask them.
 */
export const webhook: GuardrailType = {
  defaultStage: "pre",
  wholeAnswer: false,
  fields: ["url"],
  nameHint: /web.?hook/i,
  secretFields: ["secret"],
  compile: (config) => {
    const url = urlOf(config)
    const secret = textOf(config, ["secret"], maxSealedSecret)?.value
    if (secret !== undefined && secret.length > maxSecret && !isSealed(secret)) {
      throw new ConfigProblem("secret", `must have at most ${maxSecret} characters`)
    }
    return {
      ...inquiryOf(config, { timeout: 5000, stream: "sentences" }),
      ask: Effect.fnUntraced(function* ({ secrets, webhooks }, { guardrailName, stage, texts }) {
        const answer = yield* webhooks.post({
          url,
          secret: secret === undefined ? undefined : Redacted.make(yield* openSecret(secrets, secret)),
          body: { stage, texts: [...texts], guardrail: guardrailName }
        })
        const finding = findingOf(texts, answer)
        return finding instanceof CheckFailed ? yield* finding : finding
      })
    }
  }
}
