import { Effect } from "effect"
import type { GatewayError } from "#domain/errors.ts"
import { type ModelDraft, ModelRegistry } from "#services/models/ModelRegistry.ts"

/** The sandbox's models (decisions.md, section 7.6) and what each is for. */
const modes = {
  chat: "chat",
  embed: "embedding",
  rerank: "rerank",
  moderation: "moderation",
  image: "image_generation",
  speech: "audio_speech",
  transcribe: "audio_transcription"
} as const

const drafts: ReadonlyArray<ModelDraft> = Object.entries(modes).map(([name, mode]) => ({
  modelName: `sandbox/${name}`,
  gatewayParams: { model: `sandbox/${name}` },
  modelInfo: { mode }
}))

/**
 * Registers the sandbox's models in a registry that never had a row, so that a first request works; whether it did.
 * Not to be called in production.
 */
export const registerSandboxModels: Effect.Effect<boolean, GatewayError, ModelRegistry> = Effect.flatMap(
  ModelRegistry,
  (registry) => registry.seed(drafts, "system")
)
