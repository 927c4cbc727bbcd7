import { assert, describe, layer } from "@effect/vitest"
import { Deferred, Effect, Exit, Layer, Queue, Scope } from "effect"
import { SqlClient } from "effect/sql"
import * as ChangeFeedPostgres from "#layers/storage/ChangeFeedPostgres.ts"
import { ChangeFeed } from "#services/storage/ChangeFeed.ts"
import { testDatabase } from "#test/support/Postgres.ts"

const inbox = Effect.fnUntraced(function* (channel: string) {
  const feed = yield* ChangeFeed
  const queue = yield* Queue.unbounded<string>()
  yield* feed.subscribe(channel, (payload) => {
    Queue.offerUnsafe(queue, payload)
  })
  return queue
})

const cutConnections = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  return yield* sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = ${ChangeFeedPostgres.APPLICATION_NAME}`
})

describe("ChangeFeedPostgres", () => {
  layer(ChangeFeedPostgres.layer.pipe(Layer.provideMerge(testDatabase({ content: "empty" }))))("feed", (it) => {
    it.effect("delivers to the channel's subscribers, in order, and to nobody else", () =>
      Effect.gen(function* () {
        const feed = yield* ChangeFeed
        const one = yield* inbox("keys")
        const two = yield* inbox("keys")
        const other = yield* inbox("models")
        yield* feed.notify("keys", "a")
        yield* feed.notify("keys", "")
        yield* feed.notify("models", "m")
        assert.deepStrictEqual(yield* Queue.takeN(one, 2), ["a", ""])
        assert.deepStrictEqual(yield* Queue.takeN(two, 2), ["a", ""])
        assert.deepStrictEqual(yield* Queue.takeN(other, 1), ["m"])
      })
    )

    it.effect("delivers what a transaction sent when it commits, and nothing of one that does not", () =>
      Effect.gen(function* () {
        const feed = yield* ChangeFeed
        const sql = yield* SqlClient.SqlClient
        const got = yield* inbox("committed")
        yield* Effect.ignore(sql.withTransaction(Effect.andThen(feed.notify("committed", "lost"), Effect.fail("no"))))
        yield* sql.withTransaction(feed.notify("committed", "kept"))
        assert.strictEqual(yield* Queue.take(got), "kept")
      })
    )

    it.effect("goes on after a handler that throws", () =>
      Effect.gen(function* () {
        const feed = yield* ChangeFeed
        yield* feed.subscribe("bad", () => {
          throw new Error("broken handler")
        })
        const got = yield* inbox("bad")
        yield* feed.notify("bad", "1")
        yield* feed.notify("bad", "2")
        assert.deepStrictEqual(yield* Queue.takeN(got, 2), ["1", "2"])
      })
    )

    it.effect("stops when the subscription's scope closes, for that subscription only", () =>
      Effect.gen(function* () {
        const feed = yield* ChangeFeed
        const ended: Array<string> = []
        const handler = (payload: string) => void ended.push(payload)
        const scope = yield* Scope.make()
        yield* feed.subscribe("ending", handler).pipe(Scope.provide(scope))
        const got = yield* inbox("ending")
        yield* feed.notify("ending", "1")
        yield* Queue.take(got)
        yield* Scope.close(scope, Exit.void)
        yield* feed.notify("ending", "2")
        yield* Queue.take(got)
        assert.deepStrictEqual(ended, ["1"])
      })
    )

    it.effect("listens again after its connection died, and says so", () =>
      Effect.gen(function* () {
        const feed = yield* ChangeFeed
        const got = yield* inbox("again")
        for (let round = 1; round <= 3; round++) {
          const back = yield* Deferred.make<void>()
          yield* Effect.scoped(
            Effect.gen(function* () {
              yield* feed.onReconnect(() => Deferred.doneUnsafe(back, Effect.void))
              assert.strictEqual((yield* cutConnections).length, 1)
              // Made while the feed is down: it must be listening too once it is back.
              const meanwhile = yield* inbox("meanwhile")
              yield* Deferred.await(back)
              yield* feed.notify("again", `round ${round}`)
              yield* feed.notify("meanwhile", "here")
              assert.strictEqual(yield* Queue.take(got), `round ${round}`)
              assert.strictEqual(yield* Queue.take(meanwhile), "here")
            })
          )
        }
      })
    )
  })
})
