import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { describe } from "vitest"
import * as WorkerThreadsNode from "#layers/workers/WorkerThreadsNode.ts"
import { WorkerThreads } from "#services/workers/WorkerThreads.ts"
import type { TestJob } from "#test/layers/workers/test-job.ts"

const open = (options: { readonly maxJobs?: number; readonly maxWeight?: number; readonly timeout?: number } = {}) =>
  Effect.flatMap(WorkerThreads, (threads) =>
    threads.open<TestJob, string>({
      name: "test",
      handler: new URL("./test-job.ts", import.meta.url),
      maxJobs: options.maxJobs ?? 10,
      maxWeight: options.maxWeight ?? 1000,
      timeout: options.timeout ?? 20_000
    })
  )

describe("worker threads", () => {
  it.live("run jobs side by side, refuse too many, and survive a job that throws or kills the thread", () =>
    Effect.gen(function* () {
      const thread = yield* open({ maxJobs: 3 })
      const long = yield* Effect.forkChild(thread.run({ kind: "endless" }, 1))
      assert.strictEqual(yield* thread.run({ kind: "echo", text: "a" }, 1), "a")
      assert.strictEqual((yield* Effect.flip(thread.run({ kind: "throw" }, 1))).code, "overloaded")
      assert.strictEqual((yield* Effect.flip(thread.run({ kind: "exit" }, 1))).code, "overloaded")
      assert.strictEqual((yield* Effect.flip(Fiber.join(long))).code, "overloaded")
      assert.strictEqual(yield* thread.run({ kind: "echo", text: "b" }, 1), "b")
    }).pipe(Effect.scoped, Effect.provide(WorkerThreadsNode.layer))
  )

  it.live("bound what waits, and let one large job in alone", () =>
    Effect.gen(function* () {
      const thread = yield* open({ maxJobs: 2, maxWeight: 10 })
      assert.strictEqual(yield* thread.run({ kind: "echo", text: "large" }, 5000), "large")
      const long = yield* Effect.forkChild(thread.run({ kind: "endless" }, 6), { startImmediately: true })
      assert.strictEqual((yield* Effect.flip(thread.run({ kind: "echo", text: "x" }, 5))).code, "overloaded")
      const second = yield* Effect.forkChild(thread.run({ kind: "endless" }, 1), { startImmediately: true })
      assert.strictEqual((yield* Effect.flip(thread.run({ kind: "echo", text: "x" }, 1))).code, "overloaded")
      yield* Fiber.interrupt(long)
      yield* Fiber.interrupt(second)
      assert.strictEqual(yield* thread.run({ kind: "echo", text: "after" }, 10), "after")
    }).pipe(Effect.scoped, Effect.provide(WorkerThreadsNode.layer))
  )

  it.live("end what takes too long, even when it never yields", () =>
    Effect.gen(function* () {
      const thread = yield* open({ timeout: 700 })
      assert.strictEqual(yield* thread.run({ kind: "echo", text: "warm" }, 1), "warm")
      assert.strictEqual((yield* Effect.flip(thread.run({ kind: "endless" }, 1))).code, "overloaded")
      assert.strictEqual(yield* thread.run({ kind: "echo", text: "still there" }, 1), "still there")
      assert.strictEqual((yield* Effect.flip(thread.run({ kind: "stuck" }, 1))).code, "overloaded")
      const retried = thread.run({ kind: "echo", text: "new thread" }, 1)
      assert.strictEqual(yield* Effect.retry(retried, { times: 10 }), "new thread")
    }).pipe(Effect.scoped, Effect.provide(WorkerThreadsNode.layer))
  )
})
