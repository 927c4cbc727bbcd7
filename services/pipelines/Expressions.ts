import { Context, Data, type Effect } from "effect"
import type { Unavailable } from "#domain/errors.ts"
import type { Json, JsonObject } from "#domain/json.ts"

/** An expression failed on the values that it met, or took too long. */
export class ExpressionFailed extends Data.TaggedError("ExpressionFailed")<{ readonly message: string }> {}

/** What expressions may read. */
export interface ExpressionScope {
  readonly inputs: JsonObject
  /** The outputs of steps by id. */
  readonly steps: Readonly<Record<string, Json>>
  /** What `$now()` and `$millis()` say, in Unix milliseconds: the same each time. */
  readonly now: number
}

/** One item of a `map`. */
export interface ExpressionItem {
  readonly item: Json
  readonly index: number
}

/** What is wrong with a value: the path of its fault, empty for the whole. */
export interface SchemaViolation {
  readonly path: string
  readonly message: string
}

/** Evaluates the expressions of definitions and holds values against JSON Schemas, off the event loop and bounded in time. */
export class Expressions extends Context.Service<
  Expressions,
  {
    /**
     * A value with each `${…}` in its strings replaced: by the value itself where it is the whole string, else as text.
     * What an expression finds nothing for is null, in text nothing.
     */
    readonly render: (template: Json, scope: ExpressionScope) => Effect.Effect<Json, ExpressionFailed | Unavailable>
    /** The same once for each item, which the expressions may read too. */
    readonly renderEach: (
      template: Json,
      scope: ExpressionScope,
      items: ReadonlyArray<ExpressionItem>
    ) => Effect.Effect<ReadonlyArray<Json>, ExpressionFailed | Unavailable>
    /** Whether a condition (`${…}`) holds, as JSONata's `$boolean` sees it. */
    readonly test: (condition: string, scope: ExpressionScope) => Effect.Effect<boolean, ExpressionFailed | Unavailable>
    /** The first fault of a value; undefined where it satisfies the schema. */
    readonly violation: (
      schema: JsonObject,
      value: Json
    ) => Effect.Effect<SchemaViolation | undefined, ExpressionFailed | Unavailable>
  }
>()("sluice/pipelines/Expressions") {}
