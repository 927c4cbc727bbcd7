/** Runs and steps as spans. A run that waits is put down and taken up again: each time that it is worked on is a trace. */
import { Effect, Exit } from "effect"
import type { TaskOperator } from "#domain/pipelines/definition.ts"
import type { RunEvent } from "#domain/pipelines/runs.ts"
import type { StepFailed } from "#services/pipelines/Operators.ts"
import type { RunKey } from "#services/pipelines/WorkflowEngine.ts"
import { ParentSpan, type Span, Tracing } from "#services/telemetry/Tracing.ts"

/** Works on a run within a span of its own. */
export const tracedRun = <A, E, R>({ runId, tenant }: RunKey, work: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.flatMap(Tracing, (tracing) => {
    if (tracing === undefined) return work
    const span = tracing.start("pipeline.run", "internal")
    span.set("sluice.run_id", runId)
    if (tenant !== "") span.set("sluice.tenant", tenant)
    return Effect.onExit(Effect.provideService(work, ParentSpan, span), (exit) =>
      Effect.sync(() => {
        if (Exit.hasFails(exit)) span.set("sluice.status", "put_down")
        span.end()
      })
    )
  })

/** Says what became of the run. */
export const tellRunEnd = (event: RunEvent): Effect.Effect<void> =>
  Effect.map(ParentSpan, (span) => {
    if (span === undefined) return
    span.set("sluice.status", event.type.replace(/^run_/, ""))
    if (event.type === "run_failed") span.error(event.error.code, true)
  })

/** One try of a step, within the run's span where there is one. */
export const tracedStep = <A, R>(
  operator: TaskOperator,
  requestId: string,
  run: (span: Span | undefined) => Effect.Effect<A, StepFailed, R>
): Effect.Effect<A, StepFailed, R> =>
  Effect.gen(function* () {
    const tracing = yield* Tracing
    if (tracing === undefined) return yield* run(undefined)
    const parent = yield* ParentSpan
    const name = `pipeline.step ${operator}`
    const span = parent === undefined ? tracing.start(name, "internal") : parent.child(name, "internal")
    span.set("sluice.request_id", requestId)
    return yield* Effect.onExit(run(span), (exit) =>
      Effect.sync(() => {
        const failure = Exit.isFailure(exit) ? exit.cause.reasons.find((reason) => reason._tag === "Fail") : undefined
        if (failure !== undefined) span.error(failure.error.code, true)
        else if (Exit.isFailure(exit)) span.set("sluice.status", "cancelled")
        span.end()
      })
    )
  })
