import { assert, layer } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import { findPii } from "#domain/pii.ts"
import type { CheckResult } from "#layers/guardrails/check-job.ts"
import { type CheckLanes, makeCheckLanes } from "#layers/guardrails/CheckLanes.ts"
import { compileGuardrail } from "#layers/guardrails/compiled.ts"
import * as WorkerThreadsNode from "#layers/workers/WorkerThreadsNode.ts"

/** Two letters at random: what makes the hostile pattern's states useless. */
const noise = (length: number): string => {
  let seed = 1
  const letters: Array<string> = []
  for (let i = 0; i < length; i++) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
    letters.push(seed > 2 ** 31 ? "x" : "z")
  }
  return letters.join("")
}

const guardrail = (type: string, config: Record<string, string>) => {
  const definition = { id: type, name: type, type, mode: "block" as const, config }
  return { definition, compiled: compileGuardrail(definition) }
}

const hostile = guardrail("regex", { pattern: "x.{200}[yw]" })
const slowText = noise(4_000_000)

const check = (lanes: CheckLanes, share: string, { compiled, definition }: typeof hostile, text: string) =>
  Effect.map(
    lanes.run(
      { stage: "pre", texts: [text], keys: [compiled.key], definitions: [definition] },
      { share, characters: text.length, worstNanos: text.length * compiled.worstCost }
    ),
    (result) => result as CheckResult
  )

const timed = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const start = performance.now()
    return Effect.map(effect, (value) => ({ value, took: performance.now() - start }))
  })

layer(WorkerThreadsNode.layer, { excludeTestServices: true })("check lanes", (it) => {
  it.effect("one tenant's hostile pattern costs it its own checks and nobody else's", () =>
    Effect.gen(function* () {
      const lanes = yield* makeCheckLanes({ slowTimeout: 3000, maxWait: 8000 })
      const quick = guardrail("deny_list", { words: "orion" })
      const slow = guardrail("regex", { pattern: "\\bOrion\\b" })
      const text = "Nothing to see here, move on. ".repeat(35_000)
      // The threads are up and know the guardrails.
      yield* check(lanes, "b", quick, text)
      yield* check(lanes, "b", slow, text)
      const attack = yield* Effect.forEach([1, 2, 3, 4], () =>
        Effect.forkChild(Effect.exit(check(lanes, "a", hostile, slowText)), { startImmediately: true })
      )
      for (let i = 0; i < 5; i++) {
        const shared = yield* timed(check(lanes, "b", quick, text))
        const own = yield* timed(check(lanes, "b", slow, text))
        for (const { took, value } of [shared, own]) {
          assert.strictEqual(value === "unknown" ? value : value.events[0]!.status, "passed")
          // Behind one of those jobs it would be three seconds and more.
          assert.isBelow(took, 2500)
        }
      }
      assert.isTrue(
        attack.some((fiber) => fiber.pollUnsafe() === undefined),
        "it was over before this proved anything"
      )
      // Each of them runs into its deadline, one after the other, and ends nothing but itself.
      for (const fiber of attack) assert.isTrue(Exit.isFailure(yield* Fiber.join(fiber)))
      const after = yield* check(lanes, "a", slow, text)
      assert.strictEqual(after === "unknown" ? after : after.events[0]!.status, "passed")
    })
  )

  it.effect("a share that floods is refused before others are", () =>
    Effect.gen(function* () {
      const lanes = yield* makeCheckLanes({ slowTimeout: 4000, slowCharacters: 20_000_000, maxWait: 8000 })
      const flood = yield* Effect.forEach(Array.from({ length: 6 }), () =>
        Effect.forkChild(Effect.exit(timed(check(lanes, "a", hostile, slowText))), { startImmediately: true })
      )
      // Half of 20 million characters are two of these texts.
      const refused = flood.filter((fiber) => fiber.pollUnsafe() !== undefined)
      assert.strictEqual(refused.length, 4)
      const other = yield* check(lanes, "b", guardrail("regex", { pattern: "\\bOrion\\b" }), "Orion ".repeat(100_000))
      assert.strictEqual(other === "unknown" ? other : other.events[0]!.status, "blocked")
      for (const fiber of flood) yield* Fiber.interrupt(fiber)
    })
  )

  it.effect("who waits and leaves gives up its turn; who has a thread keeps it to the end", () =>
    Effect.gen(function* () {
      const lanes = yield* makeCheckLanes({ slowTimeout: 2500, maxWait: 20_000 })
      const start = () =>
        Effect.forkChild(Effect.exit(check(lanes, "a", hostile, slowText)), { startImmediately: true })
      const running = yield* start()
      const waiting = yield* Effect.forEach([1, 2, 3], start)
      yield* Fiber.interrupt(running)
      for (const fiber of waiting) yield* Fiber.interrupt(fiber)
      const next = yield* timed(check(lanes, "a", guardrail("regex", { pattern: "Orion" }), "x ".repeat(200_000)))
      // Not after four deadlines: the one that ran, and the start of a new thread.
      assert.isBelow(next.took, 7000)
    })
  )

  it.effect("searches for personal data", () =>
    Effect.gen(function* () {
      const lanes = yield* makeCheckLanes()
      const text = "write to a@b.example ".repeat(2000)
      const work = { share: "a", characters: text.length, worstNanos: text.length * 200 }
      const spans = yield* lanes.run({ text, entities: ["EMAIL"] }, work)
      assert.deepStrictEqual(spans, findPii(text, new Set(["EMAIL"])))
    })
  )
})
