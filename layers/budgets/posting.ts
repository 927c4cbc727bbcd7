import { Effect } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import type { LedgerStatements } from "#layers/budgets/LedgerStatements.ts"
import type { Share } from "#layers/budgets/Share.ts"
import type { Shares } from "#layers/budgets/Shares.ts"
import type { Charge } from "#services/budgets/BudgetLedger.ts"

interface Sum {
  readonly account: string
  readonly start: number
  nanos: bigint
}

const summed = (charges: ReadonlyArray<Charge>): ReadonlyArray<Sum> => {
  const sums = new Map<string, Sum>()
  for (const { account, nanos, windowStart } of charges) {
    const name = `${windowStart} ${account}`
    const sum = sums.get(name)
    if (sum === undefined) sums.set(name, { account, start: windowStart, nanos })
    else sum.nanos += nanos
  }
  return Array.from(sums.values())
}

/** Moves charges from the lease into the accounts; a lease that holds less gives what it has. */
export const postCharges = (
  charges: ReadonlyArray<Charge>,
  shares: Shares,
  statements: LedgerStatements
): Effect.Effect<void, SqlError> => {
  if (charges.length === 0) return Effect.void
  const sums = summed(charges)
  return Effect.map(
    statements.post(sums.map((sum) => ({ a: sum.account, s: sum.start, c: String(sum.nanos) }))),
    (deducted) => {
      for (const [n, sum] of sums.entries()) {
        const share = shares.charged(sum.account, sum.start)
        if (share !== undefined) share.shortfall = Number(sum.nanos - (deducted[n] ?? 0n))
      }
    }
  )
}

/** Gives up the units that posted charges occupied. Charges of a former life occupy none and change only the lease. */
export const postedCharges = (
  charges: ReadonlyArray<Charge>,
  shares: Shares,
  enqueue: (share: Share) => void
): void => {
  for (const sum of summed(charges)) {
    const share = shares.charged(sum.account, sum.start)
    if (share === undefined) continue
    const nanos = Number(sum.nanos)
    const occupied = Math.min(share.unposted, nanos)
    share.unposted -= occupied
    share.taken -= occupied
    share.amount -= nanos - share.shortfall
    share.shortfall = 0
    if (share.counted !== undefined) share.counted += sum.nanos
    if (share.contendedUntil !== 0) enqueue(share)
  }
}
