import type { GuardrailType } from "#layers/guardrails/GuardrailType.ts"
import { denyList } from "#layers/guardrails/types/denyList.ts"
import { jsonSchema } from "#layers/guardrails/types/jsonSchema.ts"
import { llmJudge } from "#layers/guardrails/types/llmJudge.ts"
import { length } from "#layers/guardrails/types/length.ts"
import { moderation } from "#layers/guardrails/types/moderation.ts"
import { pii } from "#layers/guardrails/types/pii.ts"
import { promptInjection } from "#layers/guardrails/types/promptInjection.ts"
import { regex } from "#layers/guardrails/types/regex.ts"
import { secrets } from "#layers/guardrails/types/secrets.ts"
import { webhook } from "#layers/guardrails/types/webhook.ts"

/** The guardrail types (decisions.md, section 8). To add one: its file in `types/`, its line here. */
export const guardrailTypes = {
  deny_list: denyList,
  regex,
  pii,
  secrets,
  prompt_injection: promptInjection,
  length,
  json_schema: jsonSchema,
  moderation,
  llm_judge: llmJudge,
  webhook
} satisfies { readonly [type: string]: GuardrailType }

export type GuardrailTypeName = keyof typeof guardrailTypes

export const typeOf = (name: string): GuardrailType | undefined =>
  Object.hasOwn(guardrailTypes, name) ? guardrailTypes[name as GuardrailTypeName] : undefined
