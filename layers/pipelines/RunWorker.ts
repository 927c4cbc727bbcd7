/** Works on one run from where its history ends to where it has to wait, or to its end. */
import { Effect, Fiber } from "effect"
import { maxRunning, nextSteps } from "#domain/pipelines/next-steps.ts"
import type { RunEvent } from "#domain/pipelines/runs.ts"
import type { Claim, Executions } from "#layers/pipelines/Executions.ts"
import { openRun } from "#layers/pipelines/open-run.ts"
import type { Abandoned, makeBell } from "#layers/pipelines/RunJournal.ts"
import { tellRunEnd, tracedRun } from "#layers/pipelines/run-spans.ts"
import type { Expressions } from "#services/pipelines/Expressions.ts"
import type { Operators } from "#services/pipelines/Operators.ts"

/** A run that has nothing to do for longer than this leaves the process. Milliseconds. */
const parkAfter = 5000

type Bell = Effect.Success<typeof makeBell>

export interface RunWorkerDependencies {
  readonly executions: Executions
  readonly expressions: Expressions["Service"]
  readonly operators: Operators["Service"]
}

/** Returns when the run is over or put down. Fails when it cannot be worked on here any more. */
export const workOn = (
  { executions, expressions, operators }: RunWorkerDependencies,
  claim: Claim,
  bell: Bell
): Effect.Effect<void, Abandoned> =>
  Effect.scoped(
    Effect.gen(function* () {
      const record = yield* executions.records.load(claim)
      if (record === undefined) return
      const { now } = executions
      const { journal, plan, progress, runner } = yield* openRun(executions.logOf(claim), {
        runId: claim.runId,
        record,
        expressions,
        operators,
        now
      })
      yield* journal.catchUp
      const scope = yield* Effect.scope
      const running = new Map<string, Fiber.Fiber<void, Abandoned>>()
      const start = Effect.fnUntraced(function* (id: string) {
        const fiber = yield* Effect.forkIn(runner.run(id), scope)
        running.set(id, fiber)
        fiber.addObserver(() => {
          running.delete(id)
          bell.ring()
        })
      })

      const stopSteps = Effect.suspend(() => Fiber.interruptAll([...running.values()]))

      const end = (event: RunEvent) => Effect.andThen(journal.append(event), tellRunEnd(event))

      const finish = (event: RunEvent) => Effect.andThen(stopSteps, end(event))

      const loop = Effect.gen(function* () {
        if (!progress.started) yield* journal.append({ type: "run_started" })
        while (true) {
          if (progress.cancelled) return yield* finish({ type: "run_cancelled" })
          const next = nextSteps(plan, progress, (id) => running.has(id), now())
          if (next.failed !== undefined) return yield* finish({ type: "run_failed", error: next.failed })
          if (next.complete) {
            return yield* end(yield* runner.conclusion)
          }
          for (const id of next.expired) {
            yield* runner.expire(id)
          }
          if (next.expired.length > 0) continue
          for (const id of next.ready.slice(0, Math.max(0, maxRunning - running.size))) yield* start(id)
          if (running.size === 0 && next.ready.length === 0) {
            const wait = next.dueAt === undefined ? Infinity : next.dueAt - now()
            if (wait > parkAfter) {
              const wakeAt = next.dueAt ?? now() + 86_400_000
              if (yield* executions.release(claim, journal.sequence(), wakeAt)) return
              yield* journal.catchUp
              continue
            }
          }
          yield* bell.wait(next.dueAt === undefined ? undefined : next.dueAt - now())
          yield* journal.catchUp
        }
      })
      yield* Effect.raceFirst(loop, journal.run)
    })
  ).pipe((work) => tracedRun(claim, work))
