import { Effect, Layer, Queue, Schedule } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { GuardrailBlocked, type Unavailable } from "#domain/errors.ts"
import type { GuardrailDefinition, GuardrailStage } from "#domain/guardrails.ts"
import type { JsonObject } from "#domain/json.ts"
import type { CheckJob, CheckResult } from "#layers/guardrails/check-job.ts"
import {
  type CompiledGuardrail,
  compileGuardrail,
  failedStage,
  guardrailKey,
  learnCosts,
  runStage,
  type StageResult
} from "#layers/guardrails/compiled.ts"
import { completeDraft } from "#layers/guardrails/validate.ts"
import { GuardrailEngine, type GuardrailPolicy, type GuardrailVerdict } from "#services/guardrails/GuardrailEngine.ts"
import { ChangeFeed } from "#services/storage/ChangeFeed.ts"
import { type WorkerThread, WorkerThreads } from "#services/workers/WorkerThreads.ts"

/** Told by a trigger on the table (migrations/public/0004). */
const channel = "guardrails"
/** Characters that are checked on the event loop at most, */
const maxInlineCharacters = 16_384
/** and how long that may take at worst, in nanoseconds. */
const maxInlineCost = 1_000_000
/** How long a check may take in a thread, in milliseconds: enough for the largest body. */
const checkTimeout = 15_000

type CheckThread = WorkerThread<CheckJob, CheckResult>

interface GuardrailRow {
  readonly id: string
  readonly tenant: string
  readonly organization_id: string | null
  readonly guardrail_name: string
  readonly guardrail_type: string
  readonly mode: "log" | "block"
  readonly config: JsonObject
}

const inline = (guardrails: ReadonlyArray<CompiledGuardrail>, stage: GuardrailStage, texts: ReadonlyArray<string>) => {
  const run = runStage(guardrails, stage, texts)
  for (;;) {
    const step = run.next()
    if (step.done === true) return step.value
  }
}

const verdictOf = (stage: GuardrailStage, result: StageResult): GuardrailVerdict => ({
  texts: result.texts,
  events: result.events,
  blocked:
    result.blockedBy === null
      ? undefined
      : new GuardrailBlocked({
          code: "guardrail_blocked",
          message: `The ${stage === "pre" ? "request" : "answer"} was rejected by the guardrail '${result.blockedBy}'.`,
          param: result.blockedBy
        })
})

const inThread = (
  thread: CheckThread,
  guardrails: ReadonlyArray<CompiledGuardrail>,
  stage: GuardrailStage,
  texts: ReadonlyArray<string>,
  characters: number
): Effect.Effect<StageResult> =>
  Effect.suspend(() => {
    const start = performance.now()
    const job: CheckJob = { stage, texts, keys: guardrails.map(({ key }) => key), definitions: undefined }
    const checked: Effect.Effect<CheckResult, Unavailable> = Effect.flatMap(thread.run(job, characters), (result) =>
      result === "unknown"
        ? thread.run({ ...job, definitions: guardrails.map(({ definition }) => definition) }, characters)
        : Effect.succeed(result)
    )
    const failed = () => failedStage(guardrails, stage, texts, performance.now() - start)
    return Effect.match(checked, {
      onFailure: failed,
      onSuccess: (result) => {
        if (result === "unknown") return failed()
        // The texts crossed threads: callers tell by identity whether something was masked.
        const masked = result.events.some((event) => event.status === "masked")
        return masked ? result : { ...result, texts }
      }
    })
  })

const makePolicy = (guardrails: ReadonlyArray<CompiledGuardrail>, thread: CheckThread): GuardrailPolicy => {
  const stages = {
    pre: guardrails.filter((guardrail) => guardrail.pre),
    post: guardrails.filter((guardrail) => guardrail.post)
  }
  return {
    pre: stages.pre.length > 0,
    post: stages.post.length > 0,
    wholeAnswer: stages.post.some((guardrail) => guardrail.wholeAnswer),
    names: guardrails.map((guardrail) => guardrail.definition.name),
    check: (stage, texts) =>
      Effect.suspend(() => {
        const chosen = stages[stage]
        let characters = 0
        for (const text of texts) characters += text.length
        let cost = 0
        for (const guardrail of chosen) cost += guardrail.cost
        const finish = (result: StageResult) => {
          learnCosts(chosen, result.events, characters)
          return verdictOf(stage, result)
        }
        if (characters <= maxInlineCharacters && characters * cost <= maxInlineCost) {
          return Effect.succeed(finish(inline(chosen, stage, texts)))
        }
        return Effect.map(inThread(thread, chosen, stage, texts, characters), finish)
      })
  }
}

/** Policies by scope, complete: a look-up never has to put one together. */
interface Snapshot {
  readonly instance: GuardrailPolicy | undefined
  readonly tenants: ReadonlyMap<string, GuardrailPolicy>
  readonly organizations: ReadonlyMap<string, ReadonlyMap<string, GuardrailPolicy>>
}

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const feed = yield* ChangeFeed
  const threads = yield* WorkerThreads
  const thread: CheckThread = yield* threads.open<CheckJob, CheckResult>({
    name: "guardrails",
    handler: new URL("./check-job.ts", import.meta.url),
    maxJobs: 512,
    maxWeight: 64 * 1024 * 1024,
    timeout: checkTimeout
  })
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
      instance: instance.length === 0 ? undefined : makePolicy(instance, thread),
      tenants: new Map(Array.from(tenants.keys(), (tenant) => [tenant, makePolicy(ofTenant(tenant), thread)])),
      organizations: new Map(
        Array.from(organizations, ([tenant, own]) => [
          tenant,
          new Map(Array.from(own, ([id, list]) => [id, makePolicy([...ofTenant(tenant), ...list], thread)]))
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

  return GuardrailEngine.of({
    policy: (tenant, organizationId) => {
      if (organizationId !== null) {
        const own = snapshot.organizations.get(tenant)?.get(organizationId)
        if (own !== undefined) return own
      }
      return snapshot.tenants.get(tenant) ?? snapshot.instance
    },
    validate: (draft) =>
      Effect.suspend(() => {
        const completed = completeDraft(draft)
        return "_tag" in completed ? Effect.fail(completed) : Effect.succeed(completed)
      }),
    only: (definition) => makePolicy([compileGuardrail(definition)], thread)
  })
})

/**
 * The rows of `guardrails`, compiled when they change: rows of the public scope without an organization bind everybody, a
 * tenant's rows its callers, an organization's rows its own. The start fails when they cannot be read; later the last
 * known stay in force until the database answers again.
 */
export const layer: Layer.Layer<GuardrailEngine, SqlError.SqlError, SqlClient.SqlClient | ChangeFeed | WorkerThreads> =
  Layer.effect(GuardrailEngine, make)
