/** Guardrails put together to what binds a caller: where each step runs, and what comes of it. */
import { Cause, Effect } from "effect"
import { GuardrailBlocked } from "#domain/errors.ts"
import type { GuardrailEvent, GuardrailStage } from "#domain/guardrails.ts"
import { masterKeyPrincipal, publicTenant, tenantOf } from "#domain/principal.ts"
import type { CheckLanes } from "#layers/guardrails/CheckLanes.ts"
import type { CheckJob, CheckResult } from "#layers/guardrails/check-job.ts"
import {
  type CompiledGuardrail,
  failedPart,
  failedStage,
  learnCosts,
  type Part,
  partOf,
  runStage,
  type StageResult
} from "#layers/guardrails/compiled.ts"
import { CheckFailed, type Outside, type OutsideCheck } from "#layers/guardrails/GuardrailType.ts"
import type { GuardrailPolicy, GuardrailVerdict } from "#services/guardrails/GuardrailEngine.ts"
import type { GuardrailCaller } from "#services/guardrails/GuardrailModels.ts"

/** Characters that are checked on the event loop at most, */
const maxInlineCharacters = 16_384
/** and how long that may take, in nanoseconds. */
const maxInlineCost = 1_000_000
/** How often a guardrail that fails is written to the log at most, in milliseconds. */
const quietPeriod = 10_000

/** What policies run on. */
export interface PolicyContext {
  readonly lanes: CheckLanes
  readonly outside: Outside
}

/** Local guardrails that follow one another, or one that asks elsewhere. */
type Step =
  | { readonly local: ReadonlyArray<CompiledGuardrail>; readonly cost: () => number; readonly worstCost: number }
  | { readonly guardrail: CompiledGuardrail; readonly check: OutsideCheck }

const stepsOf = (guardrails: ReadonlyArray<CompiledGuardrail>): ReadonlyArray<Step> => {
  const steps: Array<Step> = []
  let local: Array<CompiledGuardrail> = []
  const close = () => {
    if (local.length === 0) return
    const chosen = local
    const cost = () => chosen.reduce((sum, guardrail) => sum + guardrail.cost, 0)
    steps.push({ local: chosen, cost, worstCost: chosen.reduce((sum, guardrail) => sum + guardrail.worstCost, 0) })
    local = []
  }
  for (const guardrail of guardrails) {
    if (guardrail.outside === undefined) local.push(guardrail)
    else {
      close()
      steps.push({ guardrail, check: guardrail.outside })
    }
  }
  close()
  return steps
}

const countCharacters = (texts: ReadonlyArray<string>): number => {
  let characters = 0
  for (const text of texts) characters += text.length
  return characters
}

const inline = (guardrails: ReadonlyArray<CompiledGuardrail>, stage: GuardrailStage, texts: ReadonlyArray<string>) => {
  const run = runStage(guardrails, stage, texts)
  for (;;) {
    const step = run.next()
    if (step.done === true) return step.value
  }
}

/** Who takes turns as one where checks are slow. */
export const shareOf = ({ principal }: GuardrailCaller): string => {
  const tenant = tenantOf(principal)
  return tenant === publicTenant && principal._tag === "ApiKey" ? `key ${principal.key.id}` : `tenant ${tenant}`
}

const unattended: GuardrailCaller = { principal: masterKeyPrincipal, requestId: "guardrail" }

const warnedAt = new WeakMap<CompiledGuardrail, number>()

const warn = (guardrail: CompiledGuardrail, why: string): Effect.Effect<void> =>
  Effect.suspend(() => {
    const now = performance.now()
    if (now - (warnedAt.get(guardrail) ?? -Infinity) < quietPeriod) return Effect.void
    warnedAt.set(guardrail, now)
    return Effect.logWarning(`The guardrail ${guardrail.definition.id} cannot do its work: ${why}`)
  })

const inThread = (
  lanes: CheckLanes,
  guardrails: ReadonlyArray<CompiledGuardrail>,
  stage: GuardrailStage,
  texts: ReadonlyArray<string>,
  characters: number,
  worstCost: number,
  caller: GuardrailCaller
): Effect.Effect<StageResult> =>
  Effect.suspend(() => {
    const start = performance.now()
    const work = { share: shareOf(caller), characters, worstNanos: characters * worstCost }
    const job: CheckJob = { stage, texts, keys: guardrails.map(({ key }) => key), definitions: undefined }
    const checked = Effect.flatMap(lanes.run(job, work), (result) =>
      result === "unknown"
        ? lanes.run({ ...job, definitions: guardrails.map(({ definition }) => definition) }, work)
        : Effect.succeed(result)
    )
    const failed = () => failedStage(guardrails, stage, texts, performance.now() - start)
    return Effect.match(checked, {
      onFailure: failed,
      onSuccess: (answer) => {
        const result = answer as CheckResult
        if (result === "unknown") return failed()
        // The texts crossed threads: callers tell by identity whether something was masked.
        const masked = result.events.some((event) => event.status === "masked")
        return masked ? result : { ...result, texts }
      }
    })
  })

/** Runs one step of local guardrails: on the event loop where that is short, else in a thread. */
const runLocal = (
  { lanes }: PolicyContext,
  step: Extract<Step, { readonly local: unknown }>,
  stage: GuardrailStage,
  texts: ReadonlyArray<string>,
  caller: GuardrailCaller
): StageResult | Effect.Effect<StageResult> => {
  const characters = countCharacters(texts)
  if (characters <= maxInlineCharacters && characters * step.cost() <= maxInlineCost) {
    const result = inline(step.local, stage, texts)
    learnCosts(step.local, result.events, characters)
    return result
  }
  return Effect.map(inThread(lanes, step.local, stage, texts, characters, step.worstCost, caller), (result) => {
    learnCosts(step.local, result.events, characters)
    return result
  })
}

