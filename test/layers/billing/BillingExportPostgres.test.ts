import { assert, describe, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import * as BillingExportPostgres from "#layers/billing/BillingExportPostgres.ts"
import * as OrganizationUsagePostgres from "#layers/billing/OrganizationUsagePostgres.ts"
import { BillingExport, type BillingRecord } from "#services/billing/BillingExport.ts"
import { OrganizationUsage } from "#services/billing/OrganizationUsage.ts"
import { administrationBase, recordUsage } from "#test/support/administration.ts"

const billing = Layer.mergeAll(BillingExportPostgres.layer, OrganizationUsagePostgres.layer)
const two = billing.pipe(Layer.provideMerge(administrationBase()))

const at = (day: string, time = "12:00:00") => TestClock.setTime(Date.parse(`${day}T${time}Z`))

const name = (record: BillingRecord) =>
  `${new Date(record.periodStart).toISOString().slice(0, 10)} ${record.org} ${record.tenant}`

/** All records from a cursor on, page by page. */
const exportAll = Effect.fnUntraced(function* (limit: number, start?: string) {
  const billing = yield* BillingExport
  const records: Array<BillingRecord> = []
  let cursor = start
  let resume = start
  do {
    const page = yield* billing.page(cursor, limit)
    assert.isAtMost(page.records.length, limit)
    records.push(...page.records)
    cursor = page.next
    resume = page.resume
  } while (cursor !== undefined)
  return { records, resume }
})

describe("the billing export", () => {
  layer(two)("over two tenants", (it) => {
    it.effect("orders closed days by day, organization and tenant, whatever the page", () =>
      Effect.gen(function* () {
        yield* at("2031-03-05")
        const days = ["2031-03-01", "2031-03-02", "2031-03-04", "2031-03-05"]
        for (const day of days) {
          for (const schema of ["public", "tenant_acme", "tenant_globex"]) {
            for (const organization of ["", "Zed", "beta", "b-1", "ünder", "hotel", "0a"]) {
              yield* recordUsage(schema, day, organization)
            }
          }
        }
        const { records } = yield* exportAll(1000)
        // Today is open; each tenant has seven organizations a day.
        assert.strictEqual(records.length, 3 * 3 * 7)
        assert.deepStrictEqual(records.slice(0, 21).map(name), [
          "2031-03-01  ",
          ...["0a", "Zed"].flatMap((org) => ["", "acme", "globex"].map((tenant) => `2031-03-01 ${org} ${tenant}`)),
          "2031-03-01 acme acme",
          ...["b-1", "beta"].flatMap((org) => ["", "acme", "globex"].map((tenant) => `2031-03-01 ${org} ${tenant}`)),
          "2031-03-01 globex globex",
          ...["hotel", "ünder"].flatMap((org) => ["", "acme", "globex"].map((tenant) => `2031-03-01 ${org} ${tenant}`))
        ])
        for (const limit of [1, 2, 5, 21]) {
          assert.deepStrictEqual((yield* exportAll(limit)).records, records)
        }
        assert.deepInclude(records[0], {
          periodEnd: Date.parse("2031-03-02T00:00:00Z"),
          requests: 1,
          promptTokens: 10,
          completionTokens: 5,
          spend: 250_000_000n
        })
      })
    )

    it.effect("goes on from where it ended when another day has closed, five minutes after its end", () =>
      Effect.gen(function* () {
        yield* at("2031-03-05")
        const { resume } = yield* exportAll(10)
        yield* at("2031-03-06", "00:04:59")
        assert.deepStrictEqual((yield* exportAll(10, resume)).records, [])
        yield* at("2031-03-06", "00:05:00")
        const { records } = yield* exportAll(10, resume)
        assert.strictEqual(records.length, 21)
        assert.isTrue(records.every((record) => name(record).startsWith("2031-03-05")))
      })
    )

    it.effect("never changes a closed day: what comes late counts on the first open one", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* at("2031-03-07")
        const before = (yield* exportAll(1000)).records
        yield* recordUsage("tenant_acme", "2031-03-01", "beta", 3, "1.5")
        yield* recordUsage("tenant_acme", "2031-03-01", "late", 2, "0.5")
        assert.deepStrictEqual((yield* exportAll(1000)).records, before)
        yield* at("2031-03-09")
        const after = (yield* exportAll(1000)).records
        assert.deepStrictEqual(after.slice(0, before.length), before)
        assert.deepStrictEqual(after.slice(before.length).map(name), ["2031-03-07 beta acme", "2031-03-07 late acme"])
        const [sums] = yield* sql<{ same: boolean }>`SELECT
          (SELECT sum(spend) FROM tenant_acme.organization_usage) = (SELECT sum(spend) FROM tenant_acme.daily_usage)
          AND (SELECT sum(requests) FROM tenant_acme.organization_usage)
            = (SELECT sum(requests) FROM tenant_acme.daily_usage) AS same`
        assert.isTrue(sums?.same)
      })
    )

    it.effect("waits for usage that is being written, so that it is neither missed nor changes the day", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const billing = yield* BillingExport
        yield* at("2031-04-02")
        const written = yield* Deferred.make<void>()
        const exporting = yield* Effect.forkChild(
          Effect.andThen(Deferred.await(written), billing.page(undefined, 1000))
        )
        yield* sql.withTransaction(
          Effect.gen(function* () {
            yield* recordUsage("tenant_globex", "2031-04-01", "racing", 4)
            yield* Deferred.succeed(written, undefined)
            // The closing stands in the queue for the lock before this commits.
            yield* sql<{ waiting: number }>`SELECT count(*)::int AS waiting FROM pg_locks
              WHERE locktype = 'advisory' AND NOT granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`.pipe(
              Effect.flatMap(([row]) => (row?.waiting === 1 ? Effect.void : Effect.fail("not yet" as const))),
              Effect.retry({ times: 2000 })
            )
          })
        )
        const page = yield* Fiber.join(exporting)
        assert.isTrue(page.records.some((record) => record.org === "racing" && record.requests === 4))
      })
    )

    it.effect("takes no cursor but its own", () =>
      Effect.gen(function* () {
        yield* at("2031-03-07")
        const billing = yield* BillingExport
        const { next } = yield* billing.page(undefined, 5)
        assert.isDefined(next)
        const cursor = next ?? ""
        const forged = Buffer.from(cursor, "base64url")
        forged[forged.length - 3]! ^= 1
        const others = ["x", "AAAA", `${cursor}A`, cursor.slice(1), forged.toString("base64url"), "a".repeat(10_000)]
        for (const other of others) {
          const error = yield* Effect.flip(billing.page(other, 5))
          assert.deepInclude({ ...error }, { code: "invalid_value", param: "cursor" })
        }
        assert.isFalse(cursor.includes("acme"))
      })
    )

    it.effect("sums the organizations of a window, tenants by their slugs", () =>
      Effect.gen(function* () {
        const organizations = yield* OrganizationUsage
        const { partial, rows } = yield* organizations.window("2031-03-01", "2031-03-02")
        assert.isFalse(partial)
        assert.deepStrictEqual(
          rows.map(({ org, tenant }) => `${org} ${tenant}`),
          [
            " ",
            ...["0a", "Zed"].flatMap((org) => ["", "acme", "globex"].map((tenant) => `${org} ${tenant}`)),
            "acme acme",
            ...["b-1", "beta"].flatMap((org) => ["", "acme", "globex"].map((tenant) => `${org} ${tenant}`)),
            "globex globex",
            ...["hotel", "ünder"].flatMap((org) => ["", "acme", "globex"].map((tenant) => `${org} ${tenant}`))
          ]
        )
        assert.deepInclude(rows[1], { requests: 2, spend: 500_000_000n })
        // Without usage a tenant is there, the public scope is not.
        const empty = yield* organizations.window("2030-01-01", "2030-01-30")
        assert.deepStrictEqual(
          empty.rows.map(({ org, requests }) => [org, requests]),
          [
            ["acme", 0],
            ["globex", 0]
          ]
        )
      })
    )

    it.effect("finds a page through the index, wherever it is", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        yield* sql`INSERT INTO tenant_globex.organization_usage
          (day, organization_id, requests, prompt_tokens, completion_tokens, spend)
          SELECT date '2020-01-01' + n / 1000, 'org-' || n % 1000, 1, 1, 1, 1 FROM generate_series(1, 200000) AS n`
        yield* sql.unsafe("ANALYZE tenant_globex.organization_usage")
        const plan = yield* sql<{ "QUERY PLAN": string }>`EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF)
          SELECT * FROM tenant_globex.organization_usage WHERE day <= '2031-01-01' AND organization_id <> ''
            AND (day, organization_id) >= ('2020-05-01', 'org-500')
            AND ((day, organization_id) > ('2020-05-01', 'org-500') OR 'a' > 'b')
          ORDER BY day, organization_id LIMIT 101`
        const text = plan.map((row) => row["QUERY PLAN"]).join("\n")
        assert.match(text, /Index Scan using organization_usage_pkey/)
        assert.notMatch(text, /Sort|Seq Scan/)
        yield* at("2031-03-07")
        assert.isAbove((yield* exportAll(1000)).records.length, 200_000)
      })
    )
  })

  layer(billing.pipe(Layer.provideMerge(administrationBase())))("when a tenant cannot be read", (it) => {
    it.effect("fails whole and names it, while the usage of organizations goes on without", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const billing = yield* BillingExport
        const organizations = yield* OrganizationUsage
        yield* at("2031-03-05")
        yield* recordUsage("tenant_globex", "2031-03-01", "beta")
        yield* sql.unsafe("ALTER TABLE tenant_acme.organization_usage RENAME TO gone")
        const error = yield* Effect.flip(billing.page(undefined, 10))
        assert.strictEqual(error.status, 500)
        assert.include(error.message, "'acme'")
        const { partial, rows } = yield* organizations.window("2031-03-01", "2031-03-05")
        assert.isTrue(partial)
        assert.deepStrictEqual(
          rows.map(({ org }) => org),
          ["beta"]
        )
      })
    )
  })

  layer(billing.pipe(Layer.provideMerge(administrationBase([]))))("while dormant", (it) => {
    it.effect("exports the public scope; organizations are listed without the empty one", () =>
      Effect.gen(function* () {
        yield* at("2031-03-05")
        yield* recordUsage("public", "2031-03-01", "")
        yield* recordUsage("public", "2031-03-01", "beta")
        const { records } = yield* exportAll(1)
        assert.deepStrictEqual(records.map(name), ["2031-03-01  ", "2031-03-01 beta "])
        const { rows } = yield* Effect.flatMap(OrganizationUsage, (usage) => usage.window("2031-03-01", "2031-03-05"))
        assert.deepStrictEqual(
          rows.map(({ org }) => org),
          ["beta"]
        )
      })
    )
  })
})
