import { assert, describe, it } from "@effect/vitest"
import { Clock, Deferred, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { SqlError } from "effect/sql"
import { newApiKey, uuidv7 } from "#domain/ids.ts"
import { type PolicyRow, tokenDigest, tokenHash } from "#layers/keys/KeyRows.ts"
import { PolicyCache } from "#layers/keys/PolicyCache.ts"
import { changeText, parseChange, PolicyChange } from "#layers/keys/PolicyChange.ts"
import { PolicyReader } from "#layers/keys/PolicyReader.ts"

const rowOf = (token: string, over: Partial<PolicyRow> = {}): PolicyRow => ({
  id: uuidv7(0),
  tenant: "",
  token_hash: tokenHash(token),
  budget_id: null,
  refused: false,
  chain_organization_id: null,
  owners: [],
  token_hint: "",
  key_name: null,
  key_alias: null,
  user_id: null,
  team_id: null,
  organization_id: null,
  max_budget: null,
  models: [],
  rpm_limit: null,
  tpm_limit: null,
  expires: null,
  metadata: {},
  blocked: false,
  created_by: "",
  created_at: new Date(0),
  updated_at: new Date(0),
  ...over
})

const away = new SqlError.SqlError({
  reason: new SqlError.ConnectionError({ cause: new Error("gone"), message: "gone", operation: "query" })
})

/** A reader over a table that the test holds, which answers each statement when the test says so. */
const fixture = Effect.gen(function* () {
  const clock = yield* Clock.Clock
  const table = new Map<string, PolicyRow>()
  const statements: Array<ReadonlyArray<string>> = []
  let gate: Effect.Effect<void, SqlError.SqlError> = Effect.void
  const cache = new PolicyCache({ capacity: 1000, refusals: 100 })
  const reader = yield* PolicyReader.make({
    cache,
    now: () => clock.currentTimeMillisUnsafe(),
    timeout: "5 seconds",
    select: (digests) =>
      Effect.suspend(() => {
        statements.push(digests)
        const rows = digests.flatMap((digest) => table.get(digest) ?? [])
        return Effect.as(gate, rows)
      })
  })
  return {
    cache,
    reader,
    statements,
    put: (token: string, over?: Partial<PolicyRow>) => {
      const row = rowOf(token, over)
      table.set(tokenDigest(token), row)
      return row
    },
    setGate: (next: typeof gate) => {
      gate = next
    }
  }
})

describe("PolicyReader", () => {
  it.effect("asks once for one token and together for many, however many wait", () =>
    Effect.gen(function* () {
      const { put, reader, setGate, statements } = yield* fixture
      const good = newApiKey()
      put(good)
      const opened = yield* Deferred.make<void>()
      setGate(Deferred.await(opened))
      const first = yield* Effect.forkChild(reader.read(tokenDigest(good)))
      while (statements.length === 0) yield* Effect.yieldNow
      const flood = Array.from({ length: 2000 }, newApiKey)
      const others = yield* Effect.forEach(flood, (token) =>
        Effect.forkChild(Effect.exit(reader.read(tokenDigest(token))))
      )
      const again = yield* Effect.forEach(Array.from({ length: 100 }), () =>
        Effect.forkChild(reader.read(tokenDigest(good)))
      )
      yield* Deferred.succeed(opened, undefined)
      const policy = yield* Fiber.join(first)
      for (const fiber of again) assert.strictEqual(yield* Fiber.join(fiber), policy)
      for (const fiber of others) assert.strictEqual((yield* Fiber.join(fiber))._tag, "Failure")
      assert.isAtMost(statements.length, 6)
      assert.strictEqual(statements.flat().filter((digest) => digest === tokenDigest(good)).length, 1)
    })
  )

  it.effect("bounds what waits", () =>
    Effect.gen(function* () {
      const { reader, setGate } = yield* fixture
      setGate(Effect.never)
      const flood = Array.from({ length: 11_000 }, newApiKey)
      const fibers = yield* Effect.forEach(flood, (token) => Effect.forkChild(reader.read(tokenDigest(token))))
      yield* Effect.yieldNow
      const last = yield* Effect.flip(Fiber.join(fibers.at(-1)!))
      assert.strictEqual(last.code, "overloaded")
    })
  )

  it.effect("keeps nothing of a row that changed while it was being read", () =>
    Effect.gen(function* () {
      const { cache, put, reader, setGate, statements } = yield* fixture
      const token = newApiKey()
      const row = put(token)
      const opened = yield* Deferred.make<void>()
      setGate(Deferred.await(opened))
      const reading = yield* Effect.forkChild(Effect.flip(reader.read(tokenDigest(token))))
      while (statements.length === 0) yield* Effect.yieldNow
      put(token, { id: row.id, blocked: true })
      reader.apply(PolicyChange.Key({ id: row.id }))
      yield* Deferred.succeed(opened, undefined)
      assert.strictEqual((yield* Fiber.join(reading)).status, 401)
      assert.strictEqual(statements.length, 2)
      assert.isUndefined(cache.find(token))
    })
  )

  it.effect("keeps nothing of a row whose owner changed while it was being read, and does not go on for ever", () =>
    Effect.gen(function* () {
      const { cache, put, reader, setGate, statements } = yield* fixture
      const token = newApiKey()
      put(token, { team_id: "t" })
      setGate(Effect.sync(() => reader.apply(PolicyChange.Owner({ owner: "team", id: "t" }))))
      const error = yield* Effect.flip(reader.read(tokenDigest(token)))
      assert.strictEqual(error.status, 503)
      assert.isAtMost(statements.length, 12)
      assert.isUndefined(cache.find(token))
      setGate(Effect.sync(() => reader.apply(PolicyChange.Owner({ owner: "team", id: "other" }))))
      yield* reader.read(tokenDigest(token))
      assert.isDefined(cache.find(token))
    })
  )

  it.effect("an answer from before a doubt does not end the doubt", () =>
    Effect.gen(function* () {
      const { cache, put, reader, setGate } = yield* fixture
      const token = newApiKey()
      put(token)
      setGate(Effect.sync(() => reader.doubtAll()))
      yield* reader.read(tokenDigest(token))
      assert.isFalse(reader.mayServe(cache.find(token)!))
      setGate(Effect.void)
      yield* reader.read(tokenDigest(token))
      assert.isTrue(reader.mayServe(cache.find(token)!))
    })
  )

  it.effect("serves what it knew while nobody answers, and says 503 for the rest", () =>
    Effect.gen(function* () {
      const { cache, put, reader, setGate } = yield* fixture
      const token = newApiKey()
      put(token)
      const policy = yield* reader.read(tokenDigest(token))
      reader.doubtAll()
      setGate(Effect.fail(away))
      assert.isFalse(reader.mayServe(cache.find(token)!))
      assert.strictEqual(yield* reader.read(tokenDigest(token)), policy)
      assert.isTrue(reader.mayServe(cache.find(token)!))
      assert.strictEqual((yield* Effect.flip(reader.read(tokenDigest(newApiKey())))).code, "database_unavailable")
      yield* TestClock.adjust("2 seconds")
      assert.isFalse(reader.mayServe(cache.find(token)!))
    })
  )

  it.effect("survives a statement that dies", () =>
    Effect.gen(function* () {
      const { put, reader, setGate } = yield* fixture
      const token = newApiKey()
      put(token)
      setGate(Effect.die(new Error("bug")))
      assert.strictEqual((yield* Effect.flip(reader.read(tokenDigest(token)))).status, 503)
      setGate(Effect.void)
      yield* reader.read(tokenDigest(token))
    })
  )
})

describe("PolicyCache", () => {
  const entryOf = (token: string, id: string) => ({
    digest: tokenDigest(token),
    fingerprint: "",
    checkedAt: 0,
    epoch: 0,
    policy: {
      id,
      tenant: "",
      keyName: null,
      keyAlias: null,
      userId: "u",
      teamId: "t",
      organizationId: null,
      models: undefined,
      expiresAt: undefined,
      limits: []
    }
  })

  it("holds one token of a key and forgets by key, owner and altogether", () => {
    const cache = new PolicyCache({ capacity: 10, refusals: 10 })
    const [former, present, other] = [newApiKey(), newApiKey(), newApiKey()]
    cache.set(entryOf(former, "k1"))
    cache.set(entryOf(present, "k1"))
    cache.set(entryOf(other, "k2"))
    assert.isUndefined(cache.find(former))
    cache.apply(PolicyChange.Key({ id: "k1" }))
    assert.isUndefined(cache.find(present))
    assert.isDefined(cache.find(other))
    cache.apply(PolicyChange.Owner({ owner: "user", id: "x" }))
    assert.isDefined(cache.find(other))
    cache.apply(PolicyChange.Owner({ owner: "team", id: "t" }))
    assert.isUndefined(cache.find(other))
    cache.set(entryOf(other, "k2"))
    cache.apply(PolicyChange.Everything())
    assert.strictEqual(cache.size, 0)
  })

  it("is bounded, and drops the least lately set", () => {
    const cache = new PolicyCache({ capacity: 3, refusals: 2 })
    const tokens = Array.from({ length: 4 }, newApiKey)
    tokens.slice(0, 3).forEach((token, index) => cache.set(entryOf(token, String(index))))
    cache.set(entryOf(tokens[0]!, "0"))
    cache.set(entryOf(tokens[3]!, "3"))
    assert.isDefined(cache.find(tokens[0]!))
    assert.isUndefined(cache.find(tokens[1]!))
    for (const token of tokens) cache.refuse(tokenDigest(token), { until: 10, keyId: undefined })
    assert.deepStrictEqual(
      tokens.map((token) => cache.isRefused(tokenDigest(token), 9)),
      [false, false, true, true]
    )
    assert.isFalse(cache.isRefused(tokenDigest(tokens[3]!), 10))
  })

  it("reads its own notifications, and anything else as everything", () => {
    for (const change of [
      PolicyChange.Key({ id: "a" }),
      PolicyChange.Owner({ owner: "organization", id: "x:y" }),
      PolicyChange.Everything()
    ]) {
      assert.deepStrictEqual(parseChange(changeText(change)), change)
    }
    for (const text of ["", "?", "budget:1", ":"]) assert.strictEqual(parseChange(text)._tag, "Everything")
  })
})
