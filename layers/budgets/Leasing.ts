import { Clock, Effect, Queue, Scope } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import type { Limit } from "#domain/limits.ts"
import { type Holder, realClock } from "#layers/budgets/Holder.ts"
import type { LeaseAnswer, LeaseItem, LedgerStatements } from "#layers/budgets/LedgerStatements.ts"
import type { Recall } from "#layers/budgets/Recall.ts"
import { MOST_UNITS, Share, type Waiter } from "#layers/budgets/Share.ts"
import type { Shares } from "#layers/budgets/Shares.ts"

const workers = 3
const batchSize = 64
const mostWaiters = 10_000
/** How long a refusal by the database stands before it is asked again. */
const refusalMs = 100
const failureMs = 50
/** A database that takes longer than this counts as away. */
const patience = "5 seconds"
/** At most one recall of an account in this time. */
const recallEveryMs = 500
/** How long a recalled account is shared unit by unit. */
const contentionMs = 2000
/** The first lease asks for this many times the need; twice as much whenever it did not last a second. */
const firstAppetite = 16

/** The spend that an account begins with, in nano-dollars: what was spent before the limit was set. */
export type InitialSpent = (limit: Limit, windowStart: number, windowEnd: number) => Effect.Effect<bigint, SqlError>

export interface LeasingOptions {
  readonly clock: Clock.Clock
  readonly statements: LedgerStatements
  readonly shares: Shares
  readonly holder: Holder
  readonly recall: Recall
  readonly mailbox: Queue.Queue<Share>
  readonly initialSpent: InitialSpent
}

/** What an item asks, and what the share was when it asked. */
interface Errand {
  readonly share: Share
  readonly item: LeaseItem
}

/** An errand with its answer. `wanted`: the account is to be recalled from elsewhere before anybody is refused. */
interface Taken extends Errand {
  readonly reply: LeaseAnswer
  readonly wanted: boolean
}

/** Marks the share for the next look; once, however many ask for it. */
export const enqueueIn =
  (mailbox: Queue.Queue<Share>) =>
  (share: Share): void => {
    if (share.busy) share.again = true
    else if (!share.queued) {
      share.queued = true
      Queue.offerUnsafe(mailbox, share)
    }
  }

