import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { mayConnect } from "#layers/inference/egress.ts"
import { defaultTransportOptions, makeTransport } from "#layers/inference/TransportUndici.ts"
import type { TransportFailure } from "#services/inference/Transport.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"

const send = (transport: ReturnType<typeof makeTransport>, origin: string): Promise<number | TransportFailure> =>
  new Promise((resolve) => {
    let status = 0
    transport.send(
      origin,
      { method: "GET", path: "/v1/models", headers: {}, body: "" },
      {
        head: (answered) => {
          status = answered
        },
        data: () => undefined,
        end: () => resolve(status),
        failed: resolve
      }
    )
  })

const scoped = (allowPrivate: boolean, more: object = {}) =>
  Effect.acquireRelease(
    Effect.sync(() => makeTransport({ ...defaultTransportOptions, allowPrivate, ...more }, () => 0)),
    (transport) => Effect.sync(() => transport.destroy())
  )

describe("egress guard", () => {
  it("lets global addresses pass and nothing else", () => {
    for (const address of ["1.1.1.1", "93.184.216.34", "2606:4700::1111"]) assert.isTrue(mayConnect(address, false))
    const local = [
      "127.0.0.1",
      "10.1.2.3",
      "172.16.0.1",
      "192.168.1.1",
      "100.64.0.1",
      "198.18.0.1",
      "0.0.0.0",
      "255.255.255.255",
      "224.0.0.1",
      "::1",
      "::",
      "fc00::1",
      "::ffff:127.0.0.1",
      "::ffff:a00:1",
      "64:ff9b::7f00:1",
      "2002:7f00:1::",
      "::127.0.0.1",
      "ff02::1",
      "not an address"
    ]
    for (const address of local) assert.isFalse(mayConnect(address, false), address)
  })

  it("never lets a metadata service be called, even where private networks may", () => {
    for (const address of ["127.0.0.1", "10.1.2.3", "192.168.1.1", "::1", "fc00::1"]) {
      assert.isTrue(mayConnect(address, true), address)
    }
    const metadata = [
      "169.254.169.254",
      "::ffff:169.254.169.254",
      "64:ff9b::a9fe:a9fe",
      "2002:a9fe:a9fe::",
      "fe80::1",
      "fe80::1%eth0",
      "fd00:ec2::254",
      "100.100.100.200"
    ]
    for (const address of metadata) assert.isFalse(mayConnect(address, true), address)
  })

  it.effect("refuses names and odd spellings of a refused address at the socket", () =>
    Effect.gen(function* () {
      const stub = yield* StubUpstream.scoped()
      const guarded = yield* scoped(false)
      const port = stub.port
      for (const host of ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"]) {
        const answer = yield* Effect.promise(() => send(guarded, new URL(`http://${host}:${port}`).origin))
        assert.deepInclude(answer as object, { kind: "refused" }, host)
      }
      assert.strictEqual(stub.received, 0)
      const open = yield* scoped(true)
      for (const host of ["127.0.0.1", "localhost"]) {
        assert.strictEqual(yield* Effect.promise(() => send(open, `http://${host}:${port}`)), 200, host)
      }
      const metadata = yield* Effect.promise(() => send(open, "http://169.254.169.254"))
      assert.deepInclude(metadata as object, { kind: "refused" })
    })
  )

  it.effect("follows no redirect", () =>
    Effect.gen(function* () {
      const stub = yield* StubUpstream.scoped()
      stub.script("*", { status: 302, headers: { location: "/v1/elsewhere" } })
      const transport = yield* scoped(true)
      const answer = yield* Effect.promise(() => send(transport, `http://127.0.0.1:${stub.port}`))
      assert.oneOf(answer, [302, 200])
      assert.isFalse(stub.requests.some((request) => request.path === "/v1/elsewhere"))
    })
  )

  it.effect("bounds connections, lets calls wait in order, and closes what nobody uses", () =>
    Effect.gen(function* () {
      const stub = yield* StubUpstream.scoped()
      let now = 0
      const transport = yield* Effect.acquireRelease(
        Effect.sync(() => makeTransport({ ...defaultTransportOptions, connections: 2, idleTimeout: 1_000 }, () => now)),
        (transport) => Effect.sync(() => transport.destroy())
      )
      const origin = `http://127.0.0.1:${stub.port}`
      const answers = yield* Effect.promise(() =>
        Promise.all(Array.from({ length: 20 }, () => send(transport, origin)))
      )
      assert.deepStrictEqual([...new Set(answers)], [200])
      assert.isAtMost(stub.openSockets, 2)
      transport.sweep()
      assert.strictEqual(transport.origins(), 1)
      now = 1_001
      transport.sweep()
      assert.strictEqual(transport.origins(), 0)
      yield* Effect.promise(() => stub.until((stub) => stub.openSockets === 0))
      assert.strictEqual(yield* Effect.promise(() => send(transport, origin)), 200)
    })
  )
})
