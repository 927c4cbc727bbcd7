import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { DeveloperPrincipal } from "#domain/principal.ts"
import * as DeveloperUsagePostgres from "#layers/developer/DeveloperUsagePostgres.ts"
import { DeveloperUsage } from "#services/developer/DeveloperUsage.ts"
import { dormantTenants } from "#test/support/keys.ts"
import { testDatabase } from "#test/support/Postgres.ts"
import { idleUsageLedger } from "#test/support/usage.ts"

const developer: DeveloperPrincipal = { _tag: "Developer", userId: "ada", tenant: "" }

const uuid = (kind: number, n: string) => `('0197a3f0-0000-7000-8${kind}00-' || lpad((${n})::text, 12, '0'))::uuid`

/** Three keys with ten calls a second each, so that many calls began together; a fourth key is somebody else's. */
const rows = [
  `INSERT INTO api_keys (id, token_hash, token_hint, user_id, created_by, discarded_at)
    SELECT ${uuid(1, "n")}, sha256(n::text::bytea), 'hint', CASE WHEN n < 3 THEN 'ada' ELSE 'bob' END, 'test',
      CASE n WHEN 2 THEN now() END FROM generate_series(0, 3) n`,
  `INSERT INTO spend_logs (call_id, recorded_at, request_id, started_at, key_id, operation, model, status, http_status,
      stream, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens, audio_input_tokens,
      audio_output_tokens, images, seconds, estimated, priced, spend, duration_ms)
    SELECT ${uuid(2, "n")}, now(), 'r' || n, timestamptz '2026-01-01' + (n / 40) * interval '1 second', ${uuid(1, "n % 4")},
      'chat', 'm', 'success', 200, false, 1, 0, 0, 1, 0, 0, 0, 0, 0, false, true, 1, 1 FROM generate_series(0, 399) n`
]

layer(
  DeveloperUsagePostgres.layer.pipe(
    Layer.provideMerge(Layer.mergeAll(dormantTenants, idleUsageLedger)),
    Layer.provideMerge(testDatabase())
  )
)("DeveloperUsagePostgres", (it) => {
  describe("calls", () => {
    it.effect("pages hold every own call once, newest first, also where many began together", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        for (const statement of rows) yield* sql.unsafe(statement)
        const usage = yield* DeveloperUsage
        const expected = yield* sql<{ request_id: string }>`SELECT request_id FROM spend_logs
          WHERE key_id <> ${"0197a3f0-0000-7000-8100-000000000003"}::uuid ORDER BY started_at DESC, call_id DESC`
        for (const size of [1, 7, 50, 500]) {
          const seen: Array<string> = []
          for (let page = 0; seen.length < expected.length && page < 400; page++) {
            const calls = yield* usage.calls(developer, page, size)
            assert.isNotEmpty(calls)
            seen.push(...calls.map(({ requestId }) => requestId))
          }
          assert.deepStrictEqual(
            seen,
            expected.map(({ request_id: id }) => id),
            `pages of ${size}`
          )
        }
        assert.deepStrictEqual(yield* usage.calls(developer, 1_000_000, 500), [])
        assert.deepStrictEqual(yield* usage.calls({ ...developer, userId: "nobody" }, 0, 50), [])
      })
    )
  })
})
