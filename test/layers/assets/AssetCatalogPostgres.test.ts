import { createHash } from "node:crypto"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Exit, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { canonicalJson } from "#domain/canonical-json.ts"
import type { JsonObject } from "#domain/json.ts"
import * as AssetCatalogPostgres from "#layers/assets/AssetCatalogPostgres.ts"
import { AssetCatalog, type AssetWrite } from "#services/assets/AssetCatalog.ts"
import { administrationBase } from "#test/support/administration.ts"

const acme = { tenant: "acme", organizationId: undefined }
const globex = { tenant: "globex", organizationId: undefined }
const actor = "user:ann"

const sha256 = (value: JsonObject): string => createHash("sha256").update(canonicalJson(value)).digest("hex")

const dataset = (name: string, more: JsonObject = {}): JsonObject => ({
  name,
  storage_format: "parquet",
  table_ref: { snapshot_ids: ["snap-1"] },
  ...more
})

const write = (more: Partial<AssetWrite> & Pick<AssetWrite, "document">): AssetWrite => ({
  owner: { tenant: "acme", organizationId: "" },
  kind: "dataset",
  name: undefined,
  actor,
  path: "content",
  ...more
})

const failure = <A, E>(effect: Effect.Effect<A, E>) =>
  Effect.map(Effect.flip(effect), (error) => error as { readonly code: string; readonly param?: string })

const insertCall = Effect.fnUntraced(function* (schema: string, n: number, organization: string | null = null) {
  const sql = yield* SqlClient.SqlClient
  const id = `0197a3f0-0000-7000-8000-${String(n).padStart(12, "0")}`
  yield* sql.unsafe(
    `INSERT INTO ${schema}.spend_logs (call_id, recorded_at, request_id, started_at, operation, model, status, http_status,
      stream, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, audio_input_tokens,
      audio_output_tokens, images, seconds, estimated, priced, spend, duration_ms, organization_id)
    VALUES ($1, now(), 'req', now(), 'chat', 'm', 'success', 200, false, 3, 0, 0, 4, 0, 0, 0, 0, 0, false, true, 0.5, 9, $2)`,
    [id, organization]
  )
  return id
})

