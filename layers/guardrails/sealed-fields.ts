import { Effect } from "effect"
import { invalidValue, type ValidationFailed } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import { isSealed, openSecret, sealText } from "#layers/guardrails/sealed-text.ts"
import { typeOf } from "#layers/guardrails/types.ts"
import type { Secrets } from "#services/security/Secrets.ts"

/** The config as it may be stored and shown. A field that comes sealed stays as it is, if it can be opened. */
export const sealConfig = (
  secrets: Secrets["Service"],
  type: string,
  config: JsonObject
): Effect.Effect<JsonObject, ValidationFailed> =>
  Effect.gen(function* () {
    const changes: Record<string, string> = {}
    for (const field of typeOf(type)?.secretFields ?? []) {
      const value = config[field]
      if (typeof value !== "string") continue
      if (!isSealed(value)) changes[field] = sealText(secrets, value)
      else {
        const problem = invalidValue(`config.${field}`, `'config.${field}' was not sealed by this gateway.`)
        yield* Effect.catchDefect(openSecret(secrets, value), () => Effect.fail(problem))
      }
    }
    return Object.keys(changes).length === 0 ? config : { ...config, ...changes }
  })
