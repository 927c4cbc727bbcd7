import { Console, Duration, Effect, Option, Redacted } from "effect"
import { Command, Flag } from "effect/cli"
import { administratorRoles } from "#domain/principal.ts"
import { AdministratorTokens } from "#services/identity/AdministratorTokens.ts"
import { administratorTokens } from "#src/app.ts"
import { Settings } from "#src/config.ts"

const mint = Command.make(
  "mint",
  {
    sub: Flag.String("sub").pipe(Flag.withDescription("The subject: the actor is user:<sub>")),
    class: Flag.Literals("class", ["control_plane", "tenant"]).pipe(Flag.withDefault("tenant")),
    role: Flag.Literals("role", administratorRoles),
    tenant: Flag.String("tenant").pipe(Flag.withDefault("")),
    organization: Flag.String("organization-id").pipe(Flag.optional),
    entitlements: Flag.String("entitlement").pipe(
      Flag.withDescription("For example cross_tenant_admin"),
      Flag.atLeast(0)
    ),
    expiresIn: Flag.String("expires-in").pipe(
      Flag.withDescription("Lifetime, for example '8 hours'"),
      Flag.withDefault("8 hours")
    )
  },
  Effect.fn(function* (flags) {
    const settings = yield* Settings
    const lifetime = Duration.fromInput(flags.expiresIn as Duration.Input)
    if (Option.isNone(lifetime))
      return yield* Effect.fail(new Error(`--expires-in: '${flags.expiresIn}' is no duration`))
    const token = yield* AdministratorTokens.use((tokens) =>
      tokens.mint(
        {
          subject: flags.sub,
          class: flags.class,
          role: flags.role,
          tenant: flags.tenant,
          organizationId: Option.getOrUndefined(flags.organization),
          entitlements: new Set(flags.entitlements)
        },
        lifetime.value
      )
    ).pipe(Effect.provide(administratorTokens(settings)))
    yield* Console.log(Redacted.value(token))
  })
).pipe(Command.withDescription("Sign an administrator token with GATEWAY_JWT_SECRET"), Command.provide(Settings.layer))

export const token = Command.make("token").pipe(
  Command.withDescription("Administrator tokens"),
  Command.withSubcommands([mint])
)
