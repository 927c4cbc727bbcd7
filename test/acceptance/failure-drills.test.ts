/**
 * Failing upstreams on every wire, through a started gateway: each call ends in its documented error within its
 * deadline, is charged exactly for what was generated, and leaves neither a reservation nor a connection.
 */
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { openDatabase, registerModel, until } from "#test/support/acceptance.ts"
import { anthropic, bedrock, chat, messages } from "#test/support/drill-shapes.ts"
import { check, type Drill, heldBy, nameOf, play, type Played, prepare, type Stage } from "#test/support/drills.ts"
import { streamDrills } from "#test/support/drills-streams.ts"
import { wholeDrills } from "#test/support/drills-whole.ts"
import { startGateway } from "#test/support/Gateway.ts"
import { RawUpstream, whole } from "#test/support/RawUpstream.ts"

const drills = [
  ...wholeDrills.map((drill): Drill => ({ ...drill, stream: false })),
  ...streamDrills.map((drill): Drill => ({ ...drill, stream: true }))
]
const cases = [chat, anthropic, messages, bedrock].flatMap((shape) =>
  drills.filter(({ wires }) => wires?.includes(shape.name) ?? true).map((drill) => ({ shape, drill }))
)

/** So many drills at once: most of them wait most of the time. */
const atOnce = 16

describe("failing upstreams", () => {
  let stage: Stage
  const played = new Map<string, Promise<Played>>()

  beforeAll(async () => {
    const upstream = new RawUpstream()
    const database = await openDatabase()
    const gateway = await startGateway({ databaseUrl: database.url })
    stage = { gateway, database, upstream }
    await upstream.script("next", [[whole(chat.answer)]])
    await registerModel(gateway, "next", `${upstream.baseOf("next")}/v1`, {
      input_cost_per_token: 0,
      output_cost_per_token: 0
    })
    await Promise.all(cases.map(({ drill, shape }) => prepare(stage, shape, drill)))
    const { key } = await gateway.key()
    await until(
      () => gateway.request("GET", "/v1/models", { token: key }),
      ({ text }) => cases.every(({ drill, shape }) => text.includes(`"${nameOf(shape, drill)}"`))
    )
    let waiting = cases.map(({ drill, shape }) => {
      const { promise, resolve } = Promise.withResolvers<void>()
      const running = promise.then(() => play(stage, shape, drill))
      played.set(nameOf(shape, drill), running)
      return { resolve, running }
    })
    const next = (): void => {
      const [one, ...others] = waiting
      waiting = others
      one?.resolve()
      one?.running.then(next, next)
    }
    for (let index = 0; index < atOnce; index += 1) next()
  })

  afterAll(async () => {
    await stage.gateway.stop()
    await stage.database.close()
    stage.upstream.stop()
  })

  it.for(cases)("$shape.name, stream $drill.stream: $drill.name", async ({ drill, shape }) => {
    await check(stage, shape, drill, await played.get(nameOf(shape, drill))!)
  })

  it("leaves no reservation and no connection in use", async () => {
    const keyIds = (await Promise.all(played.values())).map(({ keyId }) => keyId)
    const { logged, spent } = await until(
      () => heldBy(stage, keyIds),
      ({ leased }) => leased === "0",
      8_000
    )
    assert.strictEqual(spent, logged)
    assert.isAbove(Number(spent), 0)
    assert.deepStrictEqual(
      stage.upstream.requests.filter(({ outcome }) => outcome === "open"),
      []
    )
    await stage.gateway.stop()
    await until(
      () => Promise.resolve(stage.upstream.openSockets),
      (open) => open === 0,
      2_000
    )
  })
})
