import { assert, describe, it } from "@effect/vitest"
import { detectedKey, findPreset, providerPresets } from "#domain/providers/presets.ts"
import { knownModel, knownModels } from "#domain/providers/prices.ts"
import { wireNames } from "#domain/providers/wires.ts"
import { costOf, priceOf, usageOf } from "#domain/usage.ts"

describe("provider presets", () => {
  it("have distinct names, clean bases and a known wire", () => {
    const names = providerPresets.flatMap((preset) => [preset.name, ...preset.aliases])
    assert.strictEqual(new Set(names).size, names.length)
    for (const preset of providerPresets) {
      assert.include(wireNames, preset.wire)
      assert.strictEqual(preset.apiKeyHeader?.toLowerCase(), preset.apiKeyHeader ?? undefined, preset.name)
      if (preset.apiBase === null) continue
      assert.isTrue(URL.canParse(preset.apiBase), preset.name)
      assert.isFalse(preset.apiBase.endsWith("/"), preset.name)
    }
    assert.strictEqual(findPreset("together_ai")?.name, "together")
    assert.isUndefined(findPreset("nobody"))
  })

  it("find their key in the environment", () => {
    const gemini = findPreset("gemini")!
    assert.strictEqual(detectedKey(gemini, { GEMINI_API_KEY: "", GOOGLE_API_KEY: "k" }), "GOOGLE_API_KEY")
    assert.isUndefined(detectedKey(gemini, {}))
  })
})

describe("known models", () => {
  it("have exact prices of providers with a preset", () => {
    for (const [name, facts] of Object.entries(knownModels)) {
      assert.isDefined(findPreset(name.split("/")[0] ?? ""), name)
      assert.isAbove(Number(priceOf(facts)?.input), 0, name)
    }
    const price = priceOf(knownModel("openai", "gpt-4o-mini")!)!
    assert.strictEqual(costOf(price, usageOf({ input: 1_000_000, output: 1_000_000 })), 750_000_000n)
    assert.strictEqual(costOf(price, usageOf({ cacheRead: 1_000_000 })), 75_000_000n)
  })

  it("read dated releases as their model, and nothing else", () => {
    assert.strictEqual(knownModel("openai", "gpt-4o-2024-08-06"), knownModel("openai", "gpt-4o"))
    assert.strictEqual(knownModel("anthropic", "claude-opus-4-5-20251101"), knownModel("anthropic", "claude-opus-4-5"))
    for (const name of ["gpt-4o-audio-preview", "gpt-4o-", "constructor", ""]) {
      assert.isUndefined(knownModel("openai", name), name)
    }
  })
})
