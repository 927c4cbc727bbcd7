import { Context, Data, type Effect } from "effect"
import type { Json } from "#domain/json.ts"
import type { TaskOperator } from "#domain/pipelines/definition.ts"
import type { ManagementPrincipal } from "#domain/principal.ts"
import type { Span } from "#services/telemetry/Tracing.ts"

/** Why a try of a step failed. `retryable`: it may go well another time. */
export class StepFailed extends Data.TaggedError("StepFailed")<{
  readonly code: string
  readonly message: string
  readonly retryable: boolean
}> {}

/** One try of one step. */
export interface OperatorCall {
  readonly operator: TaskOperator
  /** The step's `with`, its expressions replaced. */
  readonly input: Json
  /** Who started the run: its steps are made as that operator, in that tenant. */
  readonly principal: ManagementPrincipal
  readonly requestId: string
  /** Of this try, where runs are traced. */
  readonly span?: Span | undefined
}

/** What the operators of the language do. Interruption cancels. */
export class Operators extends Context.Service<
  Operators,
  { readonly run: (call: OperatorCall) => Effect.Effect<Json, StepFailed> }
>()("sluice/pipelines/Operators") {}
