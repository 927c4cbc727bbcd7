import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Clock, Effect, Layer, Redacted, Result, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { publicTenant } from "#domain/principal.ts"
import { sealedContexts } from "#domain/sealed-contexts.ts"
import { type Redaction, type RedactionOwner, RedactionStore } from "#services/guardrails/RedactionStore.ts"
import { Secrets } from "#services/security/Secrets.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

const lifetimeMillis = 24 * 3_600_000
/** Values sealed or opened before the event loop has its turn: some 5 ms. */
const slice = 256
/** Rows that one statement of a sweep deletes, */
const sweptRows = 5000
/** and how many such statements a sweep has for one schema: what is left waits for the next. */
const sweptSteps = 40

const masterKeyId = "00000000-0000-0000-0000-000000000000"

interface RedactionRow {
  readonly token: string
  readonly sealed: Uint8Array
  readonly encryption_key_id: string
}

const contextOf = (owner: RedactionOwner, token: string): string =>
  sealedContexts.redaction(owner.tenant, owner.keyId ?? masterKeyId, token)

const array = (type: "text" | "bytea", values: ReadonlyArray<unknown>) =>
  Result.getOrThrow(PgTypes.array(values, PgTypes.OID[type]))

/** Maps without holding the event loop. */
const inSlices = <A, B>(items: ReadonlyArray<A>, each: (item: A) => Effect.Effect<B>): Effect.Effect<Array<B>> =>
  Effect.gen(function* () {
    const results: Array<B> = []
    for (let i = 0; i < items.length; i++) {
      if (i > 0 && i % slice === 0) yield* Effect.yieldNow
      results.push(yield* each(items[i]!))
    }
    return results
  })

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const secrets = yield* Secrets
  const tenants = yield* Tenants
  const clock = yield* Clock.Clock
  const now = () => clock.currentTimeMillisUnsafe()

  // Escaped by JSON, because half a surrogate pair has no UTF-8.
  const seal = (owner: RedactionOwner, { token, value }: Redaction) =>
    secrets.seal(Redacted.make(JSON.stringify(value)), contextOf(owner, token))

  /** Undefined for a row that does not open: its token stays where it stands, and the others are resolved. */
  const open = (owner: RedactionOwner, row: RedactionRow): Effect.Effect<readonly [string, string] | undefined> =>
    secrets.open({ bytes: row.sealed, keyId: row.encryption_key_id }, contextOf(owner, row.token)).pipe(
      Effect.map((value): readonly [string, string] => [row.token, JSON.parse(Redacted.value(value)) as string]),
      Effect.catchDefect(() => Effect.as(Effect.logWarning("A redaction token cannot be opened"), undefined))
    )

  const keep = Effect.fnUntraced(function* (owner: RedactionOwner, redactions: ReadonlyArray<Redaction>) {
    if (redactions.length === 0) return
    const schema = yield* tenants.schemaOf(owner.tenant)
    const sealed = yield* inSlices(redactions, (redaction) => Effect.sync(() => seal(owner, redaction)))
    yield* sql.unsafe(
      `INSERT INTO ${schema}.redactions (tenant, key_id, token, sealed, encryption_key_id, expires_at)
        SELECT $1::text, $2::text::uuid, t.token, t.sealed, t.encryption_key_id, $3::timestamptz
        FROM unnest($4::text[], $5::bytea[], $6::text[]) AS t (token, sealed, encryption_key_id)`,
      [
        owner.tenant,
        owner.keyId ?? masterKeyId,
        new Date(now() + lifetimeMillis),
        array(
          "text",
          redactions.map(({ token }) => token)
        ),
        array(
          "bytea",
          sealed.map(({ bytes }) => bytes)
        ),
        array(
          "text",
          sealed.map(({ keyId }) => keyId)
        )
      ]
    )
  }, orUnavailable)

  const resolve = Effect.fnUntraced(function* (owner: RedactionOwner, tokens: ReadonlyArray<string>) {
    if (tokens.length === 0) return new Map<string, string>()
    const schema = yield* tenants.schemaOf(owner.tenant)
    const rows = yield* sql.unsafe<RedactionRow>(
      `SELECT token, sealed, encryption_key_id FROM ${schema}.redactions
        WHERE tenant = $1::text AND key_id = $2::text::uuid AND token = ANY ($3::text[]) AND expires_at > $4::timestamptz`,
      [owner.tenant, owner.keyId ?? masterKeyId, array("text", tokens), new Date(now())]
    )
    const opened = yield* inSlices(rows, (row) => open(owner, row))
    return new Map(opened.filter((entry) => entry !== undefined))
  }, orUnavailable)

  const sweepSchema = Effect.fnUntraced(function* (schema: string) {
    let deleted = 0
    for (let step = 0; step < sweptSteps; step++) {
      const rows = yield* sql.unsafe<{ readonly deleted: number }>(
        `WITH gone AS (
          DELETE FROM ${schema}.redactions WHERE (key_id, token, tenant) IN (
            SELECT key_id, token, tenant FROM ${schema}.redactions WHERE expires_at <= $1::timestamptz
            ORDER BY expires_at LIMIT ${sweptRows} FOR UPDATE SKIP LOCKED
          ) RETURNING 1
        ) SELECT count(*)::int AS deleted FROM gone`,
        [new Date(now())]
      )
      const count = rows[0]?.deleted ?? 0
      deleted += count
      if (count < sweptRows) break
    }
    return deleted
  })

  const sweep = Effect.gen(function* () {
    let deleted = 0
    for (const tenant of [publicTenant, ...tenants.slugs]) {
      deleted += yield* sweepSchema(yield* tenants.schemaOf(tenant))
    }
    return deleted
  }).pipe(orUnavailable)

  yield* sweep.pipe(
    Effect.catchCause((cause) => Effect.logWarning("Expired redaction tokens could not be deleted", cause)),
    Effect.repeat(Schedule.spaced("10 minutes").pipe(Schedule.jittered)),
    Effect.delay("1 minute"),
    Effect.forkScoped
  )

  return RedactionStore.of({ keep, resolve, sweep })
})

/** Rows of `redactions` in the tenant's schema, each value sealed by itself and bound to its token, tenant and key. */
export const layer: Layer.Layer<RedactionStore, never, SqlClient.SqlClient | Secrets | Tenants> = Layer.effect(
  RedactionStore,
  make
)
