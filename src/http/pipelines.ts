import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { invalidValue } from "#domain/errors.ts"
import { instantText } from "#domain/instants.ts"
import type { Json, JsonObject } from "#domain/json.ts"
import type { HistoryEvent } from "#domain/pipelines/runs.ts"
import { actorOf, rowScopeOf } from "#domain/principal.ts"
import { isGiven, ownerFor } from "#http/row-owner.ts"
import { type DefinitionEntry, PipelineDefinitions } from "#services/pipelines/PipelineDefinitions.ts"
import { type PipelineRun, PipelineRuns } from "#services/pipelines/PipelineRuns.ts"
import { RunStreams } from "#services/pipelines/RunStreams.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

const lists = { limit: 50, maximum: 500 } as const
const history = { limit: 100, maximum: 1000 } as const
const maxOffset = 2_147_483_647
const maxVersion = 2_147_483_647

/** A number of the query within bounds; what is none counts as not given. */
const within = (text: string | undefined, otherwise: number, minimum: number, maximum: number): number =>
  text !== undefined && /^\d{1,15}$/.test(text) ? Math.min(maximum, Math.max(minimum, Number(text))) : otherwise

const definitionOf = (entry: DefinitionEntry) => ({
  asset_id: entry.assetId,
  name: entry.name,
  current_version: entry.version,
  content_hash: entry.contentHash,
  workflow_type: entry.workflowType,
  ...(entry.content === undefined ? {} : { content: entry.content }),
  created_at: instantText(entry.createdAt),
  updated_at: instantText(entry.updatedAt)
})

const runOf = (run: PipelineRun): JsonObject => ({
  run_id: run.id,
  status: run.status,
  engine_workflow_id: run.engineWorkflowId,
  engine_namespace: run.engineNamespace,
  definition_id: run.definitionId,
  definition_version: run.definitionVersion,
  workflow_type: run.workflowType,
  tenant_id: run.tenant,
  organization_id: run.organizationId,
  created_by: run.createdBy,
  created_at: instantText(run.createdAt),
  updated_at: instantText(run.updatedAt),
  finished_at: run.finishedAt === null ? null : instantText(run.finishedAt),
  error: run.error === null ? null : { ...run.error }
})

const instants = new Set(["retryAt", "deadline"])

/** Names as the wire has them, moments as text. */
const wireName = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

const eventOf = ({ at, event, sequence }: HistoryEvent): JsonObject => {
  const { type, ...rest } = event
  const details = Object.entries(rest as { readonly [name: string]: Json }).map(([name, value]): [string, Json] => [
    wireName(name),
    instants.has(name) && typeof value === "number" ? instantText(value) : value
  ])
  return { event_id: sequence, event_time: instantText(at), event_type: type, ...Object.fromEntries(details) }
}

