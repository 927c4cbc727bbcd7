import { randomBytes } from "node:crypto"
import type { PiiEntity, PiiSpan } from "#domain/pii.ts"

/** A text with spans replaced, left to right; `replacement` is asked once a span. Spans must not overlap. */
export const replaceSpans = <Span extends { readonly start: number; readonly end: number }>(
  text: string,
  spans: ReadonlyArray<Span>,
  replacement: (span: Span) => string
): string => {
  let result = ""
  let at = 0
  for (const span of spans) {
    result += text.slice(at, span.start) + replacement(span)
    at = span.end
  }
  return result + text.slice(at)
}

/** One entry of the catalog that `/v1/guardrails/redact` answers with; positions are those of the text given. */
export interface RedactionToken {
  readonly token: string
  readonly entityType: PiiEntity
  readonly start: number
  readonly end: number
  readonly value: string
}

/** `<EMAIL_3f9a2c>` (decisions.md, section 8), with 48 random bits so that tokens of one key do not meet in 24 hours. */
export const newRedactionToken = (entity: PiiEntity): string => `<${entity}_${randomBytes(6).toString("hex")}>`

/** Replaces each span by a token; the same value of the same type gets the same token within one text. */
export const redact = (
  text: string,
  spans: ReadonlyArray<PiiSpan>
): { readonly text: string; readonly tokens: ReadonlyArray<RedactionToken> } => {
  const known = new Map<string, string>()
  // What looks like a token already must not be mistaken for one of these.
  const taken = new Set(redactionTokensIn(text))
  const tokens: Array<RedactionToken> = []
  const redacted = replaceSpans(text, spans, (span) => {
    const value = text.slice(span.start, span.end)
    const key = `${span.entity} ${value}`
    let token = known.get(key)
    if (token === undefined) {
      do token = newRedactionToken(span.entity)
      while (taken.has(token))
      taken.add(token)
      known.set(key, token)
    }
    tokens.push({ token, entityType: span.entity, start: span.start, end: span.end, value })
    return token
  })
  return { text: redacted, tokens }
}

const tokenForm = /<[A-Z_]{2,20}_[0-9a-f]{6,32}>/g

/** The tokens that a text holds, each once. */
export const redactionTokensIn = (text: string): ReadonlyArray<string> => Array.from(new Set(text.match(tokenForm)))

/** Puts values back where their tokens stand; a token that does not resolve stays. */
export const rehydrate = (text: string, resolve: (token: string) => string | undefined): string =>
  text.replace(tokenForm, (token) => resolve(token) ?? token)
