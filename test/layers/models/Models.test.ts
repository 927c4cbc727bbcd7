import { assert, describe, it } from "@effect/vitest"
import { Clock, Context, Effect, Layer, Redacted, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { createServer, type IncomingHttpHeaders } from "node:http"
import type { GatewayError } from "#domain/errors.ts"
import { transportUndici } from "#layers/inference/TransportUndici.ts"
import * as CredentialVaultPostgres from "#layers/models/CredentialVaultPostgres.ts"
import * as ModelRegistryPostgres from "#layers/models/ModelRegistryPostgres.ts"
import * as ProviderCatalogTransport from "#layers/models/ProviderCatalogTransport.ts"
import * as ProvisioningFromEnvironment from "#layers/models/ProvisioningFromEnvironment.ts"
import { registerSandboxModels } from "#layers/models/sandbox-models.ts"
import * as SecretsAesGcm from "#layers/security/SecretsAesGcm.ts"
import { CredentialVault } from "#services/models/CredentialVault.ts"
import { ModelRegistry } from "#services/models/ModelRegistry.ts"
import { Provisioning } from "#services/models/Provisioning.ts"
import { InstanceSecrets } from "#services/security/InstanceSecrets.ts"
import { databaseGate } from "#test/support/DatabaseGate.ts"
import { processOn, provenance } from "#test/support/keys.ts"
import { freshDatabase } from "#test/support/Postgres.ts"

const secretsOf = (byte: number) =>
  SecretsAesGcm.layer.pipe(
    Layer.provide(
      Layer.succeed(InstanceSecrets, {
        masterKey: Redacted.make("unused"),
        masterKeyGenerated: false,
        encryptionKey: Redacted.make(Buffer.alloc(32, byte).toString("base64")),
        previousEncryptionKeys: []
      })
    )
  )

const start = (
  url: Redacted.Redacted<string>,
  options: { readonly key?: number; readonly environment?: object; readonly production?: boolean } = {}
) =>
  Effect.map(
    Layer.build(
      ProvisioningFromEnvironment.layer({
        production: options.production ?? false,
        environment: { ...options.environment }
      }).pipe(
        Layer.provide(ProviderCatalogTransport.layer.pipe(Layer.provide(transportUndici({ allowPrivate: true })))),
        Layer.provideMerge(Layer.mergeAll(ModelRegistryPostgres.layer, CredentialVaultPostgres.layer)),
        Layer.provide([secretsOf(options.key ?? 1), provenance]),
        Layer.provideMerge(processOn(url))
      )
    ),
    (context) => ({
      models: Context.get(context, ModelRegistry),
      vault: Context.get(context, CredentialVault),
      provisioning: Context.get(context, Provisioning),
      sql: Context.get(context, SqlClient.SqlClient)
    })
  )

const eventually = <E>(check: Effect.Effect<boolean, E>) =>
  Effect.filterOrFail(
    check,
    (holds) => holds,
    () => "not yet"
  ).pipe(
    Effect.retry(Schedule.spaced("5 millis").pipe(Schedule.upTo({ duration: "3 seconds" }))),
    Effect.provideService(Clock.Clock, Clock.Clock.defaultValue())
  )

const failure = <A>(effect: Effect.Effect<A, GatewayError>) => Effect.flip(effect)
const secret = "sk-upstream-0123456789abcdef0123456789"
const draft = (model: string) => ({ modelName: model, gatewayParams: { model }, modelInfo: {} })

describe("ModelRegistryPostgres", () => {
  it.effect("stores, finds, changes and removes; its own snapshot at once, another's soon", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const here = yield* start(url)
      const there = yield* start(url)
      const heard: Array<number> = []
      yield* here.models.onChange((rows) => heard.push(rows.length))
      const model = yield* here.models.create(
        { modelName: "gpt", gatewayParams: { model: "openai/gpt", timeout: 5 }, modelInfo: { mode: "chat" } },
        "a"
      )
      assert.deepStrictEqual(here.models.snapshot(), [model])
      assert.strictEqual(here.models.snapshot(), here.models.snapshot())
      assert.deepStrictEqual(heard.slice(0, 2), [0, 1])
      yield* eventually(Effect.sync(() => there.models.snapshot().length === 1))
      assert.deepStrictEqual(yield* there.models.find({ modelName: "gpt" }), model)
      yield* here.models.update(model.id, {
        gatewayParams: { timeout: null, weight: 2 },
        modelInfo: { input_cost_per_token: 1 },
        actor: "a"
      })
      const changed = yield* there.models.find({ id: model.id })
      assert.deepStrictEqual(changed.gatewayParams, { model: "openai/gpt", weight: 2 })
      assert.deepStrictEqual(changed.modelInfo, { mode: "chat", input_cost_per_token: 1 })
      yield* there.models.remove(model.id, "a")
      assert.deepStrictEqual(there.models.snapshot(), [])
      yield* eventually(Effect.sync(() => here.models.snapshot().length === 0))
      for (const id of [model.id, "no id", ""]) {
        assert.strictEqual((yield* failure(here.models.find({ id }))).code, "resource_not_found")
        assert.strictEqual((yield* failure(here.models.update(id, { modelName: "x", actor: "a" }))).status, 404)
        assert.strictEqual((yield* failure(here.models.remove(id, "a"))).status, 404)
      }
      assert.strictEqual((yield* failure(here.models.find({}))).status, 404)
      const audit = yield* here.sql<{ action: string }>`SELECT action FROM provenance_entries ORDER BY sequence_number`
      assert.deepStrictEqual(
        audit.map(({ action }) => action),
        ["model.created", "model.updated", "model.deleted"]
      )
    })
  )

  it.effect("seals secret parameters: deployments see them, lists and the table do not", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const { models, sql } = yield* start(url)
      const model = yield* models.create(
        {
          modelName: "m",
          gatewayParams: { model: "openai/m", api_key: secret, extra_headers: { "x-a": "hidden-value" } },
          modelInfo: {}
        },
        "a"
      )
      assert.deepStrictEqual(model.gatewayParams, {
        model: "openai/m",
        api_key: "sk-u...6789",
        extra_headers: { "x-a": "****" }
      })
      assert.deepStrictEqual((yield* models.list)[0], model)
      assert.strictEqual(models.snapshot()[0]?.gatewayParams["api_key"], secret)
      const [stored] = yield* sql<{
        row: string
        sealed: Uint8Array
      }>`SELECT to_jsonb(m)::text AS row, sealed FROM models m`
      assert.notInclude(stored?.row ?? "", "upstream-0123")
      assert.notInclude(Buffer.from(stored?.sealed ?? []).toString("latin1"), "hidden-value")
      yield* models.update(model.id, { gatewayParams: { ...model.gatewayParams, api_base: "http://x" }, actor: "a" })
      assert.deepStrictEqual(models.snapshot()[0]?.gatewayParams, {
        model: "openai/m",
        api_key: secret,
        extra_headers: { "x-a": "hidden-value" },
        api_base: "http://x"
      })
      yield* models.update(model.id, { gatewayParams: { api_key: null, extra_headers: null }, actor: "a" })
      assert.deepStrictEqual(yield* sql`SELECT 1 FROM models WHERE sealed IS NULL`, [{ "?column?": 1 }])
      const other = yield* start(url, { key: 2 })
      yield* models.update(model.id, { gatewayParams: { api_key: secret }, actor: "a" })
      yield* eventually(Effect.sync(() => other.models.snapshot()[0]?.gatewayParams["api_base"] === "http://x"))
      const unopened = yield* start(url, { key: 2 })
      assert.deepStrictEqual(unopened.models.snapshot()[0]?.gatewayParams, { model: "openai/m", api_base: "http://x" })
    })
  )

  it.effect("registers what is missing once, also when two processes do it", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const here = yield* start(url)
      const there = yield* start(url)
      yield* here.models.create(draft("p/1"), "a")
      const drafts = ["p/1", "p/2", "p/3"].map(draft)
      const counts = yield* Effect.all(
        [here, there, here].map(({ models }) => models.createMissing(drafts, "a")),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(counts.toSorted(), [0, 0, 2])
      assert.strictEqual((yield* here.models.list).length, 3)
    })
  )

  it.effect("registers the sandbox at the first start only, and not beside models that were there first", () =>
    Effect.gen(function* () {
      const seed = (models: ModelRegistry["Service"]) =>
        Effect.provideService(registerSandboxModels, ModelRegistry, models)
      const url = yield* freshDatabase()
      const { models } = yield* start(url)
      assert.isTrue(yield* seed(models))
      assert.strictEqual(models.snapshot().length, 7)
      yield* Effect.forEach(models.snapshot(), ({ id }) => models.remove(id, "a"))
      assert.isFalse(yield* seed(models))
      assert.strictEqual(models.snapshot().length, 0)
      const second = yield* start(yield* freshDatabase())
      yield* second.models.create(draft("mine"), "a")
      assert.isFalse(yield* seed(second.models))
      assert.strictEqual((yield* second.models.list).length, 1)
    })
  )

  it.live("serves its snapshot while the database is away, and catches up afterwards", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const gate = yield* databaseGate(url)
      const here = yield* start(url)
      const there = yield* start(gate.url)
      yield* here.models.create(draft("one"), "a")
      yield* eventually(Effect.sync(() => there.models.snapshot().length === 1))
      gate.cut()
      assert.strictEqual((yield* failure(there.models.create(draft("x"), "a"))).code, "database_unavailable")
      assert.strictEqual((yield* failure(there.models.list)).code, "database_unavailable")
      yield* here.models.create(draft("two"), "a")
      assert.strictEqual(there.models.snapshot().length, 1)
      gate.restore()
      yield* eventually(Effect.sync(() => there.models.snapshot().length === 2))
    })
  )
})

