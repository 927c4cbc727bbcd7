import { createHmac } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Exit, Layer, Redacted, Schedule, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { retryDelays } from "#domain/webhooks.ts"
import * as CallbackRegistryPostgres from "#layers/callbacks/CallbackRegistryPostgres.ts"
import * as CallbackSenderUndici from "#layers/callbacks/CallbackSenderUndici.ts"
import { type CallbackSenderOptions, makeCallbackSender } from "#layers/callbacks/CallbackSenderUndici.ts"
import * as ChangeFeedPostgres from "#layers/storage/ChangeFeedPostgres.ts"
import { CallbackRegistry } from "#services/callbacks/CallbackRegistry.ts"
import { Outbox, type OutboxEvent } from "#services/callbacks/Outbox.ts"
import { Provenance } from "#services/provenance/Provenance.ts"
import { administrationBase } from "#test/support/administration.ts"
import { WebhookReceiver } from "#test/support/WebhookReceiver.ts"

const kit = Layer.mergeAll(CallbackRegistryPostgres.layer({ allowPrivate: true }), ChangeFeedPostgres.layer).pipe(
  Layer.provideMerge(administrationBase()),
  Layer.orDie
)

const options: CallbackSenderOptions = { allowPrivate: true, timeout: 2_000 }

const receiving = Effect.acquireRelease(
  Effect.promise(() => WebhookReceiver.start()),
  (receiver) => Effect.promise(() => receiver.stop())
)

const event = (more: Partial<OutboxEvent> = {}): Effect.Effect<OutboxEvent> =>
  Effect.map(Clock.currentTimeMillis, (occurredAt) => ({
    type: "key.created",
    tenant: "acme",
    organizationId: null,
    occurredAt,
    data: { n: 1 },
    ...more
  }))

const append = (more: Partial<OutboxEvent> = {}) =>
  Effect.flatMap(Outbox, (outbox) => Effect.flatMap(event(more), (one) => outbox.append([one])))

const register = (url: string, more: Partial<Parameters<CallbackRegistry["Service"]["create"]>[0]> = {}) =>
  Effect.flatMap(CallbackRegistry, (registry) =>
    registry.create({
      owner: { tenant: "acme", organizationId: "" },
      wholeInstance: false,
      url,
      events: [],
      secret: Redacted.make("whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"),
      actor: "user:ann",
      ...more
    })
  )

interface DeliveryRow {
  readonly attempts: number
  readonly last_error: string | null
  readonly failed: boolean
}

const deliveries = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => sql<DeliveryRow>`SELECT attempts, last_error, failed_at IS NOT NULL AS failed FROM callback_deliveries`
)

