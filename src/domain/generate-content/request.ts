/** Google's generateContent request as a chat-completion request, so that every model of the registry can answer it. */
import { InvalidRequest } from "#domain/errors.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"

type Mutable = { [key: string]: Json }

const listOf = (value: Json | undefined): ReadonlyArray<Json> => (Array.isArray(value) ? value : [])
const objectOf = (value: Json | undefined): JsonObject => (isJsonObject(value) ? value : {})
const textOf = (value: Json | undefined): string | undefined => (typeof value === "string" ? value : undefined)

/** Google's clients write both spellings. */
const either = (of: JsonObject, camel: string, snake: string): Json | undefined => of[camel] ?? of[snake]

const unsupported = (param: string): InvalidRequest =>
  new InvalidRequest({
    code: "unsupported_parameter",
    message: `'${param}' cannot be carried to this model: only models of Gemini's own API take it.`,
    param
  })

const faulty = (param: string, message: string): InvalidRequest =>
  new InvalidRequest({ code: "invalid_conversation", message: `'${param}' ${message}`, param })

const audioFormats: Readonly<Record<string, string>> = {
  "audio/wav": "wav",
  "audio/x-wav": "wav",
  "audio/mp3": "mp3",
  "audio/mpeg": "mp3"
}

const mediaPart = (part: JsonObject, param: string): JsonObject => {
  const inline = either(part, "inlineData", "inline_data")
  if (isJsonObject(inline)) {
    const mime = textOf(either(inline, "mimeType", "mime_type")) ?? ""
    const data = textOf(inline["data"]) ?? ""
    if (mime.startsWith("image/")) return { type: "image_url", image_url: { url: `data:${mime};base64,${data}` } }
    const format = audioFormats[mime]
    if (format !== undefined) return { type: "input_audio", input_audio: { data, format } }
    return { type: "file", file: { filename: "file", file_data: `data:${mime};base64,${data}` } }
  }
  const file = either(part, "fileData", "file_data")
  const uri = isJsonObject(file) ? textOf(either(file, "fileUri", "file_uri")) : undefined
  if (uri !== undefined && /^https?:/.test(uri)) return { type: "image_url", image_url: { url: uri } }
  throw unsupported(param)
}

/** Reads contents in order; a call without an id gets one, and the answer to it finds it by name. */
class Conversation {
  readonly messages: Array<Json> = []
  readonly #open: Array<{ readonly name: string; readonly id: string }> = []
  #calls = 0

  add(content: Json, param: string): void {
    if (typeof content === "string") return void this.messages.push({ role: "user", content })
    if (!isJsonObject(content)) throw faulty(param, "must be an object with parts.")
    // A part may stand where a content should: it is the user's.
    const parts = content["parts"] === undefined ? [content] : listOf(content["parts"])
    if (content["role"] === "model") this.#model(parts, `${param}.parts`)
    else this.#user(parts, `${param}.parts`)
  }

  #user(parts: ReadonlyArray<Json>, param: string): void {
    const said: Array<Json> = []
    parts.forEach((part, at) => {
      const path = `${param}.${at}`
      if (!isJsonObject(part)) throw faulty(path, "must be an object.")
      const answered = either(part, "functionResponse", "function_response")
      if (isJsonObject(answered)) this.messages.push(this.#answer(answered, path))
      else if (typeof part["text"] === "string") said.push({ type: "text", text: part["text"] })
      else said.push(mediaPart(part, path))
    })
    if (said.length > 0) this.messages.push({ role: "user", content: plain(said) })
  }

  #model(parts: ReadonlyArray<Json>, param: string): void {
    const said: Array<Json> = []
    const calls: Array<Json> = []
    parts.forEach((part, at) => {
      const path = `${param}.${at}`
      if (!isJsonObject(part)) throw faulty(path, "must be an object.")
      const called = either(part, "functionCall", "function_call")
      if (isJsonObject(called))
        calls.push(this.#call(called, path, either(part, "thoughtSignature", "thought_signature")))
      else if (part["thought"] === true) return
      else if (typeof part["text"] === "string") said.push({ type: "text", text: part["text"] })
      else throw unsupported(path)
    })
    this.messages.push({
      role: "assistant",
      content: said.length === 0 ? null : plain(said),
      ...(calls.length === 0 ? {} : { tool_calls: calls })
    })
  }

