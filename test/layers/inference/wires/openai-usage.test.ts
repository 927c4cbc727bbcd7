import { assert, describe, it } from "@effect/vitest"
import type { JsonObject } from "#domain/json.ts"
import { type Usage, usageOf } from "#domain/usage.ts"
import { usageOfOpenAi } from "#layers/inference/wires/openai-usage.ts"

describe("usageOfOpenAi", () => {
  const cases: ReadonlyArray<readonly [name: string, reported: JsonObject, expected: Partial<Usage>]> = [
    ["plain", { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 }, { input: 10, output: 5 }],
    [
      "cached, audio and reasoning parts",
      {
        prompt_tokens: 100,
        completion_tokens: 50,
        total_tokens: 150,
        prompt_tokens_details: { cached_tokens: 60, audio_tokens: 10 },
        completion_tokens_details: { reasoning_tokens: 20, audio_tokens: 5 }
      },
      { input: 30, cacheRead: 60, audioInput: 10, output: 25, reasoning: 20, audioOutput: 5 }
    ],
    [
      "reasoning beside the completion",
      {
        prompt_tokens: 10,
        completion_tokens: 5,
        total_tokens: 115,
        completion_tokens_details: { reasoning_tokens: 100 }
      },
      { input: 10, output: 5, reasoning: 100 }
    ],
    [
      "cache hits beside the prompt's details",
      { prompt_tokens: 10, completion_tokens: 1, prompt_cache_hit_tokens: 8 },
      { input: 2, cacheRead: 8, output: 1 }
    ],
    [
      "parts larger than their whole",
      { prompt_tokens: 5, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 50 } },
      { input: 0, cacheRead: 5, output: 2 }
    ],
    ["nonsense", { prompt_tokens: "many", completion_tokens: -4, total_tokens: 3 }, {}]
  ]
  for (const [name, reported, expected] of cases) {
    it(name, () => assert.deepStrictEqual(usageOfOpenAi(reported), usageOf(expected)))
  }

  it("is undefined where nothing was reported", () => {
    for (const value of [null, undefined, 3, [], {}]) assert.isUndefined(usageOfOpenAi(value))
  })
})
