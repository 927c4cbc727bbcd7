import { Context, type Effect } from "effect"
import type { InvalidRequest, NotFound, PermissionDenied, Unavailable, ValidationFailed } from "#domain/errors.ts"
import type { GuardrailDefinition } from "#domain/guardrails.ts"
import type { JsonObject } from "#domain/json.ts"
import type { RowScope } from "#domain/principal.ts"
import type { RowOwner } from "#domain/row-owner.ts"

/** A guardrail as it is administered. */
export interface Guardrail extends GuardrailDefinition {
  readonly gatewayParams: JsonObject
  readonly guardrailInfo: JsonObject
  readonly enabled: boolean
  /** Unix milliseconds. */
  readonly createdAt: number
}

export interface GuardrailFields {
  readonly name: string
  readonly type: string
  readonly mode: string
  readonly config: JsonObject
  readonly gatewayParams: JsonObject
}

/** The fields to write; an absent one leaves the stored value untouched. */
export interface GuardrailChange extends Partial<GuardrailFields> {
  readonly enabled?: boolean
}

/** Management-api.md, "Guardrail log entry". */
export interface GuardrailLogEntry {
  readonly id: string
  readonly requestId: string
  readonly guardrailId: string
  readonly guardrailName: string
  readonly status: string
  readonly stage: string
  readonly durationMs: number
  readonly confidence: number | null
  readonly originalContent: string | null
  readonly modifiedContent: string | null
  /** Unix milliseconds. */
  readonly createdAt: number
}

/** How often a guardrail came to a status at a stage, over all time. */
export interface GuardrailCount {
  readonly guardrailId: string
  readonly guardrailName: string
  readonly status: string
  readonly stage: string
  readonly entries: number
  /** The sum of all entries. */
  readonly durationMs: number
}

/**
 * Guardrails as rows (management-api.md, "guardrail"); `GuardrailEngine` runs them. Writes are scope-gated: within the
 * caller's tenant, a guardrail of another organization or of none gives 403 where the caller has an organization; one of
 * the whole instance gives 403 to a tenant; another tenant's is absent.
 */
export class GuardrailRegistry extends Context.Service<
  GuardrailRegistry,
  {
    /** Returns the id. An empty type is inferred, an empty name made from the type. */
    readonly create: (
      owner: RowOwner,
      fields: GuardrailFields,
      actor: string
    ) => Effect.Effect<string, ValidationFailed | InvalidRequest | Unavailable>
    readonly update: (
      id: string,
      change: GuardrailChange,
      scope: RowScope,
      actor: string
    ) => Effect.Effect<void, ValidationFailed | InvalidRequest | NotFound | PermissionDenied | Unavailable>
    readonly remove: (
      id: string,
      scope: RowScope,
      actor: string
    ) => Effect.Effect<void, NotFound | PermissionDenied | Unavailable>
    /** Undefined for one that the caller may not see. */
    readonly find: (id: string, scope: RowScope) => Effect.Effect<Guardrail | undefined, Unavailable>
    /** Newest first. */
    readonly list: (scope: RowScope) => Effect.Effect<ReadonlyArray<Guardrail>, Unavailable>
    /** Newest first; `page` starts at 1. Sees this process's own calls. */
    readonly logs: (
      filter: { readonly guardrailId: string | undefined; readonly page: number; readonly pageSize: number },
      scope: RowScope
    ) => Effect.Effect<ReadonlyArray<GuardrailLogEntry>, Unavailable>
    readonly counts: (scope: RowScope) => Effect.Effect<ReadonlyArray<GuardrailCount>, Unavailable>
  }
>()("sluice/guardrails/GuardrailRegistry") {}
