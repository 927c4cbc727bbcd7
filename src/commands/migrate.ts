import { Console, Effect, Layer } from "effect"
import { Command } from "effect/cli"
import { database, databaseBeside } from "#src/app.ts"
import { logging } from "#src/commands/serve.ts"
import { checkDataDir, namingDatabase } from "#src/commands/start-checks.ts"
import { Settings } from "#src/config.ts"

export const migrate = Command.make(
  "migrate",
  {},
  Effect.fn(function* () {
    const settings = yield* Settings
    // Building the database's layer is what migrates.
    yield* checkDataDir(settings)
    yield* Layer.build(
      database(settings).pipe(Layer.provide(databaseBeside(settings)), Layer.provide(logging(settings)))
    ).pipe(Effect.mapError(namingDatabase(settings)))
    yield* Console.log("The database is up to date.")
  }, Effect.scoped)
).pipe(Command.withDescription("Bring the database up to date and exit"), Command.provide(Settings.layer))
