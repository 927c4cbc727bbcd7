import { assert, describe, it } from "@effect/vitest"
import { Clock, Context, Deferred, Effect, Fiber, Layer, Schedule } from "effect"
import { TestClock } from "effect/testing"
import { SqlClient, SqlError } from "effect/sql"
import type { GatewayError } from "#domain/errors.ts"
import { newApiKey } from "#domain/ids.ts"
import type { KeyFilter } from "#domain/keys.ts"
import * as KeyStorePostgres from "#layers/keys/KeyStorePostgres.ts"
import { KEYS_CHANNEL } from "#layers/keys/PolicyChange.ts"
import { CurrentRequestId } from "#services/identity/CurrentRequestId.ts"
import { KeyStore } from "#services/keys/KeyStore.ts"
import { Provenance } from "#services/provenance/Provenance.ts"
import { ChangeFeed } from "#services/storage/ChangeFeed.ts"
import { databaseGate } from "#test/support/DatabaseGate.ts"
import { dormantTenants, draft, everything, keyProcess, processOn } from "#test/support/keys.ts"
import { freshDatabase } from "#test/support/Postgres.ts"

type Kept = KeyStore | SqlClient.SqlClient | Provenance | ChangeFeed

const start = (...args: Parameters<typeof keyProcess>) =>
  Effect.map(Layer.build(keyProcess(...args)), (context: Context.Context<Kept>) => ({
    keys: Context.get(context, KeyStore),
    sql: Context.get(context, SqlClient.SqlClient),
    feed: Context.get(context, ChangeFeed)
  }))

const oneProcess = Effect.flatMap(freshDatabase(), (url) => start(url))

const twoProcesses = Effect.gen(function* () {
  const url = yield* freshDatabase()
  return { here: yield* start(url), there: yield* start(url) }
})

/** Tries again until it holds, at most two seconds of real time; how long that took, in milliseconds. */
const eventually = <E>(check: Effect.Effect<boolean, E>) =>
  Effect.gen(function* () {
    const began = performance.now()
    yield* Effect.filterOrFail(
      check,
      (holds) => holds,
      () => "not yet"
    ).pipe(Effect.retry(Schedule.spaced("5 millis").pipe(Schedule.upTo({ duration: "2 seconds" }))))
    return performance.now() - began
  }).pipe(Effect.provideService(Clock.Clock, Clock.Clock.defaultValue()))

const isRefused = (keys: KeyStore["Service"], token: string) =>
  keys.authenticate(token).pipe(
    Effect.as(false),
    Effect.catchTag("Unauthenticated", () => Effect.succeed(keys.known(token) === undefined))
  )

const failure = <A>(effect: Effect.Effect<A, GatewayError>) => Effect.flip(effect)

