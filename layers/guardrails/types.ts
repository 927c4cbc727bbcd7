import type { GuardrailType } from "#layers/guardrails/GuardrailType.ts"
import { denyList } from "#layers/guardrails/types/denyList.ts"
import { jsonSchema } from "#layers/guardrails/types/jsonSchema.ts"
import { length } from "#layers/guardrails/types/length.ts"
import { pii } from "#layers/guardrails/types/pii.ts"
import { promptInjection } from "#layers/guardrails/types/promptInjection.ts"
import { regex } from "#layers/guardrails/types/regex.ts"
import { secrets } from "#layers/guardrails/types/secrets.ts"

/** The guardrail types that need nothing but the text. To add one: its file in `types/`, its line here. */
export const guardrailTypes = {
  deny_list: denyList,
  regex,
  pii,
  secrets,
  prompt_injection: promptInjection,
  length,
  json_schema: jsonSchema
} satisfies { readonly [type: string]: GuardrailType }

export type GuardrailTypeName = keyof typeof guardrailTypes

export const typeOf = (name: string): GuardrailType | undefined =>
  Object.hasOwn(guardrailTypes, name) ? guardrailTypes[name as GuardrailTypeName] : undefined
