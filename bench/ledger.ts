/** What a call's limits cost on the hot path: reserve and settle on a key's budget, requests and tokens, nothing asked. */
import { Clock, Effect } from "effect"
import { limitOf, Window } from "#domain/limits.ts"
import { Shares } from "#layers/budgets/Shares.ts"

const rounds = 2_000_000
const now = Date.now()
const lasts = now * 2
const shares = new Shares({ enqueue: () => {}, leasesHold: (now) => now < lasts && performance.now() < lasts })
const limits = [
  limitOf("key", "0197a3f0-0000-7000-8000-000000000000", "budget", 10n ** 12n, Window.Lifetime()),
  limitOf("key", "0197a3f0-0000-7000-8000-000000000000", "requests", 10n ** 12n, Window.Minute()),
  limitOf("key", "0197a3f0-0000-7000-8000-000000000000", "tokens", 10n ** 12n, Window.Minute())
]
for (const limit of limits) {
  const share = shares.open(limit, now)
  share.amount = 2 ** 50
  share.end = Number.POSITIVE_INFINITY
}
const demand = { nanos: 12_000_000n, tokens: 4096 }
const actual = { nanos: 3_000_000n, tokens: 512 }
const clock = Clock.Clock.defaultValue()

const reserve = Effect.suspend(() => {
  const held = shares.hold(limits, demand, clock.currentTimeMillisUnsafe())
  return held === undefined ? Effect.die("refused") : Effect.succeed(held)
})

const refill = () => {
  for (const limit of limits) {
    const share = shares.find(limit)
    if (share !== undefined) share.taken = 0
  }
}

const measure = (name: string, run: () => void) => {
  for (let n = 0; n < 200_000; n++) run()
  refill()
  const began = performance.now()
  for (let n = 0; n < rounds; n++) {
    run()
    if (n % 10_000 === 0) refill()
  }
  console.log(`${name}: ${(((performance.now() - began) * 1000) / rounds).toFixed(3)} µs`)
}

measure("reserve + settle, arithmetic alone", () => {
  shares.hold(limits, demand, clock.currentTimeMillisUnsafe())?.settle(actual)
})
measure("reserve + settle, through Effect.runSync", () => {
  Effect.runSync(reserve).settle(actual)
})
measure("an empty Effect.runSync, to subtract", () => {
  Effect.runSync(Effect.void)
})