describe("KeyStorePostgres", () => {
  it.effect("issues keys that authenticate, and stores no token anywhere", () =>
    Effect.gen(function* () {
      const { keys, sql } = yield* oneProcess
      const { key, plaintext } = yield* keys
        .generate({
          ...draft,
          keyName: "ci",
          userId: "u1",
          teamId: "t1",
          maxBudget: 1_500_000_000n,
          models: ["m1", "m2"],
          rpmLimit: 10,
          tpmLimit: 1000,
          metadata: { a: [1, null, "x"] }
        })
        .pipe(Effect.provideService(CurrentRequestId, "req-12345678"))
      assert.match(plaintext, /^sk-[A-Za-z0-9_-]{43}$/)
      assert.isUndefined(keys.known(plaintext))
      const policy = yield* keys.authenticate(plaintext)
      assert.strictEqual(keys.known(plaintext), policy)
      assert.strictEqual(policy.id, key.id)
      assert.deepStrictEqual([...(policy.models ?? [])], ["m1", "m2"])
      assert.deepStrictEqual(
        policy.limits.map(({ account, limit }) => [account, limit]),
        [
          [`budget:key:${key.id}`, 1_500_000_000n],
          [`requests:key:${key.id}`, 10n],
          [`tokens:key:${key.id}`, 1000n]
        ]
      )
      assert.deepStrictEqual(yield* keys.find({ token: plaintext }, everything), key)
      assert.deepStrictEqual(key.metadata, { a: [1, null, "x"] })
      const regenerated = yield* keys.regenerate({ id: key.id }, everything, "master_key")
      const stored = yield* sql<{ row: string }>`
        SELECT to_jsonb(k)::text AS row FROM api_keys k UNION ALL SELECT to_jsonb(p)::text FROM provenance_entries p`
      assert.strictEqual(stored.length, 3)
      for (const secret of [plaintext, regenerated.plaintext]) {
        for (const { row } of stored) {
          assert.notInclude(row, secret.slice(3))
          assert.notInclude(row, Buffer.from(secret).toString("hex"))
        }
      }
      assert.include(stored.map(({ row }) => row).join(), "req-12345678")
    })
  )

  it.effect("refuses unknown, malformed, blocked, expired, discarded and former tokens alike, at once", () =>
    Effect.gen(function* () {
      const { keys } = yield* oneProcess
      const refused = Effect.fnUntraced(function* (token: string) {
        const error = yield* failure(keys.authenticate(token))
        assert.deepStrictEqual(
          [error.status, error.code, error.message, keys.known(token)],
          [401, "invalid_session", "API key is invalid or expired.", undefined]
        )
      })
      for (const token of ["", "sk-", "sk-short", `${newApiKey()}=`, newApiKey(), `sk-${"é".repeat(43)}`]) {
        yield* refused(token)
      }
      const make = Effect.tap(keys.generate(draft), ({ plaintext }) => keys.authenticate(plaintext))
      const blocked = yield* make
      yield* keys.setBlocked({ token: blocked.plaintext }, true, everything, "a")
      yield* refused(blocked.plaintext)
      assert.isTrue((yield* keys.find({ id: blocked.key.id }, everything)).blocked)
      yield* keys.setBlocked({ id: blocked.key.id }, false, everything, "a")
      yield* keys.authenticate(blocked.plaintext)
      const former = yield* make
      const { plaintext } = yield* keys.regenerate({ id: former.key.id }, everything, "a")
      yield* refused(former.plaintext)
      yield* keys.authenticate(plaintext)
      const discarded = yield* make
      assert.deepStrictEqual(yield* keys.discard([{ id: discarded.key.id }], everything, "a"), [discarded.key.id])
      yield* refused(discarded.plaintext)
      const mortal = yield* make
      yield* keys.update({ id: mortal.key.id }, { expires: 60_000, actor: "a" }, everything)
      yield* TestClock.adjust("59999 millis")
      yield* keys.authenticate(mortal.plaintext)
      assert.isDefined(keys.known(mortal.plaintext))
      yield* TestClock.adjust("1 millis")
      yield* refused(mortal.plaintext)
      yield* keys.update({ id: mortal.key.id }, { expires: null, actor: "a" }, everything)
      yield* keys.authenticate(mortal.plaintext)
    })
  )

  it.effect("another process refuses within a second what this one blocks, discards, regenerates or lets expire", () =>
    Effect.gen(function* () {
      const { here, there } = yield* twoProcesses
      const times: Array<number> = []
      const withdrawals: ReadonlyArray<(id: string) => Effect.Effect<unknown, GatewayError>> = [
        (id) => here.keys.setBlocked({ id }, true, everything, "a"),
        (id) => here.keys.discard([{ id }], everything, "a"),
        (id) => here.keys.regenerate({ id }, everything, "a"),
        (id) => here.keys.update({ id }, { expires: 0, actor: "a" }, everything)
      ]
      for (const withdraw of withdrawals) {
        const { key, plaintext } = yield* here.keys.generate(draft)
        yield* here.keys.authenticate(plaintext)
        yield* there.keys.authenticate(plaintext)
        yield* withdraw(key.id)
        assert.isUndefined(here.keys.known(plaintext))
        times.push(yield* eventually(isRefused(there.keys, plaintext)))
      }
      const { key, plaintext } = yield* here.keys.generate(draft)
      yield* here.keys.setBlocked({ id: key.id }, true, everything, "a")
      assert.isTrue(yield* isRefused(there.keys, plaintext))
      yield* here.keys.setBlocked({ id: key.id }, false, everything, "a")
      times.push(yield* eventually(Effect.map(isRefused(there.keys, plaintext), (refused) => !refused)))
      assert.isBelow(Math.max(...times), 1000)
      console.log(`refused elsewhere after ${times.map((time) => time.toFixed(1)).join(", ")} ms`)
    })
  )

  it.effect("a change is served at once here and soon elsewhere, and an owner's too", () =>
    Effect.gen(function* () {
      const { here, there } = yield* twoProcesses
      const { key, plaintext } = yield* here.keys.generate({ ...draft, teamId: "t1" })
      const before = yield* here.keys.authenticate(plaintext)
      yield* there.keys.authenticate(plaintext)
      yield* here.keys.update({ id: key.id }, { rpmLimit: 7, models: ["m"], actor: "a" }, everything)
      const after = yield* here.keys.authenticate(plaintext)
      assert.deepStrictEqual([before.limits.length, after.limits[0]?.limit], [0, 7n])
      yield* eventually(
        Effect.map(
          there.keys.authenticate(plaintext),
          ({ limits, models }) => limits.length === 1 && models?.size === 1
        )
      )
      yield* there.keys.authenticate(plaintext)
      // Its own notification of the update may reach this process late, and drop the key once more.
      yield* eventually(
        Effect.gen(function* () {
          yield* here.keys.authenticate(plaintext)
          yield* Effect.ignore(
            here.sql.withTransaction(Effect.andThen(here.keys.ownerChanged("team", "t1"), Effect.fail("rolled back")))
          )
          return here.keys.known(plaintext) !== undefined
        })
      )
      yield* here.sql.withTransaction(here.keys.ownerChanged("team", "t1"))
      assert.isUndefined(here.keys.known(plaintext))
      yield* eventually(Effect.sync(() => there.keys.known(plaintext) === undefined))
    })
  )

  it.live("a look-up that was under way when the key was blocked does not bring it back", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const gate = yield* databaseGate(url)
      const here = yield* start(url)
      const there = yield* start(gate.url, url)
      const { key, plaintext } = yield* here.keys.generate(draft)
      yield* there.sql`SELECT 1`
      gate.hold()
      const reading = yield* Effect.forkChild(Effect.exit(there.keys.authenticate(plaintext)))
      yield* gate.heldAnswer
      const heard = yield* Deferred.make<void>()
      yield* there.feed.subscribe(KEYS_CHANNEL, () => Deferred.doneUnsafe(heard, Effect.void))
      yield* here.keys.setBlocked({ id: key.id }, true, everything, "a")
      yield* Deferred.await(heard)
      gate.release()
      yield* Fiber.join(reading)
      assert.isUndefined(there.keys.known(plaintext))
      assert.isTrue(yield* isRefused(there.keys, plaintext))
    })
  )

  it.live(
    "while the database is away, known keys are served and unknown ones are 503; nothing missed stays trusted",
    () =>
      Effect.gen(function* () {
        const url = yield* freshDatabase()
        const gate = yield* databaseGate(url)
        const here = yield* start(url)
        const there = yield* start(gate.url)
        const kept = yield* here.keys.generate(draft)
        const withdrawn = yield* here.keys.generate(draft)
        for (const { plaintext } of [kept, withdrawn]) yield* there.keys.authenticate(plaintext)
        gate.cut()
        for (const { plaintext } of [kept, withdrawn]) {
          assert.isDefined(there.keys.known(plaintext))
          yield* there.keys.authenticate(plaintext)
        }
        const unknown = yield* failure(there.keys.authenticate(newApiKey()))
        assert.strictEqual(unknown.code, "database_unavailable")
        assert.strictEqual((yield* failure(there.keys.authenticate("sk-malformed"))).status, 401)
        assert.strictEqual(
          (yield* failure(there.keys.find({ id: kept.key.id }, everything))).code,
          "database_unavailable"
        )
        assert.strictEqual(
          (yield* failure(there.keys.setBlocked({ id: kept.key.id }, true, everything, "a"))).code,
          "database_unavailable"
        )
        yield* here.keys.setBlocked({ id: withdrawn.key.id }, true, everything, "a")
        gate.restore()
        const took = yield* eventually(isRefused(there.keys, withdrawn.plaintext))
        console.log(`refused ${took.toFixed(0)} ms after the database was back`)
        yield* there.keys.authenticate(kept.plaintext)
        assert.isDefined(there.keys.known(kept.plaintext))
      })
  )

  it.effect("reads a policy again in the background a minute after it was read", () =>
    Effect.gen(function* () {
      const { keys, sql } = yield* oneProcess
      const { key, plaintext } = yield* keys.generate(draft)
      const policy = yield* keys.authenticate(plaintext)
      yield* sql`UPDATE api_keys SET blocked = true WHERE id = ${key.id}::uuid`
      yield* TestClock.adjust("60 seconds")
      assert.strictEqual(keys.known(plaintext), policy)
      yield* TestClock.withLive(Effect.sleep("50 millis"))
      assert.strictEqual(keys.known(plaintext), policy)
      yield* TestClock.adjust("1 millis")
      assert.strictEqual(keys.known(plaintext), policy)
      yield* eventually(Effect.sync(() => keys.known(plaintext) === undefined))
    })
  )

  it.effect("keeps the same policy when a refresh finds nothing new", () =>
    Effect.gen(function* () {
      const { keys } = yield* oneProcess
      const { plaintext } = yield* keys.generate({ ...draft, models: ["m"] })
      const policy = yield* keys.authenticate(plaintext)
      yield* TestClock.adjust("61 seconds")
      assert.strictEqual(keys.known(plaintext), policy)
      yield* TestClock.withLive(Effect.sleep("50 millis"))
      assert.strictEqual(keys.known(plaintext), policy)
    })
  )

  it.effect("shows and changes no row outside the caller's scope", () =>
    Effect.gen(function* () {
      const { keys } = yield* oneProcess
      const { key, plaintext } = yield* keys.generate({
        ...draft,
        tenant: "acme",
        organizationId: "o1",
        keyAlias: "al"
      })
      const foreign = [
        { tenant: "other", organizationId: undefined },
        { tenant: "", organizationId: undefined },
        { tenant: "acme", organizationId: "o2" },
        { tenant: "acme", organizationId: "" }
      ]
      for (const scope of foreign) {
        for (const target of [{ id: key.id }, { token: plaintext }, { alias: "al" }]) {
          const attempts: ReadonlyArray<Effect.Effect<unknown, GatewayError>> = [
            keys.find(target, scope),
            keys.update(target, { keyName: "x", actor: "a" }, scope),
            keys.setBlocked(target, true, scope, "a"),
            keys.regenerate(target, scope, "a")
          ]
          for (const attempt of attempts) assert.strictEqual((yield* Effect.flip(attempt)).code, "resource_not_found")
          assert.deepStrictEqual(yield* keys.discard([target], scope, "a"), [])
        }
        assert.deepStrictEqual(yield* keys.list({ page: 1, pageSize: 10 }, scope), { keys: [], total: 0 })
      }
      const own = { tenant: "acme", organizationId: "o1" }
      assert.deepStrictEqual(yield* keys.find({ alias: "al" }, own), key)
      assert.strictEqual((yield* keys.list({ page: 1, pageSize: 10 }, own)).total, 1)
      for (const absent of [{ id: "x" }, { id: "" }, { token: "x" }, {}]) {
        assert.strictEqual((yield* failure(keys.find(absent, everything))).code, "resource_not_found")
      }
    })
  )

  it.effect("lists newest first, by page, filter and literal search", () =>
    Effect.gen(function* () {
      const { keys } = yield* oneProcess
      const names = ["100%", "100x", "a_b", "aXb", "back\\slash", "o'neil", "Ünïcode"]
      for (const [index, keyName] of names.entries()) {
        yield* keys.generate({ ...draft, keyName, userId: `u${index % 2}`, teamId: "t", keyAlias: `al-${index}` })
        yield* TestClock.adjust("1 second")
      }
      const listed = (filter: Partial<KeyFilter>) =>
        Effect.map(keys.list({ page: 1, pageSize: 100, ...filter }, everything), ({ keys, total }) => ({
          names: keys.map(({ keyName }) => keyName),
          total
        }))
      assert.deepStrictEqual(yield* listed({}), { names: names.toReversed(), total: 7 })
      assert.deepStrictEqual(yield* listed({ page: 2, pageSize: 3 }), { names: ["aXb", "a_b", "100x"], total: 7 })
      assert.deepStrictEqual(yield* listed({ page: 9, pageSize: 3 }), { names: [], total: 7 })
      assert.deepStrictEqual((yield* listed({ userId: "u1" })).total, 3)
      assert.deepStrictEqual((yield* listed({ teamId: "t", organizationId: "none" })).total, 0)
      const searches: ReadonlyArray<readonly [string, ReadonlyArray<string>]> = [
        ["0%", ["100%"]],
        ["A_B", ["a_b"]],
        ["\\s", ["back\\slash"]],
        ["'", ["o'neil"]],
        ["ünï", ["Ünïcode"]],
        ["al-3", ["aXb"]],
        ["%", ["100%"]],
        ["u0", ["100%", "a_b", "back\\slash", "Ünïcode"].toReversed()],
        ["\\", ["back\\slash"]],
        ["x'; DROP TABLE api_keys; --", []]
      ]
      for (const [search, found] of searches) {
        assert.deepStrictEqual(
          yield* listed({ search }),
          { names: found as Array<string>, total: found.length },
          search
        )
      }
    })
  )

  it.effect("discards by token, id and alias; a discarded key is gone for every operation", () =>
    Effect.gen(function* () {
      const { keys } = yield* oneProcess
      const made = yield* Effect.forEach(["a", "b", "c", "c", "d"], (keyAlias) => keys.generate({ ...draft, keyAlias }))
      const ids = yield* keys.discard(
        [
          { token: made[0]!.plaintext },
          { id: made[1]!.key.id },
          { id: made[1]!.key.id },
          { alias: "c" },
          { alias: "no such" },
          { id: "not an id" },
          { token: "sk-nothing" }
        ],
        everything,
        "a"
      )
      assert.deepStrictEqual(
        [...ids].sort(),
        made
          .slice(0, 4)
          .map(({ key }) => key.id)
          .sort()
      )
      assert.deepStrictEqual(yield* keys.discard([{ alias: "c" }], everything, "a"), [])
      assert.strictEqual((yield* failure(keys.find({ id: made[0]!.key.id }, everything))).status, 404)
      assert.strictEqual((yield* keys.list({ page: 1, pageSize: 10 }, everything)).total, 1)
    })
  )

  it.effect("writes an audit entry with each change, in the same transaction", () =>
    Effect.gen(function* () {
      const { keys, sql } = yield* oneProcess
      const { key, plaintext } = yield* keys.generate({ ...draft, keyName: "n", actor: "user:ada" })
      yield* keys.update({ id: key.id }, { maxBudget: 5n, metadata: { secret: "s" }, actor: "user:bob" }, everything)
      yield* keys.setBlocked({ id: key.id }, true, everything, "user:bob")
      yield* keys.setBlocked({ id: key.id }, false, everything, "user:bob")
      yield* keys.regenerate({ token: plaintext }, everything, "user:bob")
      yield* keys.discard([{ id: key.id }], everything, "user:eve")
      const entries = yield* sql<{ action: string; actor: string; resource_id: string; payload: unknown }>`
        SELECT action, actor, resource_id, payload FROM provenance_entries ORDER BY sequence_number`
      assert.deepStrictEqual(
        entries.map(({ action, actor }) => `${action} ${actor}`),
        [
          "key.created user:ada",
          "key.updated user:bob",
          "key.blocked user:bob",
          "key.unblocked user:bob",
          "key.regenerated user:bob",
          "key.deleted user:eve"
        ]
      )
      assert.isTrue(entries.every(({ resource_id }) => resource_id === key.id))
      assert.deepStrictEqual(entries[1]?.payload, { changed: { max_budget: "0.000000005", metadata: "replaced" } })
    })
  )

  it.effect("refuses a blocked key where only the feed's connection has fallen silent", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const gate = yield* databaseGate(url)
      const here = yield* start(url)
      const there = yield* start(url, gate.url)
      const { key, plaintext } = yield* here.keys.generate(draft)
      yield* there.keys.authenticate(plaintext)
      gate.silence()
      yield* here.keys.setBlocked({ id: key.id }, true, everything, "a")
      // A second is promised; this machine may be busy.
      assert.isBelow(yield* eventually(isRefused(there.keys, plaintext)), 1_500)
    })
  )

  it.effect("makes no key, and withdraws none, that it cannot audit", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase()
      const { keys: audited, sql } = yield* start(url)
      const { key, plaintext } = yield* audited.generate(draft)
      const broken = new SqlError.SqlError({
        reason: new SqlError.ConnectionError({ cause: new Error("gone"), message: "gone", operation: "query" })
      })
      const context = yield* Layer.build(
        KeyStorePostgres.layer().pipe(
          Layer.provide([dormantTenants, Layer.mock(Provenance, { append: () => Effect.fail(broken) })]),
          Layer.provide(processOn(url))
        )
      )
      const keys = Context.get(context, KeyStore)
      yield* keys.authenticate(plaintext)
      assert.strictEqual((yield* failure(keys.generate(draft))).code, "database_unavailable")
      assert.strictEqual(
        (yield* failure(keys.setBlocked({ id: key.id }, true, everything, "a"))).code,
        "database_unavailable"
      )
      assert.strictEqual((yield* sql`SELECT 1 FROM api_keys WHERE NOT blocked`).length, 1)
      yield* keys.authenticate(plaintext)
    })
  )
})
