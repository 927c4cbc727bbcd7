import { existsSync, mkdirSync, readdirSync, rmdirSync } from "node:fs"
import { join } from "node:path"
import { type Duration, Effect, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { databaseUnavailable, type Unavailable } from "#domain/errors.ts"
import { publicTenant } from "#domain/principal.ts"
import { Journal, type JournalOptions } from "#layers/usage/Journal.ts"
import { storableOutcome } from "#layers/usage/outcome-line.ts"
import { makeOutcomeWriter, type OutcomeWriter, pause, within } from "#layers/usage/OutcomeWriter.ts"
import { ensurePartitions } from "#layers/usage/Partitions.ts"
import { makeUsageTotals } from "#layers/usage/UsageTotals.ts"
import type { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import type { Outbox } from "#services/callbacks/Outbox.ts"
import type { Provenance } from "#services/provenance/Provenance.ts"
import { orUnavailable } from "#services/storage/outage.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import { type Outcome, UsageLedger } from "#services/usage/UsageLedger.ts"

/** Where and how much is journalled. */
export interface UsageLedgerOptions {
  /** The folder of all workers' journals: `<data dir>/journal`. */
  readonly directory: string
  /** Names this worker's journal; no other running process may use it. */
  readonly worker: string
  /** GATEWAY_JOURNAL_LIMIT_BYTES. */
  readonly limitBytes: number
  /** How long a reader, and the end of the process, waits for what is pending. Default 5 s. */
  readonly flushLimit?: Duration.Input
}

/**
 * Outcomes in one transaction. Many: a transaction costs as much as some hundred of its rows, and what waits in memory for a
 * writer that is too slow grows old and is dear to collect. Not all: encoding a batch is a pause of the event loop.
 */
const BATCH = 512
/** While a backlog is worked off. */
const CATCH_UP_BATCH = 1000
/** How long a batch is gathered unless somebody waits for it: what is pending is in the journal. */
const LINGER_MS = 100
const FLUSH_LIMIT = "5 seconds"
const REPLAY_LIMIT = "1 minute"
const REPLAY_LIMIT_BYTES = 2 ** 40

const rejectedFile = (directory: string): string => join(directory, "rejected.jsonl")

const openJournal = Effect.fnUntraced(function* (
  options: Pick<JournalOptions, "directory" | "limitBytes" | "onAppended">,
  writer: OutcomeWriter
) {
  const run = Effect.runForkWith(yield* Effect.context<never>())
  return new Journal({
    ...options,
    onFailed: (cause) => run(Effect.logError("The usage journal cannot be written; no calls are admitted", cause)),
    onUnreadable: (segment, lines, torn) => {
      for (const line of lines) {
        // Whoever waited for a torn line was killed with the process: nobody was told that it was recorded.
        run(
          torn
            ? Effect.logWarning(`${segment} ends in half a line, which is passed over`)
            : writer.rejectLine(line, `damaged line in ${segment}`)
        )
      }
    }
  })
})

/** The writer's side of a live journal. */
class Work {
  /** Somebody waits for the outcomes: do not gather more of them. */
  urgent = false
  #wake: (() => void) | undefined

  readonly signal = (): void => {
    this.#wake?.()
  }

  /** Until `ready` holds; asked again at every signal. */
  readonly until = (ready: () => boolean): Effect.Effect<void> =>
    Effect.callback<void>((resume) => {
      const look = () => {
        if (!ready()) return
        this.#wake = undefined
        resume(Effect.void)
      }
      this.#wake = look
      look()
      return Effect.sync(() => {
        if (this.#wake === look) this.#wake = undefined
      })
    })
}

/**
 * Writes into PostgreSQL what the journals of workers that are not running any more have left, and removes them. To be
 * run before budgets are reclaimed from the dead and before calls are served; `isRunning` tells which workers to leave
 * alone. Returns how many outcomes there were (some may have been in PostgreSQL already); fails when the database stays
 * away for a minute.
 */
export const replayJournals = Effect.fn("replayJournals")(function* (
  directory: string,
  isRunning: (worker: string) => boolean = () => false
): Effect.fn.Return<number, Unavailable, SqlClient.SqlClient | BudgetLedger | Outbox | Provenance | Tenants> {
  if (!existsSync(directory)) return 0
  const writer = yield* makeOutcomeWriter(rejectedFile(directory))
  const workers = readdirSync(directory, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !isRunning(entry.name))
    .map((entry) => join(directory, entry.name))
  let count = 0
  for (const worker of workers) {
    const journal = yield* openJournal({ directory: worker, limitBytes: REPLAY_LIMIT_BYTES }, writer)
    const drain = Effect.gen(function* () {
      for (let batch = journal.next(CATCH_UP_BATCH); batch !== undefined; batch = journal.next(CATCH_UP_BATCH)) {
        yield* writer.write(batch.outcomes)
        journal.acknowledge(batch)
        count += batch.outcomes.length
      }
    })
    yield* within(drain, REPLAY_LIMIT, databaseUnavailable).pipe(Effect.ensuring(Effect.sync(() => journal.close())))
    yield* Effect.ignore(Effect.try({ try: () => rmdirSync(worker), catch: () => "in use" as const }))
  }
  if (count > 0) yield* Effect.logInfo(`Replayed ${count} usage records of former processes`)
  return count
})

const make = Effect.fnUntraced(function* (options: UsageLedgerOptions) {
  const sql = yield* SqlClient.SqlClient
  const tenants = yield* Tenants
  const schemas = [...new Set(yield* Effect.forEach([publicTenant, ...tenants.slugs], tenants.schemaOf))]
  mkdirSync(options.directory, { recursive: true, mode: 0o700 })
  const writer = yield* makeOutcomeWriter(rejectedFile(options.directory))
  const work = new Work()
  const journal = yield* openJournal(
    { directory: join(options.directory, options.worker), limitBytes: options.limitBytes, onAppended: work.signal },
    writer
  )
  yield* Effect.addFinalizer(() => Effect.sync(() => journal.close()))

  const partitions = Effect.forEach(
    schemas,
    (schema) =>
      // A lost connection makes a defect of the rollback; the default partition serves until the next hour.
      Effect.catchCause(ensurePartitions(schema), (cause) =>
        Effect.logWarning(`Partitions of ${schema} could not be made ahead`, cause)
      ),
    { discard: true }
  ).pipe(Effect.provideService(SqlClient.SqlClient, sql))
  yield* partitions
  yield* Effect.forkScoped(Effect.repeat(Effect.delay(partitions, "1 hour"), Schedule.forever))

  /** The disk refuses outcomes, so the database is their only place. */
  const keepUnwritten = Effect.gen(function* () {
    const outcomes = journal.takeUnwritten()
    if (outcomes.length === 0) return
    const remedy = yield* Effect.onInterrupt(writer.attempt(outcomes), () =>
      Effect.sync(() => journal.settleUnwritten(false))
    )
    if (remedy?._tag === "Later") {
      journal.settleUnwritten(false)
      return yield* pause(LINGER_MS)
    }
    if (remedy !== undefined) yield* writer.write(outcomes)
    journal.settleUnwritten(true)
  })

  const writeForEver = Effect.gen(function* () {
    while (true) {
      if (!journal.ready) {
        work.urgent = false
        yield* work.until(() => journal.ready)
      }
      if (!work.urgent && !journal.behind && journal.queued < BATCH) {
        yield* Effect.race(
          work.until(() => work.urgent || journal.queued >= BATCH),
          pause(LINGER_MS)
        )
      }
      yield* keepUnwritten
      const batch = journal.next(journal.behind ? CATCH_UP_BATCH : BATCH)
      if (batch === undefined) continue
      yield* writer.write(batch.outcomes)
      journal.acknowledge(batch)
    }
  })
  yield* Effect.forkScoped(writeForEver)

  const flush = within(
    Effect.callback<void>((resume) => {
      const forget = journal.onDrained(() => resume(Effect.void))
      work.urgent = true
      work.signal()
      return Effect.sync(forget)
    }),
    options.flushLimit ?? FLUSH_LIMIT,
    databaseUnavailable
  )
  yield* Effect.addFinalizer(() =>
    Effect.catch(flush, () => Effect.logWarning("Usage records stay in the journal until the next start"))
  )

  const append = (outcome: Outcome, written: () => void) => journal.append(storableOutcome(outcome), written)

  const totals = makeUsageTotals(sql, schemas)
  return UsageLedger.of({
    append,
    record: (outcome) => Effect.callback<void>((resume) => append(outcome, () => resume(Effect.void))),
    isFull: () => journal.full,
    flush,
    lifetime: (keyId) => Effect.andThen(flush, orUnavailable(totals.lifetime(keyId))),
    window: (keyId, startDay, endDay) => Effect.andThen(flush, orUnavailable(totals.window(keyId, startDay, endDay))),
    spendOfKeys: (keyIds) => Effect.andThen(flush, orUnavailable(totals.spendOfKeys(keyIds)))
  })
})

/**
 * The journal in the data dir and the tables of each tenant. What a former process of the same worker left is written
 * as well, but `replayJournals` should have done that before. When the scope closes, what is pending is written for up
 * to five seconds; the rest stays in the journal.
 */
export const layer = (
  options: UsageLedgerOptions
): Layer.Layer<UsageLedger, never, SqlClient.SqlClient | BudgetLedger | Outbox | Provenance | Tenants> =>
  Layer.effect(UsageLedger, make(options))
