/** What the workflow has done: every activity reads where the run stands and goes on from there, so that it can be repeated. */
import { Effect } from "effect"
import { isSettled, type StepState } from "#domain/pipelines/next-steps.ts"
import { isFinal, type RunEvent } from "#domain/pipelines/runs.ts"
import type { Abandoned } from "#layers/pipelines/RunJournal.ts"
import { OwnershipLost } from "#layers/pipelines/run-log.ts"
import { tellRunEnd, tracedRun } from "#layers/pipelines/run-spans.ts"
import {
  type Activities,
  type DecisionSignal,
  type EndedAs,
  type Ending,
  type Over,
  rowPatience,
  type StepOutline
} from "#layers/pipelines/temporal/protocol.ts"
import { makeRunDesks, type RunDesk } from "#layers/pipelines/temporal/RunDesk.ts"
import { makeSharedRuns } from "#layers/pipelines/temporal/SharedRuns.ts"
import type { RunKey } from "#services/pipelines/WorkflowEngine.ts"

/** The transaction that was to write the run's row was rolled back. */
export class RunAbsent extends Error {
  readonly _tag = "RunAbsent"
}

export type ActivityFailure = Abandoned | RunAbsent

/** The same functions as effects. */
export type ActivityEffects = {
  readonly [N in keyof Activities]: (
    ...parameters: Parameters<Activities[N]>
  ) => Effect.Effect<Awaited<ReturnType<Activities[N]>>, ActivityFailure>
}

const over: Over = { over: true }
const maxReason = 4096

/** No texts: what went wrong is told in the gateway. */
const stateOf = (desk: RunDesk, id: string): StepState => {
  const { deadline, error, retryAt, status } = desk.progress.steps.get(id)!
  return {
    status,
    retryAt,
    deadline,
    error: error === undefined ? undefined : { code: error.code, message: "", step: id }
  }
}

export const makeActivities = Effect.gen(function* () {
  const runs = yield* makeSharedRuns
  const atDesk = yield* makeRunDesks(runs)

  const isOver = (key: RunKey) => Effect.map(runs.find(key), (row) => row === undefined || isFinal(row.status))

  /** A run that is over is no failure. */
  const unlessOver = <A, E>(
    key: RunKey,
    effect: Effect.Effect<A, E | Abandoned>
  ): Effect.Effect<A | Over, E | Abandoned> =>
    Effect.catchIf(
      effect,
      (error): error is Extract<E, OwnershipLost> | OwnershipLost => error instanceof OwnershipLost,
      (lost) =>
        Effect.flatMap(isOver(key), (ended): Effect.Effect<Over, OwnershipLost> =>
          ended ? Effect.succeed(over) : Effect.fail(lost)
        )
    )

  /** Works on a step and says where it stands; who lost it to another says what that one did. */
  const onStep = (key: RunKey, step: string, effect: (desk: RunDesk) => Effect.Effect<void, Abandoned>) =>
    unlessOver(
      key,
      atDesk(key, (desk) => {
        const state = Effect.sync(() => stateOf(desk, step))
        return effect(desk).pipe(
          Effect.andThen(state),
          Effect.catchTag("OwnershipLost", (lost) =>
            Effect.flatMap(Effect.andThen(desk.journal.catchUp, state), (known) =>
              known.status === "pending" ? Effect.fail(lost) : Effect.succeed(known)
            )
          )
        )
      })
    )

  const reviews = (desk: RunDesk) =>
    [...desk.plan.steps.values()]
      .filter(({ step }) => step.operator === "human_review")
      .map(({ step: { id } }) => ({ id, state: stateOf(desk, id) }))

  const awaitRow = Effect.fnUntraced(function* (key: RunKey) {
    for (let waited = 0; waited < rowPatience; waited += 250) {
      const row = yield* runs.find(key)
      if (row !== undefined) return row
      yield* Effect.sleep(250)
    }
    return yield* Effect.fail(new RunAbsent("The run was never created."))
  })

  const endOf = (desk: RunDesk, ending: Ending): Effect.Effect<RunEvent> => {
    if (ending.type === "completed") return desk.runner.conclusion
    if (ending.type === "cancelled") return Effect.succeed({ type: "run_cancelled" })
    const error = ending.step === undefined ? undefined : desk.progress.steps.get(ending.step)?.error
    return Effect.succeed({
      type: "run_failed",
      error: error ?? { code: "internal_error", message: "The gateway failed to do this step." }
    })
  }

  const endings: { readonly [type: string]: EndedAs } = {
    run_completed: "completed",
    run_failed: "failed",
    run_cancelled: "cancelled"
  }

  const activities: ActivityEffects = {
    open: Effect.fnUntraced(function* (key: RunKey) {
      if (isFinal((yield* awaitRow(key)).status)) return over
      return yield* unlessOver(
        key,
        atDesk(
          key,
          Effect.fnUntraced(function* (desk) {
            // Another try of this may have been quicker.
            if (!desk.progress.started) {
              yield* Effect.catchTag(desk.journal.append({ type: "run_started" }), "OwnershipLost", (lost) =>
                desk.progress.started ? Effect.void : Effect.fail(lost)
              )
            }
            return Array.from(desk.plan.steps, ([id, { needs }]): StepOutline => ({
              id,
              needs: [...needs],
              state: stateOf(desk, id)
            }))
          })
        )
      )
    }),
    work: (key, step) =>
      onStep(key, step, (desk) => {
        const own = desk.progress.steps.get(step)!
        // Done by a try whose word was lost.
        return isSettled(own) || own.status === "waiting" ? Effect.void : tracedRun(key, desk.runner.run(step))
      }),
    expire: (key, step) =>
      onStep(key, step, (desk) =>
        desk.progress.steps.get(step)!.status === "waiting" ? desk.runner.expire(step) : Effect.void
      ),
    decide: (key, decision: DecisionSignal) =>
      unlessOver(
        key,
        Effect.gen(function* () {
          const { approved, reason, recorded, reviewer, step_id: step } = decision
          if (recorded === true) yield* runs.settle(key)
          else if (typeof approved === "boolean") {
            yield* runs.decide(key, typeof step === "string" ? step : undefined, {
              approved,
              reason: typeof reason === "string" ? reason.slice(0, maxReason) : "",
              reviewer: typeof reviewer === "string" ? reviewer.slice(0, 256) : "temporal"
            })
          }
          return yield* atDesk(key, (desk) => Effect.sync(() => reviews(desk)))
        })
      ),
    finish: Effect.fnUntraced(function* (key: RunKey, ending: Ending) {
      const ended = yield* unlessOver(
        key,
        atDesk(
          key,
          Effect.fnUntraced(function* (desk) {
            const event = yield* endOf(desk, ending)
            yield* tracedRun(key, Effect.andThen(desk.journal.append(event), tellRunEnd(event)))
            return endings[event.type]!
          })
        )
      )
      if (typeof ended !== "object") return ended
      // Ended by a try whose word was lost, or by somebody else.
      const status = (yield* runs.find(key))?.status
      return status === "completed" || status === "failed" || status === "cancelled" ? status : "over"
    })
  }
  return activities
})
