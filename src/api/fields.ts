/** Fields that several areas of the contract share. What passes these can be stored: nothing here ends as a 500. */
import { Schema } from "effect"
import { parseInstant } from "#domain/instants.ts"
import type { Json } from "#domain/json.ts"
import { isStorableJson, isStorableText } from "#domain/storable.ts"

const storableText = Schema.makeFilter(isStorableText, { expected: "text without NUL characters" })

/** A name, an id or another short text of the caller's. */
export const ShortText = Schema.String.check(Schema.isMaxLength(256), storableText)

/** The same where it must say something. */
export const RequiredText = ShortText.check(Schema.isMinLength(1))

/** May be omitted or null. */
export const nullable = <S extends Schema.Top>(schema: S) => Schema.optionalKey(Schema.NullOr(schema))

/** Dollars, decimal; exact to the nano-dollar. */
export const Dollars = Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 999_999_999_999 }))

/** Requests or tokens per minute. */
export const RateLimit = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2_147_483_647 }))

/** A moment in ISO 8601; without an offset it is UTC. */
export const Instant = Schema.String.check(
  Schema.isMaxLength(64),
  Schema.makeFilter((text: string) => parseInstant(text) !== undefined, { expected: "an ISO 8601 date or date-time" })
)

/** An allowlist of public model names; empty: all. */
export const ModelNames = Schema.Array(RequiredText).check(Schema.isMaxLength(1000))

const maxDocumentLength = 256 * 1024

/** A JSON object whose members are the caller's own business. */
export const FreeObject = Schema.Record(Schema.String, Schema.Json).check(
  Schema.makeFilter((value: { readonly [name: string]: unknown }) => isStorableJson(value as Json), {
    expected: "an object whose texts hold no NUL characters"
  }),
  Schema.makeFilter(
    (value: { readonly [name: string]: unknown }) => JSON.stringify(value).length <= maxDocumentLength,
    { expected: "at most 256 KiB of JSON" }
  )
)

/** A text of an answer that may be absent. */
export const text = Schema.NullOr(Schema.String)

/** What lists answer for objects of the caller's. */
export const AnyObject = Schema.Record(Schema.String, Schema.Json)

/** `page` starts at 1 (decisions.md, section 12). */
export const Page = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1_000_000 }))
export const PageSize = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 500 }))
export const defaultPageSize = 50
