import { Effect, Exit, Redacted, References, Scope } from "effect"
import { lockDataDir } from "#layers/storage/DataDirLock.ts"
import * as EmbeddedPostgres from "#layers/storage/EmbeddedPostgres.ts"

const [dataDir = "", mode] = process.argv.slice(2)
const scope = Scope.makeUnsafe()

const program =
  mode === "lock"
    ? Effect.as(lockDataDir(dataDir), "")
    : Effect.map(EmbeddedPostgres.make({ dataDir }), (server) => Redacted.value(server.url))

const said = await Effect.runPromise(
  program.pipe(
    Effect.match({ onSuccess: (url) => ({ url }), onFailure: ({ message }) => ({ error: message }) }),
    Scope.provide(scope),
    Effect.provideService(References.MinimumLogLevel, "None")
  )
)
const stay = setInterval(() => {}, 60_000)
process.once("SIGTERM", () => {
  void Effect.runPromise(Scope.close(scope, Exit.void)).then(() => clearInterval(stay))
})
console.log(JSON.stringify(said))
if ("error" in said) clearInterval(stay)
