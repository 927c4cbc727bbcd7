/** Works on one step of a run, one try at a time. */
import { type Cause, Effect, Exit, Schema } from "effect"
import type { Json, JsonObject } from "#domain/json.ts"
import { bounds, type MapStep, type ReviewStep, type Task } from "#domain/pipelines/definition.ts"
import { itemOf, type Plan, type RunProgress, skipReason, type Tries } from "#domain/pipelines/progress.ts"
import type { RunError, RunEvent } from "#domain/pipelines/runs.ts"
import { allReferences } from "#domain/pipelines/templates.ts"
import type { Abandoned, RunJournal } from "#layers/pipelines/RunJournal.ts"
import { tracedStep } from "#layers/pipelines/run-spans.ts"
import type { Expressions, ExpressionScope } from "#services/pipelines/Expressions.ts"
import { type Operators, StepFailed } from "#services/pipelines/Operators.ts"
import type { RunRecord } from "#services/pipelines/RunRecords.ts"
import type { Span } from "#services/telemetry/Tracing.ts"

/** UTF-16 code units of JSON: one output, and all outputs of a run. */
const maxOutput = 1024 * 1024
const maxOutputs = 32 * 1024 * 1024

/** The same of what a reviewer is shown: lists show it for every run that waits. */
const maxDetails = 64 * 1024

/** Upstreams may say much about a failure. */
const maxMessage = 2000

/** Items whose expressions are evaluated in one go. */
const chunk = 100

/** Tries of one step that may end without a word (the process died) before it is given up. */
const maxLost = 5

export interface StepContext {
  readonly runId: string
  readonly record: RunRecord
  readonly plan: Plan
  readonly progress: RunProgress
  readonly journal: RunJournal
  readonly expressions: Expressions["Service"]
  readonly operators: Operators["Service"]
  readonly now: () => number
}

const Details = Schema.Struct({
  title: Schema.optionalKey(Schema.Unknown),
  reviewer_role: Schema.optionalKey(Schema.Unknown)
})

const isText = (value: unknown): value is string => typeof value === "string"

/** What the expressions of a value may read, and no more: outputs can be large. */
export const scopeOf = ({ plan, progress, record }: StepContext, template: Json): ExpressionScope => {
  const { inputs, steps } = allReferences(template, new Set(plan.steps.keys()))
  return {
    inputs: inputs ? record.inputs : {},
    steps: Object.fromEntries([...steps].map((id) => [id, progress.steps.get(id)?.output ?? null])),
    now: record.createdAt
  }
}

const failure = (code: string, message: string, retryable = false) => new StepFailed({ code, message, retryable })

const asFailure = (error: { readonly _tag: string; readonly message: string }): StepFailed =>
  error._tag === "Unavailable"
    ? failure("overloaded", error.message, true)
    : failure("expression_failed", `An expression failed: ${error.message.slice(0, 500)}`)

