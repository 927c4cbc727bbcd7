import { Data } from "effect"

/** Whose allowance a limit is. A call must fit every limit on its chain. */
export type LimitOwner = "key" | "user" | "team" | "organization" | "customer" | "deployment"

/** What a limit counts: nano-dollars, requests, or tokens. */
export type LimitKind = "budget" | "requests" | "tokens"

/**
 * When a limit starts anew. `Lifetime` never does; `Minute` begins with the first use after the last window ended;
 * `Calendar` is aligned to UTC (decisions.md, section 6.2): seconds, hours and days to the Unix epoch, months to the
 * first of the month counted from January 1970.
 */
export type Window = Data.TaggedEnum<{
  Lifetime: {}
  Minute: {}
  Calendar: { readonly unit: "s" | "m" | "h" | "d" | "mo"; readonly count: number }
}>
export const Window = Data.taggedEnum<Window>()

/** One limit of a policy. `limit` counts nano-dollars for a budget, else requests or tokens in one window. */
export interface Limit {
  /** Names the account in the ledger: `budget:key:<id>`, `requests:team:<id>`. */
  readonly account: string
  readonly owner: LimitOwner
  readonly kind: LimitKind
  readonly limit: bigint
  readonly window: Window
}

export const limitOf = (owner: LimitOwner, id: string, kind: LimitKind, limit: bigint, window: Window): Limit => ({
  account: `${kind}:${owner}:${id}`,
  owner,
  kind,
  limit,
  window
})

const duration = /^(\d{1,6})(s|m|h|d|mo)$/

/** Reads `30s`, `5m`, `12h`, `7d`, `1mo`; anything else, and zero, is undefined. */
export const parseBudgetDuration = (text: string): Window | undefined => {
  const match = duration.exec(text)
  if (match === null) return undefined
  const count = Number(match[1])
  return count < 1 ? undefined : Window.Calendar({ unit: match[2] as "s" | "m" | "h" | "d" | "mo", count })
}

const unitMillis = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** The start and end, in Unix milliseconds, of the calendar window that holds `now`; an endless one ends at Infinity. */
export const windowAt = (window: Window, now: number): { readonly start: number; readonly end: number } => {
  switch (window._tag) {
    case "Lifetime":
      return { start: 0, end: Number.POSITIVE_INFINITY }
    case "Minute":
      return { start: now, end: now + 60_000 }
    case "Calendar": {
      if (window.unit !== "mo") {
        const length = unitMillis[window.unit] * window.count
        const start = Math.floor(now / length) * length
        return { start, end: start + length }
      }
      const date = new Date(now)
      const months = (date.getUTCFullYear() - 1970) * 12 + date.getUTCMonth()
      const first = Math.floor(months / window.count) * window.count
      return { start: Date.UTC(1970, first, 1), end: Date.UTC(1970, first + window.count, 1) }
    }
  }
}
