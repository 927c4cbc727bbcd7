import { assert, describe, it } from "@effect/vitest"
import type { JsonObject } from "#domain/json.ts"
import { maskObject, maskText, overlay, splitSecrets } from "#domain/masking.ts"

const long = "sk-0123456789abcdefghijklmnop"

describe("masking", () => {
  it("shows four characters at each end of a long secret, and nothing of a short one", () => {
    assert.strictEqual(maskText(long), "sk-0...mnop")
    for (const short of ["", "a", "hunter2", "x".repeat(23)]) assert.strictEqual(maskText(short), "****")
    assert.isTrue(maskText("💧".repeat(20)).isWellFormed())
    assert.isTrue(maskText(`abc💧${"x".repeat(30)}`).isWellFormed())
  })

  it("masks every string at any depth, and only strings", () => {
    assert.deepStrictEqual(maskObject({ a: long, b: { c: ["short", 1, null, true, { d: long }] }, n: 2 }), {
      a: "sk-0...mnop",
      b: { c: ["****", 1, null, true, { d: "sk-0...mnop" }] },
      n: 2
    })
  })

  it("takes secret parameters apart and leaves the others readable", () => {
    const parameters: JsonObject = {
      model: "openai/gpt-5",
      api_base: "https://example.com/v1",
      credential_name: "main",
      max_tokens: "100",
      input_cost_per_token: "0.1",
      tpm: 5,
      api_key: long,
      api_key_header: "x-key",
      aws_access_key_id: "AKIA",
      aws_secret_access_key: long,
      aws_session_token: "t",
      vertex_credentials: { private_key: long, client_id: "1" },
      extra_headers: { Authorization: "Bearer x" },
      nested: { deep: { password: "p" } },
      token: "",
      key: null
    }
    const { secret, shown } = splitSecrets(parameters)
    assert.deepStrictEqual(Object.keys(secret), [
      "api_key",
      "aws_access_key_id",
      "aws_secret_access_key",
      "aws_session_token",
      "vertex_credentials",
      "extra_headers",
      "nested"
    ])
    assert.deepStrictEqual({ ...shown, ...secret }, parameters)
    assert.strictEqual(shown["api_base"], "https://example.com/v1")
    assert.deepStrictEqual(shown["extra_headers"], { Authorization: "****" })
    assert.notInclude(JSON.stringify(shown), long)
  })

  it("lays a change over what is stored; null removes, a mask leaves", () => {
    const stored = { api_key: long, api_base: "a", timeout: 5 }
    assert.deepStrictEqual(overlay(stored, { api_key: "sk-0...mnop", api_base: null, weight: 2 }), {
      api_key: long,
      timeout: 5,
      weight: 2
    })
    assert.deepStrictEqual(overlay(stored, { api_key: "other", api_base: "b" }), {
      api_key: "other",
      api_base: "b",
      timeout: 5
    })
  })
})
