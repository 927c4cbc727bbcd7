/** Histories that several write: what still counts. */
import { Result } from "effect"
import { assert, describe, it } from "vitest"
import { compileDefinition } from "#domain/pipelines/compile.ts"
import { nextSteps } from "#domain/pipelines/next-steps.ts"
import { applyEvent, isNews, newProgress, planOf } from "#domain/pipelines/progress.ts"
import type { RunEvent } from "#domain/pipelines/runs.ts"

const plan = planOf(
  Result.getOrThrow(
    compileDefinition(`
name: p
steps:
- {id: a, operator: transform, with: 1}
- {id: each, operator: map, with: {items: "\${[1, 2]}", step: {operator: transform, with: 1}}}
- {id: check, operator: human_review, needs: a}
`)
  )
)

const error = { code: "upstream_error", message: "no" }

const after = (...events: ReadonlyArray<RunEvent>) => {
  const progress = newProgress(plan)
  for (const event of events) applyEvent(plan, progress, event)
  return progress
}

const started = (attempt: number, more: { readonly item?: number } = {}): RunEvent => ({
  type: "step_started",
  step: more.item === undefined ? "a" : "each",
  ...more,
  attempt
})

const completed = (attempt: number, more: { readonly item?: number } = {}): RunEvent => ({
  type: "step_completed",
  step: more.item === undefined ? "a" : "each",
  ...more,
  attempt,
  output: 1
})

const failed = (attempt: number, retryAt: number | null): RunEvent => ({
  type: "step_failed",
  step: "a",
  attempt,
  error,
  retryAt
})

describe("isNews", () => {
  const cases: ReadonlyArray<readonly [string, ReadonlyArray<RunEvent>, RunEvent, boolean]> = [
    ["a first try", [], started(1), true],
    ["the same try again", [started(1)], started(1), false],
    ["the next try", [started(1)], started(2), true],
    ["the end of a try", [started(1)], completed(1), true],
    ["the end of a try that another has replaced", [started(1), started(2)], completed(1), false],
    ["the failure of one", [started(1), started(2)], failed(1, 5), false],
    ["a second end", [started(1), completed(1)], completed(1), false],
    ["a try of what is done", [started(1), completed(1)], started(2), false],
    ["a try of what has failed for good", [started(1), failed(1, null)], started(2), false],
    ["a try after a failure", [started(1), failed(1, 5)], started(2), true],
    ["an item's end", [started(1, { item: 0 })], completed(1, { item: 0 }), true],
    [
      "an item's end beside another's",
      [started(1, { item: 0 }), completed(1, { item: 0 })],
      completed(1, { item: 1 }),
      true
    ],
    ["an item's second end", [started(1, { item: 0 }), completed(1, { item: 0 })], completed(1, { item: 0 }), false],
    ["an item's replaced try", [started(1, { item: 0 }), started(2, { item: 0 })], completed(1, { item: 0 }), false],
    ["a start of the run", [], { type: "run_started" }, true],
    ["a second one", [{ type: "run_started" }], { type: "run_started" }, false],
    [
      "a map's second start",
      [{ type: "map_started", step: "each", items: 2 }],
      { type: "map_started", step: "each", items: 2 },
      false
    ]
  ]
  for (const [what, history, event, expected] of cases) {
    it(`${what}: ${expected}`, () => assert.strictEqual(isNews(after(...history), event), expected))
  }

  it("a review is asked for once, and decided while it waits", () => {
    const asked: RunEvent = {
      type: "review_requested",
      step: "check",
      title: "",
      reviewerRole: "",
      details: null,
      deadline: 9
    }
    const decided: RunEvent = { type: "review_decided", step: "check", approved: true, reason: "", reviewer: "ada" }
    assert.isTrue(isNews(after(), asked))
    assert.isFalse(isNews(after(asked), asked))
    assert.isTrue(isNews(after(asked), decided))
    assert.isFalse(isNews(after(asked, decided), decided))
  })
})

describe("nextSteps", () => {
  const idle = () => false
  it("says what is ready, what is due and what is over", () => {
    assert.deepStrictEqual(nextSteps(plan, after(), idle, 0).ready, ["a", "each"])
    assert.deepStrictEqual(nextSteps(plan, after(), (id) => id === "a", 0).ready, ["each"])
    const waiting = nextSteps(plan, after(started(1), failed(1, 5)), idle, 4)
    assert.deepStrictEqual([waiting.ready, waiting.dueAt], [["each"], 5])
    assert.deepStrictEqual(nextSteps(plan, after(started(1), failed(1, 5)), idle, 5).ready, ["a", "each"])
    assert.strictEqual(nextSteps(plan, after(started(1), failed(1, null)), idle, 0).failed, error)
    const asked: RunEvent = {
      type: "review_requested",
      step: "check",
      title: "",
      reviewerRole: "",
      details: null,
      deadline: 9
    }
    const done: ReadonlyArray<RunEvent> = [
      started(1),
      completed(1),
      { type: "step_completed", step: "each", output: [] },
      asked
    ]
    assert.deepInclude(nextSteps(plan, after(...done), idle, 8), { ready: [], dueAt: 9, expired: [], complete: false })
    assert.deepStrictEqual(nextSteps(plan, after(...done), idle, 9).expired, ["check"])
  })
})
