import { tokenDigest } from "#layers/keys/KeyRows.ts"
import { concerns, type PolicyChange } from "#layers/keys/PolicyChange.ts"
import type { KeyPolicy } from "#domain/principal.ts"

/** A policy that this process may serve from memory. */
export interface CachedPolicy {
  readonly digest: string
  readonly policy: KeyPolicy
  readonly fingerprint: string
  /** Unix milliseconds of the last look at the row, or of the last attempt. */
  checkedAt: number
  /** The feed's epoch of the last look; an older one means that a notification may have been missed since. */
  epoch: number
}

export interface PolicyCacheOptions {
  /** Policies held at most; those least lately refreshed go first. */
  readonly capacity: number
  /** Refused tokens remembered at most. */
  readonly refusals: number
}

/** Why a token is refused without asking: how long, and which row that was found is to blame. */
interface Refusal {
  readonly until: number
  readonly keyId: string | undefined
}

const oldestOf = <K>(map: ReadonlyMap<K, unknown>): K | undefined => map.keys().next().value

/** What a process knows of tokens, by their full SHA-256. Plain memory: no waiting, no clock of its own. */
export class PolicyCache {
  readonly #options: PolicyCacheOptions
  readonly #policies = new Map<string, CachedPolicy>()
  readonly #digestById = new Map<string, string>()
  readonly #refusals = new Map<string, Refusal>()

  constructor(options: PolicyCacheOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#policies.size
  }

  get(digest: string): CachedPolicy | undefined {
    return this.#policies.get(digest)
  }

  find(token: string): CachedPolicy | undefined {
    return this.#policies.get(tokenDigest(token))
  }

  set(entry: CachedPolicy): void {
    const { digest, policy } = entry
    const former = this.#digestById.get(policy.id)
    // A key has one token: what was cached under its former one must not outlive it.
    if (former !== undefined) this.#policies.delete(former)
    this.#refusals.delete(digest)
    this.#policies.delete(digest)
    this.#policies.set(digest, entry)
    this.#digestById.set(policy.id, digest)
    if (this.#policies.size > this.#options.capacity) this.delete(oldestOf(this.#policies) ?? "")
  }

  delete(digest: string): void {
    const entry = this.#policies.get(digest)
    if (entry === undefined) return
    this.#policies.delete(digest)
    if (this.#digestById.get(entry.policy.id) === digest) this.#digestById.delete(entry.policy.id)
  }

  refuse(digest: string, refusal: Refusal): void {
    this.delete(digest)
    this.#refusals.delete(digest)
    this.#refusals.set(digest, refusal)
    if (this.#refusals.size > this.#options.refusals) this.#refusals.delete(oldestOf(this.#refusals) ?? "")
  }

  isRefused(digest: string, now: number): boolean {
    const refusal = this.#refusals.get(digest)
    if (refusal === undefined) return false
    if (now < refusal.until) return true
    this.#refusals.delete(digest)
    return false
  }

  /** Forgets everything that a change reaches, refusals included. */
  apply(change: PolicyChange): void {
    for (const [digest, { keyId }] of this.#refusals) {
      if (change._tag !== "Key" || keyId === change.id) this.#refusals.delete(digest)
    }
    if (change._tag === "Key") {
      const digest = this.#digestById.get(change.id)
      if (digest !== undefined) this.delete(digest)
      return
    }
    for (const { digest, policy } of this.#policies.values()) if (concerns(change, policy)) this.delete(digest)
  }
}
