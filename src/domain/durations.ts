/** Lengths of time as operators write them: `500ms`, `30s`, `5m`, `24h`, `7d`, or in words, `8 hours`. */
import { Duration } from "effect"

const short = /^(\d{1,9})(ms|s|m|h|d)$/
const words = { ms: "millis", s: "seconds", m: "minutes", h: "hours", d: "days" } as const

/** Undefined for what is no finite length of time. */
export const parseDuration = (text: string): Duration.Duration | undefined => {
  const match = short.exec(text.trim())
  const input = match === null ? text.trim() : `${match[1]} ${words[match[2] as keyof typeof words]}`
  const parsed = Duration.fromInput(input as Duration.Input)
  return parsed._tag === "Some" && Duration.isFinite(parsed.value) ? parsed.value : undefined
}
