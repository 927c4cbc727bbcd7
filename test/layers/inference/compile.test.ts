import { assert, describe, it } from "@effect/vitest"
import { Redacted } from "effect"
import type { JsonObject } from "#domain/json.ts"
import { defaultBreaker } from "#layers/inference/CircuitBreaker.ts"
import type { Environment } from "#domain/providers/environment.ts"
import { compile } from "#layers/inference/compile.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type { WireRequest } from "#services/inference/Wire.ts"
import { chatCall, row } from "#test/support/routing.ts"

const context = {
  transport: { send: () => assert.fail("nothing is sent") },
  sandbox: true,
  environment: { OPENAI_API_KEY: "environment-key", GROQ_API_KEY: "groq-key" },
  reveal: (name: string) =>
    name === "cred" ? Redacted.make<JsonObject>({ api_key: "vault-key", organization: "org-1" }) : undefined,
  breaker: defaultBreaker,
  now: () => 0
}

const one = (params: JsonObject, info: JsonObject = {}, environment: Environment = context.environment) => {
  const { deployments, groups, unusable } = compile([row("1", "m", params, info)], { ...context, environment })
  return { deployment: deployments[0], problem: unusable[0]?.problem, routable: groups.get("m")?.routable }
}

const requestOf = (params: JsonObject, call: UpstreamCall = chatCall("m")): WireRequest & { origin: string } => {
  const { deployment, problem } = one(params)
  assert.isDefined(deployment, problem)
  const exchange = deployment!.wire.encode(call)
  return "request" in exchange
    ? { ...exchange.request, origin: deployment!.wire.origin }
    : assert.fail(exchange.message)
}

