import type { JsonObject } from "#domain/json.ts"
import { answerTexts } from "#domain/prompt-texts.ts"

/** The texts of an answer and the answer with others in their places; undefined: it is sound or image, not language. */
export const answeredTexts = (body: Buffer, contentType: string) => {
  if (contentType.startsWith("application/json")) {
    const found = answerTexts(JSON.parse(body.toString("utf8")) as JsonObject)
    return {
      texts: found.texts,
      replaced: (texts: ReadonlyArray<string>) => Buffer.from(JSON.stringify(found.replaced(texts)))
    }
  }
  if (!contentType.startsWith("text/")) return undefined
  return {
    texts: [body.toString("utf8")],
    replaced: ([text]: ReadonlyArray<string>) => (text === undefined ? body : Buffer.from(text))
  }
}
