import { Effect, Layer } from "effect"
import { isJsonObject, type Json } from "#domain/json.ts"
import type { TaskOperator } from "#domain/pipelines/definition.ts"
import { tenantOf } from "#domain/principal.ts"
import { makeModelOperator, modelOperators, stepFailure } from "#layers/pipelines/operators/model-calls.ts"
import { GuardrailEngine } from "#services/guardrails/GuardrailEngine.ts"
import type { ModelCalls } from "#services/inference/ModelCalls.ts"
import { type OperatorCall, Operators, StepFailed } from "#services/pipelines/Operators.ts"

type Runner = (call: OperatorCall) => Effect.Effect<Json, StepFailed>

const unavailable =
  (needs: string): Runner =>
  ({ operator }) =>
    Effect.fail(
      new StepFailed({
        code: "operator_unavailable",
        message: `The operator '${operator}' cannot run: this gateway has no ${needs} yet.`,
        retryable: false
      })
    )

/** One operator a line; a new one is not forgotten here, because it would not compile. */
export const layer: Layer.Layer<Operators, never, ModelCalls | GuardrailEngine> = Layer.effect(
  Operators,
  Effect.gen(function* () {
    const guardrails = yield* GuardrailEngine
    const model = yield* makeModelOperator

    const guardrail: Runner = Effect.fnUntraced(function* ({ input, principal, requestId, span }) {
      const { on_block: onBlock, stage, text } = isJsonObject(input) ? input : {}
      const given = Array.isArray(text) ? (text as ReadonlyArray<Json>) : [text]
      const checked = given.filter((one): one is string => typeof one === "string")
      if (checked.length !== given.length) {
        return yield* new StepFailed({ code: "invalid_input", message: "'text' is no text.", retryable: false })
      }
      const organization = principal._tag === "Administrator" ? (principal.organizationId ?? null) : null
      const policy = guardrails.policy(
        tenantOf(principal),
        organization,
        principal._tag === "MasterKey" ? { principal, requestId } : undefined
      )
      const verdict = yield* (
        policy?.check(stage === "post" ? "post" : "pre", checked, span) ??
          Effect.succeed({ texts: checked, events: [], blocked: undefined })
      )
      const { blocked } = verdict
      if (blocked !== undefined && onBlock !== "continue") return yield* stepFailure(blocked)
      return {
        blocked: blocked !== undefined,
        guardrail: blocked?.param ?? null,
        text: Array.isArray(text) ? [...verdict.texts] : (verdict.texts[0] ?? ""),
        fired: verdict.events.filter(({ status }) => status !== "passed").map(({ guardrailName }) => guardrailName)
      }
    })

    const runners: { readonly [O in TaskOperator]: Runner } = {
      chat: (call) => model(modelOperators.chat, call),
      embed: (call) => model(modelOperators.embed, call),
      rerank: (call) => model(modelOperators.rerank, call),
      moderate: (call) => model(modelOperators.moderate, call),
      guardrail,
      transform: ({ input }) => Effect.succeed(input),
      retrieve: unavailable("vector search"),
      extract: unavailable("document extraction"),
      web_fetch: unavailable("web access"),
      sql_query: unavailable("query engine")
    }

    return Operators.of({ run: (call) => runners[call.operator](call) })
  })
)