/** Asks elsewhere. Texts without a character are not asked about. */
const runOutside = (
  { outside }: PolicyContext,
  guardrail: CompiledGuardrail,
  check: OutsideCheck,
  stage: GuardrailStage,
  given: ReadonlyArray<string>,
  caller: GuardrailCaller
): Effect.Effect<Part> =>
  Effect.suspend(() => {
    const start = performance.now()
    const took = () => performance.now() - start
    const indices = given.flatMap((text, i) => (text.trim() === "" ? [] : [i]))
    if (indices.length === 0) return Effect.succeed(partOf(guardrail, stage, given, undefined, 0))
    const texts = indices.map((i) => given[i]!)
    const tooLong = countCharacters(texts) > check.maxCharacters
    const asked = tooLong
      ? Effect.fail(new CheckFailed({ why: "the text is longer than it may be asked about" }))
      : Effect.timeoutOrElse(check.ask(outside, { stage, texts, guardrailName: guardrail.definition.name, caller }), {
          duration: check.timeout,
          orElse: () => Effect.fail(new CheckFailed({ why: "no answer in time" }))
        })
    return Effect.matchCauseEffect(asked, {
      onFailure: (cause) => {
        if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(cause as Cause.Cause<never>)
        const failure = cause.reasons.find((reason) => reason._tag === "Fail")?.error
        const why = failure === undefined ? "unexpected" : "why" in failure ? failure.why : failure.code
        return Effect.as(warn(guardrail, why), failedPart(guardrail, stage, given, took()))
      },
      onSuccess: (finding) => {
        if (finding?.masked === undefined) return Effect.succeed(partOf(guardrail, stage, given, finding, took()))
        const texts = [...given]
        indices.forEach((at, i) => void (texts[at] = finding.masked!.texts[i]!))
        const whole = { ...finding, masked: { ...finding.masked, texts } }
        return Effect.succeed(partOf(guardrail, stage, given, whole, took()))
      }
    })
  })

const verdictOf = (stage: GuardrailStage, result: StageResult): GuardrailVerdict => ({
  texts: result.texts,
  events: result.events,
  blocked:
    result.blockedBy === null
      ? undefined
      : new GuardrailBlocked({
          code: "guardrail_blocked",
          message:
            `The ${stage === "pre" ? "request" : "answer"} was rejected by the guardrail '${result.blockedBy}'` +
            (result.reason === null ? "." : `: ${result.reason}`),
          param: result.blockedBy
        })
})

const runSteps = Effect.fnUntraced(function* (
  context: PolicyContext,
  steps: ReadonlyArray<Step>,
  stage: GuardrailStage,
  given: ReadonlyArray<string>,
  caller: GuardrailCaller
) {
  let texts = given
  let blockedBy: string | null = null
  let reason: string | null = null
  const events: Array<GuardrailEvent> = []
  for (const step of steps) {
    if ("local" in step) {
      const run = runLocal(context, step, stage, texts, caller)
      const result: StageResult = Effect.isEffect(run) ? yield* run : run
      texts = result.texts
      events.push(...result.events)
      blockedBy ??= result.blockedBy
    } else if (blockedBy === null) {
      // What is rejected already is told to nobody else, and costs nothing more.
      const part: Part = yield* runOutside(context, step.guardrail, step.check, stage, texts, caller)
      texts = part.texts
      events.push(part.event)
      if (part.blocks) {
        blockedBy = step.guardrail.definition.name
        reason = part.reason
      }
    }
  }
  return verdictOf(stage, { texts, events, blockedBy, reason })
})

/** Guardrails compiled to a policy that any caller can be bound to. */
export interface CompiledPolicy {
  readonly bind: (caller: GuardrailCaller | undefined) => GuardrailPolicy
}

export const compilePolicy = (guardrails: ReadonlyArray<CompiledGuardrail>, context: PolicyContext): CompiledPolicy => {
  const chosen = {
    pre: guardrails.filter((guardrail) => guardrail.pre),
    post: guardrails.filter((guardrail) => guardrail.post)
  }
  const steps = { pre: stepsOf(chosen.pre), post: stepsOf(chosen.post) }
  const run = (stage: GuardrailStage, texts: ReadonlyArray<string>, caller: GuardrailCaller) => {
    const [first, ...others] = steps[stage]
    if (first !== undefined && others.length === 0 && "local" in first) {
      const result = runLocal(context, first, stage, texts, caller)
      return Effect.isEffect(result)
        ? Effect.map(result, (result) => verdictOf(stage, result))
        : Effect.succeed(verdictOf(stage, result))
    }
    return runSteps(context, steps[stage], stage, texts, caller)
  }
  const shape = {
    pre: chosen.pre.length > 0,
    post: chosen.post.length > 0,
    wholeAnswer: chosen.post.some((guardrail) => guardrail.wholeAnswer),
    names: guardrails.map((guardrail) => guardrail.definition.name),
    guardrails: guardrails.map(({ definition: { mode, name, type }, post, pre }) => ({
      name,
      type,
      mode,
      stage: pre && post ? ("both" as const) : post ? ("post" as const) : ("pre" as const)
    }))
  }
  return {
    bind: (caller = unattended) => ({
      pre: shape.pre,
      post: shape.post,
      wholeAnswer: shape.wholeAnswer,
      names: shape.names,
      guardrails: shape.guardrails,
      check: (stage, texts, span) => run(stage, texts, span === undefined ? caller : { ...caller, span })
    })
  }
}
