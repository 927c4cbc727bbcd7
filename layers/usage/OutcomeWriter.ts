import { Clock, Duration, Effect, Exit } from "effect"
import { SqlClient } from "effect/sql"
import { appendFileSync } from "node:fs"
import { encodeOutcome } from "#layers/usage/outcome-line.ts"
import { makeSpendRows } from "#layers/usage/SpendRows.ts"
import { type Remedy, remedyOf } from "#layers/usage/write-failure.ts"
import { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import type { Outcome } from "#services/usage/UsageLedger.ts"

/** The machine's clock: a test's clock does not bring a database back. */
const clock = Clock.Clock.defaultValue()

const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 2_000

/** Waits in real time. */
export const pause = (millis: number): Effect.Effect<void> =>
  Effect.provideService(Effect.sleep(Duration.millis(millis)), Clock.Clock, clock)

/** A limit in real time. */
export const within = <A, E, R, E2>(effect: Effect.Effect<A, E, R>, limit: Duration.Input, orElse: E2) =>
  effect.pipe(
    Effect.timeoutOrElse({ duration: limit, orElse: () => Effect.fail(orElse) }),
    Effect.provideService(Clock.Clock, clock)
  )

/** Writes outcomes until they are written, and tells the budget ledger of each charge that has got into its account. */
export interface OutcomeWriter {
  /** Once; says what to do when it failed. */
  readonly attempt: (outcomes: ReadonlyArray<Outcome>) => Effect.Effect<Remedy | undefined>
  /**
   * Until it is done: waits for a database that is away; of a transaction that can never succeed it finds the outcomes at
   * fault by halving, and puts them aside in the file of the rejected. The charges of those are still posted.
   */
  readonly write: (outcomes: ReadonlyArray<Outcome>) => Effect.Effect<void>
  /** Puts a line aside that no outcome can be read from. */
  readonly rejectLine: (line: string, why: string) => Effect.Effect<void>
}

/** `rejectedFile` collects, one JSON object a line, what cannot be stored. */
export const makeOutcomeWriter = Effect.fnUntraced(function* (rejectedFile: string) {
  const rows = yield* makeSpendRows
  const sql = yield* SqlClient.SqlClient
  const budgets = yield* BudgetLedger

  const putAside = (entry: object, message: string) =>
    Effect.suspend(() => {
      try {
        appendFileSync(rejectedFile, `${JSON.stringify(entry)}\n`, { mode: 0o600 })
        return Effect.logError(message)
      } catch (cause) {
        return Effect.logFatal(`${message}; and ${rejectedFile} cannot be written`, entry, cause)
      }
    })

  const tried = new Set<string>()

  const attempt = (outcomes: ReadonlyArray<Outcome>): Effect.Effect<Remedy | undefined> =>
    Effect.map(Effect.exit(rows.write(outcomes, tried)), (exit) => {
      if (Exit.isFailure(exit)) return remedyOf(exit.cause)
      if (exit.value.length > 0) budgets.posted(exit.value)
      return undefined
    })

  const reject = Effect.fnUntraced(function* (outcome: Outcome, why: string) {
    yield* putAside(
      { why, outcome: JSON.parse(encodeOutcome(outcome)) as unknown },
      `The outcome of request ${outcome.requestId} cannot be stored and was put aside in ${rejectedFile}: ${why}`
    )
    tried.delete(outcome.callId)
    if (outcome.charges.length === 0) return
    const posted = yield* Effect.exit(sql.withTransaction(budgets.post(outcome.charges)))
    if (Exit.isFailure(posted)) yield* Effect.logError("Its charges could not be posted either", posted.cause)
    else budgets.posted(outcome.charges)
  })

  const write: (outcomes: ReadonlyArray<Outcome>) => Effect.Effect<void> = Effect.fnUntraced(function* (outcomes) {
    if (outcomes.length === 0) return
    for (let failures = 0; ; failures++) {
      const remedy = yield* attempt(outcomes)
      if (remedy === undefined) {
        if (failures > 0) yield* Effect.logInfo("Usage records are being written again")
        return
      }
      if (remedy._tag === "Never") {
        const [only, second] = outcomes
        if (only !== undefined && second === undefined) return yield* reject(only, remedy.why)
        const half = Math.ceil(outcomes.length / 2)
        yield* write(outcomes.slice(0, half))
        return yield* write(outcomes.slice(half))
      }
      if (failures === 0) yield* Effect.logWarning(`Usage records wait in the journal: ${remedy.why}`)
      yield* pause(Math.min(FIRST_PAUSE_MS * 2 ** Math.min(failures, 10), LONGEST_PAUSE_MS))
    }
  })

  const rejectLine = (line: string, why: string) =>
    putAside({ why, line }, `A line of the usage journal cannot be read and was put aside in ${rejectedFile}: ${why}`)

  const writer: OutcomeWriter = { attempt, write, rejectLine }
  return writer
})
