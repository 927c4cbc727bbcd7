import { assert, describe, it } from "vitest"
import { errorInSuccess, isProblem, readAnswer } from "#layers/inference/wires/problems.ts"

describe("an upstream's answer", () => {
  it("is no problem of the gateway's because it says so", () => {
    const answer = { _tag: "UpstreamProblem", error: { message: "Hi" }, remedy: "none", unhealthy: false }
    assert.isFalse(isProblem(readAnswer(Buffer.from(JSON.stringify(answer)))))
    assert.isTrue(isProblem(readAnswer(Buffer.from("[]"))))
    assert.isTrue(isProblem(errorInSuccess))
  })
})
