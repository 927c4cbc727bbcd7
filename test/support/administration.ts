/** What the administration's layers stand on, over a fresh database with two tenants. */
import { randomBytes } from "node:crypto"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import * as OutboxPostgres from "#layers/callbacks/OutboxPostgres.ts"
import * as ProvenanceOutbox from "#layers/callbacks/ProvenanceOutbox.ts"
import * as ProvenancePostgres from "#layers/provenance/ProvenancePostgres.ts"
import * as SecretsAesGcm from "#layers/security/SecretsAesGcm.ts"
import * as MigrationsPostgres from "#layers/storage/MigrationsPostgres.ts"
import * as TenantsPostgres from "#layers/tenants/TenantsPostgres.ts"
import { InstanceSecrets } from "#services/security/InstanceSecrets.ts"
import { testDatabase } from "#test/support/Postgres.ts"
import { idleUsageLedger } from "#test/support/usage.ts"

export const instanceSecrets = Layer.succeed(InstanceSecrets, {
  masterKey: Redacted.make("mk-test"),
  masterKeyGenerated: false,
  encryptionKey: Redacted.make(randomBytes(32).toString("base64")),
  previousEncryptionKeys: []
})

/** Nothing is pending. */
const usageLedger = idleUsageLedger

/** Database, tenants, provenance with its outbox, secrets, and a usage ledger that has nothing pending. */
export const administrationBase = (slugs: ReadonlyArray<string> = ["acme", "globex"]) =>
  Layer.mergeAll(ProvenanceOutbox.layer.pipe(Layer.provide(ProvenancePostgres.layer)), SecretsAesGcm.layer).pipe(
    Layer.provideMerge(Layer.mergeAll(OutboxPostgres.layer, instanceSecrets, usageLedger)),
    Layer.provideMerge(TenantsPostgres.layer(slugs)),
    Layer.provideMerge(MigrationsPostgres.layer),
    Layer.provideMerge(testDatabase()),
    Layer.orDie
  )

/** One row of `daily_usage`, as the usage ledger writes them. */
export const recordUsage = Effect.fnUntraced(function* (
  schema: string,
  day: string,
  organizationId: string,
  requests = 1,
  spend = "0.25"
) {
  const sql = yield* SqlClient.SqlClient
  yield* sql.unsafe(
    `INSERT INTO ${schema}.daily_usage AS d (day, key_id, user_id, team_id, organization_id, end_user_id, model, requests,
      prompt_tokens, completion_tokens, spend)
    VALUES ($1::text::date, '00000000-0000-0000-0000-000000000000', '', '', $2, '', 'm', $3, $3::bigint * 10,
      $3::bigint * 5, $4::text::numeric)
    ON CONFLICT (day, key_id, model, user_id, team_id, organization_id, end_user_id) DO UPDATE
      SET requests = d.requests + excluded.requests, prompt_tokens = d.prompt_tokens + excluded.prompt_tokens,
      completion_tokens = d.completion_tokens + excluded.completion_tokens, spend = d.spend + excluded.spend`,
    [day, organizationId, requests, spend]
  )
})