  #call(called: JsonObject, param: string, signature: Json | undefined): JsonObject {
    const name = textOf(called["name"])
    if (name === undefined) throw faulty(`${param}.functionCall.name`, "is missing.")
    const id = textOf(called["id"]) ?? `call_${this.#calls}`
    this.#calls += 1
    this.#open.push({ name, id })
    return {
      id,
      type: "function",
      function: { name, arguments: JSON.stringify(called["args"] ?? {}) },
      ...(signature === undefined ? {} : { extra_content: { google: { thought_signature: signature } } })
    }
  }

  #answer(answered: JsonObject, param: string): JsonObject {
    const name = textOf(answered["name"])
    const at = this.#open.findIndex((call) =>
      answered["id"] === undefined ? call.name === name : call.id === answered["id"]
    )
    const [call] = at === -1 ? [] : this.#open.splice(at, 1)
    const id = call?.id ?? textOf(answered["id"])
    if (id === undefined) throw faulty(`${param}.functionResponse`, "answers no call.")
    const response = answered["response"] ?? {}
    return {
      role: "tool",
      tool_call_id: id,
      content: typeof response === "string" ? response : JSON.stringify(response)
    }
  }
}

/** One text alone is written as a text, as every upstream takes it. */
const plain = (parts: ReadonlyArray<Json>): Json => {
  const [only, second] = parts
  return second === undefined && isJsonObject(only) && typeof only["text"] === "string" ? only["text"] : parts
}

/** Google writes the types of its schemas in capitals. */
const schemaOf = (schema: Json | undefined): Json => {
  if (Array.isArray(schema)) return schema.map((one: Json) => schemaOf(one))
  if (!isJsonObject(schema)) return schema ?? null
  const { nullable, ...rest } = schema
  const mapped: Mutable = {}
  for (const [name, value] of Object.entries(rest)) {
    if (name === "type" && typeof value === "string") {
      const type = value.toLowerCase()
      mapped["type"] = nullable === true ? [type, "null"] : type
    } else if (name === "enum" || name === "required" || name === "example" || name === "default") mapped[name] = value
    else if (name === "properties" && isJsonObject(value)) {
      mapped[name] = Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, schemaOf(inner)]))
    } else mapped[name] = typeof value === "object" ? schemaOf(value) : value
  }
  return mapped
}

const toolsOf = (tools: Json | undefined): ReadonlyArray<Json> =>
  listOf(tools).flatMap((tool, at) => {
    const declared = isJsonObject(tool) ? either(tool, "functionDeclarations", "function_declarations") : undefined
    if (!Array.isArray(declared) || Object.keys(objectOf(tool)).length !== 1) throw unsupported(`tools.${at}`)
    return (declared as ReadonlyArray<Json>).map((one) => {
      const { description, name } = objectOf(one)
      const given = objectOf(one)
      const parameters =
        either(given, "parametersJsonSchema", "parameters_json_schema") ?? schemaOf(given["parameters"] ?? undefined)
      return {
        type: "function",
        function: {
          name: name ?? null,
          ...(description === undefined ? {} : { description }),
          ...(parameters === null ? {} : { parameters })
        }
      }
    })
  })

const choiceOf = (config: JsonObject): Json | undefined => {
  const calling = objectOf(either(config, "functionCallingConfig", "function_calling_config"))
  const allowed = listOf(either(calling, "allowedFunctionNames", "allowed_function_names"))
  switch (calling["mode"]) {
    case "ANY":
    case "VALIDATED":
      return allowed.length === 1 ? { type: "function", function: { name: allowed[0]! } } : "required"
    case "NONE":
      return "none"
    case "AUTO":
      return "auto"
    default:
      return undefined
  }
}

