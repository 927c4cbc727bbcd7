import { replaceSpans } from "#domain/redaction.ts"
import { findSecrets, type SecretSpan } from "#domain/secrets-scan.ts"
import { choiceOf } from "#layers/guardrails/config.ts"
import { excerpt, type GuardrailType } from "#layers/guardrails/GuardrailType.ts"

const mask = (span: SecretSpan): string => `<SECRET:${span.kind}>`

/** Credentials in text: `action` `block` or `mask`. The log never holds the credential, only its kind. */
export const secrets: GuardrailType = {
  defaultStage: "pre",
  wholeAnswer: false,
  fields: [],
  nameHint: /secret|credential|api.?key|leak/i,
  compile: (config) => {
    const masks = choiceOf(config, "action", ["block", "mask"], "block") === "mask"
    return {
      cost: 20,
      check: (texts) => {
        let original: string | undefined
        let confidence = 0
        const masked = texts.map((text) => {
          if (original !== undefined && !masks) return text
          const spans = findSecrets(text)
          if (spans.length === 0) return text
          for (const span of spans) confidence = Math.max(confidence, span.confidence)
          const replaced = replaceSpans(text, spans, mask)
          original ??= excerpt(replaced, spans[0]!.start)
          return replaced
        })
        if (original === undefined) return undefined
        return masks ? { confidence, original, masked: { texts: masked, excerpt: original } } : { confidence, original }
      }
    }
  }
}
