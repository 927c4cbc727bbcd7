/** Notices a connection whose other end has fallen silent without a word: a cut cable, a firewall that forgot the flow. */
import { Effect, Fiber, Option, type Scope } from "effect"

export interface Heartbeat<E> {
  /** One question on the connection that is watched. */
  readonly ask: Effect.Effect<unknown, E>
  /** The same question to the same server on another way. */
  readonly elsewhere: Effect.Effect<unknown, unknown>
  /** What a silent connection fails with. */
  readonly silent: () => E
}

const PAUSE = "300 millis"
const PATIENCE = "300 millis"
const GRACE = "100 millis"
const LONGEST = "10 seconds"

/**
 * Asks for ever. An answer that is late is compared with one on another way: where that one comes, the connection is
 * dead, 700 ms after the last sign of life at most. Where it does not, the server itself is slow or away, and a connection
 * opened anew would only add to its load: it has 10 s.
 */
export const heartbeat = <E>({ ask, elsewhere, silent }: Heartbeat<E>): Effect.Effect<never, E, Scope.Scope> => {
  const beat = Effect.gen(function* () {
    yield* Effect.sleep(PAUSE)
    // In the connection's scope: a driver may take seconds to take back a question that nobody answers.
    const asked = yield* Effect.forkScoped(ask)
    const inTime = yield* Effect.timeoutOption(Fiber.await(asked), PATIENCE)
    if (Option.isSome(inTime)) return yield* inTime.value
    const judged = Effect.matchEffect(elsewhere, {
      onSuccess: () => Effect.sleep(GRACE),
      onFailure: () => Effect.sleep(LONGEST)
    }).pipe(Effect.raceFirst(Effect.sleep(LONGEST)), Effect.andThen(Effect.suspend(() => Effect.fail(silent()))))
    yield* Effect.raceFirst(Fiber.join(asked), judged)
  })
  return Effect.forever(beat)
}