/** Where each setting goes; what is absent here and has a value cannot be carried. */
const settings: Readonly<Record<string, string>> = {
  temperature: "temperature",
  topP: "top_p",
  topK: "top_k",
  maxOutputTokens: "max_tokens",
  stopSequences: "stop",
  candidateCount: "n",
  seed: "seed",
  presencePenalty: "presence_penalty",
  frequencyPenalty: "frequency_penalty",
  logprobs: "top_logprobs",
  responseLogprobs: "logprobs"
}

const camel = (name: string): string => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())

const effortOf = (thinking: JsonObject): Json | undefined => {
  const budget = either(thinking, "thinkingBudget", "thinking_budget")
  const level = textOf(either(thinking, "thinkingLevel", "thinking_level"))
  if (level !== undefined) return level.toLowerCase()
  if (typeof budget !== "number" || budget < 0) return undefined
  return budget === 0 ? "none" : budget <= 1_024 ? "low" : budget <= 8_192 ? "medium" : "high"
}

const formatOf = (config: JsonObject): Json | undefined => {
  const mime = config["responseMimeType"]
  if (mime === undefined || mime === "text/plain") return undefined
  if (mime !== "application/json") throw unsupported("generationConfig.responseMimeType")
  const schema = config["responseJsonSchema"] ?? schemaOf(config["responseSchema"])
  if (schema === null) return { type: "json_object" }
  return { type: "json_schema", json_schema: { name: "answer", schema } }
}

const generationOf = (given: JsonObject): JsonObject => {
  const config: Mutable = {}
  for (const [name, value] of Object.entries(given)) config[camel(name)] = value
  const chat: Mutable = {}
  for (const [name, value] of Object.entries(config)) {
    if (value === null || /^(?:response(?:MimeType|Schema|JsonSchema)|thinkingConfig)$/.test(name)) continue
    const carried = settings[name]
    if (carried === undefined) throw unsupported(`generationConfig.${name}`)
    chat[carried] = value
  }
  const format = formatOf(config)
  const effort = effortOf(objectOf(config["thinkingConfig"]))
  if (format !== undefined) chat["response_format"] = format
  if (effort !== undefined) chat["reasoning_effort"] = effort
  return chat
}

const carried = new Set(["contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "labels", "model"])

/** The chat-completion body of a generateContent body, or what keeps it from being one. */
export const chatOfGenerateContent = (
  body: JsonObject,
  model: string,
  stream: boolean
): JsonObject | InvalidRequest => {
  try {
    const given: Mutable = {}
    for (const [name, value] of Object.entries(body)) given[camel(name)] = value
    for (const [name, value] of Object.entries(given)) {
      const empty = value === null || (Array.isArray(value) && value.length === 0)
      if (!carried.has(name) && !empty) throw unsupported(name)
    }
    const conversation = new Conversation()
    const system = given["systemInstruction"]
    const instructions = typeof system === "string" ? [system] : systemTexts(system)
    if (instructions.length > 0) conversation.messages.push({ role: "system", content: instructions.join("\n\n") })
    listOf(given["contents"]).forEach((content, at) => conversation.add(content, `contents.${at}`))
    const tools = toolsOf(given["tools"])
    const choice = tools.length === 0 ? undefined : choiceOf(objectOf(given["toolConfig"]))
    return {
      model,
      messages: conversation.messages,
      ...generationOf(objectOf(given["generationConfig"])),
      ...(tools.length === 0 ? {} : { tools }),
      ...(choice === undefined ? {} : { tool_choice: choice }),
      ...(stream ? { stream } : {})
    }
  } catch (error) {
    if (error instanceof InvalidRequest) return error
    throw error
  }
}

const systemTexts = (system: Json | undefined): ReadonlyArray<string> =>
  listOf(objectOf(system)["parts"]).flatMap((part) => textOf(objectOf(part)["text"]) ?? [])
