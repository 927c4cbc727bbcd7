/** Plays failure drills against a started gateway, and gathers what each left behind. */
import { assert } from "vitest"
import { countTokens } from "gpt-tokenizer/encoding/o200k_base"
import { type OpenDatabase, until } from "#test/support/acceptance.ts"
import type { Shape } from "#test/support/drill-shapes.ts"
import type { Gateway, Reply } from "#test/support/Gateway.ts"
import type { RawUpstream, Script } from "#test/support/RawUpstream.ts"

/** What a drill's call must come to. */
export interface Expected {
  /** The HTTP status; 200 for streams that had begun. */
  readonly status: number
  /** The code of the failure, in the body or in the stream's last event; undefined: it succeeds. */
  readonly code?: string
  /** What is charged: nothing, what the upstream reported, or the prompt and the text of a stream or of its half. */
  readonly charged: "nothing" | "reported" | "counted" | "half"
  /** Requests that the upstream received. 1. */
  readonly tries?: number
  /** The Retry-After that the client reads. */
  readonly retryAfter?: string
  /** Milliseconds that it takes at least. */
  readonly atLeast?: number
  /** Milliseconds within which it must have ended, the slowness of a busy machine included. */
  readonly within?: number
}

export interface Drill {
  readonly name: string
  readonly stream: boolean
  readonly params?: Readonly<Record<string, unknown>>
  /** One answer a try, the last one for good. */
  readonly answers: (shape: Shape) => ReadonlyArray<Script>
  readonly expected: Expected
  /** The wires it is played on; all of them when left out. */
  readonly wires?: ReadonlyArray<Shape["name"]>
}

/** Nano-dollars a token. */
const inputPrice = 1_003n
const outputPrice = 2_007n
const budget = 1

export const prices = { input_cost_per_token: 1.003e-6, output_cost_per_token: 2.007e-6 }

const prompt = "Hello"
/** Of the prompt, with what a message and an answer cost by themselves. */
const promptTokens = countTokens(prompt) + 4 + 3

export interface Stage {
  readonly gateway: Gateway
  readonly database: OpenDatabase
  readonly upstream: RawUpstream
}

export interface Played {
  readonly reply: Reply
  readonly took: number
  readonly keyId: string
  readonly nextRemaining: string | null
}

export const nameOf = (shape: Shape, drill: Drill): string =>
  `${shape.name}-${drill.stream ? "stream" : "whole"}-${drill.name}`.replaceAll(/[^a-z0-9]+/gi, "-")

const bodyOf = (model: string, stream: boolean) => ({
  model,
  max_tokens: 100,
  messages: [{ role: "user", content: prompt }],
  ...(stream ? { stream: true } : {})
})

/** Registers the drill's model, with tries and patience that a test can wait for. */
export const prepare = async ({ gateway, upstream }: Stage, shape: Shape, drill: Drill): Promise<void> => {
  const name = nameOf(shape, drill)
  await upstream.script(name, drill.answers(shape))
  const reply = await gateway.admin("POST", "/model/new", {
    model_name: name,
    gateway_params: { ...shape.params(upstream.baseOf(name)), max_retries: 0, ...drill.params },
    model_info: prices
  })
  assert.strictEqual(reply.status, 201, reply.text)
}

export const play = async ({ gateway }: Stage, shape: Shape, drill: Drill): Promise<Played> => {
  const { id, key } = await gateway.key({ max_budget: budget })
  const started = performance.now()
  const reply = await gateway.request("POST", shape.path, {
    token: key,
    body: bodyOf(nameOf(shape, drill), drill.stream),
    headers: { "provider-version": "2023-06-01" }
  })
  const took = performance.now() - started
  const next = await gateway.request("POST", "/v1/chat/completions", { token: key, body: bodyOf("next", false) })
  assert.strictEqual(next.status, 200, next.text)
  return { reply, took, keyId: id, nextRemaining: next.headers.get("x-gateway-budget-remaining") }
}

interface Row {
  readonly status: string
  readonly http_status: number
  readonly error_code: string | null
  readonly estimated: boolean
  readonly input: number
  readonly output: number
  readonly nanos: string
}

