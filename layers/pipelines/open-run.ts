import { Effect } from "effect"
import { newProgress, planOf, type Plan, type RunProgress } from "#domain/pipelines/progress.ts"
import { makeRunJournal, type RunJournal, type RunLog } from "#layers/pipelines/RunJournal.ts"
import { makeStepRunner, type StepContext } from "#layers/pipelines/StepRunner.ts"

/** What a run is worked on with, whichever engine does. */
export interface OpenRun {
  readonly plan: Plan
  readonly progress: RunProgress
  readonly journal: RunJournal
  readonly runner: ReturnType<typeof makeStepRunner>
}

/** Opens a run over its log: nothing of it is read yet, and nothing is written before somebody runs the journal. */
export const openRun = Effect.fnUntraced(function* (
  log: RunLog,
  given: Pick<StepContext, "runId" | "record" | "expressions" | "operators" | "now">
): Effect.fn.Return<OpenRun> {
  const plan = planOf(given.record.definition)
  const progress = newProgress(plan)
  const journal = yield* makeRunJournal(log, plan, progress)
  return { plan, progress, journal, runner: makeStepRunner({ ...given, plan, progress, journal }) }
})
