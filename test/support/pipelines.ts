/** Engines over one database, with operators that do as a test says. */
import { Effect, Layer, Result } from "effect"
import { SqlClient } from "effect/sql"
import { notFound } from "#domain/errors.ts"
import type { Json } from "#domain/json.ts"
import { compileDefinition } from "#domain/pipelines/compile.ts"
import { type PipelineDefinition, workflowType } from "#domain/pipelines/definition.ts"
import { isFinal, type RunStatus } from "#domain/pipelines/runs.ts"
import { type AdministratorPrincipal, masterKeyPrincipal, type ManagementPrincipal } from "#domain/principal.ts"
import * as ExpressionsProcess from "#layers/pipelines/ExpressionsProcess.ts"
import * as PipelineRunsPostgres from "#layers/pipelines/PipelineRunsPostgres.ts"
import * as RunRecordsPostgres from "#layers/pipelines/RunRecordsPostgres.ts"
import * as WorkflowEnginePostgres from "#layers/pipelines/WorkflowEnginePostgres.ts"
import * as ChangeFeedPostgres from "#layers/storage/ChangeFeedPostgres.ts"
import { type OperatorCall, Operators, type StepFailed } from "#services/pipelines/Operators.ts"
import { PipelineDefinitions } from "#services/pipelines/PipelineDefinitions.ts"
import { PipelineRuns } from "#services/pipelines/PipelineRuns.ts"
import { administrationBase } from "#test/support/administration.ts"

export type Doing = (call: OperatorCall) => Effect.Effect<Json, StepFailed>

/** What `chat` steps do, by their model; other operators echo what they are given. */
export class Doings {
  readonly byModel = new Map<string, Doing>()

  readonly layer = Layer.succeed(Operators, {
    run: (call) => {
      const input = call.input
      const model = typeof input === "object" && input !== null && "model" in input ? String(input.model) : ""
      const doing = this.byModel.get(model)
      return doing === undefined ? Effect.succeed(input) : doing(call)
    }
  })
}

/** Definitions by an id of the test's own. */
export class Definitions {
  readonly #known = new Map<string, PipelineDefinition>()

  add(source: string): string {
    const id = crypto.randomUUID()
    this.#known.set(id, Result.getOrThrow(compileDefinition(source)))
    return id
  }

  readonly layer = Layer.mock(PipelineDefinitions, {
    load: (_scope, assetId, version) => {
      const definition = this.#known.get(assetId)
      return definition === undefined
        ? Effect.fail(notFound("pipeline definition"))
        : Effect.succeed({
            registered: { assetId, version: version ?? 1, workflowType: workflowType(assetId, 1) },
            definition
          })
    }
  })
}

/** Database, tenants acme and globex, provenance, outbox, change feed, expressions. */
export const pipelineBase = (slugs?: ReadonlyArray<string>) =>
  Layer.mergeAll(RunRecordsPostgres.layer, ExpressionsProcess.layer({ processes: 1 })).pipe(
    Layer.provideMerge(ChangeFeedPostgres.layer),
    Layer.provideMerge(administrationBase(slugs)),
    Layer.orDie
  )

/** What engines are built on. */
export type PipelineBase = Layer.Success<ReturnType<typeof pipelineBase>>

/** One engine, as a process has it, and the runs over it. */
export const engine = (
  doings: Doings,
  definitions: Definitions,
  options: Partial<WorkflowEnginePostgres.EmbeddedEngineOptions> = {}
) =>
  PipelineRunsPostgres.layer.pipe(
    Layer.provideMerge(
      WorkflowEnginePostgres.layer({ holder: crypto.randomUUID(), leaseMs: 2000, pollMs: 50, ...options })
    ),
    Layer.provide(doings.layer),
    Layer.provide(definitions.layer),
    Layer.fresh
  )

export const administrator = (tenant: string, more: Partial<AdministratorPrincipal> = {}): AdministratorPrincipal => ({
  _tag: "Administrator",
  subject: "ada",
  class: "tenant",
  role: "tenant_admin",
  tenant,
  organizationId: undefined,
  entitlements: new Set(),
  ...more
})

export const acme = administrator("acme")

export const startRun = Effect.fnUntraced(function* (
  definitionId: string,
  inputs: { readonly [name: string]: Json } = {},
  caller: ManagementPrincipal = acme
) {
  const runs = yield* PipelineRuns
  return (yield* runs.create(caller, { definitionId, definitionVersion: undefined, inputs })).id
})

/** The run once its status is one of these, or is final. */
export const settled = Effect.fnUntraced(function* (
  runId: string,
  wanted: ReadonlyArray<RunStatus> = [],
  caller: ManagementPrincipal = masterKeyPrincipal
) {
  const runs = yield* PipelineRuns
  for (let tries = 0; tries < 1500; tries++) {
    const run = yield* runs.find(caller, runId)
    if (isFinal(run.status) || wanted.includes(run.status)) return run
    yield* Effect.sleep(20)
  }
  return yield* Effect.die(new Error(`run ${runId} did not come to its end`))
})

export const eventsOf = Effect.fnUntraced(function* (runId: string) {
  const runs = yield* PipelineRuns
  return (yield* runs.history(masterKeyPrincipal, runId, 0, 10_000)).map(({ event }) => event)
})

/** How many runs are not over. */
export const openExecutions = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<{ readonly n: number }>`SELECT count(*)::int AS n FROM public.workflow_executions`
  return row!.n
})