export const makeStepRunner = (context: StepContext) => {
  const { expressions, journal, now, operators, plan, progress, record, runId } = context

  const errorOf = (step: string, { code, message }: StepFailed): RunError => ({
    code,
    message: message.slice(0, maxMessage),
    step
  })

  const render = (template: Json) =>
    Effect.suspend(() => Effect.mapError(expressions.render(template, scopeOf(context, template)), asFailure))

  /** The operator under its time, its output within bounds. Never dies. */
  const operate = (
    task: Task,
    input: Json,
    requestId: string,
    span: Span | undefined
  ): Effect.Effect<Json, StepFailed> =>
    operators.run({ operator: task.operator, input, principal: record.principal, requestId, span }).pipe(
      Effect.timeoutOrElse({
        duration: task.timeout,
        orElse: () => Effect.fail(failure("step_timeout", `The step took longer than ${task.timeout} ms.`, true))
      }),
      Effect.catchDefect((defect) =>
        Effect.andThen(
          Effect.logError("A pipeline operator failed", defect).pipe(Effect.annotateLogs({ run_id: runId })),
          Effect.fail(failure("internal_error", "The gateway failed to do this step."))
        )
      ),
      Effect.filterOrFail(
        (output) => JSON.stringify(output).length <= maxOutput,
        () => failure("output_too_large", `The output is longer than ${maxOutput} characters.`)
      ),
      Effect.filterOrFail(
        (output) => progress.outputSize + JSON.stringify(output).length <= maxOutputs,
        () => failure("output_too_large", `All outputs together are longer than ${maxOutputs} characters.`)
      )
    )

  const attempt = (task: Task, input: Json, requestId: string): Effect.Effect<Json, StepFailed> =>
    tracedStep(task.operator, requestId, (span) => operate(task, input, requestId, span))

  /** `attempt` is the try that failed; without it, the last one. */
  const fail = (
    step: string,
    error: StepFailed,
    tries: Tries,
    item?: number,
    retryAt: number | null = null,
    attempt = Math.max(1, tries.started)
  ) =>
    journal.append({
      type: "step_failed",
      step,
      ...(item === undefined ? {} : { item }),
      attempt,
      error: errorOf(step, error),
      retryAt
    })

  /** One try of a step or item, written down before and after. `input` is only asked for when it is made. */
  const tryOnce = Effect.fnUntraced(function* <E extends StepFailed>(
    step: string,
    task: Task,
    tries: Tries,
    input: Effect.Effect<Json, E>,
    item?: number
  ) {
    if (tries.started - tries.failed >= maxLost) {
      tries.started++
      return yield* fail(step, failure("process_lost", "The process died in this step again and again."), tries, item)
    }
    const rendered = yield* Effect.exit(input)
    const number = tries.started + 1
    const place = item === undefined ? { step } : { step, item }
    yield* journal.append({ type: "step_started", ...place, attempt: number })
    const exit = yield* Effect.exit(
      Effect.flatMap(rendered, (value) =>
        attempt(task, value, `${runId}.${step.slice(0, 64)}${item === undefined ? "" : `.${item}`}.${number}`)
      )
    )
    if (Exit.isSuccess(exit)) {
      return yield* journal.append({ type: "step_completed", ...place, attempt: number, output: exit.value })
    }
    const reason = exit.cause.reasons.find((one) => one._tag === "Fail")
    if (reason === undefined) return yield* Effect.failCause(exit.cause as Cause.Cause<never>)
    const { attempts, backoff, delay, maxDelay } = task.retry
    const again = reason.error.retryable && tries.failed + 1 < attempts
    const wait = Math.min(maxDelay, delay * backoff ** tries.failed)
    yield* fail(step, reason.error, tries, item, again ? now() + wait : null, number)
  })

  const runItem = Effect.fnUntraced(function* (step: MapStep, item: number, input: Effect.Effect<Json, StepFailed>) {
    const own = progress.steps.get(step.id)!
    const tries = itemOf(own, item)
    while (!tries.done) {
      // Another item was the end of the step.
      if (own.status === "failed") return
      if (tries.retryAt !== undefined) yield* Effect.sleep(Math.max(0, tries.retryAt - now()))
      yield* tryOnce(step.id, step.task, tries, input, item)
    }
  })

  const runMap = Effect.fnUntraced(function* (step: MapStep) {
    const own = progress.steps.get(step.id)!
    const rendered = yield* Effect.exit(render(step.items))
    const items = Exit.isSuccess(rendered) ? rendered.value : undefined
    if (!Array.isArray(items)) {
      const reason = Exit.isFailure(rendered) ? rendered.cause.reasons.find((one) => one._tag === "Fail") : undefined
      return yield* fail(step.id, reason?.error ?? failure("invalid_items", "'items' is not a list."), own)
    }
    const list = items as ReadonlyArray<Json>
    if (list.length > bounds.mapItems) {
      return yield* fail(step.id, failure("invalid_items", `There are more than ${bounds.mapItems} items.`), own)
    }
    if (own.items === undefined) yield* journal.append({ type: "map_started", step: step.id, items: list.length })
    const todo = list.map((_, index) => index).filter((index) => !(own.done.get(index)?.done ?? false))
    const scope = scopeOf(context, step.task.with)
    const chunks: Array<Effect.Effect<ReadonlyArray<Json>, StepFailed>> = []
    for (let at = 0; at < todo.length; at += chunk) {
      const some = todo.slice(at, at + chunk).map((index) => ({ item: list[index]!, index }))
      chunks.push(yield* Effect.cached(Effect.mapError(expressions.renderEach(step.task.with, scope, some), asFailure)))
    }
    yield* Effect.forEach(
      todo,
      (index, place) =>
        runItem(
          step,
          index,
          Effect.map(chunks[Math.floor(place / chunk)]!, (values) => values[place % chunk]!)
        ),
      { concurrency: step.concurrency, discard: true }
    ).pipe(
      Effect.timeoutOrElse({
        duration: step.timeout,
        orElse: () => fail(step.id, failure("step_timeout", `The map took longer than ${step.timeout} ms.`), own)
      })
    )
    if (own.status === "pending") yield* journal.append({ type: "step_completed", step: step.id, output: null })
  })

  const requestReview = Effect.fnUntraced(function* (step: ReviewStep) {
    const own = progress.steps.get(step.id)!
    const rendered = yield* Effect.exit(render(step.with))
    if (Exit.isFailure(rendered)) {
      const reason = rendered.cause.reasons.find((one) => one._tag === "Fail")
      if (reason === undefined) return yield* Effect.failCause(rendered.cause as Cause.Cause<never>)
      return yield* fail(step.id, reason.error, own)
    }
    const details = rendered.value as JsonObject
    if (JSON.stringify(details).length > maxDetails) {
      return yield* fail(step.id, failure("input_too_large", `'with' is longer than ${maxDetails} characters.`), own)
    }
    const { reviewer_role: role, title } = Schema.decodeUnknownSync(Details)(details)
    yield* journal.append({
      type: "review_requested",
      step: step.id,
      title: isText(title) ? title.slice(0, 1000) : "",
      reviewerRole: isText(role) ? role.slice(0, 256) : "",
      details,
      deadline: now() + step.timeout
    })
  })

  const test = (condition: string) =>
    Effect.suspend(() => Effect.mapError(expressions.test(condition, scopeOf(context, condition)), asFailure))

  /** Brings a step as far as it goes now: to its end, to a try later, or to a review. */
  const run = (id: string): Effect.Effect<void, Abandoned> =>
    Effect.gen(function* () {
      const { step } = plan.steps.get(id)!
      const own = progress.steps.get(id)!
      const reason = skipReason(plan, progress, id)
      if (reason !== undefined) return yield* journal.append({ type: "step_skipped", step: id, reason })
      if (step.when !== null && own.started === 0 && own.items === undefined && !(yield* test(step.when))) {
        return yield* journal.append({ type: "step_skipped", step: id, reason: "condition" })
      }
      switch (step.operator) {
        case "branch": {
          let steps = step.otherwise
          for (const one of step.cases) {
            if (yield* test(one.when)) {
              steps = one.steps
              break
            }
          }
          return yield* journal.append({ type: "step_completed", step: id, output: { steps } })
        }
        case "map":
          return yield* runMap(step)
        case "human_review":
          return yield* requestReview(step)
        default:
          return yield* tryOnce(id, step, own, render(step.with))
      }
    }).pipe(
      Effect.catchDefect((defect) =>
        Effect.andThen(
          Effect.logError("A pipeline step died", defect).pipe(Effect.annotateLogs({ run_id: runId, step: id })),
          Effect.fail(failure("internal_error", "The gateway failed to do this step."))
        )
      ),
      Effect.catchTag("StepFailed", (error) => fail(id, error, progress.steps.get(id)!))
    )

  /** Ends a review that nobody decided in time. */
  const expire = (id: string) => fail(id, failure("review_timeout", "Nobody decided in time."), progress.steps.get(id)!)

  /** How a run ends whose steps are all done: with its outputs, unless these cannot be made. */
  const conclusion: Effect.Effect<RunEvent> = Effect.suspend(() => render(record.definition.outputs)).pipe(
    Effect.filterOrFail(
      (outputs) => JSON.stringify(outputs).length <= maxOutput,
      () => failure("output_too_large", `The outputs are longer than ${maxOutput} characters.`)
    ),
    Effect.map((outputs): RunEvent => ({ type: "run_completed", outputs: outputs as JsonObject })),
    Effect.catchDefect((defect) =>
      Effect.andThen(
        Effect.logError("The outputs of a pipeline could not be made", defect).pipe(
          Effect.annotateLogs({ run_id: runId })
        ),
        Effect.fail(failure("internal_error", "The outputs could not be made."))
      )
    ),
    Effect.catch(({ code, message }) => Effect.succeed<RunEvent>({ type: "run_failed", error: { code, message } }))
  )

  return { run, expire, conclusion }
}
