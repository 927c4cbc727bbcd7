import { Context, Data, type Effect, type Redacted } from "effect"

/** The database cannot be brought up at start. `message` is one line for the operator; it holds no secret. */
export class DatabaseStartError extends Data.TaggedError("DatabaseStartError")<{ readonly message: string }> {}

/** `ready`: accepts connections as far as its owner knows; `restarting`: died and is being brought back. */
export type DatabaseServerState = "ready" | "restarting"

/** Where PostgreSQL is, and whether it is up. */
export class DatabaseServer extends Context.Service<
  DatabaseServer,
  {
    /** A libpq connection URI. A unix socket is given as `?host=<directory>&port=<number>`. */
    readonly url: Redacted.Redacted<string>
    /** `embedded`: a child of this process; `external`: somebody else's. */
    readonly kind: "embedded" | "external"
    /** Always `ready` for an external server: only a query can tell. */
    readonly state: Effect.Effect<DatabaseServerState>
  }
>()("sluice/storage/DatabaseServer") {}
