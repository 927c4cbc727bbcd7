import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Result } from "effect"

/** Texts as one parameter, to be cast to the array wanted. */
export const textArray = (texts: ReadonlyArray<string>): PgTypes.Parameter =>
  Result.getOrThrow(PgTypes.array(texts, PgTypes.OID.text))
