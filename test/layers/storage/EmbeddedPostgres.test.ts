import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted, References, Schedule, type Scope } from "effect"
import { Reactivity } from "effect/reactivity"
import * as DatabasePostgres from "#layers/storage/DatabasePostgres.ts"
import { processStart } from "#layers/storage/DataDirLock.ts"
import * as EmbeddedPostgres from "#layers/storage/EmbeddedPostgres.ts"
import { rotateLog } from "#layers/storage/PostgresCluster.ts"
import { startEmbeddedGateway } from "#test/support/EmbeddedGateway.ts"

const root = process.getuid?.() === 0

/** Closed to everybody but its owner, as home directories are. */
const directory: Effect.Effect<string, never, Scope.Scope> = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(join(tmpdir(), "sluice-embedded-"))),
  (path) => Effect.sync(() => fs.rmSync(path, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 }))
)

const connect = (url: string) => DatabasePostgres.make({ url: Redacted.make(url), poolSize: 1 })

/** How many notes the database holds after one more. */
const note = (url: string) =>
  Effect.scoped(
    Effect.gen(function* () {
      const sql = yield* connect(url)
      yield* sql`CREATE TABLE IF NOT EXISTS notes (at timestamptz)`
      yield* sql`INSERT INTO notes VALUES (now())`
      return Number((yield* sql`SELECT count(*) AS notes FROM notes`)[0]?.["notes"])
    })
  )

/** The pid in postmaster.pid, 0 without such a file. */
const postmaster = (dataDir: string): number => {
  const path = join(dataDir, "postgres/data/postmaster.pid")
  return fs.existsSync(path) ? Number(fs.readFileSync(path, "utf8").split("\n")[0]) : 0
}

const untilGone = (pid: number) =>
  Effect.sync(() => processStart(pid)).pipe(
    Effect.repeat({ schedule: Schedule.spaced("10 millis"), until: (start) => start === undefined })
  )

/** The shell that ends PostgreSQL when its gateway is gone. */
const guardOf = (pid: number): number => {
  const found = spawnSync("ps", ["-eo", "pid=,args="], { encoding: "utf8" })
    .stdout.split("\n")
    .find((line) => line.includes("kill -INT") && line.trim().endsWith(` ${pid}`))
  return Number(found?.trim().split(/\s+/)[0])
}

const test = <A, E>(effect: Effect.Effect<A, E, Scope.Scope | Reactivity.Reactivity>) =>
  effect.pipe(Effect.provide(Reactivity.layer), Effect.provideService(References.MinimumLogLevel, "None"))

