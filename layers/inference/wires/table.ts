import type { WireName } from "#domain/providers/wires.ts"
import { anthropicWire } from "#layers/inference/wires/anthropic.ts"
import { azureWire } from "#layers/inference/wires/azure.ts"
import { bedrockWire } from "#layers/inference/wires/bedrock.ts"
import { cohereWire } from "#layers/inference/wires/cohere.ts"
import { geminiWire } from "#layers/inference/wires/gemini.ts"
import { openaiWire } from "#layers/inference/wires/openai.ts"
import type { Wire } from "#services/inference/Wire.ts"

/** The wires by name. */
export const wires: Readonly<Record<WireName, Wire>> = {
  openai: openaiWire,
  azure: azureWire,
  anthropic: anthropicWire,
  gemini: geminiWire,
  bedrock: bedrockWire,
  cohere: cohereWire
}
