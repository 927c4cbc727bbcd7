/** The operators that ask models: calls like any other, governed, accounted and recorded. */
import { Effect } from "effect"
import type { GatewayError } from "#domain/errors.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import type { ModelOperation } from "#domain/operations.ts"
import { ModelCalls } from "#services/inference/ModelCalls.ts"
import { type OperatorCall, StepFailed } from "#services/pipelines/Operators.ts"

/** Codes that another try will not change, whatever the status says. */
const hopeless: ReadonlySet<string> = new Set(["budget_exceeded", "guardrail_blocked"])

export const stepFailure = (error: GatewayError): StepFailed =>
  new StepFailed({
    code: error.code,
    message: error.message,
    retryable: (error.status >= 500 || error.status === 429) && !hopeless.has(error.code)
  })

const refused = (message: string) => Effect.fail(new StepFailed({ code: "invalid_input", message, retryable: false }))

const texts = (value: Json | undefined): value is string => typeof value === "string"

/** A prompt that is one expression may be of any type. */
const textOf = (value: Json): string => (texts(value) ? value : JSON.stringify(value))

const listed = (value: Json | undefined): ReadonlyArray<Json> =>
  Array.isArray(value) ? (value as ReadonlyArray<Json>) : []

const firstOf = (value: Json | undefined): JsonObject => {
  const [first] = Array.isArray(value) ? (value as ReadonlyArray<Json>) : []
  return isJsonObject(first) ? first : {}
}

const usage = (answer: JsonObject): Json => answer["usage"] ?? null

const parsed = (text: string): Json => {
  try {
    return JSON.parse(text) as Json
  } catch {
    return null
  }
}

/** What a step's `with` becomes, and what its answer becomes. */
interface ModelOperator {
  readonly operation: ModelOperation
  readonly body: (input: JsonObject) => JsonObject
  readonly output: (answer: JsonObject, body: JsonObject) => JsonObject
}

export const modelOperators = {
  chat: {
    operation: "chat",
    body: ({ prompt, system, messages, ...rest }) => ({
      ...rest,
      messages: [
        ...(system === undefined || system === null ? [] : [{ role: "system", content: textOf(system) }]),
        ...(prompt === undefined || prompt === null ? listed(messages) : [{ role: "user", content: textOf(prompt) }])
      ]
    }),
    output: (answer, body) => {
      const choice = firstOf(answer["choices"])
      const message = choice["message"]
      const content = isJsonObject(message) ? message["content"] : undefined
      const text = texts(content) ? content : ""
      return {
        text,
        // Structured answers come as text; they are of use as values.
        ...(body["response_format"] === undefined ? {} : { json: parsed(text) }),
        message: message ?? null,
        finish_reason: choice["finish_reason"] ?? null,
        model: answer["model"] ?? null,
        usage: usage(answer)
      }
    }
  },
  embed: {
    operation: "embedding",
    body: (input) => input,
    output: (answer) => ({
      embeddings: (Array.isArray(answer["data"]) ? (answer["data"] as ReadonlyArray<Json>) : []).map((row) =>
        isJsonObject(row) ? (row["embedding"] ?? null) : null
      ),
      model: answer["model"] ?? null,
      usage: usage(answer)
    })
  },
  rerank: {
    operation: "rerank",
    body: (input) => input,
    output: (answer) => ({ results: answer["results"] ?? [], usage: usage(answer) })
  },
  moderate: {
    operation: "moderation",
    body: (input) => input,
    output: (answer) => {
      const results = Array.isArray(answer["results"]) ? (answer["results"] as ReadonlyArray<Json>) : []
      return { flagged: results.some((result) => isJsonObject(result) && result["flagged"] === true), results }
    }
  }
} satisfies Record<string, ModelOperator>

/** A call as the run's operator: no key, the tenant of whoever started the run. */
export const makeModelOperator = Effect.gen(function* () {
  const calls = yield* ModelCalls
  return Effect.fnUntraced(function* (operator: ModelOperator, { input, principal, requestId, span }: OperatorCall) {
    if (!isJsonObject(input)) return yield* refused("'with' is not a mapping.")
    const body = operator.body(input)
    const model = body["model"]
    if (!texts(model) || model === "") return yield* refused("'model' is not a text.")
    if (operator.operation === "chat" && !(Array.isArray(body["messages"]) && body["messages"].length > 0)) {
      return yield* refused("There are no messages.")
    }
    const answer = yield* calls
      .call(
        {
          caller: principal,
          requestId,
          span,
          operation: operator.operation,
          model,
          body: { ...body, stream: false },
          stream: false,
          wantsUsage: false,
          promptBound: Buffer.byteLength(JSON.stringify(body))
        },
        (answer) =>
          answer._tag === "Completed"
            ? Effect.succeed(parsed(answer.body.toString("utf8")))
            : refused("The model answered with a stream.")
      )
      .pipe(Effect.mapError((error) => (error instanceof StepFailed ? error : stepFailure(error))))
    if (!isJsonObject(answer)) {
      return yield* new StepFailed({
        code: "upstream_error",
        message: "The model's answer is no JSON object.",
        retryable: true
      })
    }
    return operator.output(answer, body)
  })
})
