import { Cause, Clock, Deferred, type Duration, Effect, Queue, type Scope } from "effect"
import type { SqlError } from "effect/sql"
import { databaseUnavailable, modelUnauthenticated, type Unauthenticated, Unavailable } from "#domain/errors.ts"
import type { KeyPolicy } from "#domain/principal.ts"
import { fingerprintOf, type PolicyRow, policyOf } from "#layers/keys/KeyRows.ts"
import type { CachedPolicy, PolicyCache } from "#layers/keys/PolicyCache.ts"
import { concerns, type PolicyChange } from "#layers/keys/PolicyChange.ts"

/** Tokens looked up in one statement. */
const BATCH = 500
/** Look-ups that may wait; more than that is a flood. */
const WAITING = 10_000
const REFUSED_MS = 1_000
/** How long the database is taken to be away after it failed to answer. */
const AWAY_MS = 1_000
/** How often a row that keeps changing under the reader is read again. */
const REREADS = 10

/** Real time: a test's clock has no hold on a socket. */
const clock = Clock.Clock.defaultValue()

type Answer = Deferred.Deferred<KeyPolicy, Unauthenticated | Unavailable>

interface Lookup {
  readonly digest: string
  readonly answer: Answer
  rereads: number
}

const overloaded = new Unavailable({
  code: "overloaded",
  message: "Too many unknown API keys are being looked up.",
  retryAfter: 1
})

export interface PolicyReaderOptions {
  readonly cache: PolicyCache
  /** Unix milliseconds, by the clock that rules. */
  readonly now: () => number
  /** The rows of the given digests that are not discarded. */
  readonly select: (digests: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<PolicyRow>, SqlError.SqlError>
  /** How long one statement may take. */
  readonly timeout: Duration.Input
}

/**
 * Reads policies for the cache. Look-ups of one token are one; all that gather while a statement is on its way go out
 * together in the next, so that no flood of tokens takes more than one connection.
 */
export class PolicyReader {
  readonly #options: PolicyReaderOptions
  readonly #queue: Queue.Queue<Lookup>
  readonly #lookups = new Map<string, Lookup>()
  /** What was heard since the statement that is on its way left: its rows may be older than that. */
  #heard: Array<PolicyChange> | undefined
  #epoch = 0
  #awayUntil = Number.NEGATIVE_INFINITY

  private constructor(options: PolicyReaderOptions, queue: Queue.Queue<Lookup>) {
    this.#options = options
    this.#queue = queue
  }

  static readonly make: (options: PolicyReaderOptions) => Effect.Effect<PolicyReader, never, Scope.Scope> =
    Effect.fnUntraced(function* (options: PolicyReaderOptions) {
      const queue = yield* Queue.bounded<Lookup>(WAITING)
      const reader = new PolicyReader(options, queue)
      yield* Queue.takeBetween(queue, 1, BATCH).pipe(
        Effect.flatMap((batch) => reader.#read(batch)),
        Effect.forever,
        Effect.forkScoped
      )
      return reader
    })

  /** Whether an entry may be served without asking: nothing was missed since it was read, or nobody can be asked. */
  mayServe(entry: CachedPolicy): boolean {
    return entry.epoch === this.#epoch || this.#options.now() < this.#awayUntil
  }

  /** A change was heard of: whatever is cached or being read of it counts no more. */
  apply(change: PolicyChange): void {
    this.#heard?.push(change)
    this.#options.cache.apply(change)
  }

  /** Changes may have been missed: everything cached is to be looked at again before it is trusted. */
  doubtAll(): void {
    this.#epoch += 1
    this.#awayUntil = Number.NEGATIVE_INFINITY
  }

  /** Reads a policy in the background, where nobody waits for it. */
  refresh(entry: CachedPolicy): void {
    const now = this.#options.now()
    if (now < this.#awayUntil) return
    entry.checkedAt = now
    this.#enqueue(entry.digest)
  }

  /** Reads a policy, or joins those who wait for it. */
  read(digest: string): Effect.Effect<KeyPolicy, Unauthenticated | Unavailable> {
    const lookup = this.#lookups.get(digest) ?? this.#enqueue(digest)
    return lookup === undefined ? Effect.fail(overloaded) : Deferred.await(lookup.answer)
  }

  #enqueue(digest: string): Lookup | undefined {
    const running = this.#lookups.get(digest)
    if (running !== undefined) return running
    const lookup: Lookup = { digest, answer: Deferred.makeUnsafe(), rereads: 0 }
    if (!Queue.offerUnsafe(this.#queue, lookup)) return undefined
    this.#lookups.set(digest, lookup)
    return lookup
  }

  #read(batch: ReadonlyArray<Lookup>): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.#heard = []
      const epoch = this.#epoch
      return this.#options.select(batch.map(({ digest }) => digest)).pipe(
        Effect.timeoutOrElse({
          duration: this.#options.timeout,
          orElse: () => Effect.fail(new Error("no answer in time"))
        }),
        Effect.provideService(Clock.Clock, clock),
        Effect.map((rows) => this.#settle(batch, rows, epoch)),
        Effect.catchCause((cause) => this.#unread(batch, cause)),
        Effect.ensuring(
          Effect.sync(() => {
            this.#heard = undefined
          })
        )
      )
    })
  }

  #settle(batch: ReadonlyArray<Lookup>, rows: ReadonlyArray<PolicyRow>, epoch: number): void {
    this.#awayUntil = Number.NEGATIVE_INFINITY
    const byDigest = new Map(rows.map((row) => [Buffer.from(row.token_hash).toString("base64"), row]))
    for (const lookup of batch) {
      const row = byDigest.get(lookup.digest)
      if (row === undefined || row.blocked || row.refused) this.#refuse(lookup, row)
      else this.#accept(lookup, row, epoch)
    }
  }

