/** Handler of the batch UDF: the client certificate attests the plugin, a header names the principal. */
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { RequestId } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { promptTokenBound } from "#domain/chat.ts"
import {
  type GatewayError,
  invalidFormat,
  invalidValue,
  missingField,
  modelUnauthenticated,
  PermissionDenied,
  ValidationFailed
} from "#domain/errors.ts"
import { isRequestId } from "#domain/ids.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import type { ApiKeyPrincipal } from "#domain/principal.ts"
import { isUdfFunction, itemsAtOnce, mostItems, udfCall, type UdfItem } from "#domain/udf.ts"
import { readJson } from "#http/governed.ts"
import { isAttested } from "#http/mutual-tls.ts"
import { messageOf } from "#http/node-message.ts"
import { quotaHeaders } from "#http/quota-headers.ts"
import { spanOf } from "#http/tracing.ts"
import { BudgetLedger } from "#services/budgets/BudgetLedger.ts"
import { ModelCalls } from "#services/inference/ModelCalls.ts"
import { KeyStore } from "#services/keys/KeyStore.ts"
import type { Span } from "#services/telemetry/Tracing.ts"

interface Result {
  readonly Output: string
  readonly Error: string
}

const userHeader = "X-Query-Engine-User"

const tenantMismatch = new PermissionDenied({
  code: "tenant_mismatch",
  message: `The tenant of ${userHeader} is not the tenant of the principal's key.`,
  param: userHeader
})

/** `tenantId:principalId`; the public scope's prefix is empty. */
const principalOf = (header: string | undefined) => {
  if (header === undefined || header === "") return Effect.fail(missingField(userHeader))
  const colon = header.indexOf(":")
  const principal = header.slice(colon + 1)
  return colon === -1 || principal === "" || header.length > 600
    ? Effect.fail(invalidFormat(userHeader, `'${userHeader}' must have the form tenantId:principalId.`))
    : Effect.succeed({ tenant: header.slice(0, colon), principal })
}

const passed = (body: unknown): Effect.Effect<JsonObject, GatewayError> => Effect.succeed(body as JsonObject)

/** The batch's own faults; those of its items are theirs. */
const itemsOf = (body: JsonObject): Effect.Effect<ReadonlyArray<JsonObject>, GatewayError> => {
  const { items } = body
  if (items === undefined) return Effect.fail(missingField("items"))
  if (!Array.isArray(items)) return Effect.fail(invalidFormat("items", "'items' must be a list."))
  if (items.length > mostItems) {
    return Effect.fail(
      new ValidationFailed({
        code: "value_too_long",
        message: `'items' holds more than ${mostItems} invocations.`,
        param: "items"
      })
    )
  }
  const list = items as ReadonlyArray<Json>
  const at = list.findIndex((item) => !isJsonObject(item) || !isUdfFunction(item["function"]))
  return at === -1
    ? Effect.succeed(list.filter(isJsonObject))
    : Effect.fail(invalidValue(`items.${at}.function`, `'items.${at}.function' is no known function.`))
}

const readItem = (item: JsonObject): UdfItem | string => {
  const { function: name, input, model } = item
  const args = item["args"] ?? {}
  if (!isUdfFunction(name)) return "'function' is no known function."
  if (typeof model !== "string" || model === "" || model.length > 256) return "'model' is required."
  if (typeof input !== "string" || input === "") return "'input' is required: a text that is not empty."
  return isJsonObject(args) ? { function: name, model, input, args } : "'args' must be an object."
}

const refused = (why: string): Result => ({ Output: "", Error: `invalid_value: ${why}` })

export const UdfHandlers = HttpApiBuilder.group(
  Api,
  "udf",
  Effect.fn(function* (handlers) {
    const calls = yield* ModelCalls
    const keys = yield* KeyStore
    const ledger = yield* BudgetLedger

    const invoke = (
      item: JsonObject,
      caller: ApiKeyPrincipal,
      requestId: string,
      span: Span | undefined
    ): Effect.Effect<Result> => {
      const read = readItem(item)
      const call = typeof read === "string" ? read : udfCall(read)
      if (typeof read === "string" || typeof call === "string") return Effect.succeed(refused(String(call)))
      const text = JSON.stringify(call.body)
      return calls
        .call(
          {
            caller,
            requestId,
            operation: call.operation,
            model: read.model,
            body: call.body,
            stream: false,
            wantsUsage: false,
            promptBound: promptTokenBound(text, Buffer.byteLength(text)),
            action: `udf.${read.function}`,
            span
          },
          (answer) => Effect.succeed(answer._tag === "Completed" ? answer.body : Buffer.from("{}"))
        )
        .pipe(
          Effect.map((bytes): Result => {
            const output = call.output(JSON.parse(bytes.toString("utf8")) as JsonObject)
            return output === undefined
              ? { Output: "", Error: `upstream_error: The model's answer is not what ${read.function} promises.` }
              : { Output: output, Error: "" }
          }),
          Effect.catch((error) => Effect.succeed({ Output: "", Error: `${error.code}: ${error.message}` })),
          Effect.catchDefect((defect) =>
            Effect.as(Effect.logError("An invocation of the batch UDF failed", defect), {
              Output: "",
              Error: "internal_error: The gateway failed to handle the invocation."
            })
          )
        )
    }

    return handlers.handleRaw(
      "batch",
      Effect.fnUntraced(function* ({ request }) {
        if (!isAttested(messageOf(request))) return yield* modelUnauthenticated
        const { principal, tenant } = yield* principalOf(request.headers["x-query-engine-user"])
        const key = yield* keys.ofPrincipal(principal, tenant)
        if (key.tenant !== tenant) return yield* tenantMismatch
        const items = yield* itemsOf((yield* readJson(request, passed)).body)
        const caller: ApiKeyPrincipal = { _tag: "ApiKey", key }
        // One query is one session of the traces.
        const query = request.headers["x-query-engine-query-id"]
        const requestId = query !== undefined && isRequestId(query) ? query : yield* RequestId
        const span = spanOf(messageOf(request))
        const results = yield* Effect.forEach(items, (item) => invoke(item, caller, requestId, span), {
          concurrency: itemsAtOnce
        })
        return HttpServerResponse.text(JSON.stringify({ items: results }), {
          contentType: "application/json",
          headers: quotaHeaders(ledger.quota(key.limits))
        })
      })
    )
  })
)
