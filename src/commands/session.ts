import { Console, Effect, Layer, Option, Redacted } from "effect"
import { Command, Flag } from "effect/cli"
import { parseDuration } from "#domain/durations.ts"
import { DeveloperSessions, type SessionTarget } from "#services/developer/DeveloperSessions.ts"
import { developerSessions } from "#src/app.ts"
import { logging } from "#src/commands/serve.ts"
import { Settings, type SettingsShape } from "#src/config.ts"

const sessionsOf = (settings: SettingsShape) => developerSessions(settings).pipe(Layer.provide(logging(settings)))

const create = Command.make(
  "create",
  {
    user: Flag.String("user").pipe(Flag.withDescription("The id of the user")),
    expiresIn: Flag.String("expires-in").pipe(
      Flag.withDescription("Lifetime, for example 8h or '8 hours'"),
      Flag.withDefault("8h")
    )
  },
  Effect.fn(function* (flags) {
    const settings = yield* Settings
    const lifetime = parseDuration(flags.expiresIn)
    if (lifetime === undefined) {
      return yield* Effect.fail(new Error(`--expires-in: '${flags.expiresIn}' is no duration`))
    }
    const session = yield* DeveloperSessions.use((sessions) => sessions.create(flags.user, lifetime)).pipe(
      Effect.provide(sessionsOf(settings))
    )
    // Standard output holds the cookie's value and nothing else, for scripts.
    yield* Console.log(Redacted.value(session.token))
    yield* Console.error(`session ${session.id} expires ${new Date(session.expiresAt).toISOString()}`)
    if (session.userRole !== "developer") {
      yield* Console.error(
        `The user's role is '${session.userRole}': the session opens nothing until it is 'developer'`
      )
    }
  })
).pipe(
  Command.withDescription("Make a session: prints the value of the cookie gateway_session"),
  Command.provide(Settings.layer)
)

const revoke = Command.make(
  "revoke",
  {
    id: Flag.String("id").pipe(Flag.withDescription("The id of one session"), Flag.optional),
    token: Flag.String("token").pipe(Flag.withDescription("The token of one session"), Flag.optional),
    user: Flag.String("user").pipe(Flag.withDescription("Every session of a user"), Flag.optional)
  },
  Effect.fn(function* (flags) {
    const settings = yield* Settings
    const targets: ReadonlyArray<SessionTarget> = [
      ...Option.toArray(Option.map(flags.id, (id) => ({ id }))),
      ...Option.toArray(Option.map(flags.token, (token) => ({ token: Redacted.make(token) }))),
      ...Option.toArray(Option.map(flags.user, (userId) => ({ userId })))
    ]
    const [target, ...others] = targets
    if (target === undefined || others.length > 0) {
      return yield* Effect.fail(new Error("Name the sessions by one of --id, --token and --user"))
    }
    const ended = yield* DeveloperSessions.use((sessions) => sessions.revoke(target)).pipe(
      Effect.provide(sessionsOf(settings))
    )
    yield* Console.log(`${ended} ${ended === 1 ? "session" : "sessions"} revoked`)
  })
).pipe(
  Command.withDescription("End sessions; every process refuses them from its next request on"),
  Command.provide(Settings.layer)
)

export const session = Command.make("session").pipe(
  Command.withDescription("Sessions of developers"),
  Command.withSubcommands([create, revoke])
)
