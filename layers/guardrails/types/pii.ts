import { defaultPiiEntities, findPii, isPiiEntity, piiEntities, type PiiSpan } from "#domain/pii.ts"
import { replaceSpans } from "#domain/redaction.ts"
import { choiceOf, stringsOf } from "#layers/guardrails/config.ts"
import { ConfigProblem, excerpt, type GuardrailType } from "#layers/guardrails/GuardrailType.ts"

const mask = (span: PiiSpan): string => `<${span.entity}>`

/**
 * Personal data: `entities` (or `entity_types`; all but URL), `action` `block` or `mask`. Masked data is replaced by its type,
 * `<EMAIL>`, and the call goes on.
 */
export const pii: GuardrailType = {
  defaultStage: "pre",
  wholeAnswer: false,
  fields: ["entities", "entity_types"],
  nameHint: /pii|personal|privacy|gdpr|phi\b/i,
  compile: (config) => {
    const named = stringsOf(config, pii.fields, { count: piiEntities.length, length: 40 })
    const entities = (named?.values ?? defaultPiiEntities).map((name, i) => {
      const entity = name.toUpperCase()
      if (isPiiEntity(entity)) return entity
      throw new ConfigProblem(`${named?.field}.${i}`, `must be one of ${piiEntities.join(", ")}`)
    })
    const wanted = new Set(entities)
    const masks = choiceOf(config, "action", ["block", "mask"], "block") === "mask"
    return {
      cost: 60,
      check: (texts) => {
        let first:
          | { readonly text: string; readonly spans: ReadonlyArray<PiiSpan>; readonly replaced: string }
          | undefined
        let confidence = 0
        const masked = texts.map((text) => {
          if (first !== undefined && !masks) return text
          const spans = findPii(text, wanted)
          if (spans.length === 0) return text
          for (const span of spans) confidence = Math.max(confidence, span.confidence)
          const replaced = masks ? replaceSpans(text, spans, mask) : text
          first ??= { text, spans, replaced }
          return replaced
        })
        if (first === undefined) return undefined
        const at = first.spans[0]!.start
        const finding = { confidence, original: excerpt(first.text, at) }
        return masks ? { ...finding, masked: { texts: masked, excerpt: excerpt(first.replaced, at) } } : finding
      }
    }
  }
}
