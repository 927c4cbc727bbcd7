/** Self-service of developers (management-api.md, "developer (self-service)"). */
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { DeveloperAccess, Enveloped, JsonBody, operation } from "#api/access.ts"
import { Instant, nullable, Page, PageSize, text } from "#api/fields.ts"
import { keyLimits, keyNames, shownKeyLimits, shownKeyNames } from "#api/key-fields.ts"
import { spendTotals, tokenCounts } from "#api/usage-fields.ts"
import { parseInstant } from "#domain/instants.ts"

/** Whatever says whose key it is, or where it belongs, is dropped: the credential says so. */
const DeveloperKeyCreation = Schema.Struct({
  ...keyNames,
  ...keyLimits,
  expires: nullable(Instant)
}).annotate({ identifier: "DeveloperKeyCreation" })

const MintedDeveloperKey = Schema.Struct({ id: Schema.String, key: Schema.String, key_alias: text }).annotate({
  identifier: "MintedDeveloperKey"
})

/** `token` shows the last four characters alone. */
const DeveloperKey = Schema.Struct({
  id: Schema.String,
  token: Schema.String,
  ...shownKeyNames,
  ...shownKeyLimits,
  expires: text,
  blocked: Schema.Boolean,
  created_at: Schema.String,
  updated_at: Schema.String
}).annotate({ identifier: "DeveloperKey" })

const DeveloperAuditEntry = Schema.Struct({
  id: Schema.String,
  action: Schema.String,
  actor: Schema.String,
  resource_type: Schema.String,
  resource_id: Schema.String,
  request_id: text,
  payload: Schema.Json,
  created_at: Schema.String
}).annotate({ identifier: "DeveloperAuditEntry" })

const DeveloperSpend = Schema.Struct({
  ...spendTotals,
  start_date: Schema.String,
  end_date: Schema.String
}).annotate({ identifier: "DeveloperSpend" })

const DeveloperKeyUsage = Schema.Struct({
  key_id: Schema.String,
  ...shownKeyNames,
  request_count: Schema.Int,
  spend: Schema.Finite,
  discarded: Schema.Boolean
}).annotate({ identifier: "DeveloperKeyUsage" })

const DeveloperSpendLog = Schema.Struct({
  request_id: Schema.String,
  key_id: Schema.String,
  key_alias: text,
  operation: Schema.String,
  model: Schema.String,
  provider: text,
  status: Schema.String,
  error_code: text,
  stream: Schema.Boolean,
  ...tokenCounts,
  total_tokens: Schema.Int,
  spend: Schema.Finite,
  start_time: Schema.String,
  end_time: Schema.String
}).annotate({ identifier: "DeveloperSpendLog" })

const AvailableModel = Schema.Struct({
  id: Schema.String,
  object: Schema.String,
  created: Schema.Int,
  owned_by: Schema.String
}).annotate({ identifier: "AvailableModel" })

/** A UTC day as `YYYY-MM-DD`; of a date-time the day that it falls on. */
const Day = Schema.String.check(
  Schema.isMaxLength(64),
  Schema.isPattern(/^[12]\d{3}-\d{2}-\d{2}([T ].*)?$/),
  Schema.makeFilter((value: string) => parseInstant(value) !== undefined, { expected: "a date, YYYY-MM-DD" })
)
const days = { start_date: Schema.optionalKey(Day), end_date: Schema.optionalKey(Day) }

/** The only page that starts at 0. */
const PageFromZero = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1_000_000 }))
const Offset = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1_000_000_000 }))

const IdempotencyKey = Schema.String.check(
  Schema.isMaxLength(255),
  Schema.makeFilter((value: string) => /^[\x21-\x7e]+$/.test(value), { expected: "1 to 255 visible ASCII characters" })
)

const pageOf = <S extends Schema.Top>(row: S) =>
  Schema.Struct({ data: Schema.Array(row), page: Schema.Int, page_size: Schema.Int })

const byId = { params: { id: Schema.String } } as const

export class DeveloperGroup extends HttpApiGroup.make("developer")
  .add(
    HttpApiEndpoint.get("audit", "/developer/v1/audit", {
      query: { page: Schema.optionalKey(Page), page_size: Schema.optionalKey(PageSize) },
      success: pageOf(DeveloperAuditEntry)
    }).annotateMerge(operation("developer", 200, 400, 401)),
    HttpApiEndpoint.get("keys", "/developer/v1/keys", {
      query: { limit: Schema.optionalKey(PageSize), offset: Schema.optionalKey(Offset) },
      success: Schema.Struct({ data: Schema.Array(DeveloperKey) })
    }).annotateMerge(operation("developer", 200, 401)),
    HttpApiEndpoint.post("create_key", "/developer/v1/keys", {
      headers: { "idempotency-key": Schema.optionalKey(IdempotencyKey) },
      payload: DeveloperKeyCreation,
      success: MintedDeveloperKey.pipe(HttpApiSchema.status(201))
    }).annotateMerge(operation("developer", 201, 400, 401)),
    HttpApiEndpoint.delete("revoke_key", "/developer/v1/keys/:id", {
      ...byId,
      success: HttpApiSchema.NoContent
    }).annotateMerge(operation("developer", 204, 401, 404)),
    HttpApiEndpoint.get("key", "/developer/v1/keys/:id", { ...byId, success: DeveloperKey }).annotateMerge(
      operation("developer", 200, 401, 404)
    ),
    HttpApiEndpoint.get("models", "/developer/v1/models/available", {
      success: Schema.Struct({ object: Schema.String, data: Schema.Array(AvailableModel) })
    }).annotateMerge(operation("developer", 200, 401)),
    HttpApiEndpoint.get("spend", "/developer/v1/spend", { query: days, success: DeveloperSpend }).annotateMerge(
      operation("developer", 200, 400, 401)
    ),
    HttpApiEndpoint.get("spend_logs", "/developer/v1/spend/logs", {
      query: { page: Schema.optionalKey(PageFromZero), page_size: Schema.optionalKey(PageSize) },
      success: pageOf(DeveloperSpendLog)
    }).annotateMerge(operation("developer", 200, 400, 401)),
    HttpApiEndpoint.get("usage", "/developer/v1/usage", {
      query: days,
      success: Schema.Struct({ data: Schema.Array(DeveloperKeyUsage) })
    }).annotateMerge(operation("developer", 200, 400, 401))
  )
  .middleware(JsonBody)
  .middleware(DeveloperAccess)
  .middleware(Enveloped) {}
