/** Several processes behind one port, and `kill -9` of one of them: no client waits for an answer that cannot come. */
import { execFileSync } from "node:child_process"
import { request } from "node:http"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { type OpenDatabase, openDatabase, until } from "#test/support/acceptance.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"

const kills = 4

describe("kill -9 of a worker", () => {
  let database: OpenDatabase
  let gateway: Gateway

  beforeAll(async () => {
    database = await openDatabase()
    gateway = await startGateway({ databaseUrl: database.url, env: { GATEWAY_PROCESSES: "2" } })
  }, 60_000)
  afterAll(async () => {
    await gateway.stop()
    await database.close()
  })

  const workers = (): ReadonlyArray<number> =>
    execFileSync("ps", ["-Ao", "pid=,ppid="], { encoding: "utf8" })
      .split("\n")
      .map((line) => line.trim().split(/\s+/).map(Number))
      .filter(([, parent]) => parent === gateway.child.pid)
      .map(([pid]) => pid!)

  /** One request on a connection of its own: what became of it within 5 s. */
  const ask = () =>
    new Promise<string>((resolve) => {
      const sent = request(`${gateway.url}/openapi/v1.yaml`, { agent: false }, (response) => {
        response.resume()
        response.once("close", () => done(response.complete ? "answered" : "cut"))
      })
      const timer = setTimeout(() => done("hangs"), 5_000)
      const done = (what: string) => {
        clearTimeout(timer)
        sent.destroy()
        resolve(what)
      }
      sent.once("error", (error: NodeJS.ErrnoException) => done(error.code ?? error.message))
      sent.end()
    })

  it("resets what it had, and leaves no connection waiting", async () => {
    const seen = new Map<string, number>()
    const stop = new AbortController()
    const client = async () => {
      while (!stop.signal.aborted) {
        const what = await ask()
        seen.set(what, (seen.get(what) ?? 0) + 1)
      }
    }
    const clients = Array.from({ length: 40 }, client)
    for (let kill = 0; kill < kills; kill++) {
      const before = await until(
        async () => workers(),
        ({ length }) => length === 2,
        20_000
      )
      await new Promise((resolve) => setTimeout(resolve, 300))
      process.kill(before[kill % 2]!, "SIGKILL")
      await until(
        async () => (await fetch(`${gateway.opsUrl}/readyz`)).status,
        (status) => status === 200,
        20_000
      )
    }
    stop.abort()
    await Promise.all(clients)
    assert.isUndefined(seen.get("hangs"), JSON.stringify([...seen]))
    assert.isAbove(seen.get("answered") ?? 0, 100)
  }, 120_000)
})
