/** Runs in a worker thread: one stage over large texts, or the search for personal data in one. */
import { findPii, type PiiEntity, type PiiSpan } from "#domain/pii.ts"
import type { GuardrailDefinition, GuardrailStage } from "#domain/guardrails.ts"
import { type CompiledGuardrail, compileGuardrail, runStage, type StageResult } from "#layers/guardrails/compiled.ts"

export interface CheckJob {
  readonly stage: GuardrailStage
  readonly texts: ReadonlyArray<string>
  /** The guardrails by key; their definitions only when the thread did not know one. */
  readonly keys: ReadonlyArray<string>
  readonly definitions: ReadonlyArray<GuardrailDefinition> | undefined
}

/** What personal data a text holds. */
export interface FindJob {
  readonly text: string
  readonly entities: ReadonlyArray<PiiEntity>
}

export type ThreadJob = CheckJob | FindJob
export type ThreadResult = CheckResult | ReadonlyArray<PiiSpan>

/** `unknown`: send the job again, with definitions. */
export type CheckResult = StageResult | "unknown"

const maxCompiled = 2000
const compiled = new Map<string, CompiledGuardrail>()

export function* handle(job: ThreadJob): Generator<void, ThreadResult, void> {
  if ("text" in job) return findPii(job.text, new Set(job.entities))
  if (job.definitions !== undefined) {
    if (compiled.size > maxCompiled) compiled.clear()
    for (let i = 0; i < job.definitions.length; i++) {
      if (compiled.has(job.keys[i]!)) continue
      const guardrail = compileGuardrail(job.definitions[i]!)
      compiled.set(guardrail.key, guardrail)
      yield
    }
  }
  const guardrails: Array<CompiledGuardrail> = []
  for (const key of job.keys) {
    const guardrail = compiled.get(key)
    if (guardrail === undefined) return "unknown"
    guardrails.push(guardrail)
  }
  return yield* runStage(guardrails, job.stage, job.texts)
}
