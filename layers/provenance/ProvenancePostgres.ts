import { hash } from "node:crypto"
import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Effect, Layer, Option, Result } from "effect"
import { SqlClient } from "effect/sql"
import { canonicalJson } from "#domain/canonical-json.ts"
import { uuidv7 } from "#domain/ids.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { type ChainReport, Provenance, type ProvenanceEntry } from "#services/provenance/Provenance.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

const PAGE = 1000

interface Head {
  readonly sequence_number: bigint
  readonly payload_hash: string
}

interface StoredEntry extends Head {
  readonly payload: JsonObject
}

/** The hash of the entry that follows the one with `previousHash`; that is empty before the first entry. */
export const payloadHash = (canonicalPayload: string, previousHash: string): string =>
  hash("sha256", canonicalPayload + previousHash, "hex")

const storableText = (text: string): string => text.toWellFormed().replaceAll("\0", "\ufffd")

/** PostgreSQL holds no NUL in a text, and half a surrogate pair has no canonical form. */
const storable = (value: Json): Json => {
  if (typeof value === "string") return storableText(value)
  if (typeof value !== "object" || value === null) return value
  if (!isJsonObject(value)) return value.map(storable)
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [storableText(name), storable(member)]))
}

const canonicalPayload = (payload: JsonObject): string => {
  try {
    const text = canonicalJson(payload)
    // The escape of a NUL, or a text that spells it: the second is rare and the long way does it no harm.
    if (!text.includes("\\u0000")) return text
  } catch {
    // A lone surrogate; what has no canonical form for another reason fails below again.
  }
  return canonicalJson(storable(payload))
}

const columns = [
  ["id", "uuid"],
  ["action", "text"],
  ["actor", "text"],
  ["resource_type", "text"],
  ["resource_id", "text"],
  ["request_id", "text"],
  ["payload", "text"],
  ["payload_hash", "text"],
  ["created_at", "timestamptz"]
] as const

const appendStatement = (schema: string): string => {
  const names = columns.map(([name]) => name).join(", ")
  const values = columns.map(([name]) => (name === "payload" ? "payload::jsonb" : name)).join(", ")
  const arrays = columns.map(([, type], index) => `$${index + 4}::${type}[]`).join(", ")
  return `WITH entries AS (
    INSERT INTO ${schema}.provenance_entries (sequence_number, ${names})
    SELECT $1::bigint + ordinality, ${values} FROM unnest(${arrays}) WITH ORDINALITY AS t (${names}, ordinality)
  ) UPDATE ${schema}.provenance_head SET sequence_number = $2::bigint, payload_hash = $3::text`
}

/** The chain in PostgreSQL: one row per tenant says where it ends, and whoever appends holds that row. */
export const layer: Layer.Layer<Provenance, never, SqlClient.SqlClient | Tenants> = Layer.effect(
  Provenance,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const tenants = yield* Tenants
    const headOf = (schema: string, lock: "" | "FOR UPDATE") =>
      Effect.flatMap(
        sql.unsafe<Head>(`SELECT sequence_number, payload_hash FROM ${schema}.provenance_head ${lock}`),
        ([head]) =>
          head === undefined
            ? Effect.die(new Error(`The provenance chain of ${schema} has no head`))
            : Effect.succeed(head)
      )

    const appendInTransaction = Effect.fnUntraced(function* (tenant: string, entries: ReadonlyArray<ProvenanceEntry>) {
      const schema = yield* tenants.schemaOf(tenant)
      const texts = entries.map((entry) => canonicalPayload(entry.payload))
      const head = yield* headOf(schema, "FOR UPDATE")
      let last = head.payload_hash
      const hashes = texts.map((text) => (last = payloadHash(text, last)))
      const array = (type: "uuid" | "text" | "timestamptz", values: ReadonlyArray<unknown>) =>
        Result.getOrThrow(PgTypes.array(values, PgTypes.OID[type]))
      const column = (type: "uuid" | "text" | "timestamptz", value: (entry: (typeof entries)[number]) => unknown) =>
        array(type, entries.map(value))
      yield* sql.unsafe(appendStatement(schema), [
        PgTypes.int8(head.sequence_number),
        PgTypes.int8(head.sequence_number + BigInt(entries.length)),
        last,
        column("uuid", (entry) => uuidv7(entry.createdAt)),
        column("text", (entry) => entry.action),
        column("text", (entry) => entry.actor),
        column("text", (entry) => entry.resourceType),
        column("text", (entry) => entry.resourceId),
        column("text", (entry) => entry.requestId),
        array("text", texts),
        array("text", hashes),
        column("timestamptz", (entry) => entry.createdAt)
      ])
    })

    const append = (tenant: string, entries: ReadonlyArray<ProvenanceEntry>) => {
      if (entries.length === 0) return Effect.void
      return Effect.flatMap(Effect.serviceOption(sql.transactionService), (transaction) =>
        Option.isSome(transaction)
          ? appendInTransaction(tenant, entries)
          : sql.withTransaction(appendInTransaction(tenant, entries))
      )
    }

    const verify = Effect.fn("Provenance.verify")(function* (tenant: string) {
      const schema = yield* tenants.schemaOf(tenant)
      const head = yield* headOf(schema, "")
      const total = Number(head.sequence_number)
      const broken = (sequenceNumber: number, why: "missing" | "changed"): ChainReport => ({
        entries: sequenceNumber - 1,
        broken: { sequenceNumber, why }
      })
      let last = ""
      let checked = 0
      while (checked < total) {
        const rows = yield* sql.unsafe<StoredEntry>(
          `SELECT sequence_number, payload, payload_hash FROM ${schema}.provenance_entries
           WHERE sequence_number > $1::bigint AND sequence_number <= $2::bigint ORDER BY sequence_number LIMIT ${PAGE}`,
          [PgTypes.int8(BigInt(checked)), PgTypes.int8(head.sequence_number)]
        )
        if (rows.length === 0) return broken(checked + 1, "missing")
        for (const row of rows) {
          if (row.sequence_number !== BigInt(checked + 1)) return broken(checked + 1, "missing")
          last = payloadHash(canonicalJson(row.payload), last)
          if (row.payload_hash !== last) return broken(checked + 1, "changed")
          checked += 1
        }
      }
      return last === head.payload_hash ? { entries: checked, broken: undefined } : broken(checked + 1, "missing")
    })

    return Provenance.of({ append, verify })
  })
)
