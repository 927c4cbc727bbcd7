import { createHash } from "node:crypto"
import { completionTokens, promptTokens } from "#domain/usage.ts"
import type { Nanos } from "#domain/money.ts"
import type { Outcome } from "#services/usage/UsageLedger.ts"

/** The key of the master key's calls in the rollups, whose key columns hold no NULL. */
export const nilKeyId = "00000000-0000-0000-0000-000000000000"

/** What a number of calls adds to one row of a rollup. */
export interface Rollup {
  /** Days since 1970-01-01, UTC. */
  readonly day: number
  readonly keyId: string
  readonly model: string
  readonly userId: string
  readonly teamId: string
  readonly organizationId: string
  readonly endUserId: string
  requests: number
  promptTokens: number
  completionTokens: number
  nanos: Nanos
}

/** The row's key must fit an index entry of PostgreSQL (2.7 kB) however long the texts are that clients send. */
const KEY_TEXT = 120

/** A text as the rollups' key columns hold it: itself, or its beginning and its hash when it is long; null is empty. */
export const rollupText = (text: string | null): string => {
  if (text === null) return ""
  if (text.length <= KEY_TEXT) return text
  return `${text.slice(0, 87).toWellFormed()}~${createHash("sha256").update(text).digest("hex").slice(0, 32)}`
}

const byId = (a: readonly [string, Rollup], b: readonly [string, Rollup]): number => (a[0] < b[0] ? -1 : 1)

/** Sums of a batch, in the order of their keys. */
export class Rollups {
  readonly daily: ReadonlyArray<Rollup>
  readonly keys: ReadonlyArray<Rollup>

  constructor(outcomes: ReadonlyArray<Outcome>) {
    const daily = new Map<string, Rollup>()
    const keys = new Map<string, Rollup>()
    for (const outcome of outcomes) {
      const day = Math.floor(outcome.recordedAt / 86_400_000)
      const keyId = outcome.keyId ?? nilKeyId
      const model = rollupText(outcome.model)
      const userId = rollupText(outcome.userId)
      const teamId = rollupText(outcome.teamId)
      const organizationId = rollupText(outcome.organizationId)
      const endUserId = rollupText(outcome.endUserId)
      const id = `${day}\n${keyId}\n${model}\n${userId}\n${teamId}\n${organizationId}\n${endUserId}`
      const row = { day, keyId, model, userId, teamId, organizationId, endUserId }
      add(daily, id, row, outcome)
      add(keys, keyId, row, outcome)
    }
    this.daily = [...daily].sort(byId).map(([, rollup]) => rollup)
    this.keys = [...keys].sort(byId).map(([, rollup]) => rollup)
  }
}

const add = (
  rollups: Map<string, Rollup>,
  id: string,
  row: Omit<Rollup, "requests" | "promptTokens" | "completionTokens" | "nanos">,
  outcome: Outcome
): void => {
  const known = rollups.get(id)
  if (known === undefined) {
    rollups.set(id, {
      ...row,
      requests: 1,
      promptTokens: promptTokens(outcome.usage),
      completionTokens: completionTokens(outcome.usage),
      nanos: outcome.cost
    })
    return
  }
  known.requests += 1
  known.promptTokens += promptTokens(outcome.usage)
  known.completionTokens += completionTokens(outcome.usage)
  known.nanos += outcome.cost
}
