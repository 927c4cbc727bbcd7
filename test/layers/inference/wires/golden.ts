/**
 * Golden exchanges: what a client asks, what the upstream is to be asked, what it answers, and what the client is to get.
 * `test/golden/<wire>/<case>.json` holds one; the answer of a streamed one stands beside it as `<case>.sse`, byte for byte.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert } from "@effect/vitest"
import { Redacted } from "effect"
import { InvalidRequest } from "#domain/errors.ts"
import type { Json, JsonObject } from "#domain/json.ts"
import type { ModelOperation } from "#domain/operations.ts"
import { noUsage, type Usage } from "#domain/usage.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type {
  BoundWire,
  DecodedAnswer,
  Exchange,
  StreamDecoder,
  UpstreamProblem,
  Wire,
  WireTarget
} from "#services/inference/Wire.ts"

export interface Golden {
  readonly name: string
  readonly operation: ModelOperation
  readonly model: string
  readonly params?: JsonObject
  readonly stream?: boolean
  readonly wantsUsage?: boolean
  readonly headers?: Readonly<Record<string, string>>
  readonly body: JsonObject
  readonly request: { readonly path: string; readonly headers?: Readonly<Record<string, string>>; readonly body: Json }
  readonly response?: Json
  /** Frames of a binary stream. */
  readonly frames?: ReadonlyArray<JsonObject>
  readonly responseHeaders?: Readonly<Record<string, string>>
  /** The client's answer; of a stream its chunks. Absent: the upstream's bytes, untouched. */
  readonly answer?: Json
  /** The buckets that are not empty. */
  readonly usage?: Partial<Usage>
  readonly text?: string
}

const root = join(import.meta.dirname, "../../../golden")

const fileOf = (wire: string, name: string, ending: string) => join(root, wire, `${name}.${ending}`)

export const goldens = (wire: string): ReadonlyArray<Golden> =>
  readdirSync(join(root, wire))
    .filter((file) => file.endsWith(".json"))
    .map((file) => ({
      ...(JSON.parse(readFileSync(join(root, wire, file), "utf8")) as Golden),
      name: file.slice(0, -".json".length)
    }))

/** The upstream's bytes of a streamed golden. */
export const upstreamBytes = (wire: string, golden: Golden): Buffer => {
  const file = fileOf(wire, golden.name, "sse")
  return existsSync(file) ? readFileSync(file) : assert.fail(`${file} is missing`)
}

export const target = (more: Partial<WireTarget> & { readonly upstreamModel: string }): WireTarget => ({
  provider: "golden",
  apiBase: "https://upstream.test",
  apiKey: Redacted.make("key-of-the-deployment"),
  apiKeyHeader: undefined,
  params: Redacted.make({}),
  dropParams: false,
  maxOutputTokens: 4_096,
  streamUsage: "ask",
  ...more
})

export const call = (more: Partial<UpstreamCall>): UpstreamCall => ({
  operation: "chat",
  model: "public-name",
  body: {},
  stream: false,
  wantsUsage: false,
  requestId: "req_golden",
  ...more
})

export const bound = (wire: Wire, to: WireTarget): BoundWire => {
  const result = wire.bind(to)
  return typeof result === "string" ? assert.fail(result) : result
}

export const encoded = (wire: BoundWire, of: UpstreamCall): Exchange => {
  const exchange = wire.encode(of)
  return exchange instanceof InvalidRequest ? assert.fail(`${exchange.param}: ${exchange.message}`) : exchange
}

/** The refusal of a chat body; undefined: it was taken. */
export const refusal = (wire: BoundWire, body: JsonObject, more: Partial<UpstreamCall> = {}): string | undefined => {
  const exchange = wire.encode(call({ body: { messages: [{ role: "user", content: "Hi" }], ...body }, ...more }))
  return exchange instanceof InvalidRequest ? `${exchange.code} ${exchange.param}` : undefined
}

export const decoded = (exchange: Exchange, body: Json, headers: Record<string, string> = {}): DecodedAnswer => {
  const answer = exchange.decode({ status: 200, headers, body: Buffer.from(JSON.stringify(body)) })
  return "_tag" in answer ? assert.fail(answer.error.message) : answer
}

export interface StreamRun {
  readonly out: Buffer
  readonly decoder: StreamDecoder
  readonly problem: UpstreamProblem | undefined
}

