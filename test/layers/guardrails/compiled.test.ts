import { assert, describe, it } from "vitest"
import { type CompiledGuardrail, compileGuardrail, failedStage, learnCosts } from "#layers/guardrails/compiled.ts"

const denyList = () =>
  compileGuardrail({ id: "g", name: "g", type: "deny_list", mode: "block", config: { stage: "pre", words: ["x"] } })

const regex = () =>
  compileGuardrail({
    id: "g",
    name: "g",
    type: "regex",
    mode: "block",
    config: { stage: "pre", patterns: ["(a|b)+c"] }
  })

/** A check of 2,000 characters that took so many milliseconds. */
const took = (guardrail: CompiledGuardrail, milliseconds: number) =>
  learnCosts([guardrail], failedStage([guardrail], "pre", [], milliseconds).events, 2000)

describe("what guardrails cost", () => {
  it("does not take one pause of the process for a slow guardrail", () => {
    const guardrail = denyList()
    const before = guardrail.cost
    took(guardrail, 100)
    assert.isBelow(guardrail.cost, 3 * before)
    for (let n = 0; n < 100; n++) took(guardrail, 100)
    // 2,000 characters stay on the event loop, whatever the machine does.
    assert.isBelow(guardrail.cost * 2000, 1_000_000)
  })

  it("learns within some checks that one is slow, and forgets it slowly", () => {
    const guardrail = regex()
    for (let n = 0; n < 12; n++) took(guardrail, 4)
    const learnt = guardrail.cost
    assert.isAbove(learnt * 2000, 1_000_000)
    took(guardrail, 0)
    assert.isAbove(guardrail.cost, 0.8 * learnt)
  })
})
