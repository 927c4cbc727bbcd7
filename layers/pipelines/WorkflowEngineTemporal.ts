import { Effect, Layer, Schedule } from "effect"
import type { SqlClient } from "effect/sql"
import { InvalidRequest } from "#domain/errors.ts"
import { isFinal, reviewSignal, type RunEvent } from "#domain/pipelines/runs.ts"
import type { TemporalOptions } from "#layers/pipelines/temporal/connection.ts"
import type { DecisionSignal, RunArgument } from "#layers/pipelines/temporal/protocol.ts"
import { makeSharedRuns } from "#layers/pipelines/temporal/SharedRuns.ts"
import { makeTemporalCalls } from "#layers/pipelines/temporal/TemporalCalls.ts"
import type { RunRecords } from "#services/pipelines/RunRecords.ts"
import { type RunKey, WorkflowEngine } from "#services/pipelines/WorkflowEngine.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import type { Tenants } from "#services/tenants/Tenants.ts"

export interface TemporalEngineOptions extends TemporalOptions {
  /** How often it is asked which workflows were ended behind the gateway's back. Default 30 s. */
  readonly sweepMs?: number
}

const prefix = "pipeline-run-"
const workflowId = (runId: string) => `${prefix}${runId}`

/** Milliseconds that a look at a run may wait for Temporal. */
const lookDeadline = 1000

/** What one sweep looks at; the next one goes on. */
const maxSwept = 1000

/** How far back the first sweep looks, and how far each one overlaps the one before: Temporal's lists lag. */
const firstLook = 3_600_000
const overlap = 120_000

const noReview = new InvalidRequest({
  code: "invalid_state",
  message: "The run waits for no such review.",
  param: "signal_name"
})

/** What the row is told of a workflow that did not end by itself; undefined: it did, or is still open. */
const endingOf = (status: string): RunEvent | undefined => {
  switch (status) {
    case "TERMINATED":
      return { type: "run_terminated", actor: "temporal", reason: "Terminated in Temporal." }
    case "CANCELLED":
      return { type: "run_cancelled" }
    case "TIMED_OUT":
      return {
        type: "run_failed",
        error: { code: "workflow_timed_out", message: "The workflow's time was up in Temporal." }
      }
    case "FAILED":
    case "COMPLETED":
      return { type: "run_failed", error: { code: "workflow_failed", message: "The workflow ended in Temporal." } }
    default:
      return undefined
  }
}

/**
 * Runs as workflows of Temporal, which `sluice worker` works on. Temporal keeps what is to be done next, timers and retries;
 * history, inputs and outputs are in PostgreSQL, as with the embedded engine.
 */
