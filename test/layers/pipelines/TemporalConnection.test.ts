/** TLS, client certificates and API keys on the way to Temporal. */
import { once } from "node:events"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { createSecureServer, type IncomingHttpHeaders, type ServerHttp2Stream } from "node:http2"
import { type AddressInfo, connect } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createServer as createTlsServer, type TlsOptions } from "node:tls"
import { Effect, Layer, Redacted } from "effect"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import type { TemporalTls } from "#layers/pipelines/temporal/connection.ts"
import { makeTemporalCalls } from "#layers/pipelines/temporal/TemporalCalls.ts"
import { certificateAuthority } from "#test/support/Certificates.ts"
import { Definitions, Doings, pipelineBase, settled, startRun } from "#test/support/pipelines.ts"
import { temporalEngine, temporalOptions, temporalServer } from "#test/support/temporal.ts"

const temporal = await temporalServer()
const directory = mkdtempSync(join(tmpdir(), "sluice-temporal-"))
const authority = await certificateAuthority("temporal")
const server = await authority.server()
const client = await authority.client({ name: "sluice" })

const file = (name: string, text: string): string => {
  const path = join(directory, name)
  writeFileSync(path, text)
  return path
}

const tls: TemporalTls = {
  caFile: file("ca.pem", authority.cert),
  certFile: file("cert.pem", client.cert),
  keyFile: file("key.pem", client.key),
  serverName: "localhost"
}

const listener: TlsOptions = {
  ...server,
  ca: authority.cert,
  requestCert: true,
  rejectUnauthorized: true,
  ALPNProtocols: ["h2"]
}

const close: Array<() => Promise<unknown>> = []

const addressOf = async (listening: {
  readonly listen: (port: number, host: string) => unknown
  readonly address: () => AddressInfo | string | null
  readonly close: () => unknown
}): Promise<string> => {
  listening.listen(0, "127.0.0.1")
  await once(listening as never, "listening")
  close.push(async () => listening.close())
  return `127.0.0.1:${(listening.address() as AddressInfo).port}`
}

afterAll(async () => {
  for (const one of close) await one()
  await temporal.close()
  rmSync(directory, { recursive: true, force: true })
})

describe("API key", () => {
  const seen: Array<string | undefined> = []
  let address = ""

  beforeAll(async () => {
    const recorder = createSecureServer(listener)
    recorder.on("stream", (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
      seen.push(headers.authorization)
      // "Unauthenticated", as gRPC says it.
      stream.respond({ ":status": 200, "content-type": "application/grpc", "grpc-status": "16" }, { endStream: true })
    })
    address = await addressOf(recorder)
  })

  it("goes with every call over TLS; one that is refused is an engine that is away", async () => {
    const key = "key-of-temporal-cloud"
    const options = { ...temporalOptions(address), apiKey: Redacted.make(key), tls }
    const failure = await Effect.runPromise(
      Effect.scoped(
        Effect.flatMap(makeTemporalCalls(options), ({ call }) =>
          Effect.flip(call("describe", ({ workflow }) => workflow.getHandle("x").describe()))
        )
      )
    )
    assert.strictEqual(failure._tag === "Unavailable" ? failure.code : failure._tag, "workflow_engine_unavailable")
    assert.isNotEmpty(seen)
    assert.deepStrictEqual(new Set(seen), new Set([`Bearer ${key}`]))
    assert.notInclude(JSON.stringify(failure), key)
  })
})

describe.skipIf(temporal.address === undefined)(`client certificates ${temporal.skipped}`, () => {
  it("gateway and worker show theirs, and know the server's", async () => {
    const [host = "", port = ""] = (temporal.address ?? "").split(":")
    const shown: Array<string> = []
    const front = createTlsServer(listener, (socket) => {
      shown.push(String(socket.getPeerCertificate().subject.CN))
      const inner = connect(Number(port), host)
      socket.pipe(inner).pipe(socket)
      socket.on("error", () => inner.destroy())
      inner.on("error", () => socket.destroy())
      socket.on("close", () => inner.destroy())
    })
    const options = { ...temporalOptions(await addressOf(front)), tls }
    const definitions = new Definitions()
    const source = "name: p\nsteps:\n- {id: a, operator: transform, with: 1}"
    const run = Effect.gen(function* () {
      const ended = yield* settled(yield* startRun(definitions.add(source)))
      assert.strictEqual(ended.status, "completed")
    })
    const engine = temporalEngine(options, new Doings(), definitions).pipe(Layer.provideMerge(pipelineBase()))
    await Effect.runPromise(Effect.scoped(Effect.provide(run, engine)))
    assert.isAtLeast(shown.length, 2)
    assert.deepStrictEqual(new Set(shown), new Set(["sluice"]))
  }, 60_000)
})
