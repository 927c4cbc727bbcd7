import { createHash } from "node:crypto"
import type { GuardrailDefinition, GuardrailEvent, GuardrailStage } from "#domain/guardrails.ts"
import type { Finding, LocalCheck, OutsideCheck } from "#layers/guardrails/GuardrailType.ts"
import { typeOf } from "#layers/guardrails/types.ts"
import { commonOf } from "#layers/guardrails/validate.ts"

/** A guardrail ready to run. */
export interface CompiledGuardrail {
  readonly definition: GuardrailDefinition
  /** The same for the same definition in every thread. */
  readonly key: string
  readonly pre: boolean
  readonly post: boolean
  readonly wholeAnswer: boolean
  readonly failOpen: boolean
  /** Nanoseconds a character: what the type says, or more where more was measured. */
  cost: number
  readonly baseCost: number
  readonly worstCost: number
  /** Fails for one that asks elsewhere: that cannot be done here. */
  readonly check: LocalCheck["check"]
  readonly outside: OutsideCheck | undefined
}

/** What a stage made of some texts, in a form that can cross threads. */
export interface StageResult {
  /** The same array when nothing was masked. */
  readonly texts: ReadonlyArray<string>
  readonly events: ReadonlyArray<GuardrailEvent>
  /** The name of the guardrail that blocks. */
  readonly blockedBy: string | null
  /** What the guardrail that blocks wants to be said. */
  readonly reason: string | null
}

export const guardrailKey = (definition: GuardrailDefinition): string =>
  createHash("sha256").update(JSON.stringify(definition)).digest("base64url")

/** Never throws: what cannot be compiled fails whenever it runs, at both stages, and so blocks. */
export const compileGuardrail = (definition: GuardrailDefinition): CompiledGuardrail => {
  const key = guardrailKey(definition)
  try {
    const type = typeOf(definition.type)
    if (type === undefined) throw new Error(`The guardrail type '${definition.type}' is not known.`)
    const { failOpen, stage } = commonOf(type, definition.config)
    const checked = type.compile(definition.config)
    const outside = "ask" in checked ? checked : undefined
    const local: LocalCheck =
      "ask" in checked
        ? {
            cost: 0,
            check: () => {
              throw new Error("This guardrail asks elsewhere.")
            }
          }
        : checked
    return {
      definition,
      key,
      pre: stage !== "post",
      post: stage !== "pre",
      wholeAnswer: (outside?.wholeAnswer ?? type.wholeAnswer) && stage !== "pre",
      failOpen,
      cost: local.cost,
      baseCost: local.cost,
      worstCost: local.worstCost ?? local.cost,
      check: local.check,
      outside
    }
  } catch (cause) {
    return {
      definition,
      key,
      pre: definition.config["stage"] !== "post",
      post: definition.config["stage"] === "post" || definition.config["stage"] === "both",
      wholeAnswer: false,
      failOpen: definition.config["fail_open"] === true,
      cost: 0,
      baseCost: 0,
      worstCost: 0,
      check: () => {
        throw cause
      },
      outside: undefined
    }
  }
}

const blocksOnError = (guardrail: CompiledGuardrail): boolean =>
  guardrail.definition.mode === "block" && !guardrail.failOpen

const eventOf = (
  guardrail: CompiledGuardrail,
  stage: GuardrailStage,
  status: GuardrailEvent["status"],
  durationMs: number,
  finding?: Finding,
  modified?: string
): GuardrailEvent => ({
  guardrailId: guardrail.definition.id,
  guardrailName: guardrail.definition.name,
  status,
  stage,
  durationMs,
  confidence: finding?.confidence ?? null,
  originalContent: finding?.original ?? null,
  modifiedContent: modified ?? null
})

/** One guardrail's part of a stage. */
export interface Part {
  readonly texts: ReadonlyArray<string>
  readonly event: GuardrailEvent
  readonly blocks: boolean
  readonly reason: string | null
}

