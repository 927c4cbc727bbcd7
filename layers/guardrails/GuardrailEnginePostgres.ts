import { Effect, Layer, Queue, Schedule } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { GuardrailDefinition } from "#domain/guardrails.ts"
import type { JsonObject } from "#domain/json.ts"
import { findPii, type PiiSpan } from "#domain/pii.ts"
import { type LaneOptions, makeCheckLanes } from "#layers/guardrails/CheckLanes.ts"
import { type CompiledGuardrail, compileGuardrail, guardrailKey } from "#layers/guardrails/compiled.ts"
import { type CompiledPolicy, compilePolicy, type PolicyContext, shareOf } from "#layers/guardrails/policy.ts"
import { sealConfig } from "#layers/guardrails/sealed-fields.ts"
import { completeDraft } from "#layers/guardrails/validate.ts"
import { GuardrailEngine } from "#services/guardrails/GuardrailEngine.ts"
import { GuardrailModels } from "#services/guardrails/GuardrailModels.ts"
import { GuardrailWebhooks } from "#services/guardrails/GuardrailWebhooks.ts"
import { Secrets } from "#services/security/Secrets.ts"
import { ChangeFeed } from "#services/storage/ChangeFeed.ts"
import type { WorkerThreads } from "#services/workers/WorkerThreads.ts"

/** Told by a trigger on the table (migrations/public/0004). */
const channel = "guardrails"
/** Characters that are searched for personal data on the event loop at most: half a millisecond. */
const maxInlineSearch = 8192
/** Nanoseconds a character that a search takes at worst. */
const searchCost = 200

interface GuardrailRow {
  readonly id: string
  readonly tenant: string
  readonly organization_id: string | null
  readonly guardrail_name: string
  readonly guardrail_type: string
  readonly mode: "log" | "block"
  readonly config: JsonObject
}

/** Policies by scope, complete: a look-up never has to put one together. */
interface Snapshot {
  readonly instance: CompiledPolicy | undefined
  readonly tenants: ReadonlyMap<string, CompiledPolicy>
  readonly organizations: ReadonlyMap<string, ReadonlyMap<string, CompiledPolicy>>
}

const make = Effect.fnUntraced(function* (options: Partial<LaneOptions>) {
  const sql = yield* SqlClient.SqlClient
  const feed = yield* ChangeFeed
  const lanes = yield* makeCheckLanes(options)
  const context: PolicyContext = {
    lanes,
    outside: { models: yield* GuardrailModels, webhooks: yield* GuardrailWebhooks, secrets: yield* Secrets }
  }
  let compiled: ReadonlyMap<string, CompiledGuardrail> = new Map()
  let snapshot: Snapshot = { instance: undefined, tenants: new Map(), organizations: new Map() }

  const snapshotOf = (rows: ReadonlyArray<GuardrailRow>): Snapshot => {
    const known = compiled
    const next = new Map<string, CompiledGuardrail>()
    const instance: Array<CompiledGuardrail> = []
    const tenants = new Map<string, Array<CompiledGuardrail>>()
    const organizations = new Map<string, Map<string, Array<CompiledGuardrail>>>()
    for (const row of rows) {
      const definition: GuardrailDefinition = {
        id: row.id,
        name: row.guardrail_name,
        type: row.guardrail_type,
        mode: row.mode,
        config: row.config
      }
      const key = guardrailKey(definition)
      const guardrail = known.get(key) ?? compileGuardrail(definition)
      next.set(key, guardrail)
      if (row.organization_id !== null) {
        const own = organizations.get(row.tenant) ?? new Map<string, Array<CompiledGuardrail>>()
        organizations.set(row.tenant, own)
        own.set(row.organization_id, [...(own.get(row.organization_id) ?? []), guardrail])
      } else if (row.tenant === "") instance.push(guardrail)
      else tenants.set(row.tenant, [...(tenants.get(row.tenant) ?? []), guardrail])
    }
    compiled = next
    const ofTenant = (tenant: string) => [...instance, ...(tenants.get(tenant) ?? [])]
    return {
      instance: instance.length === 0 ? undefined : compilePolicy(instance, context),
      tenants: new Map(Array.from(tenants.keys(), (tenant) => [tenant, compilePolicy(ofTenant(tenant), context)])),
      organizations: new Map(
        Array.from(organizations, ([tenant, own]) => [
          tenant,
          new Map(Array.from(own, ([id, list]) => [id, compilePolicy([...ofTenant(tenant), ...list], context)]))
        ])
      )
    }
  }

  const load = Effect.map(
    sql<GuardrailRow>`SELECT id, tenant, organization_id, guardrail_name, guardrail_type, mode, config
      FROM public.guardrails WHERE enabled ORDER BY created_at, id`,
    (rows) => {
      snapshot = snapshotOf(rows)
    }
  )

  // One signal stands for all that came before it was taken.
  const changed = yield* Queue.sliding<void>(1)
  const signal = () => void Queue.offerUnsafe(changed, undefined)
  yield* feed.subscribe(channel, signal)
  yield* feed.onReconnect(signal)
  yield* load
  yield* Queue.take(changed).pipe(
    Effect.andThen(
      load.pipe(
        Effect.tapError((error) =>
          Effect.logWarning("The guardrails could not be read; the last known stay in force", error)
        ),
        Effect.retry(Schedule.min([Schedule.exponential("100 millis"), Schedule.spaced("5 seconds")]))
      )
    ),
    Effect.forever,
    Effect.forkScoped
  )
  yield* Effect.sync(signal).pipe(Effect.repeat(Schedule.spaced("60 seconds")), Effect.forkScoped)

  const policyOf = (tenant: string, organizationId: string | null): CompiledPolicy | undefined => {
    if (organizationId !== null) {
      const own = snapshot.organizations.get(tenant)?.get(organizationId)
      if (own !== undefined) return own
    }
    return snapshot.tenants.get(tenant) ?? snapshot.instance
  }

  return GuardrailEngine.of({
    policy: (tenant, organizationId, caller) => policyOf(tenant, organizationId)?.bind(caller),
    validate: Effect.fnUntraced(function* (draft) {
      const completed = completeDraft(draft)
      if ("_tag" in completed) return yield* completed
      return { ...completed, config: yield* sealConfig(context.outside.secrets, completed.type, completed.config) }
    }),
    only: (definition, caller) => compilePolicy([compileGuardrail(definition)], context).bind(caller),
    findPii: (text, entities, caller) =>
      Effect.suspend(() => {
        if (text.length <= maxInlineSearch) return Effect.succeed(findPii(text, new Set(entities)))
        const work = { share: shareOf(caller), characters: text.length, worstNanos: text.length * searchCost }
        return Effect.map(lanes.run({ text, entities }, work), (spans) => spans as ReadonlyArray<PiiSpan>)
      })
  })
})

/**
 * The rows of `guardrails`, compiled when they change: rows of the public scope without an organization bind everybody, a
 * tenant's rows its callers, an organization's rows its own. The start fails when they cannot be read; later the last
 * known stay in force until the database answers again.
 */
export const layer: Layer.Layer<
  GuardrailEngine,
  SqlError.SqlError,
  SqlClient.SqlClient | ChangeFeed | WorkerThreads | GuardrailModels | GuardrailWebhooks | Secrets
> = Layer.effect(GuardrailEngine, make({}))

/** The same with other bounds on its threads. */
export const layerWith = (options: Partial<LaneOptions>) => Layer.effect(GuardrailEngine, make(options))
