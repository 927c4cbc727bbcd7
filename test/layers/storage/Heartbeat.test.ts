import { assert, describe, it } from "@effect/vitest"
import { Clock, type Duration, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { heartbeat } from "#layers/storage/Heartbeat.ts"

/** Milliseconds until the watched connection counts as silent; undefined: not within a minute. */
const silentAfter = (ask: Effect.Effect<unknown>, elsewhere: Effect.Effect<unknown, string>) =>
  Effect.gen(function* () {
    const began = yield* Clock.currentTimeMillis
    const watched = yield* Effect.forkChild(
      Effect.andThen(
        Effect.flip(heartbeat({ ask, elsewhere, silent: () => "silent" as const })),
        Effect.map(Clock.currentTimeMillis, (now) => now - began)
      ).pipe(Effect.scoped)
    )
    for (let step = 0; step < 600; step++) yield* TestClock.adjust("100 millis")
    const exit = watched.pollUnsafe()
    yield* Fiber.interrupt(watched)
    return exit?._tag === "Success" ? exit.value : undefined
  })

const after = (duration: Duration.Input) => Effect.sleep(duration)

describe("heartbeat", () => {
  it.effect("notices a connection that alone is silent within 700 ms", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* silentAfter(Effect.never, Effect.void), 700)
    })
  )

  it.effect("does not hold a slow or stalled server against the connection", () =>
    Effect.gen(function* () {
      assert.isUndefined(yield* silentAfter(after("4 seconds"), after("5 seconds")))
      // Late, but there before anybody could say that another way was faster.
      assert.isUndefined(yield* silentAfter(after("350 millis"), Effect.void))
    })
  )

  it.effect("gives a server that says nothing at all 10 s, also one whose other way fails", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* silentAfter(Effect.never, Effect.never), 10_600)
      assert.strictEqual(yield* silentAfter(Effect.never, Effect.fail("refused")), 10_600)
    })
  )
})
