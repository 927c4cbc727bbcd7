import { spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync, readFileSync } from "node:fs"
import { createServer, connect, type Socket } from "node:net"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted, References } from "effect"
import { SqlClient } from "effect/sql"
import { uuidv7 } from "#domain/ids.ts"
import * as DatabasePostgres from "#layers/storage/DatabasePostgres.ts"
import * as EmbeddedPostgres from "#layers/storage/EmbeddedPostgres.ts"
import * as UsageLedgerPostgres from "#layers/usage/UsageLedgerPostgres.ts"
import { DatabaseServer } from "#services/storage/DatabaseServer.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"
import { freshDatabase } from "#test/support/Postgres.ts"
import {
  accountsSpent,
  type Books,
  booksOf,
  outcomeOf,
  type PostedCharges,
  temporaryDirectory,
  underUsage
} from "#test/support/usage.ts"

const program = fileURLToPath(new URL("recording-process.ts", import.meta.url))

const onServer = (url: Redacted.Redacted<string>, poolSize = 5) =>
  DatabasePostgres.layer({ poolSize }).pipe(
    Layer.provideMerge(
      Layer.succeed(DatabaseServer, { url, kind: "external" as const, state: Effect.succeed("ready" as const) })
    )
  )

/** Starts the program and kills it a random while after it has begun. */
const recordAndKill = async (args: ReadonlyArray<string>): Promise<void> => {
  const child = spawn(process.execPath, ["--stack-trace-limit=0", program, ...args], {
    stdio: ["ignore", "pipe", "inherit"]
  })
  const exited = once(child, "exit")
  await Promise.race([
    once(child.stdout, "data"),
    exited.then(([code]) => Promise.reject(new Error(`exited with ${code}`)))
  ])
  await new Promise((resolve) => setTimeout(resolve, 20 + Math.random() * 400))
  child.kill("SIGKILL")
  await exited
}

const assertAgree = (books: Books) => {
  assert.strictEqual(books.distinct, books.rows)
  assert.strictEqual(books.dailyRequests, books.rows)
  assert.strictEqual(books.keyRequests, books.rows)
  assert.strictEqual(books.chain, books.rows)
  assert.strictEqual(books.dailySpend, books.spend)
  assert.strictEqual(books.keySpend, books.spend)
  assert.strictEqual(books.dailyPromptTokens, books.promptTokens)
}

