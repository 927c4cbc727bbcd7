import { Console, Data, Effect, Layer } from "effect"
import { Command } from "effect/cli"
import { Reseal } from "#services/security/Reseal.ts"
import { resealing } from "#src/app.ts"
import { logging } from "#src/commands/serve.ts"
import { Settings } from "#src/config.ts"

/** One line for the operator; the details are on standard output. */
class SomeUnreadable extends Data.TaggedError("SomeUnreadable")<{ readonly message: string }> {}

const rows = (count: number): string => `${count} ${count === 1 ? "row" : "rows"}`

export const reseal = Command.make(
  "reseal",
  {},
  Effect.fn(function* () {
    const settings = yield* Settings
    const reports = yield* Reseal.use(({ run }) => run).pipe(
      Effect.provide(resealing(settings).pipe(Layer.provide(logging(settings))))
    )
    let unreadable = 0
    for (const report of reports) {
      yield* Console.log(`${report.table}: ${rows(report.resealed)} sealed with the current key`)
      for (const [keyId, count] of report.unreadable) {
        unreadable += count
        yield* Console.log(`${report.table}: ${rows(count)} of key ${keyId} cannot be opened`)
      }
    }
    if (unreadable > 0) {
      const many = `${rows(unreadable)} cannot be opened`
      return yield* new SomeUnreadable({
        message: `${many}: put the keys that sealed them into GATEWAY_PREVIOUS_ENCRYPTION_KEYS and run this again`
      })
    }
    yield* Console.log("Nothing needs GATEWAY_PREVIOUS_ENCRYPTION_KEYS any more.")
  })
).pipe(
  Command.withDescription("Seal every stored secret with the current encryption key; exits with 1 where one cannot be"),
  Command.provide(Settings.layer)
)
