/** The functions of the batch UDF (decisions.md, section 11): an item as a model call, and the model's answer as its output. */
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { findPii, piiEntities } from "#domain/pii.ts"
import { replaceSpans } from "#domain/redaction.ts"

export const udfFunctions = [
  "ai_complete",
  "ai_embed",
  "ai_classify",
  "ai_extract",
  "ai_summarize",
  "ai_translate",
  "ai_sentiment",
  "ai_redact"
] as const
export type UdfFunction = (typeof udfFunctions)[number]

export const isUdfFunction = (name: unknown): name is UdfFunction => udfFunctions.some((one) => one === name)

/** Invocations in one request, and how many of them run at once (model-api.md, "Limits"). */
export const mostItems = 64
export const itemsAtOnce = 32

/** What an item becomes: a call, and how its answer is read. A text is why it cannot be one. */
export interface UdfCall {
  readonly operation: "chat" | "embedding"
  readonly body: JsonObject
  /** The output, or undefined when the answer is not what the function promises; `answer` is the model's. */
  readonly output: (answer: JsonObject) => string | undefined
}

/** One invocation. */
export interface UdfItem {
  readonly function: UdfFunction
  readonly model: string
  readonly input: string
  readonly args: JsonObject
}

/** Settings of the model's that every function hands on. */
const handedOn = ["max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "stop", "reasoning_effort"]

const contentOf = (answer: JsonObject): string | undefined => {
  const [choice] = Array.isArray(answer["choices"]) ? (answer["choices"] as ReadonlyArray<Json>) : []
  const message = isJsonObject(choice) ? choice["message"] : undefined
  const content = isJsonObject(message) ? message["content"] : undefined
  return typeof content === "string" ? content : undefined
}

const textOf = (value: Json | undefined): string | undefined =>
  typeof value === "string" && value.trim() !== "" ? value : undefined

const listOfTexts = (value: Json | undefined): ReadonlyArray<string> =>
  Array.isArray(value) ? (value as ReadonlyArray<Json>).filter((one): one is string => typeof one === "string") : []

const chat = (
  item: UdfItem,
  instructions: string | undefined,
  output: (text: string) => string | undefined = (text) => text,
  more: JsonObject = {}
): UdfCall => {
  const settings = handedOn.flatMap((name) => {
    const value = item.args[name]
    return value === undefined ? [] : [[name, value] as const]
  })
  const system = instructions === undefined ? [] : [{ role: "system", content: instructions }]
  return {
    operation: "chat",
    body: {
      model: item.model,
      messages: [...system, { role: "user", content: item.input }],
      ...Object.fromEntries(settings),
      ...more
    },
    output: (answer) => {
      const text = contentOf(answer)
      return text === undefined ? undefined : output(text)
    }
  }
}

/** The text between a pair of fences, which models like to put around an answer. */
const unfenced = (text: string): string => /^\s*```[\w-]*\n([\s\S]*?)\n?```\s*$/.exec(text)?.[1] ?? text

const asJson = (text: string): string | undefined => {
  try {
    return JSON.stringify(JSON.parse(unfenced(text)))
  } catch {
    return undefined
  }
}

const plain = (text: string): string =>
  text
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, " ")
    .trim()

/** The label that the answer is, or else the only one that occurs in it. */
export const labelIn = (text: string, labels: ReadonlyArray<string>): string | undefined => {
  const said = plain(unfenced(text))
  const same = labels.find((label) => plain(label) === said)
  if (same !== undefined) return same
  const within = labels.filter((label) => ` ${said} `.includes(` ${plain(label)} `))
  return within.length === 1 ? within[0] : undefined
}

const sentiments = ["positive", "negative", "neutral", "mixed"]
const everyEntity = new Set(piiEntities)

/** Masks what the gateway recognises by itself: `[EMAIL]`. */
export const masked = (text: string): string =>
  replaceSpans(text, findPii(text, everyEntity), (span) => `[${span.entity}]`)

const classify = (item: UdfItem, labels: ReadonlyArray<string>): UdfCall =>
  chat(
    item,
    `Classify the user's text. Answer with exactly one of these labels and nothing else:\n${labels.join("\n")}`,
    (text) => labelIn(text, labels)
  )

const extract = (item: UdfItem): UdfCall | string => {
  const { schema } = item.args
  const fields = listOfTexts(item.args["fields"])
  if (isJsonObject(schema)) {
    return chat(
      item,
      `Extract from the user's text what this JSON Schema describes. Answer with the JSON object alone; use null for what the text does not say.\n${JSON.stringify(schema)}`,
      asJson,
      { response_format: { type: "json_object" } }
    )
  }
  if (fields.length === 0) return "'args.schema' or 'args.fields' is required."
  return chat(
    item,
    `Extract these fields from the user's text: ${fields.join(", ")}. Answer with one JSON object that has these fields and nothing else; use null for what the text does not say.`,
    asJson,
    { response_format: { type: "json_object" } }
  )
}

const embed = (item: UdfItem): UdfCall => {
  const { dimensions } = item.args
  return {
    operation: "embedding",
    body: { model: item.model, input: item.input, ...(dimensions === undefined ? {} : { dimensions }) },
    output: (answer) => {
      const [first] = Array.isArray(answer["data"]) ? (answer["data"] as ReadonlyArray<Json>) : []
      const vector = isJsonObject(first) ? first["embedding"] : undefined
      return Array.isArray(vector) ? JSON.stringify(vector) : undefined
    }
  }
}

/** The call that an item stands for, or why it stands for none. */
export const udfCall = (item: UdfItem): UdfCall | string => {
  const { args } = item
  switch (item.function) {
    case "ai_complete":
      return chat(item, textOf(args["system"]))
    case "ai_embed":
      return embed(item)
    case "ai_classify": {
      const labels = listOfTexts(args["labels"])
      return labels.length === 0 ? "'args.labels' is required: a list of texts." : classify(item, labels)
    }
    case "ai_extract":
      return extract(item)
    case "ai_summarize": {
      const words = args["max_words"]
      const bound = typeof words === "number" && words >= 1 ? ` in at most ${Math.floor(words)} words` : ""
      return chat(
        item,
        `Summarize the user's text${bound}. Answer with the summary alone, in the language of the text.`
      )
    }
    case "ai_translate": {
      const language = textOf(args["target_language"])
      if (language === undefined) return "'args.target_language' is required."
      return chat(item, `Translate the user's text into ${language}. Answer with the translation alone.`)
    }
    case "ai_sentiment":
      return classify(item, sentiments)
    case "ai_redact": {
      // What the gateway recognises by itself never leaves; the model is asked for the rest, and checked.
      const instructions =
        "Replace every piece of personal data in the user's text (names, addresses, dates of birth, identifiers) by its kind in square brackets, such as [PERSON] or [ADDRESS]. What stands in square brackets already stays. Answer with the text alone."
      return chat({ ...item, input: masked(item.input) }, instructions, masked)
    }
  }
}