describe("AssetCatalogPostgres", () => {
  layer(AssetCatalogPostgres.layer.pipe(Layer.provideMerge(administrationBase())))((it) => {
    it.effect("hashes the canonical JSON of the whole document, items included, at each version", () =>
      Effect.gen(function* () {
        const catalog = yield* AssetCatalog
        const content = dataset("hashed", { zeta: 1, provenance: { source: "us", items: [{ id: "a", input: "é" }] } })
        const first = yield* catalog.put(write({ document: content }))
        assert.strictEqual(first.version, 1)
        assert.strictEqual(first.contentHash, sha256(content))
        const second = yield* catalog.appendItems(acme, first.assetId, [{ id: "b", input: { deep: [1, 2] } }], actor)
        assert.strictEqual(second.version, 2)
        const merged = dataset("hashed", {
          zeta: 1,
          provenance: {
            source: "us",
            items: [
              { id: "a", input: "é" },
              { id: "b", input: { deep: [1, 2] } }
            ]
          }
        })
        assert.strictEqual(second.contentHash, sha256(merged))
        assert.deepStrictEqual((yield* catalog.find(acme, "dataset", first.assetId)).content, merged)
        const old = yield* catalog.find(acme, "dataset", first.assetId, 1)
        assert.deepStrictEqual(old.content, content)
        assert.strictEqual(old.contentHash, first.contentHash)
      })
    )

    it.effect("keeps both of two appends that come at once, in two versions", () =>
      Effect.gen(function* () {
        const catalog = yield* AssetCatalog
        const { assetId } = yield* catalog.put(write({ document: dataset("raced") }))
        const versions = yield* Effect.forEach(
          Array.from({ length: 8 }, (_, n) => n),
          (n) => catalog.appendItems(acme, assetId, [{ id: `item-${n}` }, { input: n }], actor),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(versions.map(({ version }) => version).sort(), [2, 3, 4, 5, 6, 7, 8, 9])
        const head = yield* catalog.find(acme, "dataset", assetId)
        assert.strictEqual(head.version, 9)
        assert.strictEqual(head.itemCount, 16)
        assert.strictEqual(head.contentHash, sha256(head.content!))
        const { provenance } = head.content as unknown as { provenance: { items: ReadonlyArray<{ id: string }> } }
        assert.strictEqual(new Set(provenance.items.map(({ id }) => id)).size, 16)
        const history = yield* catalog.versions(acme, "dataset", assetId)
        assert.deepStrictEqual(
          history.map(({ itemCount, version }) => [version, itemCount]),
          [9, 8, 7, 6, 5, 4, 3, 2, 1].map((version) => [version, (version - 1) * 2])
        )
      })
    )

    it.effect("makes the next version of a suite that is written again, and keeps the former", () =>
      Effect.gen(function* () {
        const catalog = yield* AssetCatalog
        const suite = (threshold: number): JsonObject => ({
          name: "suite",
          eval_type: "exact",
          test_cases: [
            { input: "1+1", expected: "2" },
            { id: "named", input: "x", weight: 2 }
          ],
          pass_threshold: threshold
        })
        const made = yield* Effect.forEach([0.5, 0.9], (threshold) =>
          catalog.put(write({ kind: "eval_suite", document: suite(threshold) }))
        )
        assert.deepStrictEqual(
          made.map(({ version }) => version),
          [1, 2]
        )
        assert.strictEqual(made[0]!.assetId, made[1]!.assetId)
        const history = yield* catalog.versions(acme, "eval_suite", made[0]!.assetId)
        assert.deepStrictEqual(
          history.map(({ content, version }) => [version, content?.["pass_threshold"], content?.["test_cases"]]),
          [
            [
              2,
              0.9,
              [
                { id: "case-1", input: "1+1", expected: "2" },
                { id: "named", input: "x", weight: 2 }
              ]
            ],
            [
              1,
              0.5,
              [
                { id: "case-1", input: "1+1", expected: "2" },
                { id: "named", input: "x", weight: 2 }
              ]
            ]
          ]
        )
      })
    )

    it.effect("refuses what its schema or bounds refuse, and names the field", () =>
      Effect.gen(function* () {
        const catalog = yield* AssetCatalog
        const put = (document: JsonObject, more: Partial<AssetWrite> = {}) =>
          failure(catalog.put(write({ document, ...more })))
        assert.deepInclude(yield* put({ name: "x", table_ref: {} }), {
          code: "missing_field",
          param: "content.storage_format"
        })
        assert.deepInclude(yield* put(dataset("x", { table_ref: { snapshot_ids: [true] } })), {
          code: "invalid_value",
          param: "content.table_ref.snapshot_ids.0"
        })
        assert.deepInclude(
          yield* put({ name: "x", eval_type: "t", test_cases: [{ weight: 0 }] }, { kind: "eval_suite" }),
          {
            code: "invalid_value",
            param: "content.test_cases.0.weight"
          }
        )
        let deep: JsonObject = {}
        for (let n = 0; n < 40; n++) deep = { deep }
        assert.deepInclude(yield* put(dataset("x", { deep })), { code: "invalid_value", param: "content" })
        assert.deepInclude(yield* put(dataset("x", { text: "x".repeat(300_000) })), {
          code: "value_too_long",
          param: "content"
        })
        const twice = dataset("x", { provenance: { items: [{ id: "a" }, { id: "a" }] } })
        assert.deepInclude(yield* put(twice), { code: "invalid_value", param: "content.provenance.items.1.id" })
        const { assetId } = yield* catalog.put(
          write({ document: dataset("refusing", { provenance: { items: [{ id: "a" }] } }) })
        )
        const append = (items: ReadonlyArray<JsonObject>) => failure(catalog.appendItems(acme, assetId, items, actor))
        assert.deepInclude(yield* append([{ id: "b" }, { id: "a" }]), { code: "already_exists", param: "items.1.id" })
        assert.deepInclude(yield* append([{ id: "b" }, { weight: "heavy" }]), {
          code: "invalid_value",
          param: "items.1.weight"
        })
        const head = yield* catalog.find(acme, "dataset", assetId)
        assert.deepStrictEqual([head.version, head.itemCount], [1, 1])
      })
    )

    it.effect("shows nothing to another tenant or organization", () =>
      Effect.gen(function* () {
        const catalog = yield* AssetCatalog
        const owner = { tenant: "acme", organizationId: "org-1" }
        const { assetId } = yield* catalog.put(write({ owner, document: dataset("private") }))
        const other = { tenant: "acme", organizationId: "org-2" }
        for (const scope of [globex, other]) {
          assert.deepInclude(yield* failure(catalog.find(scope, "dataset", assetId)), { code: "resource_not_found" })
          assert.deepInclude(yield* failure(catalog.appendItems(scope, assetId, [{}], actor)), {
            code: "resource_not_found"
          })
          assert.notInclude(
            (yield* catalog.list(scope, "dataset", 500)).map((found) => found.assetId),
            assetId
          )
        }
        assert.include(
          (yield* catalog.list(acme, "dataset", 500)).map((found) => found.assetId),
          assetId
        )
        assert.isTrue(Exit.isFailure(yield* Effect.exit(catalog.find(acme, "eval_suite", assetId))))
      })
    )

    it.effect("samples the tenant's own calls, each once, newest first", () =>
      Effect.gen(function* () {
        const catalog = yield* AssetCatalog
        const ids: Array<string> = []
        for (let n = 1; n <= 5; n++) ids.push(yield* insertCall("tenant_acme", n))
        yield* insertCall("tenant_globex", 9)
        const { assetId } = yield* catalog.put(write({ document: dataset("sampled") }))
        assert.strictEqual(yield* catalog.sampleFromProduction(acme, assetId, 3, actor), 3)
        const once = yield* catalog.find(acme, "dataset", assetId)
        const itemsOf = (found: typeof once) =>
          (found.content as unknown as { provenance: { items: ReadonlyArray<{ id: string }> } }).provenance.items
        assert.deepStrictEqual(
          itemsOf(once).map(({ id }) => id),
          ids.slice(2).toReversed()
        )
        assert.strictEqual(yield* catalog.sampleFromProduction(acme, assetId, 1000, actor), 2)
        assert.strictEqual(yield* catalog.sampleFromProduction(acme, assetId, 1000, actor), 0)
        const head = yield* catalog.find(acme, "dataset", assetId)
        assert.strictEqual(head.version, 3)
        assert.sameMembers(
          itemsOf(head).map(({ id }) => id),
          ids
        )
      })
    )
  })
})