describe("EmbeddedPostgres", () => {
  it.live("starts, keeps its data across clean stops and leaves nothing running or readable", () =>
    test(
      Effect.gen(function* () {
        const dataDir = yield* directory
        const pids: Array<number> = []
        for (const expected of [1, 2]) {
          yield* Effect.scoped(
            Effect.gen(function* () {
              const server = yield* EmbeddedPostgres.make({ dataDir })
              assert.strictEqual(yield* server.state, "ready")
              assert.strictEqual(yield* note(Redacted.value(server.url)), expected)
              pids.push(postmaster(dataDir))
              const refused = yield* Effect.flip(Effect.scoped(EmbeddedPostgres.make({ dataDir })))
              assert.match(refused.message, /^Another gateway \(pid \d+\) is using the data dir [^\n]+$/)
            })
          )
          assert.isUndefined(processStart(pids.at(-1) ?? 0))
        }
        assert.isFalse(fs.existsSync(join(dataDir, "postgres/data/postmaster.pid")))
        assert.isFalse(fs.existsSync(join(dataDir, "gateway.lock")))
        for (const path of ["password", "postgres.log", "data", "run"]) {
          assert.strictEqual(fs.statSync(join(dataDir, "postgres", path)).mode & 0o077, 0, path)
        }
        const owner = fs.statSync(join(dataDir, "postgres/data")).uid
        assert.strictEqual(owner, root ? 65534 : process.getuid?.())
      })
    )
  )

  it.live("wants the password", () =>
    test(
      Effect.gen(function* () {
        const server = yield* EmbeddedPostgres.make({ dataDir: yield* directory, durable: false })
        const url = new URL(Redacted.value(server.url))
        url.password = "wrong"
        assert.strictEqual((yield* Effect.flip(note(url.href))).reason._tag, "AuthenticationError")
      })
    )
  )

  it.live("brings PostgreSQL back when it is killed under a living gateway", () =>
    test(
      Effect.gen(function* () {
        const dataDir = yield* directory
        const server = yield* EmbeddedPostgres.make({ dataDir, durable: false })
        const url = Redacted.value(server.url)
        const sql = yield* connect(url)
        yield* note(url)
        for (let round = 0; round < 2; round++) {
          const killed = postmaster(dataDir)
          process.kill(killed, "SIGKILL")
          yield* Effect.sync(() => postmaster(dataDir)).pipe(
            Effect.zip(server.state),
            Effect.repeat({
              schedule: Schedule.spaced("10 millis"),
              until: ([pid, state]) => pid > 0 && pid !== killed && state === "ready"
            })
          )
          // The pool may still hold a session of the dead server, for one statement at most.
          yield* Effect.ignore(sql`SELECT 1`)
          yield* sql`SELECT 1`
        }
        assert.strictEqual(yield* note(url), 2)
      })
    )
  )

  it.live("starts cleanly after kill -9 of the gateway, of its guard, and of everything", () =>
    test(
      Effect.gen(function* () {
        const dataDir = yield* directory
        const first = yield* startEmbeddedGateway({ dataDir })
        assert.strictEqual(yield* note(first.url), 1)
        const refused = yield* Effect.flip(startEmbeddedGateway({ dataDir }))
        assert.include(refused, `Another gateway (pid ${first.pid})`)

        // The gateway alone: its guard ends PostgreSQL, with or without a next start.
        const guarded = postmaster(dataDir)
        yield* first.kill
        yield* untilGone(guarded)

        // Gateway and guard: PostgreSQL is left running, with a client; the next start ends it.
        const second = yield* startEmbeddedGateway({ dataDir })
        const orphan = postmaster(dataDir)
        process.kill(guardOf(orphan), "SIGKILL")
        yield* second.kill
        assert.isDefined(processStart(orphan))
        assert.strictEqual(yield* note(second.url), 2)

        // Everything at once: a stale postmaster.pid and recovery from the log.
        const third = yield* startEmbeddedGateway({ dataDir })
        assert.isUndefined(processStart(orphan))
        assert.strictEqual(yield* note(third.url), 3)
        const killed = postmaster(dataDir)
        process.kill(guardOf(killed), "SIGKILL")
        process.kill(killed, "SIGKILL")
        yield* third.kill

        // The same, and the pid in postmaster.pid now belongs to an unrelated process.
        const stale = join(dataDir, "postgres/data/postmaster.pid")
        fs.writeFileSync(stale, fs.readFileSync(stale, "utf8").replace(/^\d+/, String(process.pid)))
        const fourth = yield* startEmbeddedGateway({ dataDir })
        assert.strictEqual(yield* note(fourth.url), 4)
        const last = postmaster(dataDir)
        assert.strictEqual(yield* fourth.stop, 0)
        assert.isUndefined(processStart(last))
      })
    )
  )

  it.live("runs as an ordinary user, and then as root on what that user made", () =>
    test(
      Effect.gen(function* () {
        const dataDir = join(yield* directory, "data")
        if (root) {
          fs.chmodSync(join(dataDir, ".."), 0o777)
          const nameless = yield* Effect.flip(startEmbeddedGateway({ dataDir: `${dataDir}2`, uid: 54321 }))
          assert.include(nameless, "add uid 54321 to /etc/passwd")
          const ordinary = yield* startEmbeddedGateway({ dataDir, uid: 1 })
          assert.strictEqual(yield* note(ordinary.url), 1)
          assert.strictEqual(yield* ordinary.stop, 0)
        }
        const server = yield* EmbeddedPostgres.make({ dataDir, durable: false })
        assert.strictEqual(yield* note(Redacted.value(server.url)), root ? 2 : 1)
      })
    )
  )

  it.live("serves a data dir whose path is too long for a socket, and TCP where asked to", () =>
    test(
      Effect.gen(function* () {
        const dataDir = join(yield* directory, "long".repeat(30))
        for (const [tcp, expected] of [
          [false, 1],
          [false, 2],
          [true, 3]
        ] as const) {
          yield* Effect.scoped(
            Effect.gen(function* () {
              const server = yield* EmbeddedPostgres.make({ dataDir, durable: false, tcp })
              assert.strictEqual(yield* note(Redacted.value(server.url)), expected)
            })
          )
        }
        const sockets = fs.readFileSync(join(dataDir, "postgres/socket-directory"), "utf8")
        fs.rmSync(sockets, { recursive: true })
      })
    )
  )

  it.live("keeps the log bounded under a writer that appends", () =>
    Effect.gen(function* () {
      const path = join(yield* directory, "postgres.log")
      const log = fs.openSync(path, "a")
      fs.writeSync(log, "x".repeat(10 * 1024 * 1024))
      rotateLog(path)
      assert.isFalse(fs.existsSync(`${path}.1`))
      fs.writeSync(log, "last line\n")
      rotateLog(path)
      fs.writeSync(log, "next line\n")
      fs.closeSync(log)
      assert.strictEqual(fs.readFileSync(path, "utf8"), "next line\n")
      assert.isTrue(fs.readFileSync(`${path}.1`, "utf8").endsWith("last line\n"))
    })
  )

  it.live("says in one line what is wrong with a cluster it cannot run", () =>
    test(
      Effect.gen(function* () {
        const dataDir = yield* directory
        yield* Effect.scoped(EmbeddedPostgres.make({ dataDir, durable: false }))
        const start = Effect.map(Effect.flip(Effect.scoped(EmbeddedPostgres.make({ dataDir }))), (e) => e.message)
        const version = join(dataDir, "postgres/data/PG_VERSION")
        fs.writeFileSync(version, "12\n")
        assert.include(yield* start, "was made by PostgreSQL 12, this gateway brings PostgreSQL 18")
        fs.writeFileSync(version, "18\n")
        fs.appendFileSync(join(dataDir, "postgres/data/postgresql.conf"), "\nno_such_setting = 1\n")
        assert.match(yield* start, /^The embedded PostgreSQL did not start: [^\n]*configuration file[^\n]*$/)
        fs.rmSync(join(dataDir, "postgres/password"))
        assert.include(yield* start, "password is missing")
      })
    )
  )
})
