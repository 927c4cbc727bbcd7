import { ValidationFailed } from "#domain/errors.ts"

/** What is wrong with a definition, and where: an offset into its source. */
export class DslFault extends Error {
  readonly offset: number

  constructor(message: string, offset: number) {
    super(message)
    this.offset = offset
  }
}

/** Line and column of an offset, both from 1. */
export const placeOf = (source: string, offset: number): { readonly line: number; readonly column: number } => {
  const before = source.slice(0, Math.max(0, Math.min(offset, source.length)))
  const lines = before.split("\n")
  return { line: lines.length, column: lines.at(-1)!.length + 1 }
}

/** The fault as the operation's 400. */
export const faultError = (source: string, fault: DslFault): ValidationFailed => {
  const { column, line } = placeOf(source, fault.offset)
  return new ValidationFailed({
    code: "invalid_value",
    message: `Line ${line}, column ${column}: ${fault.message}`,
    param: "dsl_source"
  })
}
