import { assert, describe, it } from "@effect/vitest"
import { Redacted } from "effect"
import type { Json, JsonObject } from "#domain/json.ts"
import { bedrockWire } from "#layers/inference/wires/bedrock.ts"
import { eventFrame, frame, framesOf } from "#test/layers/inference/wires/frames.ts"
import {
  assertCutsChangeNothing,
  bound,
  call,
  encoded,
  goldens,
  play,
  refusal,
  run,
  target
} from "#test/layers/inference/wires/golden.ts"

const keys = { aws_region_name: "us-east-1", aws_access_key_id: "AKIDEXAMPLE", aws_secret_access_key: "secret" }

const to = (model: string, params: JsonObject = keys, more = {}) =>
  target({ upstreamModel: model, provider: "bedrock", apiBase: "", params: Redacted.make(params), ...more })

const wire = (model = "anthropic.claude-sonnet-4-5-v1:0", params: JsonObject = keys, more = {}) =>
  bound(bedrockWire, to(model, params, more))

const hello = { messages: [{ role: "user", content: "Hi" }] }

const stream = () => encoded(wire(), call({ body: hello, stream: true }))

const said = eventFrame("contentBlockDelta", { contentBlockIndex: 0, delta: { text: "Half" } })
const stop = eventFrame("messageStop", { stopReason: "end_turn" })

const sent = (body: JsonObject, model?: string) =>
  JSON.parse(String(encoded(wire(model), call({ body: { ...hello, ...body } })).request.body)) as Record<string, Json>

