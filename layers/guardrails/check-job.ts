/** Runs in a worker thread: one stage over large texts. */
import type { GuardrailDefinition, GuardrailStage } from "#domain/guardrails.ts"
import { type CompiledGuardrail, compileGuardrail, runStage, type StageResult } from "#layers/guardrails/compiled.ts"

export interface CheckJob {
  readonly stage: GuardrailStage
  readonly texts: ReadonlyArray<string>
  /** The guardrails by key; their definitions only when the thread did not know one. */
  readonly keys: ReadonlyArray<string>
  readonly definitions: ReadonlyArray<GuardrailDefinition> | undefined
}

/** `unknown`: send the job again, with definitions. */
export type CheckResult = StageResult | "unknown"

const maxCompiled = 2000
const compiled = new Map<string, CompiledGuardrail>()

export function* handle(job: CheckJob): Generator<void, CheckResult, void> {
  if (job.definitions !== undefined) {
    if (compiled.size > maxCompiled) compiled.clear()
    for (const definition of job.definitions) {
      const guardrail = compileGuardrail(definition)
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