export const run = (exchange: Exchange, chunks: Iterable<Buffer>): StreamRun => {
  const decoder = exchange.openStream({})
  const out: Array<Buffer> = []
  const take = (bytes: Buffer | undefined) => {
    if (bytes !== undefined) out.push(Buffer.from(bytes))
  }
  for (const chunk of chunks) take(decoder.feed(chunk))
  if (decoder.problem === undefined && !decoder.ended) take(decoder.finish())
  return { out: Buffer.concat(out), decoder, problem: decoder.problem }
}

/** Feeds a stream cut at every byte position, and byte by byte: nothing may change but the moments. */
export const assertCutsChangeNothing = (exchange: Exchange, bytes: Buffer): StreamRun => {
  const whole = run(exchange, [bytes])
  const same = (cut: StreamRun, where: string) => {
    if (!cut.out.equals(whole.out)) assert.strictEqual(cut.out.toString(), whole.out.toString(), where)
    assert.deepStrictEqual(cut.decoder.usage(), whole.decoder.usage(), where)
    assert.strictEqual(cut.decoder.text(), whole.decoder.text(), where)
    assert.strictEqual(cut.decoder.ended, whole.decoder.ended, where)
    assert.strictEqual(cut.decoder.events, whole.decoder.events, where)
    assert.strictEqual(cut.problem?.error.message, whole.problem?.error.message, where)
  }
  for (let at = 1; at < bytes.length; at += 1) {
    same(run(exchange, [bytes.subarray(0, at), bytes.subarray(at)]), `cut at ${at}`)
  }
  same(
    run(
      exchange,
      [...bytes].map((byte) => Buffer.from([byte]))
    ),
    "single bytes"
  )
  return whole
}

/** The chunks of an SSE answer, without what differs from run to run. */
export const chunksOf = (out: Buffer): Json =>
  out
    .toString()
    .split("\n\n")
    .filter((event) => event !== "")
    .map((event) => {
      assert.isTrue(event.startsWith("data: "), event)
      return timeless(JSON.parse(event.slice("data: ".length)) as JsonObject)
    })

const timeless = (answer: JsonObject): JsonObject => {
  const { created, ...rest } = answer
  if (created !== undefined) assert.isTrue(Number.isInteger(created))
  return rest
}

/** Plays one golden exchange through a wire. */
export const play = (wire: Wire, golden: Golden, apiBase: string, bytes?: Buffer): void => {
  const upstream = bound(
    wire,
    target({ upstreamModel: golden.model, apiBase, params: Redacted.make(golden.params ?? {}), provider: wire.name })
  )
  assert.isTrue(upstream.operations.has(golden.operation))
  const exchange = encoded(
    upstream,
    call({
      operation: golden.operation,
      body: golden.body,
      stream: golden.stream === true,
      wantsUsage: golden.wantsUsage === true,
      ...(golden.headers === undefined ? {} : { headers: golden.headers })
    })
  )
  assert.strictEqual(exchange.request.path, golden.request.path)
  assert.deepStrictEqual(JSON.parse(exchange.request.body.toString()), golden.request.body)
  for (const [name, value] of Object.entries(golden.request.headers ?? {})) {
    assert.strictEqual(exchange.request.headers[name], value, name)
  }
  const usage = golden.usage === undefined ? undefined : { ...noUsage, ...golden.usage }
  if (golden.stream === true) {
    const stream = bytes ?? upstreamBytes(wire.name, golden)
    const { decoder, out, problem } = assertCutsChangeNothing(exchange, stream)
    assert.isUndefined(problem?.error.message)
    assert.isTrue(decoder.ended)
    if (golden.answer === undefined) assert.strictEqual(out.toString(), stream.toString())
    else assert.deepStrictEqual(chunksOf(out), golden.answer)
    assert.deepStrictEqual(decoder.usage(), usage)
    if (golden.text !== undefined) assert.strictEqual(decoder.text(), golden.text)
    return
  }
  const answer = decoded(exchange, golden.response ?? null, golden.responseHeaders)
  const body = JSON.parse(answer.body.toString()) as JsonObject
  assert.deepStrictEqual(timeless(body), golden.answer ?? golden.response)
  assert.deepStrictEqual(answer.usage, usage)
  if (golden.text !== undefined) assert.strictEqual(answer.texts().join("|"), golden.text)
}
