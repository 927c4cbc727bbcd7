import { randomUUID } from "node:crypto"
import { Cause, Effect, FiberMap, Layer, Schedule } from "effect"
import type { SqlClient } from "effect/sql"
import { InvalidRequest } from "#domain/errors.ts"
import { type Claim, makeExecutions, RUNS_CHANNEL } from "#layers/pipelines/Executions.ts"
import { makeBell } from "#layers/pipelines/RunJournal.ts"
import { workOn } from "#layers/pipelines/RunWorker.ts"
import { Expressions } from "#services/pipelines/Expressions.ts"
import { Operators } from "#services/pipelines/Operators.ts"
import type { RunRecords } from "#services/pipelines/RunRecords.ts"
import { WorkflowEngine } from "#services/pipelines/WorkflowEngine.ts"
import { ChangeFeed } from "#services/storage/ChangeFeed.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import type { Tenants } from "#services/tenants/Tenants.ts"

export interface EmbeddedEngineOptions {
  /** Names this process among all of its installation; a process that starts with the name of a dead one takes over its runs. */
  readonly holder: string
  /** How long a run stays with a process that shows no life. Default 30 s. */
  readonly leaseMs?: number
  /** Runs that one process works on at once; those that wait for a date or a human do not count. Default 128, half of it for one tenant. */
  readonly maxRuns?: number
  /** How often the queue is looked at without being told. Default 2 s. */
  readonly pollMs?: number
}

const noReview = new InvalidRequest({
  code: "invalid_state",
  message: "The run waits for no such review.",
  param: "signal_name"
})

/**
 * The embedded durable engine. A run's history in PostgreSQL is all there is to it: a process that claims a run (`FOR UPDATE
 * SKIP LOCKED`, a lease that it prolongs) reads it, goes on from there, and writes only while the run is still its own. So
 * any number of processes and machines share the work without knowing of each other, and no step is worked on by two that
 * both hold their leases.
 */
export const layer = (
  options: EmbeddedEngineOptions
): Layer.Layer<
  WorkflowEngine,
  never,
  SqlClient.SqlClient | ChangeFeed | Tenants | RunRecords | Expressions | Operators
