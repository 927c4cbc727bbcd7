/** Operations and providers in the words of OpenTelemetry's GenAI semantic conventions. */
import type { ModelOperation } from "#domain/operations.ts"

const operations: Readonly<Partial<Record<ModelOperation, string>>> = {
  messages: "chat",
  completion: "text_completion",
  embedding: "embeddings"
}

const providers: Readonly<Record<string, string>> = {
  azure: "azure.ai.openai",
  bedrock: "aws.bedrock",
  gemini: "gcp.gemini",
  mistral: "mistral_ai",
  xai: "x_ai"
}

/** `gen_ai.operation.name`; what the conventions have no name for keeps ours. */
export const genAiOperation = (operation: ModelOperation): string => operations[operation] ?? operation

/** `gen_ai.provider.name`; a provider that the conventions do not name keeps its own. */
export const genAiProvider = (provider: string): string => providers[provider] ?? provider
