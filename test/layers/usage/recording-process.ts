/**
 * A process that records outcomes as fast as it can until it is killed: `DATABASE_URL DIRECTORY WORKER ACKNOWLEDGED`. For
 * each confirmed outcome it appends the call's id to the file ACKNOWLEDGED, after the confirmation and before anything else.
 */
import { openSync, writeSync } from "node:fs"
import { Effect, Layer, Redacted, References } from "effect"
import * as DatabasePostgres from "#layers/storage/DatabasePostgres.ts"
import * as UsageLedgerPostgres from "#layers/usage/UsageLedgerPostgres.ts"
import { uuidv7 } from "#domain/ids.ts"
import { DatabaseServer } from "#services/storage/DatabaseServer.ts"
import { UsageLedger } from "#services/usage/UsageLedger.ts"
import { outcomeOf, underUsage } from "#test/support/usage.ts"

const [url = "", directory = "", worker = "", acknowledged = ""] = process.argv.slice(2)
const file = openSync(acknowledged, "a")
const keys = Array.from({ length: 5 }, () => uuidv7(Date.now()))

const caller = (index: number) =>
  Effect.gen(function* () {
    const usage = yield* UsageLedger
    for (let call = 0; ; call++) {
      const outcome = outcomeOf(keys[(index + call) % 5]!, BigInt(index * 1000 + call + 1), {
        tenant: call % 4 === 0 ? "acme" : ""
      })
      yield* usage.record(outcome)
      writeSync(file, `${outcome.callId}\n`)
      yield* Effect.sleep(1)
    }
  })

const stack = UsageLedgerPostgres.layer({ directory, worker, limitBytes: 64 * 1024 * 1024 }).pipe(
  Layer.provideMerge(underUsage(["acme"])),
  Layer.provideMerge(DatabasePostgres.layer({ poolSize: 4 })),
  Layer.provide(
    Layer.succeed(DatabaseServer, {
      url: Redacted.make(url),
      kind: "external" as const,
      state: Effect.succeed("ready" as const)
    })
  ),
  Layer.provide(Layer.succeed(References.MinimumLogLevel, "Error"))
)

await Effect.runPromise(
  Effect.gen(function* () {
    process.stdout.write("recording\n")
    yield* Effect.forEach(
      Array.from({ length: 40 }, (_, index) => index),
      caller,
      { concurrency: "unbounded", discard: true }
    )
  }).pipe(Effect.provide(stack))
)