describe("UsageLedgerPostgres after a crash", () => {
  it.live(
    "kill -9 in a loop, two processes at once: every confirmed outcome is there exactly once, and the sums agree",
    () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const journal = join(directory, "journal")
        const url = yield* freshDatabase()
        const acknowledged = (worker: string) => join(directory, worker)
        for (let round = 0; round < 6; round++) {
          yield* Effect.promise(() =>
            Promise.all(
              ["w0", "w1"].map((worker) => recordAndKill([Redacted.value(url), journal, worker, acknowledged(worker)]))
            )
          )
        }
        yield* Effect.gen(function* () {
          const left = yield* UsageLedgerPostgres.replayJournals(journal)
          assert.isAbove(left, 0, "the last kills left something to replay")
          const publicBooks = yield* booksOf("", "public")
          const acmeBooks = yield* booksOf("acme", `"tenant_acme"`)
          assertAgree(publicBooks)
          assertAgree(acmeBooks)
          assert.strictEqual(yield* accountsSpent, publicBooks.spend + acmeBooks.spend)
          const sql = yield* SqlClient.SqlClient
          const rows = yield* sql<{ id: string }>`SELECT call_id::text AS id FROM public.spend_logs
            UNION ALL SELECT call_id::text FROM tenant_acme.spend_logs`
          const stored = new Set(rows.map((row) => row.id))
          assert.strictEqual(stored.size, rows.length)
          const confirmed = ["w0", "w1"].flatMap((worker) =>
            readFileSync(acknowledged(worker), "utf8").trim().split("\n")
          )
          assert.isAbove(confirmed.length, 1000)
          assert.deepStrictEqual(
            confirmed.filter((id) => !stored.has(id)),
            []
          )
          assert.isFalse(existsSync(join(journal, "rejected.jsonl")))
        }).pipe(Effect.provide(underUsage(["acme"]).pipe(Layer.provideMerge(onServer(url)))))
      }),
    60_000
  )

  it.live(
    "PostgreSQL cut off in the middle of commits, again and again: nothing is lost or counted twice",
    () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const url = yield* freshDatabase()
        const target = new URL(Redacted.value(url))
        // Stands between: closing its sockets at any byte is what a dying server looks like, answers to COMMIT included.
        const sockets = new Set<Socket>()
        let open = true
        let lossy = false
        const proxy = createServer((client) => {
          if (!open) return client.destroy()
          const host = target.searchParams.get("host")
          const port = target.searchParams.get("port") ?? (target.port === "" ? "5432" : target.port)
          const server = host?.startsWith("/")
            ? connect(`${host}/.s.PGSQL.${port}`)
            : connect(Number(port), target.hostname)
          for (const socket of [client, server]) {
            sockets.add(socket)
            socket
              .on("error", () => socket.destroy())
              .on("close", () => {
                sockets.delete(socket)
                client.destroy()
                server.destroy()
              })
          }
          client.pipe(server)
          // Now and then an answer gets lost with its connection: was it the answer to COMMIT, nobody knows.
          server.on("data", (chunk) => {
            if (lossy && Math.random() < 0.02) server.destroy()
            else client.write(chunk)
          })
          return undefined
        })
        yield* Effect.promise(() => new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve)))
        yield* Effect.addFinalizer(() => Effect.sync(() => proxy.close()))
        const address = proxy.address() as { port: number }
        const through = new URL(target.href)
        through.search = ""
        through.hostname = "127.0.0.1"
        through.port = String(address.port)
        const cut = () => {
          for (const socket of sockets) socket.destroy()
        }

        const key = uuidv7(Date.now())
        const count = 6000
        const seen: PostedCharges = { posted: [] }
        yield* Effect.gen(function* () {
          const usage = yield* UsageLedger
          lossy = true
          for (let done = 0; done < count; done += 100) {
            yield* Effect.forEach(
              Array.from({ length: 100 }, () => outcomeOf(key, 3n)),
              usage.record,
              { concurrency: "unbounded", discard: true }
            )
            yield* Effect.sleep(Math.random() * 12)
            if (done % 500 === 0) cut()
            if (done === 2000) {
              open = false
              cut()
            }
            if (done === 4000) open = true
          }
          lossy = false
          yield* usage.flush
        }).pipe(
          Effect.provide(
            UsageLedgerPostgres.layer({ directory, worker: "w0", limitBytes: 2 ** 26 }).pipe(
              Layer.provideMerge(underUsage([], seen)),
              Layer.provideMerge(onServer(Redacted.make(through.href)))
            )
          )
        )
        yield* Effect.gen(function* () {
          const books = yield* booksOf("", "public")
          assertAgree(books)
          assert.strictEqual(books.rows, count)
          assert.strictEqual(books.spend, BigInt(count * 3))
          assert.strictEqual(seen.posted.length, count, "each charge is reported once, whatever became of the answers")
          assert.strictEqual(yield* accountsSpent, BigInt(count * 3))
        }).pipe(Effect.provide(underUsage().pipe(Layer.provideMerge(onServer(url)))))
      }),
    60_000
  )

  it.live(
    "PostgreSQL killed and stopped under load: calls go on, and the books agree when it is back",
    () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const dataDir = join(directory, "data")
        const server = EmbeddedPostgres.layer({ dataDir })
        const postmaster = () =>
          Number(readFileSync(join(dataDir, "postgres", "data", "postmaster.pid"), "utf8").split("\n")[0])
        const key = uuidv7(Date.now())
        const count = 3000
        yield* Effect.gen(function* () {
          const usage = yield* UsageLedger
          for (let done = 0; done < count; done += 50) {
            assert.isFalse(usage.isFull())
            yield* Effect.forEach(
              Array.from({ length: 50 }, () => outcomeOf(key, 7n)),
              usage.record,
              { concurrency: "unbounded", discard: true }
            )
            yield* Effect.sleep(10)
            if (done === 500) process.kill(postmaster(), "SIGKILL")
            if (done === 2000) {
              const database = yield* DatabaseServer
              while ((yield* database.state) !== "ready") yield* Effect.sleep(20)
              process.kill(postmaster(), "SIGINT")
            }
          }
          // The server takes a while to come back; a flush gives up after five seconds and is asked again.
          yield* Effect.retry(usage.flush, { times: 5 })
          const books = yield* booksOf("", "public")
          assertAgree(books)
          assert.strictEqual(books.rows, count)
          assert.strictEqual(books.spend, BigInt(count * 7))
          assert.strictEqual(yield* accountsSpent, BigInt(count * 7))
        }).pipe(
          Effect.provide(
            UsageLedgerPostgres.layer({
              directory: join(directory, "journal"),
              worker: "w0",
              limitBytes: 2 ** 26
            }).pipe(
              Layer.provideMerge(underUsage()),
              Layer.provideMerge(DatabasePostgres.layer({ poolSize: 5 })),
              Layer.provideMerge(server)
            )
          ),
          Effect.provideService(References.MinimumLogLevel, "Fatal")
        )
      }),
    60_000
  )
})
