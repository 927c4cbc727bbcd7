import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { lockDataDir, processStart } from "#layers/storage/DataDirLock.ts"
import { startEmbeddedGateway } from "#test/support/EmbeddedGateway.ts"

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "sluice-lock-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

/** A lock as its holder wrote it, changed. */
const edit = (path: string, change: object): void =>
  writeFileSync(path, JSON.stringify({ ...(JSON.parse(readFileSync(path, "utf8")) as object), ...change }))

/** The content a lock of this process has. */
const ownLock = (dataDir: string) =>
  Effect.scoped(Effect.map(lockDataDir(dataDir), () => readFileSync(join(dataDir, "gateway.lock"), "utf8")))

describe("DataDirLock", () => {
  it.live("is held by one at a time, and free again after", () =>
    Effect.gen(function* () {
      const dataDir = join(yield* directory, "made", "here")
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* lockDataDir(dataDir)
          const error = yield* Effect.flip(lockDataDir(dataDir))
          assert.strictEqual(
            error.message,
            `Another gateway (pid ${process.pid}) is using the data dir ${dataDir}; stop it or set another GATEWAY_DATA_DIR`
          )
        })
      )
      assert.deepStrictEqual(readdirSync(dataDir), [])
      yield* lockDataDir(dataDir)
    })
  )

  it.live("takes over from a holder that is gone, although another process has its pid", () =>
    Effect.gen(function* () {
      const dataDir = yield* directory
      const path = join(dataDir, "gateway.lock")
      writeFileSync(path, yield* ownLock(dataDir))
      // This process's pid with another start time: as after a restart of the container.
      edit(path, { start: `${processStart(process.pid)}0` })
      yield* lockDataDir(dataDir)
      assert.deepStrictEqual(readdirSync(dataDir), ["gateway.lock"])
    })
  )

  it.live("takes over a lock that is no lock once it is old", () =>
    Effect.gen(function* () {
      const dataDir = yield* directory
      const path = join(dataDir, "gateway.lock")
      writeFileSync(path, "")
      utimesSync(path, 1_000, 1_000)
      yield* lockDataDir(dataDir)
    })
  )

  it.live("asks the heartbeat about a holder it cannot look up", () =>
    Effect.gen(function* () {
      const dataDir = yield* directory
      const path = join(dataDir, "gateway.lock")
      writeFileSync(path, yield* ownLock(dataDir))
      edit(path, { namespace: "pid:[1]", pid: 1 })
      const beating = setInterval(() => utimesSync(path, new Date(), new Date()), 50)
      yield* Effect.addFinalizer(() => Effect.sync(() => clearInterval(beating)))
      const error = yield* Effect.flip(lockDataDir(dataDir, { heartbeatMs: 50, abandonedMs: 500 }))
      assert.include(error.message, "Another gateway (pid 1)")
      clearInterval(beating)
      // It is dead now, and found so by waiting.
      yield* lockDataDir(dataDir, { heartbeatMs: 50, abandonedMs: 500 })
    })
  )

  it.live("completes lost when it is taken away", () =>
    Effect.gen(function* () {
      const dataDir = yield* directory
      const { lost } = yield* lockDataDir(dataDir, { heartbeatMs: 20, abandonedMs: 500 })
      edit(join(dataDir, "gateway.lock"), { nonce: "other" })
      yield* lost
      assert.isTrue(existsSync(join(dataDir, "gateway.lock")))
    })
  )

  it.live("has one winner when several start on the lock of a killed process", () =>
    Effect.gen(function* () {
      const dataDir = yield* directory
      const first = yield* startEmbeddedGateway({ dataDir, mode: "lock" })
      const refused = yield* Effect.flip(startEmbeddedGateway({ dataDir, mode: "lock" }))
      assert.include(refused, `Another gateway (pid ${first.pid})`)
      yield* first.kill
      const results = yield* Effect.all(
        Array.from({ length: 5 }, () => Effect.result(startEmbeddedGateway({ dataDir, mode: "lock" }))),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(results.filter(Result.isSuccess).length, 1)
      assert.deepStrictEqual(readdirSync(dataDir), ["gateway.lock"])
    })
  )
})