describe("CredentialVaultPostgres", () => {
  it.effect("reveals to this gateway alone what lists mask and the table seals", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const { sql, vault } = yield* start(url)
      const there = yield* start(url)
      const info = { api_key: secret, nested: { list: ["hunter2"] }, n: 1 }
      const id = yield* vault.create({ credentialName: "main", credentialInfo: info, actor: "user:a" })
      assert.deepStrictEqual(Redacted.value(vault.reveal("main")!), info)
      assert.isUndefined(vault.reveal("other"))
      yield* eventually(Effect.sync(() => there.vault.reveal("main") !== undefined))
      const [listed] = yield* vault.list
      assert.deepStrictEqual(listed?.credentialInfo, { api_key: "sk-u...6789", nested: { list: ["****"] }, n: 1 })
      assert.deepStrictEqual([listed?.id, listed?.createdBy], [id, "user:a"])
      const [stored] = yield* sql<{ row: string; sealed: Uint8Array }>`
        SELECT to_jsonb(c)::text AS row, sealed FROM credentials c`
      const bytes = Buffer.from(stored?.sealed ?? []).toString("latin1")
      for (const word of ["upstream", "hunter2", "api_key"]) {
        assert.notInclude(stored?.row ?? "", word)
        assert.notInclude(bytes, word)
      }
      const audit = yield* sql<{ text: string }>`SELECT payload::text AS text FROM provenance_entries`
      assert.notInclude(JSON.stringify(audit), "hunter2")
    })
  )

  it.effect("a ciphertext copied to another row opens there for nobody", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const { sql, vault } = yield* start(url)
      yield* vault.create({ credentialName: "a", credentialInfo: { api_key: secret }, actor: "a" })
      yield* vault.create({ credentialName: "b", credentialInfo: { api_key: "own" }, actor: "a" })
      yield* sql`UPDATE credentials SET sealed = (SELECT sealed FROM credentials WHERE credential_name = 'a')
        WHERE credential_name = 'b'`
      const later = yield* start(url)
      assert.isDefined(later.vault.reveal("a"))
      assert.isUndefined(later.vault.reveal("b"))
      assert.strictEqual((yield* later.vault.list).length, 2)
    })
  )

  it.effect("addresses by id or name, renames by id alone, merges values, refuses a taken name", () =>
    Effect.gen(function* () {
      const { vault } = yield* start(yield* freshDatabase())
      const id = yield* vault.create({
        credentialName: "a",
        credentialInfo: { api_key: secret, region: "eu" },
        actor: "x"
      })
      yield* vault.create({ credentialName: "b", credentialInfo: {}, actor: "x" })
      yield* vault.create({ credentialName: null, credentialInfo: {}, actor: "x" })
      yield* vault.create({ credentialName: null, credentialInfo: {}, actor: "x" })
      const taken = yield* failure(vault.create({ credentialName: "a", credentialInfo: {}, actor: "x" }))
      assert.deepStrictEqual([taken.status, taken.code, taken.param], [400, "already_exists", "credential_name"])
      assert.strictEqual(
        (yield* failure(vault.update({ id }, { credentialName: "b", actor: "x" }))).code,
        "already_exists"
      )
      yield* vault.update({ id }, { credentialName: "c", credentialInfo: { region: "us" }, actor: "x" })
      assert.isUndefined(vault.reveal("a"))
      assert.deepStrictEqual(Redacted.value(vault.reveal("c")!), { api_key: secret, region: "us" })
      yield* vault.update(
        { credentialName: "c" },
        { credentialInfo: { api_key: "sk-u...6789", region: null }, actor: "x" }
      )
      assert.deepStrictEqual(Redacted.value(vault.reveal("c")!), { api_key: secret })
      const absent = [{ id: "x" }, { id: "0198c0de-0000-7000-8000-000000000001" }, { credentialName: "a" }, {}]
      for (const target of absent) {
        assert.strictEqual((yield* failure(vault.update(target, { actor: "x" }))).status, 404)
        assert.strictEqual((yield* failure(vault.remove(target, "x"))).status, 404)
      }
      yield* vault.remove({ credentialName: "c" }, "x")
      assert.isUndefined(vault.reveal("c"))
      assert.strictEqual((yield* vault.list).length, 3)
    })
  )
})

