import type { WireName } from "#domain/providers/wires.ts"

/** What is known about a provider without asking its user. */
export interface ProviderPreset {
  /** The prefix in `gateway_params.model`. */
  readonly name: string
  /** Further prefixes that mean the same provider. */
  readonly aliases: ReadonlyArray<string>
  /** Without a trailing slash; null where each account has its own. */
  readonly apiBase: string | null
  readonly wire: WireName
  /** Lower case; null where requests are signed or need no key. */
  readonly apiKeyHeader: string | null
  /** Environment variables that may hold the key; the first that is set counts. Empty: no key is needed. */
  readonly keyVariables: ReadonlyArray<string>
  /** Environment variables that may name another base. */
  readonly baseVariables: ReadonlyArray<string>
  /** `unasked`: the provider reports the usage of a stream by itself and does not document `stream_options`. */
  readonly streamUsage: "ask" | "unasked"
}

interface Facts {
  readonly keys?: ReadonlyArray<string>
  readonly bases?: ReadonlyArray<string>
  readonly aliases?: ReadonlyArray<string>
  readonly wire?: WireName
  readonly header?: string | null
  readonly streamUsage?: "ask" | "unasked"
}

const preset = (name: string, apiBase: string | null, facts: Facts): ProviderPreset => ({
  name,
  apiBase,
  aliases: facts.aliases ?? [],
  wire: facts.wire ?? "openai",
  apiKeyHeader: facts.header === undefined ? "authorization" : facts.header,
  keyVariables: facts.keys ?? [],
  baseVariables: facts.bases ?? [],
  streamUsage: facts.streamUsage ?? "ask"
})

/** The providers known by name. Bases and headers are those of the providers' public API references. */
export const providerPresets: ReadonlyArray<ProviderPreset> = [
  preset("openai", "https://api.openai.com/v1", { keys: ["OPENAI_API_KEY"], bases: ["OPENAI_BASE_URL"] }),
  preset("azure", null, {
    keys: ["AZURE_OPENAI_API_KEY", "AZURE_API_KEY"],
    bases: ["AZURE_OPENAI_ENDPOINT", "AZURE_API_BASE"],
    wire: "azure",
    header: "api-key"
  }),
  preset("anthropic", "https://api.anthropic.com", {
    keys: ["ANTHROPIC_API_KEY"],
    bases: ["ANTHROPIC_BASE_URL"],
    wire: "anthropic",
    header: "x-api-key"
  }),
  preset("gemini", "https://generativelanguage.googleapis.com", {
    keys: ["GEMINI_API_KEY", "GOOGLE_API_KEY"],
    aliases: ["google"],
    wire: "gemini",
    header: "x-goog-api-key"
  }),
  preset("bedrock", null, {
    keys: ["AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"],
    wire: "bedrock",
    header: null
  }),
  preset("cohere", "https://api.cohere.com", { keys: ["COHERE_API_KEY", "CO_API_KEY"], wire: "cohere" }),
  preset("mistral", "https://api.mistral.ai/v1", { keys: ["MISTRAL_API_KEY"], streamUsage: "unasked" }),
  preset("groq", "https://api.groq.com/openai/v1", { keys: ["GROQ_API_KEY"] }),
  preset("deepseek", "https://api.deepseek.com/v1", { keys: ["DEEPSEEK_API_KEY"] }),
  preset("xai", "https://api.x.ai/v1", { keys: ["XAI_API_KEY"] }),
  preset("together", "https://api.together.xyz/v1", { keys: ["TOGETHER_API_KEY"], aliases: ["together_ai"] }),
  preset("fireworks", "https://api.fireworks.ai/inference/v1", {
    keys: ["FIREWORKS_API_KEY"],
    aliases: ["fireworks_ai"]
  }),
  preset("openrouter", "https://openrouter.ai/api/v1", { keys: ["OPENROUTER_API_KEY"] }),
  preset("perplexity", "https://api.perplexity.ai", { keys: ["PERPLEXITY_API_KEY"], streamUsage: "unasked" }),
  preset("cerebras", "https://api.cerebras.ai/v1", { keys: ["CEREBRAS_API_KEY"] }),
  preset("nvidia", "https://integrate.api.nvidia.com/v1", { keys: ["NVIDIA_API_KEY"], aliases: ["nvidia_nim"] }),
  preset("sambanova", "https://api.sambanova.ai/v1", { keys: ["SAMBANOVA_API_KEY"] }),
  preset("deepinfra", "https://api.deepinfra.com/v1/openai", { keys: ["DEEPINFRA_API_KEY", "DEEPINFRA_TOKEN"] }),
  preset("moonshot", "https://api.moonshot.ai/v1", { keys: ["MOONSHOT_API_KEY"] }),
  preset("hyperbolic", "https://api.hyperbolic.xyz/v1", { keys: ["HYPERBOLIC_API_KEY"] }),
  preset("dashscope", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", { keys: ["DASHSCOPE_API_KEY"] }),
  preset("huggingface", "https://router.huggingface.co/v1", { keys: ["HF_TOKEN"] }),
  preset("voyage", "https://api.voyageai.com/v1", { keys: ["VOYAGE_API_KEY"] }),
  preset("jina", "https://api.jina.ai/v1", { keys: ["JINA_API_KEY"], aliases: ["jina_ai"] }),
  preset("ollama", "http://localhost:11434/v1", { aliases: ["ollama_chat"] }),
  preset("vllm", "http://localhost:8000/v1", { aliases: ["hosted_vllm"] }),
  preset("lm_studio", "http://localhost:1234/v1", { aliases: ["lmstudio"] }),
  preset("openai_compatible", null, { aliases: ["custom_openai", "openai_like"] })
]

const byName: ReadonlyMap<string, ProviderPreset> = new Map(
  providerPresets.flatMap((one) => [one.name, ...one.aliases].map((name) => [name, one] as const))
)

/** The preset of a provider prefix; undefined: unknown. */
export const findPreset = (name: string): ProviderPreset | undefined => byName.get(name.toLowerCase())

/** The variable of the environment that holds the preset's key; undefined: none is set, or none is needed. */
export const detectedKey = (
  preset: ProviderPreset,
  environment: Readonly<Record<string, string | undefined>>
): string | undefined => preset.keyVariables.find((name) => (environment[name] ?? "") !== "")
