import { Redacted } from "effect"
import type { WireTarget } from "#services/inference/Wire.ts"

/** The header that carries the target's key: the one that its settings name, or else the one `usual` for the wire. */
export const keyHeader = (target: WireTarget, usual: string): Readonly<Record<string, string>> => {
  if (target.apiKey === undefined) return {}
  const header = (target.apiKeyHeader ?? usual).toLowerCase()
  const key = Redacted.value(target.apiKey)
  return { [header]: header === "authorization" ? `Bearer ${key}` : key }
}