/** What a guardrail's finding means for the call; undefined: it found nothing. */
export const partOf = (
  guardrail: CompiledGuardrail,
  stage: GuardrailStage,
  texts: ReadonlyArray<string>,
  finding: Finding | undefined,
  durationMs: number
): Part => {
  const going = (event: GuardrailEvent): Part => ({ texts, event, blocks: false, reason: null })
  if (finding === undefined) return going(eventOf(guardrail, stage, "passed", durationMs))
  if (guardrail.definition.mode === "log") return going(eventOf(guardrail, stage, "flagged", durationMs, finding))
  if (finding.masked !== undefined) {
    const event = eventOf(guardrail, stage, "masked", durationMs, finding, finding.masked.excerpt)
    return { ...going(event), texts: finding.masked.texts }
  }
  const event = eventOf(guardrail, stage, "blocked", durationMs, finding)
  return { texts, event, blocks: true, reason: finding.reason ?? null }
}

/** What it means that a guardrail could not run. */
export const failedPart = (
  guardrail: CompiledGuardrail,
  stage: GuardrailStage,
  texts: ReadonlyArray<string>,
  durationMs: number
): Part => ({
  texts,
  event: eventOf(guardrail, stage, "error", durationMs),
  blocks: blocksOnError(guardrail),
  reason: null
})

/**
 * Runs local guardrails one after the other, each on what the one before left of the texts, to the end even when one
 * blocks. Yields between them.
 */
export function* runStage(
  guardrails: ReadonlyArray<CompiledGuardrail>,
  stage: GuardrailStage,
  given: ReadonlyArray<string>
): Generator<void, StageResult, void> {
  let texts = given
  let blockedBy: string | null = null
  const events: Array<GuardrailEvent> = []
  for (const guardrail of guardrails) {
    if (!guardrail[stage]) continue
    if (events.length > 0) yield
    const start = performance.now()
    let part: Part
    try {
      const checked = guardrail.check(texts)
      const finding = checked !== undefined && "next" in checked ? yield* checked : checked
      part = partOf(guardrail, stage, texts, finding, performance.now() - start)
    } catch {
      part = failedPart(guardrail, stage, texts, performance.now() - start)
    }
    texts = part.texts
    events.push(part.event)
    if (part.blocks) blockedBy ??= guardrail.definition.name
  }
  return { texts, events, blockedBy, reason: null }
}

/** Fewer characters than this are quick with any guardrail, and say more about the machine than about it. */
const leastMeasured = 1000

/** How many times slower than declared a guardrail may turn out to be, */
const mostUnderrated = 10
/** and how many times slower than thought a single check is believed to have been. */
const mostGrowth = 4

/** Learns from a check what the guardrails of a stage cost, so that a slow one leaves the event loop. */
export const learnCosts = (
  guardrails: ReadonlyArray<CompiledGuardrail>,
  events: ReadonlyArray<GuardrailEvent>,
  characters: number
): void => {
  if (characters < leastMeasured) return
  for (let i = 0; i < events.length; i++) {
    const guardrail = guardrails[i]!
    // A pause of the process is in the measure too: by itself one says little, and nothing beyond what a check can take.
    const most = Math.max(guardrail.worstCost, mostUnderrated * guardrail.baseCost)
    const measured = Math.min((events[i]!.durationMs * 1e6) / characters, mostGrowth * guardrail.cost, most)
    // Fast to learn that one is slow, slow to forget it: between harmless texts a hostile one may come again.
    const weight = measured > guardrail.cost ? 0.3 : 0.1
    guardrail.cost = Math.max(guardrail.baseCost, guardrail.cost * (1 - weight) + measured * weight)
  }
}

/** The result when no guardrail of the stage could run. */
export const failedStage = (
  guardrails: ReadonlyArray<CompiledGuardrail>,
  stage: GuardrailStage,
  texts: ReadonlyArray<string>,
  durationMs: number
): StageResult => {
  const run = guardrails.filter((guardrail) => guardrail[stage])
  return {
    texts,
    events: run.map((guardrail) => eventOf(guardrail, stage, "error", durationMs)),
    blockedBy: run.find(blocksOnError)?.definition.name ?? null,
    reason: null
  }
}