const rowOf = async ({ database }: Stage, keyId: string, model: string): Promise<Row> => {
  const rows = await until(
    () =>
      database.query<Row>(
        `SELECT status, http_status::int, error_code, estimated, input_tokens AS input, output_tokens AS output,
          trunc(spend * 1000000000)::text AS nanos FROM spend_logs WHERE key_id = $1::text::uuid AND model = $2`,
        [keyId, model]
      ),
    (rows) => rows.length > 0
  )
  assert.strictEqual(rows.length, 1, "one row a call")
  return { ...rows[0]! }
}

const lastData = (text: string): string => (text.trimEnd().split("\n").at(-1) ?? "").replace(/^data: /, "")

const codeOf = (text: string): string | undefined =>
  (JSON.parse(text) as { readonly error?: { readonly code?: string } }).error?.code

const assertReply = (shape: Shape, drill: Drill, { reply, took }: Played): void => {
  const { expected } = drill
  assert.strictEqual(reply.status, expected.status, reply.text)
  assert.isBelow(took, expected.within ?? 5_000, "it ended too late")
  assert.isAtLeast(took, expected.atLeast ?? 0, "it ended too early")
  if (expected.code === undefined) {
    if (drill.stream) assert.isTrue(reply.text.replaceAll("\r\n", "\n").endsWith(shape.ending), reply.text)
    return
  }
  const failure = reply.status === 200 ? lastData(reply.text) : reply.text
  assert.strictEqual(codeOf(failure), expected.code, reply.text)
  assert.notInclude(reply.text, "[DONE]")
  assert.notInclude(reply.text, "127.0.0.1")
  assert.notInclude(reply.text, "sk-upstream")
  if (expected.retryAfter !== undefined) assert.strictEqual(reply.headers.get("retry-after"), expected.retryAfter)
}

const tokensOf = (shape: Shape, { charged }: Expected) => {
  if (charged === "nothing") return { input: 0, output: 0, estimated: false }
  if (charged === "reported") return { ...shape.usage, estimated: false }
  if (charged === "counted") return { input: promptTokens, output: countTokens(shape.text), estimated: true }
  return { input: shape.halfInput ?? promptTokens, output: countTokens(shape.halfText), estimated: true }
}

/** Reply, deadline, record, price, budget, and the upstream's connections, all of them. */
export const check = async (stage: Stage, shape: Shape, drill: Drill, played: Played): Promise<void> => {
  const { expected } = drill
  const model = nameOf(shape, drill)
  assertReply(shape, drill, played)
  const { nanos, ...row } = await rowOf(stage, played.keyId, model)
  const tokens = tokensOf(shape, expected)
  assert.deepStrictEqual(row, {
    status: expected.code === undefined ? "success" : "error",
    http_status: expected.code === undefined ? 200 : expected.code === "upstream_timeout" ? 504 : row.http_status,
    error_code: expected.code ?? null,
    ...tokens
  })
  const cost = BigInt(tokens.input) * inputPrice + BigInt(tokens.output) * outputPrice
  assert.strictEqual(BigInt(nanos), cost, "charged to the nano-dollar")
  assert.strictEqual(Math.round(Number(played.nextRemaining) * 1e9), Number(1_000_000_000n - cost), "budget left")
  const requests = stage.upstream.of(model)
  assert.strictEqual(requests.length, expected.tries ?? 1, "tries")
  await until(
    () => Promise.resolve(requests.filter(({ outcome }) => outcome === "open").length),
    (open) => open === 0,
    2_000
  )
}

/** What the ledger still holds for a key once nothing is running: spent and leased nano-dollars. */
export const heldBy = async ({ database }: Stage, keyIds: ReadonlyArray<string>) => {
  const accounts = keyIds.map((id) => `budget:key:${id}`)
  const [row] = await database.query<{ readonly leased: string; readonly spent: string; readonly logged: string }>(
    `SELECT
      (SELECT coalesce(sum(amount), 0)::text FROM public.ledger_leases WHERE account = ANY ($1::text[])) AS leased,
      (SELECT coalesce(sum(spent), 0)::text FROM public.ledger_accounts WHERE account = ANY ($1::text[])) AS spent,
      (SELECT trunc(coalesce(sum(spend), 0) * 1000000000)::text FROM spend_logs) AS logged`,
    [accounts]
  )
  return { ...row! }
}
