/** The kinds of model call. Every one of them goes through the same pipeline. */
export const modelOperations = [
  "chat",
  "completion",
  "embedding",
  "image",
  "image_edit",
  "speech",
  "transcription",
  "moderation",
  "rerank",
  "messages",
  "count_tokens",
  "generate_content"
] as const

export type ModelOperation = (typeof modelOperations)[number]