describe("callbacks", () => {
  it.effect("are signed, and gone from the outbox when the receiver took them", () =>
    Effect.gen(function* () {
      const receiver = yield* receiving
      yield* TestClock.setTime(Date.parse("2031-01-01T00:00:00Z"))
      const { id } = yield* register(receiver.url)
      yield* append()
      const sender = yield* makeCallbackSender(options)
      yield* sender.deliverDue(id)
      const [webhook] = receiver.received
      const headers = webhook!.headers
      assert.strictEqual(headers["webhook-timestamp"], String(Date.parse("2031-01-01T00:00:00Z") / 1000))
      const signed = `${headers["webhook-id"] as string}.${headers["webhook-timestamp"]}.${webhook!.body}`
      const signature = createHmac("sha256", "secret-secret-secret-secret").update(signed).digest("base64")
      assert.strictEqual(headers["webhook-signature"], `v1,${signature}`)
      assert.deepInclude(JSON.parse(webhook!.body), {
        id: headers["webhook-id"],
        type: "key.created",
        timestamp: "2031-01-01T00:00:00.000Z",
        tenant: "acme",
        data: { n: 1 }
      })
      assert.deepStrictEqual(yield* deliveries, [])
    }).pipe(Effect.provide(kit))
  )

  it.effect("are tried ten times over 24 hours, always under one id, and then given up", () =>
    Effect.gen(function* () {
      const receiver = yield* receiving
      receiver.answer = () => 500
      const start = Date.parse("2031-01-01T00:00:00Z")
      yield* TestClock.setTime(start)
      const { id } = yield* register(receiver.url)
      yield* append()
      const sender = yield* makeCallbackSender(options)
      yield* sender.deliverDue(id)
      for (const [tries, delay] of retryDelays.entries()) {
        assert.strictEqual(receiver.received.length, tries + 1)
        assert.deepStrictEqual(yield* deliveries, [
          { attempts: tries + 1, last_error: "it answered 500", failed: false }
        ])
        const due = (yield* sender.due).get(id)
        assert.strictEqual(due, (yield* Clock.currentTimeMillis) + delay)
        yield* TestClock.adjust(delay - 1)
        yield* sender.deliverDue(id)
        assert.strictEqual(receiver.received.length, tries + 1)
        yield* TestClock.adjust(1)
        yield* sender.deliverDue(id)
      }
      assert.strictEqual(receiver.received.length, 10)
      const passed = (yield* Clock.currentTimeMillis) - start
      assert.isAbove(passed, 23.5 * 3_600_000)
      assert.isAtMost(passed, 24 * 3_600_000)
      assert.deepStrictEqual(yield* deliveries, [{ attempts: 10, last_error: "it answered 500", failed: true }])
      assert.strictEqual(new Set(receiver.received.map(({ headers }) => headers["webhook-id"])).size, 1)
      assert.strictEqual(new Set(receiver.received.map(({ headers }) => headers["webhook-timestamp"])).size, 10)
      assert.strictEqual((yield* sender.due).size, 0)
      yield* TestClock.adjust("8 days")
      yield* sender.sweep
      assert.deepStrictEqual(yield* deliveries, [])
    }).pipe(Effect.provide(kit))
  )

  it.effect("follow no redirect, wait for nobody, and call no private address unless that is allowed", () =>
    Effect.gen(function* () {
      const receiver = yield* receiving
      const elsewhere = yield* receiving
      receiver.answer = ({ path }) =>
        path === "/hang" ? "hang" : { status: 307, headers: { location: `${elsewhere.url}/stolen` } }
      const sender = yield* makeCallbackSender({ allowPrivate: true, timeout: 150 })
      const guarded = yield* makeCallbackSender({ allowPrivate: false, timeout: 150 })
      const faults: ReadonlyArray<readonly [url: string, by: typeof sender, fault: string]> = [
        [receiver.url, sender, "it answered 307"],
        [`${receiver.url}/hang`, sender, "no answer in time"],
        [receiver.url, guarded, "its address is not allowed"],
        [receiver.url.replace("127.0.0.1", "localhost"), guarded, "its address is not allowed"],
        ["http://127.0.0.1:1/", sender, "the connection was refused"]
      ]
      for (const [url, by, fault] of faults) {
        const { id } = yield* register(url)
        yield* append()
        yield* by.deliverDue(id)
        const [row] = yield* deliveries
        assert.strictEqual(row?.last_error, fault)
        const registry = yield* CallbackRegistry
        yield* registry.remove(id, { tenant: "acme", organizationId: undefined }, "user:ann")
        assert.deepStrictEqual(yield* deliveries, [])
      }
      assert.strictEqual(elsewhere.received.length, 0)
      assert.strictEqual(receiver.received.length, 2)
    }).pipe(Effect.provide(kit))
  )

  it.effect("reach those whose event it is, and nobody else", () =>
    Effect.gen(function* () {
      const receiver = yield* receiving
      const owner = (tenant: string, organizationId = "") => ({ owner: { tenant, organizationId } })
      const registered = {
        acme: yield* register(`${receiver.url}/acme`),
        org: yield* register(`${receiver.url}/org`, owner("acme", "org-1")),
        other: yield* register(`${receiver.url}/other`, owner("acme", "org-2")),
        globex: yield* register(`${receiver.url}/globex`, owner("globex")),
        // A tenant's administrator of the public scope is not the instance's.
        legacy: yield* register(`${receiver.url}/legacy`, owner("")),
        instance: yield* register(`${receiver.url}/instance`, { ...owner(""), wholeInstance: true }),
        picky: yield* register(`${receiver.url}/picky`, { events: ["key.deleted"] })
      }
      const sender = yield* makeCallbackSender(options)
      const heard = Effect.fnUntraced(function* (more: Partial<OutboxEvent>) {
        yield* append(more)
        receiver.received.length = 0
        for (const { id } of Object.values(registered)) yield* sender.deliverDue(id)
        return receiver.received.map(({ path }) => path.slice(1)).sort()
      })
      assert.deepStrictEqual(yield* heard({}), ["acme", "instance"])
      assert.deepStrictEqual(yield* heard({ organizationId: "org-1" }), ["acme", "instance", "org"])
      assert.deepStrictEqual(yield* heard({ type: "key.deleted" }), ["acme", "instance", "picky"])
      assert.deepStrictEqual(yield* heard({ tenant: "" }), ["instance", "legacy"])
      assert.deepStrictEqual(yield* heard({ type: "model.unhealthy", tenant: undefined }), [
        "acme",
        "globex",
        "instance",
        "legacy",
        "org",
        "other"
      ])
    }).pipe(Effect.provide(kit))
  )

  it.effect("come with the audit entry, in the same transaction or not at all", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const provenance = yield* Provenance
      yield* register("https://example.com/")
      const entry = {
        action: "key.blocked",
        actor: "user:ann",
        resourceType: "key",
        resourceId: "k-1",
        requestId: "r-1",
        payload: { a: "\0" },
        createdAt: 1_000_000
      }
      yield* sql
        .withTransaction(
          Effect.andThen(
            provenance.append("acme", [entry, { ...entry, action: "tag.created" }]),
            Effect.fail("no" as const)
          )
        )
        .pipe(Effect.ignore)
      assert.deepStrictEqual(yield* deliveries, [])
      yield* provenance.append("acme", [
        entry,
        { ...entry, action: "tag.created" },
        { ...entry, action: "pipeline.run.start" }
      ])
      const rows = yield* sql<{ body: string }>`SELECT body FROM callback_deliveries`
      const events = rows.map(
        ({ body }) => JSON.parse(body) as { type: string; data: { resource_id: string; a: string } }
      )
      assert.deepStrictEqual(events.map(({ data, type }) => [type, data.resource_id, data.a]).sort(), [
        ["key.blocked", "k-1", "\0"],
        ["pipeline.run.started", "k-1", "\0"]
      ])
      assert.deepStrictEqual(yield* provenance.verify("acme"), { entries: 4, broken: undefined })
    }).pipe(Effect.provide(kit))
  )

  it.effect("of a dead process come up again when its claim has run out", () =>
    Effect.gen(function* () {
      const receiver = yield* receiving
      receiver.answer = () => "hang"
      const { id } = yield* register(receiver.url)
      yield* append()
      const dead = yield* Scope.make()
      const sender = yield* makeCallbackSender({ allowPrivate: true, timeout: 60_000 }).pipe(Scope.provide(dead))
      yield* sender.deliverDue(id).pipe(Effect.forkIn(dead))
      yield* Effect.promise(() => receiver.atLeast(1))
      yield* Scope.close(dead, Exit.void)
      receiver.answer = () => 204
      const other = yield* makeCallbackSender(options)
      yield* other.deliverDue(id)
      assert.strictEqual(receiver.received.length, 1)
      yield* TestClock.adjust("60 seconds")
      yield* other.deliverDue(id)
      assert.strictEqual(receiver.received.length, 2)
      assert.deepStrictEqual(yield* deliveries, [])
    }).pipe(Effect.provide(kit))
  )

  it.live("go out at once, each by one of several processes, with none held up by a silent receiver", () =>
    Effect.gen(function* () {
      const receiver = yield* receiving
      const silent = yield* receiving
      silent.answer = () => "hang"
      yield* register(receiver.url)
      yield* register(silent.url)
      const process = CallbackSenderUndici.layer({ allowPrivate: true, timeout: 30_000 })
      for (let n = 0; n < 3; n++) yield* Layer.build(Layer.fresh(process))
      const sql = yield* SqlClient.SqlClient
      yield* sql.withTransaction(
        Effect.forEach(Array.from({ length: 60 }), (_, n) => append({ data: { n } }), { discard: true })
      )
      yield* Effect.promise(() => receiver.atLeast(60))
      const left = deliveries.pipe(
        Effect.filterOrFail(
          (rows) => rows.length === 60,
          () => "not yet" as const
        ),
        Effect.retry(Schedule.spaced("10 millis").pipe(Schedule.upTo({ duration: "5 seconds" })))
      )
      // Those of the silent receiver are left.
      yield* left
      assert.strictEqual(receiver.received.length, 60)
      assert.strictEqual(new Set(receiver.received.map(({ body }) => body)).size, 60)
    }).pipe(Effect.provide(kit))
  )

  it.effect("are at most a hundred of one tenant, also when they come at once", () =>
    Effect.gen(function* () {
      const results = yield* Effect.forEach(
        Array.from({ length: 105 }),
        () => Effect.exit(register("https://example.com/")),
        { concurrency: 5 }
      )
      assert.strictEqual(results.filter(Exit.isSuccess).length, 100)
      const registry = yield* CallbackRegistry
      const listed = yield* registry.list({ tenant: "acme", organizationId: undefined })
      assert.strictEqual(listed.length, 100)
      assert.deepStrictEqual(yield* registry.list({ tenant: "globex", organizationId: undefined }), [])
      assert.deepStrictEqual(yield* registry.list({ tenant: "acme", organizationId: "" }), [])
    }).pipe(Effect.provide(kit))
  )
})
