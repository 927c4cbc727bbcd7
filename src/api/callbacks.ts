/** Webhook callbacks (management-api.md, "callback"; decisions.md, section 9). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Enveloped, JsonBody, ManagementAccess, operation } from "#api/access.ts"
import { nullable, RequiredText, ShortText } from "#api/fields.ts"
import { callbackEvents } from "#domain/events.ts"

/** The secret never leaves again: `secret` is masked. */
const Callback = Schema.Struct({
  callback_id: Schema.String,
  url: Schema.String,
  events: Schema.Array(Schema.String),
  secret: Schema.String,
  created_at: Schema.String
}).annotate({ identifier: "Callback" })

const url = Schema.NonEmptyString.check(Schema.isMaxLength(2048))

export class CallbackGroup extends HttpApiGroup.make("callback")
  .add(
    HttpApiEndpoint.post("new", "/callback/new", {
      payload: Schema.Struct({
        url,
        events: nullable(Schema.Array(Schema.Literals(callbackEvents)).check(Schema.isMaxLength(100))),
        secret: nullable(ShortText)
      }).annotate({ identifier: "CallbackCreation" }),
      /** `secret` is there when none was given: the one that was made, shown only here. */
      success: Schema.Struct({
        callback_id: Schema.String,
        secret: Schema.optionalKey(Schema.String)
      }).pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("administrator", 201, 400, 401)),
    HttpApiEndpoint.post("delete", "/callback/delete", {
      payload: Schema.Struct({ callback_id: RequiredText }).annotate({ identifier: "CallbackDeletion" }),
      success: Schema.Struct({ deleted: Schema.Boolean })
    }).annotateMerge(operation("administrator", 200, 401, 404)),
    HttpApiEndpoint.get("list", "/callback/list", {
      success: Schema.Struct({ data: Schema.Array(Callback) })
    }).annotateMerge(operation("administrator_read", 200, 401))
  )
  .middleware(JsonBody)
  .middleware(ManagementAccess)
  .middleware(Enveloped) {}
