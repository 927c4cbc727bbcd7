import { Console, Data, Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { publicTenant } from "#domain/principal.ts"
import { Provenance } from "#services/provenance/Provenance.ts"
import { Tenants } from "#services/tenants/Tenants.ts"
import { provenanceOf } from "#src/app.ts"
import { Settings } from "#src/config.ts"

/** One line for the operator; the details are on standard output. */
class ChainBroken extends Data.TaggedError("ChainBroken")<{ readonly message: string }> {}

const nameOf = (tenant: string): string => (tenant === publicTenant ? "(public)" : tenant)

const verify = Command.make(
  "verify",
  {
    tenant: Flag.String("tenant").pipe(
      Flag.withDescription("Only this tenant's chain; by default every tenant's and the public scope's"),
      Flag.optional
    )
  },
  Effect.fn(function* ({ tenant }) {
    const settings = yield* Settings
    const check = Effect.gen(function* () {
      const tenants = yield* Tenants
      const provenance = yield* Provenance
      const all = [publicTenant, ...tenants.slugs]
      const asked = Option.match(tenant, { onNone: () => all, onSome: (slug) => [slug] })
      const unknown = asked.find((slug) => !all.includes(slug))
      if (unknown !== undefined) {
        return yield* new ChainBroken({ message: `--tenant: '${unknown}' is not one of GATEWAY_TENANTS` })
      }
      const broken: Array<string> = []
      for (const slug of asked) {
        const report = yield* provenance.verify(slug)
        if (report.broken === undefined) {
          yield* Console.log(`${nameOf(slug)}: ${report.entries} entries, intact`)
          continue
        }
        const { sequenceNumber, why } = report.broken
        broken.push(nameOf(slug))
        yield* Console.log(
          `${nameOf(slug)}: entry ${sequenceNumber} is ${why}; the ${report.entries} entries before it are intact`
        )
      }
      if (broken.length > 0) {
        return yield* new ChainBroken({ message: `The provenance chain is broken: ${broken.join(", ")}` })
      }
    })
    yield* check.pipe(Effect.provide(provenanceOf(settings)))
  }, Effect.scoped)
).pipe(
  Command.withDescription("Walk the hash chain of what happened; exits with 1 where an entry is missing or changed"),
  Command.provide(Settings.layer)
)

export const provenance = Command.make("provenance").pipe(
  Command.withDescription("The audit chain"),
  Command.withSubcommands([verify])
)
