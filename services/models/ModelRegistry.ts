import { Context, type Effect } from "effect"
import type { GatewayError, Unavailable } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"

/** A registered model as it is stored (management-api.md, "Registered model"). Several rows of one name are one group. */
export interface RegisteredModel {
  readonly id: string
  readonly modelName: string
  readonly gatewayParams: JsonObject
  readonly modelInfo: JsonObject
  /** Unix milliseconds. */
  readonly createdAt: number
}

/** What a caller decides about a new row. */
export type ModelDraft = Pick<RegisteredModel, "modelName" | "gatewayParams" | "modelInfo">

/** The model registry: rows in PostgreSQL, a snapshot in every process that follows them. */
export class ModelRegistry extends Context.Service<
  ModelRegistry,
  {
    /**
     * The current rows, newest first, with their secret parameters as they are: for deployments, never for answers. The
     * same array until something changes, so that it can key caches.
     */
    readonly snapshot: () => ReadonlyArray<RegisteredModel>
    /** Calls back after each change of the snapshot, and once at subscription. */
    readonly onChange: (listener: (models: ReadonlyArray<RegisteredModel>) => void) => Effect.Effect<void>
    readonly create: (model: ModelDraft, actor: string) => Effect.Effect<RegisteredModel, GatewayError>
    /**
     * Registers those whose `gateway_params.model` no row has yet, and tells how many that were. Safe to call from
     * several processes at once.
     */
    readonly createMissing: (models: ReadonlyArray<ModelDraft>, actor: string) => Effect.Effect<number, GatewayError>
    /** Fills a registry that never had a row, once in its life. */
    readonly seed: (models: ReadonlyArray<ModelDraft>, actor: string) => Effect.Effect<boolean, GatewayError>
    /** Lays the given members of the objects over the stored ones; null removes one. Fails with `resource_not_found`. */
    readonly update: (
      id: string,
      change: {
        readonly modelName?: string
        readonly gatewayParams?: JsonObject
        readonly modelInfo?: JsonObject
        readonly actor: string
      }
    ) => Effect.Effect<void, GatewayError>
    readonly remove: (id: string, actor: string) => Effect.Effect<void, GatewayError>
    /**
     * Reads past the snapshot, so that a caller sees its own write whichever process took it; of several rows of a name
     * the newest. Secret parameters are masked.
     */
    readonly find: (by: {
      readonly id?: string
      readonly modelName?: string
    }) => Effect.Effect<RegisteredModel, GatewayError>
    /** As `find`, newest first. */
    readonly list: Effect.Effect<ReadonlyArray<RegisteredModel>, Unavailable>
  }
>()("sluice/models/ModelRegistry") {}
