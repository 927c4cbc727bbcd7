import { Effect, Exit, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { Json, JsonObject } from "#domain/json.ts"
import { isJsonObject } from "#domain/json.ts"
import { publicTenant } from "#domain/principal.ts"
import { sealedContexts } from "#domain/sealed-contexts.ts"
import { Reseal, type ResealReport } from "#services/security/Reseal.ts"
import { type Sealed, Secrets } from "#services/security/Secrets.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

/** Rows of one transaction. */
const BATCH = 200

type Row = Readonly<Record<string, unknown>> & { readonly sealed: Uint8Array; readonly encryption_key_id: string }

/** A table with the columns `sealed` and `encryption_key_id`. */
interface Place {
  readonly table: string
  /** The primary key's columns with their types, in its order. */
  readonly key: ReadonlyArray<readonly [column: string, type: "uuid" | "text" | "bytea"]>
  readonly contextOf: (row: Row) => string
}

const text = (value: unknown): string => String(value)

const places = (schemas: ReadonlyArray<string>): ReadonlyArray<Place> => [
  { table: "public.credentials", key: [["id", "uuid"]], contextOf: ({ id }) => sealedContexts.credential(text(id)) },
  { table: "public.models", key: [["id", "uuid"]], contextOf: ({ id }) => sealedContexts.model(text(id)) },
  { table: "public.callbacks", key: [["id", "uuid"]], contextOf: ({ id }) => sealedContexts.callback(text(id)) },
  {
    table: "public.developer_idempotency",
    key: [
      ["user_id", "text"],
      ["key_hash", "bytea"],
      ["tenant", "text"]
    ],
    contextOf: (row) =>
      sealedContexts.idempotentAnswer(text(row["tenant"]), text(row["user_id"]), row["key_hash"] as Uint8Array)
  },
  ...schemas.map((schema): Place => ({
    table: `${schema}.redactions`,
    key: [
      ["key_id", "uuid"],
      ["token", "text"],
      ["tenant", "text"]
    ],
    contextOf: (row) => sealedContexts.redaction(text(row["tenant"]), text(row["key_id"]), text(row["token"]))
  }))
]

/** As `sealed-text.ts` of the guardrails writes it. */
const sealedText = /^sealed:([0-9a-f]{1,64}):([A-Za-z0-9+/=]{1,4096})$/

interface Guardrail {
  readonly id: string
  readonly config: JsonObject
}

export const layer: Layer.Layer<Reseal, never, SqlClient.SqlClient | Secrets | Tenants> = Layer.effect(
  Reseal,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const secrets = yield* Secrets
    const tenants = yield* Tenants
    const { keyId: current } = secrets

    /** Undefined for what cannot be opened. */
    const renewed = (sealed: Sealed, context: string): Effect.Effect<Sealed | undefined> =>
      Effect.map(Effect.exit(secrets.open(sealed, context)), (opened) =>
        Exit.isSuccess(opened) ? secrets.seal(opened.value, context) : undefined
      )

    const resealPlace = Effect.fnUntraced(function* (place: Place) {
      const unreadable = new Map<string, number>()
      const columns = place.key.map(([column]) => column).join(", ")
      const shown = place.key
        .map(([column, type]) => (type === "uuid" ? `${column}::text AS ${column}` : column))
        .join(", ")
      const cast = ([, type]: Place["key"][number], at: number) =>
        type === "uuid" ? `$${at}::text::uuid` : `$${at}::${type}`
      const keyFrom = (first: number) => place.key.map((column, index) => cast(column, first + index)).join(", ")
      const keyOf = (row: Row): ReadonlyArray<unknown> => place.key.map(([column]) => row[column])
      let resealed = 0
      let last: ReadonlyArray<unknown> | undefined
      while (true) {
        const after = last === undefined ? "" : `AND (${columns}) > (${keyFrom(2)})`
        const rows = yield* sql.unsafe<Row>(
          `SELECT ${shown}, sealed, encryption_key_id FROM ${place.table}
           WHERE sealed IS NOT NULL AND encryption_key_id <> $1 ${after} ORDER BY ${columns} LIMIT ${BATCH}`,
          [current, ...(last ?? [])]
        )
        const lastRow = rows.at(-1)
        if (lastRow === undefined) return { table: place.table, resealed, unreadable } satisfies ResealReport
        last = keyOf(lastRow)
        resealed += yield* sql.withTransaction(
          Effect.gen(function* () {
            let changed = 0
            for (const row of rows) {
              const before = { bytes: row.sealed, keyId: row.encryption_key_id }
              const after = yield* renewed(before, place.contextOf(row))
              if (after === undefined) {
                unreadable.set(before.keyId, (unreadable.get(before.keyId) ?? 0) + 1)
                continue
              }
              // Somebody who wrote the row meanwhile has sealed it with the key of now.
              const written = yield* sql.unsafe(
                `UPDATE ${place.table} SET sealed = $1, encryption_key_id = $2
                 WHERE sealed = $3 AND (${columns}) = (${keyFrom(4)}) RETURNING 1`,
                [after.bytes, after.keyId, before.bytes, ...keyOf(row)]
              )
              changed += written.length
            }
            return changed
          })
        )
      }
    })

    const resealGuardrails = Effect.gen(function* () {
      const table = "public.guardrails"
      const unreadable = new Map<string, number>()
      let resealed = 0
      const renew: (value: Json) => Effect.Effect<Json> = Effect.fnUntraced(function* (value: Json) {
        if (Array.isArray(value)) return yield* Effect.forEach(value as ReadonlyArray<Json>, renew)
        if (isJsonObject(value)) {
          const entries: Array<readonly [string, Json]> = []
          for (const [name, member] of Object.entries(value)) entries.push([name, yield* renew(member)])
          return Object.fromEntries(entries)
        }
        const match = typeof value === "string" ? sealedText.exec(value) : null
        if (match === null || match[1] === current) return value
        const keyId = match[1]!
        const after = yield* renewed({ keyId, bytes: Buffer.from(match[2]!, "base64") }, sealedContexts.guardrailConfig)
        if (after !== undefined) return `sealed:${after.keyId}:${Buffer.from(after.bytes).toString("base64")}`
        unreadable.set(keyId, (unreadable.get(keyId) ?? 0) + 1)
        return value
      })
      let last = "00000000-0000-0000-0000-000000000000"
      while (true) {
        const rows = yield* sql<Guardrail>`SELECT id::text AS id, config FROM public.guardrails
          WHERE id > ${last}::text::uuid AND config::text LIKE '%"sealed:%' ORDER BY id LIMIT ${BATCH}`
        const lastRow = rows.at(-1)
        if (lastRow === undefined) return { table, resealed, unreadable } satisfies ResealReport
        last = lastRow.id
        for (const { config, id } of rows) {
          const before = JSON.stringify(config)
          const after = JSON.stringify(yield* renew(config))
          if (after === before) continue
          const written = yield* sql`UPDATE public.guardrails SET config = ${after}::text::jsonb
            WHERE id = ${id}::text::uuid AND config = ${before}::text::jsonb RETURNING 1`
          resealed += written.length
        }
      }
    })

    return Reseal.of({
      run: Effect.gen(function* () {
        const schemas = [...new Set(yield* Effect.forEach([publicTenant, ...tenants.slugs], tenants.schemaOf))]
        const reports: Array<ResealReport> = []
        for (const place of places(schemas)) reports.push(yield* resealPlace(place))
        reports.push(yield* resealGuardrails)
        return reports
      })
    })
  })
)
