/** Handler of `agent/chat`: the attested operator's call through the same pipeline, its usage without a key. */
import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller, RequestId } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { InvalidRequest } from "#domain/errors.ts"
import { AgentChatRequest } from "#domain/native-requests.ts"
import { makeGovernedCall, readJson } from "#http/governed.ts"
import { checker } from "#http/inference.ts"

const check = checker(AgentChatRequest)

export const AgentHandlers = HttpApiBuilder.group(
  Api,
  "agent",
  Effect.fn(function* (handlers) {
    const governed = yield* makeGovernedCall
    return handlers.handleRaw(
      "chat",
      Effect.fnUntraced(function* ({ request }) {
        const { body, promptBound } = yield* readJson(request, check)
        if (body["stream"] === true) {
          return yield* new InvalidRequest({
            code: "unsupported_parameter",
            message: "'stream' is not supported by this operation.",
            param: "stream"
          })
        }
        return yield* governed(request, {
          caller: yield* ManagementCaller,
          requestId: yield* RequestId,
          operation: "chat",
          model: body["model"] as string,
          body,
          promptBound,
          stream: false,
          wantsUsage: false
        })
      })
    )
  })
)