  #refuse(lookup: Lookup, row: PolicyRow | undefined): void {
    // A key that was unblocked meanwhile must not stay refused.
    if (row !== undefined && this.#outdated(policyOf(row), lookup)) return
    this.#options.cache.refuse(lookup.digest, { until: this.#options.now() + REFUSED_MS, keyId: row?.id })
    this.#answer(lookup, Effect.fail(modelUnauthenticated))
  }

  #accept(lookup: Lookup, row: PolicyRow, epoch: number): void {
    const { cache, now } = this.#options
    const fingerprint = fingerprintOf(row)
    const before = cache.get(lookup.digest)
    const policy = before?.fingerprint === fingerprint ? before.policy : policyOf(row)
    if (this.#outdated(policy, lookup)) return
    cache.set({ digest: lookup.digest, policy, fingerprint, checkedAt: now(), epoch })
    this.#answer(
      lookup,
      policy.expiresAt !== undefined && now() >= policy.expiresAt
        ? Effect.fail(modelUnauthenticated)
        : Effect.succeed(policy)
    )
  }

  /** Whether the row changed while it was being read; then it is read again and nothing of it is kept. */
  #outdated(policy: KeyPolicy, lookup: Lookup): boolean {
    if (this.#heard?.some((change) => concerns(change, policy)) !== true) return false
    lookup.rereads += 1
    if (lookup.rereads > REREADS || !Queue.offerUnsafe(this.#queue, lookup)) {
      this.#answer(lookup, Effect.fail(overloaded))
    }
    return true
  }

  #unread(batch: ReadonlyArray<Lookup>, cause: Cause.Cause<unknown>): Effect.Effect<void> {
    if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(cause as Cause.Cause<never>)
    const now = this.#options.now()
    const alreadyAway = this.#awayUntil !== Number.NEGATIVE_INFINITY
    this.#awayUntil = now + AWAY_MS
    for (const lookup of batch) {
      const known = this.#options.cache.get(lookup.digest)
      const expired = known?.policy.expiresAt !== undefined && now >= known.policy.expiresAt
      this.#answer(
        lookup,
        known === undefined
          ? Effect.fail(databaseUnavailable)
          : expired
            ? Effect.fail(modelUnauthenticated)
            : Effect.succeed(known.policy)
      )
    }
    return alreadyAway
      ? Effect.void
      : Effect.logWarning("Keys cannot be read; known ones are served as they were", cause)
  }

  #answer(lookup: Lookup, outcome: Effect.Effect<KeyPolicy, Unauthenticated | Unavailable>): void {
    this.#lookups.delete(lookup.digest)
    Deferred.doneUnsafe(lookup.answer, outcome)
  }
}
