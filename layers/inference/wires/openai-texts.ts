import { isJsonObject, type Json } from "#domain/json.ts"

const contentText = (content: Json | undefined): string => {
  if (typeof content === "string") return content
  if (!Array.isArray(content)) return ""
  return content
    .map((part: Json) => (isJsonObject(part) && typeof part["text"] === "string" ? part["text"] : ""))
    .join("")
}

const callsText = (calls: Json | undefined): string => {
  if (!Array.isArray(calls)) return ""
  let text = ""
  for (const call of calls as ReadonlyArray<Json>) {
    const called = isJsonObject(call) ? call["function"] : undefined
    if (!isJsonObject(called)) continue
    if (typeof called["name"] === "string") text += called["name"]
    if (typeof called["arguments"] === "string") text += called["arguments"]
  }
  return text
}

/** Everything a model generated in one message or delta: reasoning, content, refusal and tool calls. */
export const generatedText = (message: Json | undefined): string => {
  if (!isJsonObject(message)) return ""
  const reasoning = message["reasoning_content"] ?? message["reasoning"]
  const refusal = message["refusal"]
  return (
    (typeof reasoning === "string" ? reasoning : "") +
    contentText(message["content"]) +
    (typeof refusal === "string" ? refusal : "") +
    callsText(message["tool_calls"])
  )
}

/** The texts of a chat completion's choices, in order. */
export const choiceTexts = (answer: Json | undefined): ReadonlyArray<string> => {
  const choices = isJsonObject(answer) ? answer["choices"] : undefined
  if (!Array.isArray(choices)) return []
  return (choices as ReadonlyArray<Json>).map((choice) =>
    isJsonObject(choice)
      ? typeof choice["text"] === "string"
        ? choice["text"]
        : generatedText(choice["message"] ?? choice["delta"])
      : ""
  )
}

/** Whether any choice of a chunk says that it is finished. */
export const saysFinished = (chunk: Json | undefined): boolean => {
  const choices = isJsonObject(chunk) ? chunk["choices"] : undefined
  return (
    Array.isArray(choices) &&
    (choices as ReadonlyArray<Json>).some(
      (choice) => isJsonObject(choice) && typeof choice["finish_reason"] === "string" && choice["finish_reason"] !== ""
    )
  )
}

const isEmpty = (value: Json | undefined): boolean =>
  value === undefined || value === null || value === "" || (Array.isArray(value) && value.length === 0)

/** Whether a chunk only opens the answer: roles and empty fields, or no choice yet; nothing of it was generated. */
export const opensOnly = (chunk: Json | undefined): boolean => {
  if (!isJsonObject(chunk) || !Array.isArray(chunk["choices"])) return false
  return (chunk["choices"] as ReadonlyArray<Json>).every((choice) => {
    if (!isJsonObject(choice) || !isEmpty(choice["finish_reason"]) || !isJsonObject(choice["delta"])) return false
    return Object.entries(choice["delta"]).every(([field, value]) => field === "role" || isEmpty(value))
  })
}
