/** The runs that this worker is at: each read once, however many of its steps are worked on here. */
import { Deferred, Effect, RcMap, type Scope } from "effect"
import { type OpenRun, openRun } from "#layers/pipelines/open-run.ts"
import type { Abandoned } from "#layers/pipelines/RunJournal.ts"
import { OwnershipLost } from "#layers/pipelines/run-log.ts"
import type { SharedRuns } from "#layers/pipelines/temporal/SharedRuns.ts"
import { Expressions } from "#services/pipelines/Expressions.ts"
import { Operators } from "#services/pipelines/Operators.ts"
import { RunRecords } from "#services/pipelines/RunRecords.ts"
import type { RunKey } from "#services/pipelines/WorkflowEngine.ts"

/** A run that nobody here works on is forgotten after this. */
const idle = "20 seconds"

export type RunDesk = OpenRun

interface OpenDesk extends RunDesk {
  /** Ends when the run cannot be written here any more. */
  readonly broken: Effect.Effect<never, Abandoned>
}

const separator = "/"
const nameOf = ({ runId, tenant }: RunKey) => `${runId}${separator}${tenant}`
const keyOf = (name: string): RunKey => {
  const at = name.indexOf(separator)
  return { runId: name.slice(0, at), tenant: name.slice(at + 1) }
}

/** Lends the desk of a run, with all that others wrote taken in. Whoever has it when its writing fails, fails with that. */
export const makeRunDesks = Effect.fnUntraced(function* (runs: SharedRuns) {
  const records = yield* RunRecords
  const expressions = yield* Expressions
  const operators = yield* Operators

  const open = Effect.fnUntraced(function* (key: RunKey): Effect.fn.Return<OpenDesk, Abandoned, Scope.Scope> {
    const record = yield* records.load(key)
    if (record === undefined) return yield* new OwnershipLost({ runId: key.runId })
    const run = yield* openRun(runs.logOf(key), { runId: key.runId, record, expressions, operators, now: runs.now })
    const broken = yield* Deferred.make<never, Abandoned>()
    // A closing desk's own journal is interrupted with it: whoever closes must not be the one that is closed.
    yield* Effect.forkScoped(
      Effect.catch(run.journal.run, (error) =>
        Effect.andThen(Deferred.fail(broken, error), Effect.forkDetach(RcMap.invalidate(desks, nameOf(key))))
      )
    )
    return { ...run, broken: Deferred.await(broken) }
  })

  const desks: RcMap.RcMap<string, OpenDesk, Abandoned> = yield* RcMap.make({
    lookup: (name: string) => open(keyOf(name)),
    idleTimeToLive: idle
  })

  return <A, E>(key: RunKey, use: (desk: RunDesk) => Effect.Effect<A, E>): Effect.Effect<A, E | Abandoned> =>
    Effect.scoped(
      Effect.gen(function* () {
        const desk = yield* Effect.tapError(RcMap.get(desks, nameOf(key)), () => RcMap.invalidate(desks, nameOf(key)))
        yield* desk.journal.catchUp
        return yield* Effect.raceFirst(use(desk), desk.broken)
      })
    )
})
