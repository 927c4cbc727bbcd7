/** When a deployment is taken out, and how it comes back. Durations in milliseconds. */
export interface BreakerOptions {
  /** Consecutive failures that open it. */
  readonly threshold: number
  /** The first time it stays open; doubled with each failed probe. */
  readonly openFor: number
  readonly longestOpen: number
}

export const defaultBreaker: BreakerOptions = { threshold: 5, openFor: 5_000, longestOpen: 120_000 }

/**
 * A deployment's health. Open after consecutive failures; when its time is over, one real call goes through as a probe,
 * and its outcome closes the circuit or opens it again for longer.
 */
export class CircuitBreaker {
  readonly #options: BreakerOptions
  readonly #now: () => number
  #failures = 0
  #openings = 0
  #openUntil = 0
  #probing = false

  constructor(options: BreakerOptions, now: () => number) {
    this.#options = options
    this.#now = now
  }

  get state(): "healthy" | "unhealthy" | "probing" {
    return this.#openings === 0 ? "healthy" : this.#probing ? "probing" : "unhealthy"
  }

  /** Whether a call may go to the deployment now. */
  get admits(): boolean {
    return this.#openings === 0 || (!this.#probing && this.#now() >= this.#openUntil)
  }

  /** Milliseconds until a probe may go; 0 when a call may go now. */
  get opensIn(): number {
    return this.#openings === 0 ? 0 : Math.max(0, this.#openUntil - this.#now())
  }

  /** A call goes out. True: it is the probe, which must be passed to the outcome. */
  begin(): boolean {
    if (this.#openings === 0) return false
    this.#probing = true
    return true
  }

  /** True: the deployment has come back. */
  succeeded(probe: boolean): boolean {
    this.#failures = 0
    if (!probe || this.#openings === 0) return false
    this.#probing = false
    this.#openings = 0
    return true
  }

  /** True: the deployment has just been taken out. */
  failed(probe: boolean): boolean {
    this.#failures += 1
    if (this.#openings > 0) {
      if (probe) this.#open()
      return false
    }
    if (this.#failures < this.#options.threshold) return false
    this.#open()
    return true
  }

  /** The call ended without saying anything about the deployment's health. */
  neutral(probe: boolean): void {
    if (probe) this.#probing = false
  }

  #open(): void {
    const { openFor, longestOpen } = this.#options
    this.#openUntil = this.#now() + Math.min(longestOpen, openFor * 2 ** Math.min(this.#openings, 20))
    this.#openings += 1
    this.#probing = false
  }
}
