/** The middle of the values, between the two middle ones of an even number; NaN of none. */
export const median = (values: ReadonlyArray<number>): number => {
  const sorted = [...values].sort(ascending)
  const half = sorted.length >> 1
  if (sorted.length % 2 === 1) return sorted[half] ?? Number.NaN
  return ((sorted[half - 1] ?? Number.NaN) + (sorted[half] ?? Number.NaN)) / 2
}

/** The `p`-th percentile of sorted values, by nearest rank; NaN of none. */
export const percentile = (sorted: ArrayLike<number>, p: number): number =>
  sorted.length === 0 ? Number.NaN : sorted[Math.max(0, Math.ceil((p / 100) * sorted.length) - 1)]!

/** Sort order of numbers. */
export const ascending = (left: number, right: number): number => left - right

/** Milliseconds at which half, 99 % and all of the calls were done. */
export interface Spread {
  readonly p50: number
  readonly p99: number
  readonly max: number
}

/** Latencies of a bounded number of calls; what comes beyond the bound is counted but not kept. */
export class Samples {
  readonly #values: Float64Array
  #count = 0

  constructor(bound: number) {
    this.#values = new Float64Array(bound)
  }

  add(value: number): void {
    if (this.#count < this.#values.length) this.#values[this.#count] = value
    this.#count += 1
  }

  spread(): Spread {
    const sorted = this.#values.subarray(0, Math.min(this.#count, this.#values.length)).sort()
    return { p50: percentile(sorted, 50), p99: percentile(sorted, 99), max: percentile(sorted, 100) }
  }
}
