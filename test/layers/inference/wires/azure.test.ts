import { assert, describe, it } from "@effect/vitest"
import { Redacted } from "effect"
import { azureWire } from "#layers/inference/wires/azure.ts"
import { bound, call, encoded, goldens, play, target } from "#test/layers/inference/wires/golden.ts"

const to = (params: Record<string, string>, more = {}) =>
  target({ upstreamModel: "chat", provider: "azure", params: Redacted.make(params), ...more })

const request = (params: Record<string, string>, more = {}) =>
  encoded(bound(azureWire, to(params, more)), call({ body: { messages: [] } })).request

describe("the Azure OpenAI wire", () => {
  for (const golden of goldens("azure")) {
    it(`plays ${golden.name}`, () => play(azureWire, golden, "https://team.openai.azure.com"))
  }

  it("goes to the API that the version names", () => {
    assert.strictEqual(request({}).path, "/openai/v1/chat/completions")
    assert.strictEqual(request({ api_version: "preview" }).path, "/openai/v1/chat/completions?api-version=preview")
    const dated = "/openai/deployments/chat/chat/completions?api-version=2024-10-21"
    assert.strictEqual(request({ api_version: "2024-10-21" }).path, dated)
    const base = { apiBase: "https://proxy.test/eu/openai/v1" }
    assert.strictEqual(request({ api_version: "2024-10-21" }, base).path, `/eu${dated}`)
    assert.strictEqual(request({}, base).path, "/eu/openai/v1/chat/completions")
  })

  it("carries a key or a token of Entra", () => {
    const { headers } = request({ azure_ad_token: "eyJ" })
    assert.strictEqual(headers["authorization"], "Bearer eyJ")
    assert.isUndefined(headers["api-key"])
    assert.isString(azureWire.bind(to({}, { apiKey: undefined })))
  })

  it("says which setting is unusable", () => {
    assert.include(azureWire.bind(to({}, { apiBase: "" })) as string, "api_base")
    assert.include(azureWire.bind(to({ api_version: "1&x=y" })) as string, "api_version")
  })

  it("judges Azure's failures", () => {
    const judge = (status: number, error: object) =>
      bound(azureWire, to({})).classify({ status, headers: {}, body: Buffer.from(JSON.stringify({ error })) })
    const filtered = judge(400, { code: "content_filter", message: "The prompt was filtered.", param: "prompt" })
    assert.strictEqual(filtered.error.code, "invalid_conversation")
    assert.strictEqual(filtered.remedy, "none")
    assert.strictEqual(judge(404, { code: "DeploymentNotFound", message: "none" }).remedy, "next")
  })
})