describe("compile", () => {
  it("finds base, path and key by preset, credential or the model's own words", () => {
    const openai = requestOf({ model: "openai/gpt-4o" })
    assert.deepInclude(openai, { origin: "https://api.openai.com", path: "/v1/chat/completions" })
    assert.strictEqual(openai.headers["authorization"], "Bearer environment-key")
    assert.strictEqual(JSON.parse(openai.body.toString()).model, "gpt-4o")
    const bare = requestOf({ model: "gpt-4o" })
    assert.strictEqual(bare.origin, "https://api.openai.com")
    const groq = requestOf({ model: "groq/llama-3.3-70b-versatile" })
    assert.deepInclude(groq, { origin: "https://api.groq.com", path: "/openai/v1/chat/completions" })
    const vault = requestOf({ model: "openai/gpt-4o", credential_name: "cred" })
    assert.strictEqual(vault.headers["authorization"], "Bearer vault-key")
    assert.strictEqual(vault.headers["openai-organization"], "org-1")
    const own = requestOf({ model: "meta/llama-3", api_base: "http://10.0.0.1:8000/v1/", api_key: "inline" })
    assert.deepInclude(own, { origin: "http://10.0.0.1:8000", path: "/v1/chat/completions" })
    assert.strictEqual(JSON.parse(own.body.toString()).model, "meta/llama-3")
    assert.strictEqual(own.headers["authorization"], "Bearer inline")
    const nested = requestOf({ model: "openrouter/meta/llama-3", api_key: "k" })
    assert.strictEqual(JSON.parse(nested.body.toString()).model, "meta/llama-3")
    const named = requestOf({ model: "meta/llama-3", custom_llm_provider: "groq" })
    assert.strictEqual(JSON.parse(named.body.toString()).model, "meta/llama-3")
  })

  it("sends no key of the environment to a base that the model names", () => {
    const request = requestOf({ model: "openai/gpt-4o", api_base: "https://collector.example/v1" })
    assert.isUndefined(request.headers["authorization"])
  })

  it("takes Bedrock's whole account from the environment, and never parts of two", async () => {
    const key = { AWS_ACCESS_KEY_ID: "AKIAENVIRONMENT0001", AWS_SECRET_ACCESS_KEY: "environment-secret" }
    const signed = async (environment: Environment, params: JsonObject = {}) => {
      const { deployment, problem } = one({ model: "bedrock/anthropic.claude-v2", ...params }, {}, environment)
      assert.isDefined(deployment, problem)
      const exchange = deployment!.wire.encode(chatCall("m"))
      if (!("request" in exchange)) return assert.fail(exchange.message)
      const request = await (deployment!.wire.sign?.(exchange.request, 0) ?? exchange.request)
      return { origin: deployment!.wire.origin, secrets: deployment!.secrets, headers: request.headers }
    }
    const whole = await signed({ ...key, AWS_SESSION_TOKEN: "environment-session", AWS_REGION: "eu-central-1" })
    assert.strictEqual(whole.origin, "https://bedrock-runtime.eu-central-1.amazonaws.com")
    assert.match(whole.headers["authorization"] ?? "", /Credential=AKIAENVIRONMENT0001\/\d+\/eu-central-1\/bedrock\//)
    assert.strictEqual(whole.headers["x-amz-security-token"], "environment-session")
    assert.includeMembers([...whole.secrets], ["environment-secret", "environment-session"])
    const region = await signed({ ...key, AWS_DEFAULT_REGION: "eu-central-1" }, { aws_region: "us-west-2" })
    assert.strictEqual(region.origin, "https://bedrock-runtime.us-west-2.amazonaws.com")
    const bearer = await signed({ ...key, AWS_BEARER_TOKEN_BEDROCK: "bedrock-key", AWS_REGION: "us-east-1" })
    assert.strictEqual(bearer.headers["authorization"], "Bearer bedrock-key")
    const own = await signed(
      { ...key, AWS_SESSION_TOKEN: "environment-session", AWS_REGION: "us-east-1" },
      { aws_access_key_id: "AKIAOWN0000000000001", aws_secret_access_key: "own-secret" }
    )
    assert.match(own.headers["authorization"] ?? "", /Credential=AKIAOWN0000000000001\//)
    assert.isUndefined(own.headers["x-amz-security-token"])
    const half = { model: "bedrock/anthropic.claude-v2", aws_access_key_id: "AKIAOWN0000000000001" }
    assert.match(one(half, {}, { ...key, AWS_REGION: "us-east-1" }).problem ?? "", /aws_secret_access_key/)
    const elsewhere = { model: "bedrock/anthropic.claude-v2", api_base: "https://collector.example" }
    assert.isDefined(one({ ...elsewhere, aws_region: "us-east-1" }, {}, key).problem)
  })

  it("says what is wrong with a row it cannot use", () => {
    const problems: ReadonlyArray<readonly [JsonObject, RegExp]> = [
      [{}, /model is missing/],
      [{ model: "nobody/x" }, /unknown/],
      [{ model: "mistral/large" }, /no api_key/],
      [{ model: "openai/x", credential_name: "gone" }, /does not exist/],
      [{ model: "openai/x", api_base: "not a url", api_key: "k" }, /api_base/],
      [{ model: "openai/x", api_base: "file:///etc/passwd", api_key: "k" }, /http/]
    ]
    for (const [params, problem] of problems) assert.match(one(params).problem ?? "", problem, JSON.stringify(params))
  })

  it("asks for a stream's usage where the provider takes that", () => {
    const call = chatCall("m", { stream: true })
    const asked = JSON.parse(requestOf({ model: "openai/gpt-4o" }, call).body.toString())
    assert.deepStrictEqual(asked.stream_options, { include_usage: true })
    const unasked = JSON.parse(requestOf({ model: "mistral/mistral-large", api_key: "k" }, call).body.toString())
    assert.isUndefined(unasked.stream_options)
  })

  it("reads limits, prices and lengths with their defaults, the bundled table beneath", () => {
    const plain = one({ model: "openai/gpt-4o" })
    assert.deepInclude(plain.deployment, {
      timeout: 300_000,
      streamTimeout: 60_000,
      maxRetries: 2,
      weight: 1,
      priority: 1
    })
    assert.strictEqual(plain.routable?.price?.input, 2_500_000n)
    assert.strictEqual(plain.routable?.maxOutputTokens, 16_384)
    assert.strictEqual(plain.routable?.maxInputTokens, 128_000)
    const own = one({ model: "openai/gpt-4o", rpm: 3, tpm: "1000" }, { input_cost_per_token: 0, max_tokens: 7 })
    assert.strictEqual(own.routable?.price?.input, 0n)
    assert.strictEqual(own.routable?.price?.output, 10_000_000n)
    assert.strictEqual(own.routable?.maxOutputTokens, 16_384)
    assert.deepStrictEqual(
      own.deployment?.limits.map((limit) => [limit.account, limit.limit]),
      [
        ["requests:deployment:1", 3n],
        ["tokens:deployment:1", 1000n]
      ]
    )
    assert.isUndefined(one({ model: "openai/unheard-of" }).routable?.price)
  })

  it("prices a group by its dearest way, fallbacks included", () => {
    const rows = [
      row("1", "a", { model: "openai/gpt-4o-mini", fallbacks: ["b"] }),
      row("2", "a", { model: "openai/gpt-4o" }),
      row("3", "b", { model: "openai/o1", fallbacks: ["a"] })
    ]
    const price = compile(rows, context).groups.get("a")?.routable
    assert.strictEqual(price?.price?.input, 15_000_000n)
    assert.strictEqual(price?.maxOutputTokens, 100_000)
  })
})
