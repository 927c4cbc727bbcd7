import { createHash } from "node:crypto"
import type { GuardrailDefinition, GuardrailEvent, GuardrailStage } from "#domain/guardrails.ts"
import type { CompiledCheck, Finding } from "#layers/guardrails/GuardrailType.ts"
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
  readonly check: CompiledCheck["check"]
}

/** What a stage made of some texts, in a form that can cross threads. */
export interface StageResult {
  /** The same array when nothing was masked. */
  readonly texts: ReadonlyArray<string>
  readonly events: ReadonlyArray<GuardrailEvent>
  /** The name of the guardrail that blocks. */
  readonly blockedBy: string | null
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
    const { check, cost } = type.compile(definition.config)
    return {
      definition,
      key,
      pre: stage !== "post",
      post: stage !== "pre",
      wholeAnswer: type.wholeAnswer && stage !== "pre",
      failOpen,
      cost,
      baseCost: cost,
      check
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
      check: () => {
        throw cause
      }
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

/**
 * Runs guardrails one after the other, each on what the one before left of the texts, to the end even when one blocks.
 * Yields between them.
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
    const took = () => performance.now() - start
    const { mode, name } = guardrail.definition
    try {
      const checked = guardrail.check(texts)
      const finding = checked !== undefined && "next" in checked ? yield* checked : checked
      if (finding === undefined) events.push(eventOf(guardrail, stage, "passed", took()))
      else if (mode === "log") events.push(eventOf(guardrail, stage, "flagged", took(), finding))
      else if (finding.masked !== undefined) {
        texts = finding.masked.texts
        events.push(eventOf(guardrail, stage, "masked", took(), finding, finding.masked.excerpt))
      } else {
        events.push(eventOf(guardrail, stage, "blocked", took(), finding))
        blockedBy ??= name
      }
    } catch {
      events.push(eventOf(guardrail, stage, "error", took()))
      if (blocksOnError(guardrail)) blockedBy ??= name
    }
  }
  return { texts, events, blockedBy }
}

/** Fewer characters than this say little about what one costs. */
const leastMeasured = 1000

/** Learns from a check what the guardrails of a stage cost, so that a slow one leaves the event loop. */
export const learnCosts = (
  guardrails: ReadonlyArray<CompiledGuardrail>,
  events: ReadonlyArray<GuardrailEvent>,
  characters: number
): void => {
  for (let i = 0; i < events.length; i++) {
    const guardrail = guardrails[i]!
    const measured = (events[i]!.durationMs * 1e6) / Math.max(characters, leastMeasured)
    guardrail.cost = Math.max(guardrail.baseCost, guardrail.cost * 0.7 + measured * 0.3)
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
    blockedBy: run.find(blocksOnError)?.definition.name ?? null
  }
}