export const PipelineHandlers = HttpApiBuilder.group(
  Api,
  "pipeline",
  Effect.fn(function* (handlers) {
    const definitions = yield* PipelineDefinitions
    const runs = yield* PipelineRuns
    const streams = yield* RunStreams
    const tenants = yield* Tenants

    const attested = Effect.gen(function* () {
      const caller = yield* ManagementCaller
      const owner = yield* ownerFor(tenants, caller)
      return {
        caller,
        owner,
        actor: actorOf(caller),
        scope: { tenant: owner.tenant, organizationId: rowScopeOf(caller).organizationId }
      }
    })

    const named = (tenant: string | undefined) => (isGiven(tenant) ? tenant : undefined)

    return handlers.handleAll({
      definitions: Effect.fnUntraced(function* () {
        const { scope } = yield* attested
        return { data: (yield* definitions.list(scope)).map(definitionOf) }
      }),
      register: Effect.fnUntraced(function* ({ payload }) {
        const { actor, owner } = yield* attested
        const name = isGiven(payload.name) ? payload.name : undefined
        const registered = yield* definitions.register(owner, { name, source: payload.dsl_source }, actor)
        return { asset_id: registered.assetId, version: registered.version, workflow_type: registered.workflowType }
      }),
      definition: Effect.fnUntraced(function* ({ params }) {
        const { scope } = yield* attested
        return definitionOf(yield* definitions.find(scope, params.id))
      }),
      awaitingReview: Effect.fnUntraced(function* ({ query }) {
        const awaiting = yield* runs.awaitingReview(yield* ManagementCaller, named(query.tenant))
        return {
          data: awaiting.map(({ reviews, run }) => ({
            ...runOf(run),
            // Empty by the specification; which steps wait stands in pending_reviews.
            step_id: "",
            step_name: "",
            reviewer_role: "",
            pending_reviews: reviews.map((review) => ({
              step_id: review.step,
              title: review.title,
              details: review.details,
              reviewer_role: review.reviewerRole,
              requested_at: instantText(review.requestedAt),
              deadline: instantText(review.deadline)
            }))
          }))
        }
      }),
      runs: Effect.fnUntraced(function* ({ query }) {
        const found = yield* runs.list(yield* ManagementCaller, {
          tenant: named(query.tenant),
          status: named(query.status),
          definitionId: named(query.definition_id),
          limit: within(query.limit, lists.limit, 1, lists.maximum),
          offset: within(query.offset, 0, 0, maxOffset)
        })
        return { data: found.map(runOf) }
      }),
      start: Effect.fnUntraced(function* ({ payload }) {
        const version = isGiven(payload.definition_version) ? payload.definition_version : undefined
        if (version !== undefined && !(/^[1-9]\d{0,9}$/.test(version) && Number(version) <= maxVersion)) {
          return yield* invalidValue("definition_version", "'definition_version' must be the number of a version.")
        }
        const run = yield* runs.create(yield* ManagementCaller, {
          definitionId: payload.definition_id,
          definitionVersion: version === undefined ? undefined : Number(version),
          inputs: (payload.initial_inputs ?? {}) as JsonObject
        })
        return {
          run_id: run.id,
          engine_workflow_id: run.engineWorkflowId,
          engine_namespace: run.engineNamespace,
          status: run.status
        }
      }),
      run: Effect.fnUntraced(function* ({ params }) {
        const run = yield* runs.find(yield* ManagementCaller, params.id)
        return { ...runOf(run), initial_inputs: run.inputs, outputs: run.outputs }
      }),
      cancel: Effect.fnUntraced(function* ({ params }) {
        yield* runs.cancel(yield* ManagementCaller, params.id)
      }),
      history: Effect.fnUntraced(function* ({ params, query }) {
        const limit = within(query.limit, history.limit, 1, history.maximum)
        const offset = within(query.next_page_token, 0, 0, maxOffset)
        // One more than asked for tells whether this is the final page.
        const events = yield* runs.history(yield* ManagementCaller, params.id, offset, limit + 1)
        return {
          data: events.slice(0, limit).map(eventOf),
          ...(events.length > limit ? { next_page_token: String(offset + limit) } : {})
        }
      }),
      signal: Effect.fnUntraced(function* ({ params, payload }) {
        yield* runs.signal(yield* ManagementCaller, params.id, {
          name: payload.signal_name,
          payload: (payload.payload ?? {}) as JsonObject
        })
      }),
      stream: Effect.fnUntraced(function* ({ params }) {
        const run = yield* runs.find(yield* ManagementCaller, params.id)
        const events = yield* streams.watch({ tenant: run.tenant, runId: run.id })
        return HttpServerResponse.stream(events, {
          contentType: "text/event-stream",
          headers: { "cache-control": "no-cache", "x-accel-buffering": "no" }
        })
      }),
      terminate: Effect.fnUntraced(function* ({ params, payload }) {
        const given = payload === undefined ? undefined : payload.reason
        // No 400 is documented here, and a reason must not stand in the way of an end.
        const reason = typeof given === "string" ? given.slice(0, 4096) : ""
        yield* runs.terminate(yield* ManagementCaller, params.id, reason)
      })
    })
  })
)
