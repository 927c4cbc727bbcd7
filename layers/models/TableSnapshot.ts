import { Clock, Effect, Queue, type Scope, Semaphore } from "effect"
import type { SqlError } from "effect/sql"
import { ChangeFeed } from "#services/storage/ChangeFeed.ts"

/** What a process holds of a small table that it follows. */
export interface TableSnapshot<A> {
  readonly current: () => A
  /** Reads the table now; afterwards `current` is at least as new as the call. */
  readonly reload: Effect.Effect<void, SqlError.SqlError>
  /** Calls back after each reload. */
  readonly subscribe: (listener: () => void) => void
}

/** Real time: a test's clock has no hold on a socket. */
const clock = Clock.Clock.defaultValue()

/**
 * Reads a table now, and again whenever its channel or the feed itself says that it may have changed. Many
 * notifications while one reading is under way lead to one more. A reading that fails is tried again every second,
 * with the former state served meanwhile.
 */
export const followTable = Effect.fnUntraced(function* <A>(
  channel: string,
  load: Effect.Effect<A, SqlError.SqlError>
): Effect.fn.Return<TableSnapshot<A>, SqlError.SqlError, ChangeFeed | Scope.Scope> {
  const feed = yield* ChangeFeed
  const wanted = yield* Queue.sliding<void>(1)
  const turn = yield* Semaphore.make(1)
  const listeners: Array<() => void> = []
  const want = () => {
    Queue.offerUnsafe(wanted, undefined)
  }
  // Before the first reading, so that nothing falls between the two.
  yield* feed.subscribe(channel, want)
  yield* feed.onReconnect(want)
  let held = yield* load
  const reload = turn.withPermit(
    Effect.map(load, (next) => {
      held = next
      for (const listener of listeners) listener()
    })
  )
  const again: Effect.Effect<void> = Effect.catchCause(reload, (cause) =>
    Effect.logWarning(`The table behind ${channel} cannot be read; its former state is served`, cause).pipe(
      Effect.andThen(Effect.provideService(Effect.sleep("1 second"), Clock.Clock, clock)),
      Effect.andThen(Effect.suspend(() => again))
    )
  )
  yield* Effect.forkScoped(Effect.forever(Effect.andThen(Queue.take(wanted), again)))
  return {
    current: () => held,
    reload,
    subscribe: (listener) => {
      listeners.push(listener)
    }
  }
})
