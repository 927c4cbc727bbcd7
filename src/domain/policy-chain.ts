/**
 * What binds a call beyond its key's own row (decisions.md, section 6.2): the limits of user, team, organization and
 * customer, each its own and those of its budget tier. `policy_chain` of migrations/public/0011 gives the rows.
 */
import { type Limit, type LimitOwner, limitOf, parseBudgetDuration, Window } from "#domain/limits.ts"
import { nanosFromDollars, type Nanos } from "#domain/money.ts"

/** The limits of a budget tier as the database writes them. */
export interface TierLimitsRow {
  readonly max_budget: string | null
  readonly soft_budget: string | null
  readonly budget_duration: string | null
  readonly rpm_limit: number | null
  readonly tpm_limit: number | null
}

/** The limits of one owner as the database writes them. */
export interface OwnerLimitsRow {
  readonly owner: LimitOwner
  readonly id: string
  readonly max_budget: string | null
  readonly soft_budget: string | null
  readonly rpm_limit: number | null
  readonly tpm_limit: number | null
  readonly models: ReadonlyArray<string>
  readonly tier: TierLimitsRow | null
}

/**
 * Stands for the hard limit of an owner who has only a soft one, so that the spending is counted at all. No amount on
 * the wire comes near it: whoever shows what remains of a budget leaves it out.
 */
export const watchedBudget: Nanos = 4_000_000_000_000_000_000n

/** A hard limit as the ledger can count it: one that nobody will ever reach is as good as the greatest. */
export const countable = (limit: Nanos): Nanos => (limit > watchedBudget ? watchedBudget : limit)

const least = <A extends bigint | number>(...values: ReadonlyArray<A | null | undefined>): A | null =>
  values.reduce<A | null>(
    (best, value) => (value === null || value === undefined || (best !== null && best <= value) ? best : value),
    null
  )

const nanos = (dollars: string | null | undefined): Nanos | null =>
  dollars === null || dollars === undefined ? null : (nanosFromDollars(dollars) ?? null)

/** The budget of one window: the hard limit, or what stands for it where there is only a soft one. */
const budgetOf = (owner: LimitOwner, id: string, window: Window, hard: Nanos | null, soft: Nanos | null) =>
  hard === null && soft === null ? [] : [limitOf(owner, id, "budget", countable(hard ?? watchedBudget), window)]

/**
 * The limits of one owner. A budget without a duration is one with the owner's own, the smaller of the two; one with a
 * duration is an account of its own (`budget:team:<id>@1mo`), so that both hold and a change to another tier of the same
 * duration forgets nothing.
 */
export const limitsOfOwner = (row: OwnerLimitsRow): ReadonlyArray<Limit> => {
  const { id, owner, tier } = row
  const window = parseBudgetDuration(tier?.budget_duration ?? "")
  const [ownMax, ownSoft] = [nanos(row.max_budget), nanos(row.soft_budget)]
  const [tierMax, tierSoft] = [nanos(tier?.max_budget), nanos(tier?.soft_budget)]
  const endless = window === undefined
  const rpm = least(row.rpm_limit, tier?.rpm_limit)
  const tpm = least(row.tpm_limit, tier?.tpm_limit)
  return [
    ...budgetOf(
      owner,
      id,
      Window.Lifetime(),
      endless ? least(ownMax, tierMax) : ownMax,
      endless ? least(ownSoft, tierSoft) : ownSoft
    ),
    ...(endless ? [] : budgetOf(owner, `${id}@${tier?.budget_duration}`, window, tierMax, tierSoft)),
    ...(rpm === null ? [] : [limitOf(owner, id, "requests", BigInt(rpm), Window.Minute())]),
    ...(tpm === null ? [] : [limitOf(owner, id, "tokens", BigInt(tpm), Window.Minute())])
  ]
}

/** Of several limits on one account the smallest. */
export const mergedLimits = (limits: ReadonlyArray<Limit>): ReadonlyArray<Limit> => {
  const byAccount = new Map<string, Limit>()
  for (const limit of limits) {
    const known = byAccount.get(limit.account)
    if (known === undefined || limit.limit < known.limit) byAccount.set(limit.account, limit)
  }
  return [...byAccount.values()]
}

/**
 * The models that all of these lists allow; an empty list allows all. Undefined: no list restricts anything; an empty
 * set: they have nothing in common, and nothing may be called.
 */
export const allowedModels = (lists: ReadonlyArray<ReadonlyArray<string>>): ReadonlySet<string> | undefined =>
  lists
    .filter((list) => list.length > 0)
    .reduce<ReadonlySet<string> | undefined>(
      (allowed, list) => (allowed === undefined ? new Set(list) : new Set(list.filter((model) => allowed.has(model)))),
      undefined
    )

/** What the owners on a key's chain add to the key's own limits. `owners` may hold nulls, as the database writes it. */
export const chainOf = (
  keyModels: ReadonlyArray<string>,
  keyLimits: ReadonlyArray<Limit>,
  owners: ReadonlyArray<OwnerLimitsRow | null>
): { readonly limits: ReadonlyArray<Limit>; readonly models: ReadonlySet<string> | undefined } => {
  const present = owners.filter((row) => row !== null)
  return {
    limits: mergedLimits([...keyLimits, ...present.flatMap(limitsOfOwner)]),
    models: allowedModels([keyModels, ...present.map(({ models }) => models)])
  }
}