> =>
  Layer.effect(
    WorkflowEngine,
    Effect.gen(function* () {
      const leaseMs = options.leaseMs ?? 30_000
      const maxRuns = options.maxRuns ?? 128
      const prefix = `${options.holder}/`
      const executions = yield* makeExecutions(`${prefix}${randomUUID()}`, leaseMs)
      const dependencies = { executions, expressions: yield* Expressions, operators: yield* Operators }
      const feed = yield* ChangeFeed
      const due = yield* makeBell
      const runs = new Map<string, { readonly claim: Claim; readonly bell: { readonly ring: () => void } }>()

      // Runs that are left over when this process stops come up elsewhere at once.
      yield* Effect.addFinalizer(() => Effect.ignore(executions.releaseAll))
      const fibers = yield* FiberMap.make<string>()
      const scope = yield* Effect.scope

      const begin = Effect.fnUntraced(function* (claim: Claim) {
        const bell = yield* makeBell
        runs.set(claim.runId, { claim, bell })
        const worked = workOn(dependencies, claim, bell).pipe(
          // Terminated, or somebody else's by now: both are as they should be.
          Effect.catchTag("OwnershipLost", () => Effect.logDebug("A pipeline run is worked on elsewhere or over")),
          Effect.catchCause((cause) =>
            Cause.hasInterruptsOnly(cause) ? Effect.void : Effect.logWarning("A pipeline run was put down", cause)
          ),
          Effect.annotateLogs({ run_id: claim.runId }),
          Effect.ensuring(
            Effect.sync(() => {
              if (runs.get(claim.runId)?.claim === claim) runs.delete(claim.runId)
              due.ring()
            })
          )
        )
        yield* FiberMap.run(fibers, claim.runId, worked)
      })

      /** Tenants that have half of this process already. */
      const busyTenants = (): ReadonlyArray<string> => {
        const counts = new Map<string, number>()
        for (const { claim } of runs.values()) counts.set(claim.tenant, (counts.get(claim.tenant) ?? 0) + 1)
        return [...counts].filter(([, count]) => count >= Math.max(1, maxRuns / 2)).map(([tenant]) => tenant)
      }

      const claimDue = Effect.gen(function* () {
        while (true) {
          const free = Math.min(16, maxRuns - runs.size)
          if (free <= 0) return
          const claimed = yield* executions.claim(free, busyTenants(), [...runs.keys()])
          for (const row of claimed) yield* begin({ runId: row.run_id, tenant: row.tenant, epoch: row.epoch })
          if (claimed.length < free) return
        }
      })

      const patiently = <A, E>(what: string, effect: Effect.Effect<A, E>) =>
        Effect.catchCause(effect, (cause) =>
          Cause.hasInterruptsOnly(cause)
            ? Effect.failCause(cause as Cause.Cause<never>)
            : Effect.andThen(Effect.logWarning(what, cause), Effect.sleep("1 second"))
        )

      let renewedAt = performance.now()
      const abandonLost = Effect.fnUntraced(function* (held: ReadonlyMap<string, number>, asked: ReadonlyArray<Claim>) {
        for (const claim of asked) {
          if (runs.get(claim.runId)?.claim !== claim || held.get(claim.runId) === claim.epoch) continue
          // Not waited for: a step may take its time to clean up, and other leases are to be prolonged.
          yield* Effect.forkIn(FiberMap.remove(fibers, claim.runId), scope)
        }
      })
      const renew = Effect.gen(function* () {
        const asked = [...runs.values()].map(({ claim }) => claim)
        const startedAt = performance.now()
        if (asked.length > 0) {
          const held = yield* executions.renew(asked.map(({ runId }) => runId))
          yield* abandonLost(held, asked)
        }
        renewedAt = startedAt
      }).pipe(
        Effect.catchCause((cause) =>
          Effect.gen(function* () {
            if (Cause.hasInterruptsOnly(cause)) return yield* Effect.failCause(cause as Cause.Cause<never>)
            yield* Effect.logWarning("Leases of pipeline runs could not be prolonged", cause)
            // Others may take these runs from here on: whatever is under way stops before that.
            if (performance.now() - renewedAt > leaseMs * 0.7) yield* Effect.forkIn(FiberMap.clear(fibers), scope)
          })
        )
      )

      yield* feed.subscribe(RUNS_CHANNEL, (runId) => {
        runs.get(runId)?.bell.ring()
        due.ring()
      })
      const wakeAll = () => {
        due.ring()
        for (const { bell } of runs.values()) bell.ring()
      }
      yield* feed.onReconnect(wakeAll)

      yield* Effect.forkScoped(
        Effect.andThen(
          patiently("Runs of a former life could not be taken over", executions.abandon(prefix)),
          Effect.forever(
            Effect.andThen(
              patiently("The queue of pipeline runs cannot be read", claimDue),
              due.wait(options.pollMs ?? 2000)
            )
          )
        )
      )
      yield* Effect.forkScoped(Effect.repeat(renew, Schedule.spaced(Math.max(10, leaseMs / 4))))

      return WorkflowEngine.of({
        namespace: "embedded",
        refusal: undefined,
        workflowId: (runId) => `pipeline-run-${runId}`,
        start: (key) => Effect.asVoid(orUnavailable(executions.insert(key))),
        // Its rows are in the same transaction.
        discard: () => Effect.void,
        decide: (key, { approved, reason, reviewer, step }) =>
          orUnavailable(
            executions.inTransaction(
              Effect.gen(function* () {
                const taken = yield* executions.takeReview(key, step)
                if (taken === undefined) return yield* noReview
                const told = yield* executions.tell(key, {
                  type: "review_decided",
                  step: taken,
                  approved,
                  reason,
                  reviewer
                })
                if (!told) return yield* noReview
              })
            )
          ),
        cancel: (key, actor) => Effect.asVoid(orUnavailable(executions.tell(key, { type: "cancel_requested", actor }))),
        terminate: (key, actor, reason) =>
          Effect.asVoid(orUnavailable(executions.tell(key, { type: "run_terminated", actor, reason }))),
        history: (key, offset, limit) => orUnavailable(executions.read(key, offset, limit)),
        refresh: () => Effect.succeed(false)
      })
    })
  )