/** The mailboxes of the accounts: coalesces who lacks what into one statement for many accounts. */
export const make = Effect.fnUntraced(function* (options: LeasingOptions) {
  const { clock, holder, initialSpent, mailbox, recall, shares, statements } = options
  const scope = yield* Scope.Scope
  const enqueue = enqueueIn(mailbox)
  let waiting = 0

  const answer = (share: Share): void => {
    const places = share.places
    share.places = []
    for (const { waiter } of places) if (--waiter.outstanding === 0) waiter.answered()
  }

  const finish = (share: Share): void => {
    share.busy = false
    if (share.again || share.places.length > 0) {
      share.again = false
      enqueue(share)
    }
  }

  /** What to ask for a share now; undefined when there is nothing. What is given back is out of use from here on. */
  const errandOf = (share: Share, now: number): Errand | undefined => {
    share.queued = false
    share.busy = true
    let total = 0
    let smallest = Number.POSITIVE_INFINITY
    for (const { need } of share.places) {
      if (need <= 0) continue
      total += need
      smallest = Math.min(smallest, need)
    }
    const free = share.free
    const need = total === 0 ? 0 : Math.min(MOST_UNITS, Math.max(0, total - free))
    const current = now < share.end || share.start === -1
    const contended = performance.now() < share.contendedUntil
    const returning = need === 0 && (share.giveBack || contended)
    const refill = !contended && !returning && current && !share.closed && (need > 0 || free < share.lowWater)
    if (refill) {
      const quick = now - share.refilledAt < 1000
      const base = firstAppetite * (smallest === Number.POSITIVE_INFINITY ? 1 : smallest)
      share.appetite = Math.min(MOST_UNITS / 8, Math.max(base, quick ? share.appetite * 2 : share.appetite))
    }
    const surplus = returning ? (share.budget ? Math.max(0, free) : free) : 0
    const give = share.owed + surplus
    const closing = returning && share.budget && share.taken === 0 && (share.amount > 0 || share.unsure || give > 0)
    const useful = need > 0 || give !== 0 || closing || (refill && share.appetite > 0) || share.counted === undefined
    if (returning) share.giveBack = false
    if (!useful) return undefined
    share.owed = 0
    share.amount -= surplus
    return {
      share,
      item: {
        a: share.account,
        budget: share.budget,
        s: share.start === -1 || (!share.budget && now >= share.end) ? now : share.start,
        e: Number.isFinite(share.end) ? (share.start === -1 ? now + 60_000 : share.end) : null,
        l: String(share.limit),
        give,
        held: share.start,
        closing,
        low: need === 0 ? 0 : Math.max(1, Math.min(need, smallest - free)),
        need,
        extra: refill ? Math.min(share.appetite, Math.max(0, MOST_UNITS - share.amount - need)) : 0,
        initial: null
      }
    }
  }

  /** Takes an answer in; true when the account is to be recalled from elsewhere before anybody is refused. */
  const take = ({ item, share }: Errand, reply: LeaseAnswer, now: number): boolean => {
    if (reply.outcome === "lapsed" || reply.outcome === "missing") return false
    share.counted = reply.counted
    if (item.closing) share.unsure = false
    if (reply.outcome === "over") return false
    if (!share.budget && reply.start !== share.start) {
      if (share.start === -1) {
        share.start = reply.start ?? -1
        share.end = reply.end ?? -1
      } else {
        const fresh = new Share(share.source, reply.start ?? -1, reply.end ?? -1, now)
        fresh.counted = reply.counted
        fresh.amount = reply.granted
        shares.replace(share, fresh)
        return false
      }
    }
    share.amount += reply.granted
    if (reply.granted > 0) {
      share.refilledAt = now
      const extra = reply.granted - item.need
      share.lowWater = extra > 0 ? Math.floor(extra / 4) : 0
    } else if (item.extra > 0) share.lowWater = 0
    if (reply.outcome !== "refused") return false
    const monotonic = performance.now()
    const elsewhere = reply.others > 0 && (!share.budget || reply.elsewhere > 0n)
    if (elsewhere && monotonic - share.recalledAt > recallEveryMs) {
      share.contendedUntil = monotonic + contentionMs
      // Two processes that each hold half of what both want must not wait for each other.
      if (share.free > 0) {
        share.owed += share.free
        share.amount = share.taken
      }
      share.yielding = []
      share.recalling = true
      return true
    }
    share.refusedNeed = item.low
    share.refusedUntil = monotonic + refusalMs
    return false
  }

  /** Asks and takes the answers in, before the holder can come back to life with other amounts. */
  const ask = (errands: ReadonlyArray<Errand>) =>
    holder.leasing(
      Effect.suspend(() => {
        const now = clock.currentTimeMillisUnsafe()
        const items = errands.map((errand) => errand.item)
        return Effect.map(statements.lease(items, now), (replies) =>
          errands.map((errand, n): Taken => {
            const reply = replies[n] as LeaseAnswer
            return { ...errand, reply, wanted: take(errand, reply, now) }
          })
        )
      })
    )

  /** Asks; then, with what they lacked, once more for accounts seen for the first time and for lapsed leases. */
  const converse = Effect.fnUntraced(function* (errands: ReadonlyArray<Errand>) {
    const settled: Array<Taken> = []
    let open = errands
    for (let round = 0; round < 3 && open.length > 0; round++) {
      const next: Array<Errand> = []
      const taken = yield* ask(open)
      if (taken.some(({ reply }) => reply.outcome === "lapsed")) yield* holder.renew
      for (const { item, reply, share, wanted } of taken) {
        if (reply.outcome === "lapsed") next.push({ share, item: { ...item, give: 0 } })
        else if (reply.outcome === "missing") {
          const initial = yield* initialSpent(share.source, share.start, share.end)
          next.push({ share, item: { ...item, initial: String(initial) } })
        } else settled.push({ share, item, reply, wanted })
      }
      open = next
    }
    return { settled, open }
  })

  /** What a share returns of its own before it asks others. */
  const ownReturn = ({ item, share }: Errand): Errand => {
    const give = share.owed
    share.owed = 0
    return { share, item: { ...item, give, held: share.start, closing: false, low: 0, need: 0, extra: 0 } }
  }

  const yielded = (held: ReadonlyArray<Share>): void => {
    for (const share of held) {
      const waiting = share.yielding ?? []
      share.yielding = undefined
      for (const done of waiting) done()
    }
  }

  const recalled = (errands: ReadonlyArray<Errand>, others: number) => {
    const held = errands.map((errand) => errand.share)
    const rich = errands.filter(({ share }) => share.owed > 0).map(ownReturn)
    const given = rich.length === 0 ? Effect.void : Effect.exit(ask(rich))
    return Effect.ensuring(
      Effect.andThen(
        Effect.andThen(
          given,
          Effect.sync(() => yielded(held))
        ),
        recall.recall(held, others)
      ),
      Effect.sync(() => {
        yielded(held)
        for (const share of held) {
          share.recalling = false
          share.recalledAt = performance.now()
          finish(share)
        }
      })
    )
  }

  const failed = (errands: ReadonlyArray<Errand>): void => {
    for (const { share } of errands) {
      share.failedUntil = performance.now() + failureMs
      if (share.budget) share.unsure = true
      answer(share)
      finish(share)
    }
  }

  const process = Effect.fnUntraced(function* (batch: ReadonlyArray<Share>) {
    const now = clock.currentTimeMillisUnsafe()
    const errands: Array<Errand> = []
    for (const share of batch) {
      const errand = errandOf(share, now)
      if (errand !== undefined) errands.push(errand)
      else {
        answer(share)
        finish(share)
      }
    }
    if (errands.length === 0) return
    yield* Effect.gen(function* () {
      const { open, settled } = yield* converse(errands).pipe(
        Effect.timeout(patience),
        Effect.provideService(Clock.Clock, realClock)
      )
      const wanted = settled.filter((taken) => taken.wanted)
      for (const taken of settled) {
        if (taken.wanted) continue
        answer(taken.share)
        finish(taken.share)
      }
      failed(open)
      const others = Math.max(0, ...wanted.map((taken) => taken.reply.others))
      if (wanted.length > 0) yield* Effect.forkIn(recalled(wanted, others), scope)
    }).pipe(
      Effect.catchCause((cause) => {
        failed(errands)
        return Effect.logWarning("Budgets: the database was asked for shares in vain", cause)
      })
    )
  })

  const worker = Queue.takeBetween(mailbox, 1, batchSize).pipe(
    Effect.flatMap((batch) => {
      // Without a valid lease there is nothing to ask a budget's share for.
      const lapsed = batch.some((share) => share.budget) && !holder.leasesHold(clock.currentTimeMillisUnsafe())
      return lapsed ? Effect.andThen(Effect.exit(holder.renew), process(batch)) : process(batch)
    }),
    Effect.forever
  )
  for (let n = 0; n < workers; n++) yield* Effect.forkScoped(worker)

  return {
    enqueue,
    /** Whether so many calls wait already that another must not. */
    overloaded: () => waiting >= mostWaiters,
    /** Returns when each of the shares has been asked for what the call lacks, whatever came of it. */
    answers: (lacking: ReadonlyArray<Share>, needs: ReadonlyArray<number>): Effect.Effect<void> =>
      Effect.callback((resume) => {
        let open = true
        const close = () => {
          if (open) waiting--
          open = false
        }
        const waiter: Waiter = {
          outstanding: lacking.length,
          answered: () => {
            close()
            resume(Effect.void)
          }
        }
        waiting++
        lacking.forEach((share, n) => {
          share.places.push({ need: needs[n] ?? 0, waiter })
          enqueue(share)
        })
        return Effect.sync(() => {
          close()
          for (const share of lacking) share.places = share.places.filter((place) => place.waiter !== waiter)
        })
      })
  }
})

export type Leasing = Effect.Success<ReturnType<typeof make>>