describe("the Bedrock wire", () => {
  for (const golden of goldens("bedrock")) {
    const bytes = golden.frames === undefined ? undefined : framesOf(golden.frames)
    it(`plays ${golden.name}`, () => play(bedrockWire, golden, "", bytes))
  }

  it("finds its endpoint and signs for it", async () => {
    const upstream = wire()
    assert.strictEqual(upstream.origin, "https://bedrock-runtime.us-east-1.amazonaws.com")
    const { request } = encoded(upstream, call({ body: hello, stream: true }))
    assert.strictEqual(request.path, "/model/anthropic.claude-sonnet-4-5-v1%3A0/converse-stream")
    assert.isUndefined(request.headers["authorization"])
    const first = await upstream.sign!(request, Date.UTC(2026, 0, 1))
    assert.include(first.headers["authorization"], "/20260101/us-east-1/bedrock/aws4_request")
    const second = await upstream.sign!(request, Date.UTC(2026, 0, 2))
    assert.notStrictEqual(first.headers["authorization"], second.headers["authorization"])
    assert.strictEqual(
      wire("m", { ...keys, aws_region_name: "cn-north-1" }).origin,
      "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"
    )
    const arn = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-x"
    assert.include(encoded(wire(arn), call({ body: hello })).request.path, "inference-profile%2Fus.anthropic")
  })

  it("takes a Bedrock API key in place of a signature", () => {
    const upstream = wire("m", { aws_region_name: "us-east-1" })
    assert.isUndefined(upstream.sign)
    const { headers } = encoded(upstream, call({ body: hello })).request
    assert.strictEqual(headers["authorization"], "Bearer key-of-the-deployment")
    const based = { apiBase: "https://bedrock-runtime.eu-west-1.amazonaws.com" }
    assert.strictEqual(wire("m", {}, based).origin, based.apiBase)
  })

  it("says which setting is missing", () => {
    const said = (params: JsonObject, more = {}) => String(bedrockWire.bind(to("m", params, more)))
    assert.include(said({}), "aws_region_name")
    assert.include(said({ ...keys, aws_region_name: "evil.test/#" }), "no region")
    assert.include(said({ aws_region_name: "us-east-1" }, { apiKey: undefined }), "aws_secret_access_key")
    const idAlone = { apiKey: Redacted.make("AKIAIOSFODNN7EXAMPLE") }
    assert.include(said({ aws_region_name: "us-east-1" }, idAlone), "aws_secret_access_key")
  })

  it("refuses what it cannot carry, and drops it where the model says so", () => {
    const tools = [{ type: "function", function: { name: "f" } }]
    const refused: ReadonlyArray<readonly [body: JsonObject, param: string]> = [
      [{ n: 2 }, "n"],
      [{ seed: 1 }, "seed"],
      [{ tools, parallel_tool_calls: false }, "parallel_tool_calls"],
      [{ reasoning_effort: "low", max_tokens: 100 }, "reasoning_effort"],
      [{ response_format: { type: "json_object" }, tools }, "response_format"]
    ]
    for (const [body, param] of refused) {
      assert.strictEqual(refusal(wire(), body), `unsupported_parameter ${param}`)
      assert.isUndefined(refusal(wire(undefined, keys, { dropParams: true }), body))
    }
    assert.strictEqual(refusal(wire("meta.llama3"), { top_k: 3 }), "unsupported_parameter top_k")
    assert.strictEqual(
      refusal(wire("meta.llama3"), { reasoning_effort: "low" }),
      "unsupported_parameter reasoning_effort"
    )
    const link = { type: "image_url", image_url: { url: "https://a.test/x.png" } }
    const at = refusal(wire(), { messages: [{ role: "user", content: [link] }] })
    assert.strictEqual(at, "unsupported_parameter messages.0.content.0.image_url.url")
    const history = [
      { role: "user", content: "x" },
      { role: "assistant", tool_calls: [{ id: "a", type: "function", function: { name: "f", arguments: "{}" } }] },
      { role: "tool", tool_call_id: "a", content: "y" }
    ]
    assert.strictEqual(
      refusal(wire(), { tools, tool_choice: "none", messages: history }),
      "unsupported_parameter tool_choice"
    )
    assert.isUndefined(sent({ tools, tool_choice: "none" })["toolConfig"])
    const two = { operation: "embedding", body: { input: ["a", "b"] } } as const
    const titan = wire("amazon.titan-embed-text-v2:0").encode(call(two))
    assert.strictEqual("param" in titan ? titan.param : undefined, "input")
  })

  it("reasons in each maker's own fields", () => {
    const fields = (model: string) => sent({ reasoning_effort: "medium" }, model)["additionalModelRequestFields"]
    assert.deepStrictEqual(fields("openai.gpt-oss-20b-1:0"), { reasoning_effort: "medium" })
    assert.deepStrictEqual(fields("us.amazon.nova-2-lite-v1:0"), {
      reasoningConfig: { type: "enabled", maxReasoningEffort: "medium" }
    })
    assert.deepStrictEqual(fields("anthropic.claude-opus-5"), {
      thinking: { type: "adaptive", display: "summarized" },
      output_config: { effort: "medium" }
    })
    assert.deepStrictEqual(sent({ reasoning_effort: "low" }, "anthropic.claude-haiku-4-5-v1:0")["inferenceConfig"], {
      maxTokens: 4_096
    })
  })

  it("judges Bedrock's exceptions, whole and in streams", () => {
    const cases: ReadonlyArray<readonly [name: string, message: string, status: number, remedy: string]> = [
      ["ThrottlingException", "Too many requests", 429, "retry"],
      ["ServiceQuotaExceededException", "quota", 429, "retry"],
      ["ValidationException", "Malformed input", 400, "none"],
      ["AccessDeniedException", "no", 502, "next"],
      ["ModelStreamErrorException", "broke", 502, "retry"],
      ["InternalServerException", "oops", 502, "retry"],
      ["ServiceUnavailableException", "busy", 502, "retry"],
      ["ModelTimeoutException", "slow", 504, "retry"]
    ]
    for (const [name, message, status, remedy] of cases) {
      const body = Buffer.from(JSON.stringify({ message }))
      const whole = wire().classify({ status: 400, headers: { "x-amzn-errortype": `${name}:http://x` }, body })
      assert.deepStrictEqual([whole.error.status, whole.remedy], [status, remedy], name)
      const exception = frame(
        { ":message-type": "exception", ":exception-type": name[0]!.toLowerCase() + name.slice(1) },
        { message }
      )
      const { out, problem } = assertCutsChangeNothing(stream(), Buffer.concat([said, exception]))
      assert.deepStrictEqual([problem?.error.status, problem?.remedy], [status, remedy], name)
      assert.include(out.toString(), "Half")
    }
    const long = Buffer.from('{"message":"Input is too long for requested model."}')
    assert.strictEqual(wire().classify({ status: 400, headers: {}, body: long }).error.code, "context_length_exceeded")
    const error = frame({ ":message-type": "error", ":error-code": "InternalError", ":error-message": "x" }, {})
    assert.strictEqual(run(stream(), [error]).problem?.error.status, 502)
  })

  it("ends a broken stream with its problem", () => {
    assert.strictEqual(run(stream(), [said]).problem?.error.status, 502)
    assert.strictEqual(run(stream(), [said, stop, said.subarray(0, 20)]).problem?.error.status, 502)
    assert.isTrue(run(stream(), [said, stop]).decoder.ended)
    const damaged = Buffer.from(said)
    damaged[damaged.length - 6] = 0
    assert.strictEqual(run(stream(), [damaged]).problem?.error.status, 502)
    const malformed = eventFrame("messageStop", { stopReason: "malformed_tool_use" })
    assert.strictEqual(run(stream(), [said, malformed]).problem?.remedy, "retry")
    const stray = eventFrame("contentBlockDelta", { delta: { toolUse: { input: "1" } } })
    assert.strictEqual(run(stream(), [stray]).problem?.error.status, 502)
    assert.strictEqual(run(stream(), [frame({ ":event-type": "messageStart" }, [1])]).problem?.error.status, 502)
  })

  it("takes no answer for one that is none", () => {
    const exchange = encoded(wire(), call({ body: hello }))
    for (const body of ["[]", "nonsense", "{}", '{"output":{"message":{"content":[{"toolUse":{}}]}}}']) {
      assert.isTrue("_tag" in exchange.decode({ status: 200, headers: {}, body: Buffer.from(body) }), body)
    }
  })
})
