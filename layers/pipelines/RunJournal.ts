/** The one writer of a run: what its steps report is written in batches, and counts once it is written. */
import { Deferred, Effect, Latch, Queue, Schedule, Semaphore } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import { applyEvent, isNews, type Plan, type RunProgress } from "#domain/pipelines/progress.ts"
import type { HistoryEvent, RunEvent } from "#domain/pipelines/runs.ts"
import { OwnershipLost } from "#layers/pipelines/run-log.ts"

/** The run can no longer be worked on here. */
export type Abandoned = OwnershipLost | SqlError

/** The history of one run as its engine keeps it. */
export interface RunLog {
  readonly runId: string
  /** Others may write meanwhile: what is written is held against what they wrote. */
  readonly shared: boolean
  readonly read: (after: number, limit: number) => Effect.Effect<ReadonlyArray<HistoryEvent>, SqlError>
  /** `events` is run when nobody else can write until these are written. Returns the number of the last event. */
  readonly write: (events: Effect.Effect<ReadonlyArray<RunEvent>, SqlError>) => Effect.Effect<number, Abandoned>
}

const batch = 200
const page = 1000

/** How long a database that is away is waited for: shorter than a lease, so that nobody else has the run meanwhile. */
const patience = Schedule.spaced("500 millis").pipe(Schedule.upTo({ duration: "8 seconds" }))

interface Pending {
  readonly event: RunEvent
  readonly written: Deferred.Deferred<void, Abandoned>
}

export interface RunJournal {
  /** Returns when the event is written and taken into the progress. */
  readonly append: (event: RunEvent) => Effect.Effect<void, Abandoned>
  /** Takes in what others wrote. */
  readonly catchUp: Effect.Effect<void, Abandoned>
  /** The last event that is known. */
  readonly sequence: () => number
  /** Ends with the failure that ended the writing. */
  readonly run: Effect.Effect<never, Abandoned>
}

export const makeRunJournal = Effect.fnUntraced(function* (log: RunLog, plan: Plan, progress: RunProgress) {
  const pending: Array<Pending> = []
  const work = yield* Latch.make(false)
  const lock = yield* Semaphore.make(1)
  let sequence = 0

  const readUpTo = Effect.fnUntraced(function* (end: number) {
    while (sequence < end) {
      const events = yield* log.read(sequence, Math.min(page, end === Infinity ? page : end - sequence))
      for (const { event, sequence: number } of events) {
        applyEvent(plan, progress, event)
        sequence = number
      }
      if (events.length < page) return
    }
  })

  const flush = Effect.fnUntraced(function* () {
    const taken = pending.splice(0, batch)
    let counted: ReadonlyArray<Pending> = taken
    const news = log.shared
      ? Effect.map(readUpTo(Infinity), () => {
          counted = taken.filter(({ event }) => isNews(progress, event))
          return counted.map(({ event }) => event)
        })
      : Effect.succeed(taken.map(({ event }) => event))
    const last = yield* Effect.retry(log.write(news), {
      schedule: patience,
      while: (error) => error._tag === "SqlError"
    }).pipe(
      Effect.tapError((error) =>
        Effect.forEach(taken, ({ written }) => Deferred.fail(written, error), { discard: true })
      )
    )
    // Between what was known and what was just written stands what others wrote.
    yield* readUpTo(last - counted.length)
    for (const { event } of counted) applyEvent(plan, progress, event)
    sequence = last
    for (const { written } of counted) Deferred.doneUnsafe(written, Effect.void)
    if (counted.length === taken.length) return
    const lost = Effect.fail(new OwnershipLost({ runId: log.runId }))
    for (const one of taken) if (!counted.includes(one)) Deferred.doneUnsafe(one.written, lost)
  })

  const run = Effect.gen(function* () {
    while (true) {
      yield* work.await
      if (pending.length === 0) {
        yield* work.close
        continue
      }
      yield* lock.withPermit(flush())
    }
  })

  const journal: RunJournal = {
    append: (event) =>
      Effect.suspend(() => {
        const written = Deferred.makeUnsafe<void, Abandoned>()
        pending.push({ event, written })
        work.openUnsafe()
        return Deferred.await(written)
      }),
    catchUp: lock.withPermit(readUpTo(Infinity)),
    sequence: () => sequence,
    run
  }
  return journal
})

/** Wakes a run that sleeps. */
export const makeBell = Effect.map(Queue.sliding<void>(1), (queue) => ({
  ring: () => void Queue.offerUnsafe(queue, undefined),
  /** Until it rings, or until so many milliseconds have passed. */
  wait: (millis: number | undefined) =>
    millis === undefined
      ? Effect.asVoid(Queue.take(queue))
      : Effect.asVoid(Effect.timeoutOption(Queue.take(queue), Math.max(1, millis)))
}))
