import { createHash } from "node:crypto"
import * as fs from "node:fs"
import { join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { fileURLToPath } from "node:url"
import { Data, Duration, Effect } from "effect"
import { SqlClient, type SqlConnection, type SqlError } from "effect/sql"
import { StatementDeadline } from "#layers/storage/DatabasePostgres.ts"

/** A migration that cannot be applied, or files that do not fit what the database says was applied. One line. */
export class MigrationError extends Data.TaggedError("MigrationError")<{ readonly message: string }> {}

/** Which folder a file comes from: `public` goes into schema public, `tenant` into every schema asked for. */
export type MigrationArea = "public" | "tenant"

/** One file applied to one schema. */
export interface AppliedMigration {
  readonly schema: string
  /** `public/0001_name.sql` */
  readonly file: string
  readonly durationMs: number
}

/** What to migrate. */
export interface MigrateOptions {
  /** Schemas that get the tenant migrations, made when missing. Pass `public` when there are no tenants. */
  readonly schemas: ReadonlyArray<string>
  /** The folder that holds `public/` and `tenant/`; the project's own by default. */
  readonly directory?: string
  /** How long to wait for another process that is migrating. Default 2 minutes. */
  readonly lockTimeout?: Duration.Input
}

interface MigrationFile {
  readonly area: MigrationArea
  readonly number: number
  readonly name: string
  readonly checksum: string
  readonly statements: ReadonlyArray<string>
  readonly transaction: boolean
}

interface Recorded {
  readonly area: string
  readonly number: number
  readonly name: string
  readonly checksum: string
}

/** The advisory lock all migrating processes take: the first eight bytes of SHA-256("sluice migrations"). */
const LOCK = createHash("sha256").update("sluice migrations").digest().readBigInt64BE(0).toString()
const LOCK_TIMEOUT = "30s"
const FILE_NAME = /^(\d{4})_([a-z0-9_]+)\.sql$/
const SCHEMA_NAME = /^[a-z_][a-z0-9_-]{0,62}$/

const ownDirectory = fileURLToPath(new URL("../../migrations/", import.meta.url))

const fileOf = (migration: Pick<MigrationFile, "area" | "name" | "number">): string =>
  `${migration.area}/${String(migration.number).padStart(4, "0")}_${migration.name}.sql`

/** A block without a statement (only comments or nothing) is left out. */
const hasStatement = (block: string): boolean =>
  block
    .replace(/\/\*[\s\S]*?\*\//g, "")
    .replace(/--[^\n]*/g, "")
    .trim() !== ""

const parseFile = (area: MigrationArea, file: string, text: string): MigrationFile => {
  const [, number, name] = FILE_NAME.exec(file) ?? []
  if (number === undefined || name === undefined) {
    throw new MigrationError({ message: `Migration ${area}/${file} is not named NNNN_name.sql` })
  }
  // A checkout that converts line ends must not look like an edited file.
  const normal = text.replace(/\r\n/g, "\n")
  return {
    area,
    number: Number(number),
    name,
    checksum: createHash("sha256").update(normal).digest("hex"),
    statements: normal.split(/^-- next[ \t]*$/m).filter(hasStatement),
    transaction: !/^-- no-transaction[ \t]*(\n|$)/.test(normal)
  }
}

const readArea = (directory: string, area: MigrationArea): ReadonlyArray<MigrationFile> => {
  const folder = join(directory, area)
  if (!fs.existsSync(folder)) return []
  const files = fs
    .readdirSync(folder)
    .filter((file) => file.endsWith(".sql"))
    .sort()
    .map((file) => parseFile(area, file, fs.readFileSync(join(folder, file), "utf8")))
  files.forEach((file, index) => {
    const next = files[index + 1]
    if (next?.number === file.number) {
      throw new MigrationError({ message: `Migrations ${fileOf(file)} and ${fileOf(next)} have the same number` })
    }
  })
  return files
}

/** The files still to be applied, or what is wrong with them. */
const pendingOf = (
  schema: string,
  files: ReadonlyArray<MigrationFile>,
  recorded: ReadonlyArray<Recorded>
): ReadonlyArray<MigrationFile> => {
  const highest = Math.max(-1, ...recorded.map((row) => row.number))
  for (const row of recorded) {
    const file = files.find((candidate) => candidate.number === row.number)
    const label = fileOf({ ...row, area: row.area as MigrationArea })
    if (file === undefined) {
      throw new MigrationError({
        message: `Migration ${label} was applied to schema ${schema} but its file is missing: is the database newer than this program?`
      })
    }
    if (file.checksum !== row.checksum) {
      throw new MigrationError({
        message: `Migration ${fileOf(file)} was changed after it was applied to schema ${schema}: write a new migration instead`
      })
    }
  }
  const pending = files.filter((file) => recorded.every((row) => row.number !== file.number))
  const late = pending.find((file) => file.number < highest)
  if (late !== undefined) {
    throw new MigrationError({
      message: `Migration ${fileOf(late)} comes below ${highest}, which schema ${schema} already has: give it a higher number`
    })
  }
  return pending
}

const attempt = <A>(read: () => A): Effect.Effect<A, MigrationError> =>
  Effect.try({
    try: read,
    catch: (cause) =>
      cause instanceof MigrationError
        ? cause
        : new MigrationError({
            message: `Migrations cannot be read: ${cause instanceof Error ? cause.message : cause}`
          })
  })

/** What PostgreSQL said, without the driver's wrapping. */
const reasonOf = (error: SqlError.SqlError): string =>
  error.reason.cause instanceof Error ? error.reason.cause.message : error.message

/** Session-wide work on the one connection that holds the lock. */
const session = (connection: SqlConnection.Connection) => {
  const run = (statement: string, values: ReadonlyArray<unknown> = []) =>
    connection.executeUnprepared(statement, values, undefined)

  const takeLock = (deadline: number): Effect.Effect<void, MigrationError | SqlError.SqlError> =>
    // Polled, because a session waiting inside pg_advisory_lock has a snapshot that CREATE INDEX CONCURRENTLY of the
    // lock's holder would wait for.
    Effect.flatMap(run("SELECT pg_try_advisory_lock($1::bigint) AS taken", [LOCK]), (rows) => {
      if ((rows[0] as { taken: boolean } | undefined)?.taken === true) return Effect.void
      if (performance.now() > deadline) {
        return Effect.fail(
          new MigrationError({ message: "Another process has been migrating the database for too long" })
        )
      }
      return Effect.andThen(
        Effect.promise((signal) => pause(50, undefined, { signal }).catch(() => undefined)),
        takeLock(deadline)
      )
    })

  const recorded = Effect.fnUntraced(function* (schema: string, create: boolean) {
    if (create) {
      // Asked first: CREATE SCHEMA IF NOT EXISTS wants the right to create schemas even when there is nothing to do.
      const found = yield* run("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", [schema])
      if (found.length === 0) yield* run(`CREATE SCHEMA IF NOT EXISTS "${schema}"`)
      yield* run(`CREATE TABLE IF NOT EXISTS "${schema}".schema_migrations (
        area text NOT NULL,
        number integer NOT NULL,
        name text NOT NULL,
        checksum text NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (area, number)
      )`)
    }
    const rows = yield* run(`SELECT area, number, name, checksum FROM "${schema}".schema_migrations ORDER BY number`)
    return rows as ReadonlyArray<Recorded>
  })

  const apply = Effect.fnUntraced(function* (schema: string, file: MigrationFile) {
    const began = performance.now()
    const local = file.transaction ? "LOCAL " : ""
    const body = Effect.gen(function* () {
      yield* run(`SET ${local}search_path TO "${schema}"`)
      yield* run(`SET ${local}lock_timeout TO '${LOCK_TIMEOUT}'`)
      yield* Effect.forEach(file.statements, (statement) => run(statement), { discard: true })
      yield* run(`INSERT INTO "${schema}".schema_migrations (area, number, name, checksum) VALUES ($1, $2, $3, $4)`, [
        file.area,
        file.number,
        file.name,
        file.checksum
      ])
    })
    const whole = file.transaction
      ? run("BEGIN").pipe(
          Effect.andThen(body),
          Effect.andThen(run("COMMIT")),
          Effect.onError(() => Effect.ignore(run("ROLLBACK")))
        )
      : body
    yield* whole.pipe(
      Effect.mapError(
        (error) =>
          new MigrationError({ message: `Migration ${fileOf(file)} failed in schema ${schema}: ${reasonOf(error)}` })
      )
    )
    return { schema, file: fileOf(file), durationMs: Math.round(performance.now() - began) }
  })

  // A connection that goes back to the pool must not keep a search path, a timeout or the lock.
  const reset = Effect.ignore(Effect.andThen(run("RESET ALL"), run("SELECT pg_advisory_unlock_all()")))

  return { run, takeLock, recorded, apply, reset }
}

/**
 * Brings the database up to this program's migrations: `public/` into schema public, then `tenant/` into each given
 * schema. Forward only. Each file is applied in a transaction of its own, together with its row in the schema's
 * `schema_migrations`; a file whose first line is `-- no-transaction` is applied statement by statement and, being
 * repeated from its start after a failure, must be written so that this does no harm. Statements are separated by
 * lines `-- next`. One advisory lock keeps processes apart: the second finds nothing left to do. Fails, before it
 * changes anything in the schema concerned, when an applied file was changed or is missing or when a new file's number
 * is below one already applied.
 */
export const migrate = Effect.fn("migrate")(function* (
  options: MigrateOptions
): Effect.fn.Return<ReadonlyArray<AppliedMigration>, MigrationError | SqlError.SqlError, SqlClient.SqlClient> {
  const directory = options.directory ?? ownDirectory
  const schemas = Array.from(new Set(options.schemas))
  const bad = schemas.find((schema) => !SCHEMA_NAME.test(schema))
  if (bad !== undefined) {
    return yield* new MigrationError({ message: `"${bad}" cannot be a schema: use a-z, 0-9, _ and -, at most 63` })
  }
  const files = yield* attempt(() => ({ public: readArea(directory, "public"), tenant: readArea(directory, "tenant") }))
  const sql = yield* SqlClient.SqlClient
  const lockTimeout = Duration.toMillis(Duration.fromInputUnsafe(options.lockTimeout ?? "2 minutes"))

  return yield* Effect.scoped(
    Effect.gen(function* () {
      const { apply, recorded, reset, run, takeLock } = session(yield* sql.reserve)
      yield* Effect.addFinalizer(() => reset)
      yield* run("SET statement_timeout TO 0")
      yield* run("SET client_min_messages TO warning")
      yield* takeLock(performance.now() + lockTimeout)
      const existing = yield* run("SELECT schemaname FROM pg_catalog.pg_tables WHERE tablename = 'schema_migrations'")
      const known = new Set(existing.map((row) => (row as { schemaname: string }).schemaname))
      const done: Array<AppliedMigration> = []
      const steps: ReadonlyArray<readonly [string, MigrationArea]> = [
        ["public", "public"],
        ...schemas.map((schema) => [schema, "tenant"] as const)
      ]
      for (const [schema, area] of steps) {
        const rows = yield* recorded(schema, !known.has(schema))
        known.add(schema)
        const applied = rows.filter((row) => row.area === area)
        const pending = yield* attempt(() => pendingOf(schema, files[area], applied))
        for (const file of pending) done.push(yield* apply(schema, file))
      }
      return done
    })
  ).pipe(Effect.provideService(StatementDeadline, Duration.infinity))
})
