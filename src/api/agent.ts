/** The operator's own model calls (management-api.md, "v1 (admin-attested surface)"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { Enveloped, ManagementAccess, operation } from "#api/access.ts"
import { AgentChatRequest } from "#domain/native-requests.ts"

const AgentChatResponse = Schema.Struct({
  id: Schema.String,
  object: Schema.String,
  model: Schema.String,
  choices: Schema.Array(Schema.Unknown),
  usage: Schema.Unknown
}).annotate({ identifier: "AgentChatResponse" })

export class AgentGroup extends HttpApiGroup.make("agent")
  .add(
    HttpApiEndpoint.post("chat", "/management/v1/agent/chat", {
      payload: AgentChatRequest,
      success: AgentChatResponse
    }).annotateMerge(operation("administrator", 200, 400, 401, 403, 404))
  )
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