/** A provider that lists its models, as long as it is asked with the right key. */
const provider = Effect.acquireRelease(
  Effect.callback<{
    url: string
    seen: Array<IncomingHttpHeaders>
    answer: { status: number; body: string }
    close: () => void
  }>((resume) => {
    const seen: Array<IncomingHttpHeaders> = []
    const answer = {
      status: 200,
      body: JSON.stringify({ data: [{ id: "m1" }, { id: "m2" }, { id: 7 }, { id: "m1" }] })
    }
    const server = createServer((request, response) => {
      seen.push({ ...request.headers, path: request.url })
      response.writeHead(answer.status).end(answer.body)
    })
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      const port = typeof address === "object" ? address?.port : 0
      resume(
        Effect.succeed({
          url: `http://127.0.0.1:${port}/v1`,
          seen,
          answer,
          close: () => {
            server.closeAllConnections()
            server.close()
          }
        })
      )
    })
  }),
  (served) => Effect.sync(served.close)
)

describe("ProvisioningFromEnvironment", () => {
  it.live("stores the key, registers the provider's models, and can be repeated", () =>
    Effect.gen(function* () {
      const upstream = yield* provider
      const { models, provisioning, sql, vault } = yield* start(yield* freshDatabase(), {
        environment: { OPENAI_API_KEY: secret, OPENAI_BASE_URL: upstream.url }
      })
      const first = yield* provisioning.provision("openai", "a")
      assert.deepStrictEqual([first.modelsSynchronized, first.reason], [2, null])
      assert.strictEqual(first.credential.credentialInfo["api_key"], "sk-u...6789")
      assert.strictEqual(upstream.seen[0]?.authorization, `Bearer ${secret}`)
      assert.strictEqual(upstream.seen[0]?.["path"], "/v1/models")
      assert.deepStrictEqual(
        models
          .snapshot()
          .map(({ gatewayParams, modelName }) => [modelName, gatewayParams["credential_name"]])
          .toSorted(),
        [
          ["openai/m1", "openai"],
          ["openai/m2", "openai"]
        ]
      )
      assert.deepStrictEqual(Redacted.value(vault.reveal("openai")!), { api_key: secret, api_base: upstream.url })
      const again = yield* provisioning.provision("OpenAI", "a")
      assert.deepStrictEqual([again.modelsSynchronized, again.credential.id], [0, first.credential.id])
      const tables = yield* sql<{ row: string }>`SELECT to_jsonb(m)::text AS row FROM models m
        UNION ALL SELECT to_jsonb(c)::text FROM credentials c UNION ALL SELECT to_jsonb(p)::text FROM provenance_entries p`
      assert.notInclude(JSON.stringify(tables), "0123456789abcdef0123")
      for (const [status, body, reason] of [
        [401, "", "it answered 401"],
        [200, "nonsense", "no list of models"],
        [302, "", "it answered 302"]
      ] as const) {
        Object.assign(upstream.answer, { status, body })
        const refused = yield* provisioning.provision("openai", "a")
        assert.strictEqual(refused.modelsSynchronized, 0)
        assert.include(refused.reason, reason)
      }
      upstream.close()
      assert.include((yield* provisioning.provision("openai", "a")).reason, "could not be listed")
    })
  )

  it.effect("knows which providers have keys, and refuses the others", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const { provisioning } = yield* start(url, { environment: { MISTRAL_API_KEY: "k" } })
      assert.deepStrictEqual(
        provisioning
          .presets()
          .filter(({ detected }) => detected)
          .map(({ preset }) => preset.name),
        ["mistral"]
      )
      assert.strictEqual((yield* failure(provisioning.provision("nobody", "a"))).status, 404)
      for (const name of ["openai", "ollama"]) {
        const error = yield* failure(provisioning.provision(name, "a"))
        assert.deepStrictEqual([error.status, error.code, error.param], [400, "invalid_value", "provider"])
      }
    })
  )

  it.effect("provisions nothing in production, key or not", () =>
    Effect.gen(function* () {
      const { provisioning, vault } = yield* start(yield* freshDatabase(), {
        production: true,
        environment: { OPENAI_API_KEY: secret }
      })
      assert.strictEqual((yield* failure(provisioning.provision("openai", "a"))).code, "resource_not_found")
      assert.deepStrictEqual(yield* vault.list, [])
    })
  )
})
