/** What the tests of evals stand on: catalog, jobs and leases over a fresh database with two tenants. */
import { Duration, Effect, Layer } from "effect"
import type { JsonObject } from "#domain/json.ts"
import * as AssetCatalogPostgres from "#layers/assets/AssetCatalogPostgres.ts"
import * as EvalJobsPostgres from "#layers/evals/EvalJobsPostgres.ts"
import * as EvalLeaseManagerPostgres from "#layers/evals/EvalLeaseManagerPostgres.ts"
import * as EvalRunStarterPulled from "#layers/evals/EvalRunStarterPulled.ts"
import { AssetCatalog } from "#services/assets/AssetCatalog.ts"
import type { NewScore } from "#services/evals/EvalLeaseManager.ts"
import { EvalJobs, type NewEvalJob } from "#services/evals/EvalJobs.ts"
import { administrationBase } from "#test/support/administration.ts"

export const visibilityTimeout = Duration.minutes(5)

/** A lease manager of its own each time: as another process would have. */
export const leaseManager = () => Layer.fresh(EvalLeaseManagerPostgres.layer({ visibilityTimeout }))

export const catalogAndJobs = (base: ReturnType<typeof administrationBase> = administrationBase()) =>
  Layer.mergeAll(AssetCatalogPostgres.layer, EvalJobsPostgres.layer).pipe(
    Layer.provideMerge(EvalRunStarterPulled.layer),
    Layer.provideMerge(base)
  )

export const scopeOf = (tenant: string) => ({ tenant, organizationId: undefined })

let names = 0

export const makeSuite = (content: JsonObject, tenant = "acme") =>
  Effect.flatMap(AssetCatalog, (catalog) =>
    catalog.put({
      owner: { tenant, organizationId: "" },
      kind: "eval_suite",
      name: `suite-${++names}`,
      document: { name: "suite", eval_type: "exact", test_cases: [], ...content },
      actor: "user:ann",
      path: "content"
    })
  )

export const makeDataset = (
  items: ReadonlyArray<JsonObject>,
  snapshotIds: ReadonlyArray<string> = [],
  tenant = "acme"
) =>
  Effect.flatMap(AssetCatalog, (catalog) =>
    catalog.put({
      owner: { tenant, organizationId: "" },
      kind: "dataset",
      name: `dataset-${++names}`,
      document: {
        name: "dataset",
        storage_format: "parquet",
        table_ref: { snapshot_ids: snapshotIds },
        provenance: { items }
      },
      actor: "user:ann",
      path: "content"
    })
  )

export const makeJob = (suiteId: string, more: Partial<NewEvalJob> = {}, tenant = "acme") =>
  Effect.flatMap(EvalJobs, (jobs) =>
    jobs.create({
      owner: { tenant, organizationId: "" },
      scope: scopeOf(tenant),
      suiteId,
      suiteVersion: undefined,
      modelAssetId: null,
      modelVersion: null,
      judgeModelVersion: null,
      snapshotIds: [],
      seed: null,
      actor: "user:ann",
      ...more
    })
  )

/** A job of so many test cases, `case-1` and so on. */
export const jobOf = (cases: number, content: JsonObject = {}) =>
  Effect.gen(function* () {
    const suite = yield* makeSuite({ test_cases: Array.from({ length: cases }, (_, n) => ({ input: n })), ...content })
    return yield* makeJob(suite.assetId)
  })

export const scoreOf = (jobId: string, testCaseId: string, score: number, more: Partial<NewScore> = {}): NewScore => ({
  jobId,
  testCaseId,
  score,
  label: null,
  explanation: null,
  genAiResponseId: null,
  scoredBy: "judge",
  actor: "key:k",
  requestId: "request-1",
  ...more
})
