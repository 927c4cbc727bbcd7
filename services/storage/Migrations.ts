import { Context, type Effect } from "effect"
import type { DatabaseStartError } from "#services/storage/DatabaseServer.ts"

/** Brings the database to what this program expects. */
export class Migrations extends Context.Service<
  Migrations,
  {
    /**
     * Applies what is pending: `migrations/public` once, `migrations/tenant` in each of the schemas, which are made when
     * missing. Safe to call from several processes at once.
     */
    readonly migrate: (schemas: ReadonlyArray<string>) => Effect.Effect<void, DatabaseStartError>
  }
>()("sluice/storage/Migrations") {}
