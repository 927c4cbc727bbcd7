import { digitEntities } from "#domain/pii-numbers.ts"
import { contactEntities } from "#domain/pii-contacts.ts"
import { personEntities } from "#domain/pii-persons.ts"
import { findSecrets } from "#domain/secrets-scan.ts"

/** The kinds of personal data that are recognised (decisions.md, section 8). */
export const piiEntities = [
  "EMAIL",
  "PHONE",
  "CREDIT_CARD",
  "IBAN",
  "US_SSN",
  "IP_ADDRESS",
  "URL",
  "PERSON",
  "API_KEY"
] as const
export type PiiEntity = (typeof piiEntities)[number]

/** The kinds that are looked for where none are named: an address of the web seldom says who somebody is. */
export const defaultPiiEntities: ReadonlyArray<PiiEntity> = piiEntities.filter((entity) => entity !== "URL")

export const isPiiEntity = (name: string): name is PiiEntity => piiEntities.some((entity) => entity === name)

/** Personal data in a text, in UTF-16 positions. */
export interface PiiSpan {
  readonly start: number
  readonly end: number
  readonly entity: PiiEntity
  /** In [0, 1]. */
  readonly confidence: number
}

/** Where recognisers put what they find. */
export type AddSpan = (entity: PiiEntity, start: number, end: number, confidence: number) => void

/**
 * Personal data of the kinds asked for, left to right, never overlapping: where two readings of a place compete, the more
 * certain wins, then the longer. Recognisers of kinds that were not asked for still run where they settle what a number is.
 */
export const findPii = (text: string, wanted: ReadonlySet<PiiEntity>): ReadonlyArray<PiiSpan> => {
  const found: Array<PiiSpan> = []
  const add: AddSpan = (entity, start, end, confidence) => void found.push({ start, end, entity, confidence })
  contactEntities(text, add)
  digitEntities(text, wanted, add)
  if (wanted.has("API_KEY")) {
    for (const secret of findSecrets(text)) add("API_KEY", secret.start, secret.end, secret.confidence)
  }
  if (wanted.has("PERSON")) personEntities(text, add)
  found.sort((a, b) => b.confidence - a.confidence || b.end - b.start - (a.end - a.start) || a.start - b.start)
  return withoutOverlaps(found).filter((span) => wanted.has(span.entity))
}

/** Keeps the best of what overlaps; `spans` comes best first. Returns them in text order. */
const withoutOverlaps = (spans: ReadonlyArray<PiiSpan>): ReadonlyArray<PiiSpan> => {
  // Spans touch few others: those that start in the same stretch of text are compared, not all.
  const stretch = 4096
  const taken = new Map<number, Array<PiiSpan>>()
  const kept: Array<PiiSpan> = []
  for (const span of spans) {
    const first = Math.floor(span.start / stretch)
    const last = Math.floor((span.end - 1) / stretch)
    let free = true
    for (let cell = first; free && cell <= last; cell++) {
      free = !(taken.get(cell) ?? []).some((other) => span.start < other.end && other.start < span.end)
    }
    if (!free) continue
    kept.push(span)
    for (let cell = first; cell <= last; cell++) {
      const cellSpans = taken.get(cell)
      if (cellSpans === undefined) taken.set(cell, [span])
      else cellSpans.push(span)
    }
  }
  return kept.sort((a, b) => a.start - b.start)
}