export const layer = (
  options: TemporalEngineOptions
): Layer.Layer<WorkflowEngine, never, SqlClient.SqlClient | Tenants | RunRecords> =>
  Layer.effect(
    WorkflowEngine,
    Effect.gen(function* () {
      const { call } = yield* makeTemporalCalls(options)
      const runs = yield* makeSharedRuns
      const scope = yield* Effect.scope

      const terminate = (key: RunKey, reason: string) =>
        Effect.catchTag(
          call("terminate", ({ workflow }) => workflow.getHandle(workflowId(key.runId)).terminate(reason)),
          ["WorkflowGone", "WorkflowKnown"],
          () => Effect.void
        )

      /** A workflow that was ended in Temporal itself has not told the row. */
      const settle = Effect.fnUntraced(function* (key: RunKey, status: string) {
        const ending = endingOf(status)
        if (ending === undefined || !(yield* runs.tell(key, ending))) return false
        yield* Effect.logWarning("A pipeline run was ended in Temporal").pipe(
          Effect.annotateLogs({ run_id: key.runId, status })
        )
        return true
      })

      const refresh = Effect.fnUntraced(function* (key: RunKey) {
        const row = yield* runs.find(key)
        if (row === undefined || isFinal(row.status)) return false
        const { status } = yield* call(
          "describe",
          ({ workflow }) => workflow.getHandle(workflowId(key.runId)).describe(),
          lookDeadline
        )
        return yield* settle(key, status.name)
      })

      let sweptAt = Date.now() - firstLook
      const sweep = Effect.gen(function* () {
        const began = Date.now()
        const since = new Date(sweptAt - overlap).toISOString()
        const closed = yield* call("list", async ({ workflow }) => {
          const found: Array<{ readonly runId: string; readonly tenant: unknown }> = []
          const query =
            `TaskQueue = '${options.taskQueue}' AND WorkflowId STARTS_WITH '${prefix}' AND CloseTime > '${since}'` +
            " AND ExecutionStatus IN ('Terminated', 'TimedOut', 'Failed', 'Canceled')"
          for await (const { memo, workflowId: id } of workflow.list({ query })) {
            found.push({ runId: id.slice(prefix.length), tenant: memo?.["tenant"] })
            if (found.length >= maxSwept) break
          }
          return found
        })
        for (const { runId, tenant } of closed) {
          // One that was reset is listed as terminated, and goes on under its name.
          if (typeof tenant === "string") yield* refresh({ runId, tenant })
        }
        if (closed.length < maxSwept) sweptAt = began
      }).pipe(
        Effect.catchTag("SqlError", (error) => Effect.logWarning("Ended workflows could not be written down", error)),
        // Told by the call already.
        Effect.ignore
      )
      yield* Effect.forkScoped(Effect.repeat(sweep, Schedule.spaced(options.sweepMs ?? 30_000)))

      const signal = (key: RunKey, decision: DecisionSignal) =>
        call("signal", ({ workflow }) => workflow.getHandle(workflowId(key.runId)).signal(reviewSignal, decision))

      return WorkflowEngine.of({
        namespace: options.namespace,
        refusal: undefined,
        workflowId,
        start: Effect.fnUntraced(function* (key) {
          const row = yield* orUnavailable(runs.find(key))
          if (row === undefined) return yield* Effect.die(new Error(`run ${key.runId} has no row`))
          const argument: RunArgument = { tenant: key.tenant, runId: key.runId }
          yield* call("start", ({ workflow }) =>
            workflow.start(row.workflow_type, {
              workflowId: workflowId(key.runId),
              taskQueue: options.taskQueue,
              workflowIdReusePolicy: "REJECT_DUPLICATE",
              memo: { tenant: key.tenant },
              args: [argument]
            })
          ).pipe(
            Effect.asVoid,
            // The answer to a first try was lost.
            Effect.catchTag("WorkflowKnown", () => Effect.void),
            Effect.catchTag("WorkflowGone", () => Effect.void)
          )
        }),
        discard: (key) =>
          Effect.gen(function* () {
            // Whether the transaction failed is not certain when its connection was lost.
            if ((yield* runs.find(key)) === undefined) yield* terminate(key, "The run was never created.")
          }).pipe(Effect.ignore, Effect.forkIn(scope), Effect.asVoid),
        decide: (key, { approved, reason, reviewer, step }) =>
          orUnavailable(
            runs.inTransaction(
              Effect.gen(function* () {
                const taken = yield* runs.decide(key, step, { approved, reason, reviewer })
                if (taken === undefined) return yield* noReview
                yield* Effect.catchTag(
                  signal(key, { recorded: true, step_id: taken, approved, reviewer }),
                  ["WorkflowGone", "WorkflowKnown"],
                  () => Effect.fail(noReview)
                )
              })
            )
          ),
        cancel: (key, actor) =>
          orUnavailable(
            runs.inTransaction(
              Effect.gen(function* () {
                if (!(yield* runs.tell(key, { type: "cancel_requested", actor }))) return
                yield* Effect.catchTag(
                  call("cancel", ({ workflow }) => workflow.getHandle(workflowId(key.runId)).cancel()),
                  ["WorkflowGone", "WorkflowKnown"],
                  // There is nobody to clean up.
                  () => runs.tell(key, { type: "run_cancelled" })
                )
              })
            )
          ),
        terminate: (key, actor, reason) =>
          orUnavailable(
            runs.inTransaction(
              Effect.gen(function* () {
                if (yield* runs.tell(key, { type: "run_terminated", actor, reason })) yield* terminate(key, reason)
              })
            )
          ),
        history: (key, offset, limit) => orUnavailable(runs.read(key, offset, limit)),
        refresh: (key) => Effect.catchCause(refresh(key), () => Effect.succeed(false))
      })
    })
  )
