import { Cause, Clock, Effect, Layer, Queue, Schedule } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { JsonObject } from "#domain/json.ts"
import { dollarsText } from "#domain/money.ts"
import { watchedBudget } from "#domain/policy-chain.ts"
import { type Alert, budgetAlert, makeAlertStatements } from "#layers/callbacks/alert-statements.ts"
import { Alerts } from "#services/callbacks/Alerts.ts"
import { Outbox, type OutboxEvent } from "#services/callbacks/Outbox.ts"
import { ProviderRouter } from "#services/inference/ProviderRouter.ts"
import { ModelRegistry } from "#services/models/ModelRegistry.ts"
import { Provenance } from "#services/provenance/Provenance.ts"
import { orUnavailable } from "#services/storage/outage.ts"

/** Alerts that wait for the database; the oldest gives way, and is noticed again with the next call. */
const WAITING = 10_000
/** Alerts that this process knows to have been told. */
const REMEMBERED = 10_000
/** The pause after a database that could not be asked. */
const AWAY = "1 second"
/** How long the end of the process waits for what is still to be told. */
const LAST_WORDS = "2 seconds"

const keyOf = (alert: Alert): string =>
  `${alert.kind} ${alert.subject}${alert.kind === "health" ? ` ${alert.state}` : ""}`

/** A map that forgets its oldest entry when it is full. */
const putBounded = <A>(map: Map<string, A>, key: string, value: A, most: number) => {
  map.delete(key)
  map.set(key, value)
  if (map.size > most) for (const oldest of map.keys()) return void map.delete(oldest)
}

/**
 * Alerts over the outbox: noticed on the hot path with a look into a map, written one after the other by one fiber, each
 * in a transaction with the row that says it was told, so that of any number of processes exactly one tells it. What is
 * lost with a process that dies before was not told, and is noticed again.
 */
export const layer: Layer.Layer<
  never,
  never,
  SqlClient.SqlClient | Outbox | Provenance | ProviderRouter | ModelRegistry
> = Layer.effect(
  Alerts,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const outbox = yield* Outbox
    const provenance = yield* Provenance
    const router = yield* ProviderRouter
    const registry = yield* ModelRegistry
    const clock = yield* Clock.Clock
    const statements = makeAlertStatements(sql)
    const now = () => clock.currentTimeMillisUnsafe()
    const waiting = new Map<string, Alert>()
    const told = new Map<string, true>()
    const woken = yield* Queue.sliding<void>(1)

    const put = (alert: Alert) => {
      const key = keyOf(alert)
      if (alert.kind !== "health" && (told.has(key) || waiting.has(key))) return
      putBounded(waiting, key, alert, WAITING)
      Queue.offerUnsafe(woken, undefined)
    }

    const everybody = (type: OutboxEvent["type"], occurredAt: number, data: JsonObject) =>
      outbox.append([{ type, tenant: undefined, organizationId: null, occurredAt, data }])

    const tell = (alert: Alert): Effect.Effect<void, SqlError.SqlError> => {
      switch (alert.kind) {
        case "health": {
          const deployment = router.health().find(({ deploymentId }) => deploymentId === alert.subject)
          const line = `The deployment ${alert.subject} of the model '${alert.model}' is`
          const log =
            alert.state === "recovered"
              ? Effect.logInfo(`${line} back`)
              : Effect.logWarning(`${line} taken out: ${alert.reason ?? "it failed"}`)
          const event = everybody(`model.${alert.state}`, alert.at, {
            deployment_id: alert.subject,
            model: alert.model,
            provider: deployment?.provider ?? null,
            upstream_model: deployment?.upstreamModel ?? null
          })
          return Effect.andThen(event, log)
        }
        case "unpriced":
          return everybody("model.unpriced", alert.at, { model: alert.subject })
        case "budget":
          return Effect.flatMap(statements.ownerOf(alert), (owner) =>
            owner === undefined
              ? Effect.void
              : provenance.append(owner.tenant, [
                  {
                    action: "budget.exceeded",
                    actor: "gateway",
                    resourceType: alert.limit.owner,
                    resourceId: alert.ownerId,
                    organizationId: owner.organization_id === "" ? null : owner.organization_id,
                    requestId: null,
                    payload: {
                      owner: alert.limit.owner,
                      max_budget: dollarsText(alert.limit.limit),
                      spent: dollarsText(BigInt(owner.spent)),
                      window_start: alert.start === 0 ? null : new Date(alert.start).toISOString(),
                      reset_at: Number.isFinite(alert.end) ? new Date(alert.end).toISOString() : null
                    },
                    createdAt: alert.at
                  }
                ])
          )
      }
    }

    const write = (key: string, alert: Alert) =>
      sql
        .withTransaction(Effect.flatMap(statements.isNews(alert), (isNews) => (isNews ? tell(alert) : Effect.void)))
        .pipe(
          orUnavailable,
          Effect.andThen(
            Effect.sync(() => {
              if (alert.kind !== "health") putBounded(told, key, true, REMEMBERED)
            })
          )
        )

    /**
     * Everything that waits, in the order in which it was noticed; stops at a database that cannot be asked. What cannot
     * be written for another reason holds up nothing else.
     */
    const writeAll = Effect.gen(function* () {
      for (const [key, alert] of waiting) {
        yield* Effect.catchCause(write(key, alert), (cause) =>
          Cause.hasFails(cause) || Cause.hasInterrupts(cause)
            ? Effect.failCause(cause)
            : Effect.logError(`${key} could not be told to callbacks`, cause)
        )
        // The same may have been noticed anew meanwhile.
        if (waiting.get(key) === alert) waiting.delete(key)
      }
    })

    const unpriced = () => {
      const at = now()
      for (const name of new Set(registry.snapshot().map(({ modelName }) => modelName))) {
        const model = router.find(name)
        // One without a usable deployment says nothing yet about its price.
        if (model !== undefined && model.operations.size > 0 && model.price === undefined) {
          put({ kind: "unpriced", subject: name, at })
        }
      }
    }

    yield* Effect.addFinalizer(() =>
      writeAll.pipe(
        Effect.timeout(LAST_WORDS),
        Effect.catchCause((cause) => Effect.logWarning("Some alerts are left for another process to notice", cause))
      )
    )
    yield* Queue.take(woken).pipe(
      Effect.andThen(writeAll),
      Effect.catchCause((cause) =>
        Effect.logWarning("Callbacks are told later: the database cannot be asked", cause).pipe(
          Effect.andThen(Effect.sleep(AWAY)),
          Effect.andThen(Effect.sync(() => Queue.offerUnsafe(woken, undefined)))
        )
      ),
      Effect.forever,
      Effect.forkScoped
    )
    yield* Effect.suspend(() => statements.sweep(now())).pipe(
      Effect.catchCause((cause) => Effect.logWarning("Alerts of ended windows could not be removed", cause)),
      Effect.repeat(Schedule.spaced("1 hour")),
      Effect.forkScoped
    )
    yield* router.onHealthChange(({ deploymentId, modelName, reason, state }) =>
      put({ kind: "health", subject: deploymentId, model: modelName, state, reason, at: now() })
    )
    // After the router, which subscribed when it was built, has compiled the change.
    yield* registry.onChange(unpriced)

    return {
      budgetRefused: (limit) => {
        // What stands for no budget at all.
        if (limit.limit < watchedBudget) put(budgetAlert(limit, now()))
      },
      servedUnpriced: (model) => put({ kind: "unpriced", subject: model, at: now() })
    }
  })
)
