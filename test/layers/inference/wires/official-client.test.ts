import { assert, describe, it } from "@effect/vitest"
import { ChatCompletionStream } from "openai/lib/ChatCompletionStream"
import type { Json, JsonObject } from "#domain/json.ts"
import { goldens } from "#test/layers/inference/wires/golden.ts"

const asLines = (chunks: ReadonlyArray<Json>): ReadableStream =>
  new ReadableStream({
    start: (controller) => {
      for (const chunk of chunks) {
        controller.enqueue(new TextEncoder().encode(`${JSON.stringify({ created: 1, ...(chunk as JsonObject) })}\n`))
      }
      controller.close()
    }
  })

describe("OpenAI's own client", () => {
  for (const wire of ["anthropic", "gemini", "cohere", "bedrock"]) {
    const streams = goldens(wire).filter(
      (one) => one.stream === true && one.wantsUsage === true && one.answer !== undefined
    )
    for (const golden of streams) {
      it(`gathers the translated stream of ${wire}, ${golden.name}`, async () => {
        const stream = ChatCompletionStream.fromReadableStream(asLines(golden.answer as ReadonlyArray<Json>))
        const { choices, usage } = await stream.finalChatCompletion()
        const [choice] = choices
        assert.strictEqual(choice?.finish_reason, "tool_calls")
        const calls = choice?.message.tool_calls ?? []
        assert.strictEqual(calls.length, 2)
        assert.strictEqual(new Set(calls.map((call) => call.id)).size, 2)
        for (const call of calls) {
          assert.strictEqual(call.type, "function")
          if (call.type === "function") assert.isObject(JSON.parse(call.function.arguments))
        }
        assert.include(golden.text, choice?.message.content ?? "nothing")
        const { total_tokens: total } = usage!
        const buckets = Object.values(golden.usage!).filter((one) => typeof one === "number")
        assert.strictEqual(
          total,
          buckets.reduce((sum, one) => sum + one, 0)
        )
      })
    }
  }
})
