import { RE2JS } from "re2js"
import { booleanOf, stringsOf } from "#layers/guardrails/config.ts"
import { ConfigProblem, excerpt, type GuardrailType } from "#layers/guardrails/GuardrailType.ts"

const maxPatterns = 100
const maxLength = 1000
/** Instructions of the compiled patterns. */
const maxProgram = 500
const maxTotalProgram = 5000
/**
 * Nanoseconds that the matcher takes for a character and instruction where pattern and text are chosen to be slow, such as
 * `x.{20}[yw]` on random x and z: its cached states are no use then.
 */
const worstPerInstruction = 100

/**
 * Compiles RE2 syntax: linear time in the text, whatever the pattern.
 * Throws `ConfigProblem` for what RE2 does not know or what compiles to too much.
 */
export const compilePattern = (pattern: string, param: string, flags = 0): RE2JS => {
  let compiled: RE2JS
  try {
    compiled = RE2JS.compile(pattern, flags)
  } catch (cause) {
    throw new ConfigProblem(param, `is not a valid RE2 pattern: ${cause instanceof Error ? cause.message : "unknown"}`)
  }
  if (compiled.programSize() > maxProgram) throw new ConfigProblem(param, "is too large a pattern")
  return compiled
}

/** Patterns in RE2 syntax that must not match: `patterns` (or `pattern`), `case_sensitive` (true). */
export const regex: GuardrailType = {
  defaultStage: "pre",
  wholeAnswer: false,
  fields: ["patterns", "pattern", "regex"],
  nameHint: /regex|regexp|pattern/i,
  compile: (config) => {
    const patterns = stringsOf(config, regex.fields, { count: maxPatterns, length: maxLength })
    if (patterns === undefined) throw new ConfigProblem("patterns", "is required", true)
    const flags = booleanOf(config, "case_sensitive", true) ? 0 : RE2JS.CASE_INSENSITIVE
    const single = typeof config[patterns.field] === "string"
    const compiled = patterns.values.map((pattern, i) =>
      compilePattern(pattern, single ? patterns.field : `${patterns.field}.${i}`, flags)
    )
    const total = compiled.reduce((sum, pattern) => sum + pattern.programSize(), 0)
    if (total > maxTotalProgram) throw new ConfigProblem(patterns.field, "are too large together")
    return {
      cost: compiled.reduce((sum, pattern) => sum + Math.max(10, pattern.programSize()), 0),
      worstCost: total * worstPerInstruction,
      check: function* (texts) {
        for (const text of texts) {
          for (const pattern of compiled) {
            if (pattern.test(text)) return { confidence: null, original: excerpt(text) }
            yield
          }
        }
        return undefined
      }
    }
  }
}
