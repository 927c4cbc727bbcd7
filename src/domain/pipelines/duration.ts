const units: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }
const form = /^(\d{1,9}(?:\.\d{1,3})?)\s*(ms|s|m|h|d)$/

/** Milliseconds of `250ms`, `30s`, `1.5h`, `30d`, or of a number of seconds; undefined for anything else. */
export const parseDuration = (value: unknown): number | undefined => {
  if (typeof value === "number") return Number.isFinite(value) && value >= 0 ? Math.round(value * 1000) : undefined
  const match = typeof value === "string" ? form.exec(value.trim()) : null
  return match === null ? undefined : Math.round(Number(match[1]) * units[match[2]!]!)
}
