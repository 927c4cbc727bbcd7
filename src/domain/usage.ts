import { nanosFromPicos, picosFromDollars, type Nanos, type Picos } from "#domain/money.ts"

/**
 * What a call consumed, in disjoint buckets (decisions.md, section 6): a cached token is not also an input token, a
 * reasoning token is not also an output token. Providers that report overlapping numbers are normalised by their wire.
 */
export interface Usage {
  readonly input: number
  readonly cacheRead: number
  readonly cacheWrite: number
  readonly output: number
  readonly reasoning: number
  readonly audioInput: number
  readonly audioOutput: number
  readonly images: number
  readonly seconds: number
  /** Counted by the gateway because the upstream reported nothing. */
  readonly estimated: boolean
}

export const noUsage: Usage = {
  input: 0,
  cacheRead: 0,
  cacheWrite: 0,
  output: 0,
  reasoning: 0,
  audioInput: 0,
  audioOutput: 0,
  images: 0,
  seconds: 0,
  estimated: false
}

/** Usage with the named buckets set and the others empty. */
export const usageOf = (buckets: Partial<Usage>): Usage => ({ ...noUsage, ...buckets })

/** All tokens of the prompt, cached ones included: `prompt_tokens` on the wire. */
export const promptTokens = (usage: Usage): number =>
  usage.input + usage.cacheRead + usage.cacheWrite + usage.audioInput

/** All generated tokens, reasoning included: `completion_tokens` on the wire. */
export const completionTokens = (usage: Usage): number => usage.output + usage.reasoning + usage.audioOutput

/** Prompt and completion together: what a token limit counts. */
export const totalTokens = (usage: Usage): number => promptTokens(usage) + completionTokens(usage)

/** The prices of one model, in pico-dollars per unit. `undefined` on a model means that nothing is known; 0 is a price. */
export interface Price {
  readonly input: Picos
  readonly output: Picos
  readonly cacheRead: Picos
  readonly cacheWrite: Picos
  readonly request: Picos
  readonly image: Picos
  readonly second: Picos
}

const priceFields = {
  input: "input_cost_per_token",
  output: "output_cost_per_token",
  cacheRead: "cache_read_cost_per_token",
  cacheWrite: "cache_write_cost_per_token",
  request: "cost_per_request",
  image: "cost_per_image",
  second: "cost_per_second"
} as const

/** The names under which `model_info` carries prices, in dollars per unit. */
export const priceFieldNames: ReadonlyArray<string> = Object.values(priceFields)

/**
 * Reads the prices out of a `model_info` (decisions.md, section 6.1). Without any of the names the model is unpriced.
 * A cached token without a price of its own costs what an input token does.
 */
export const priceOf = (modelInfo: Readonly<Record<string, unknown>>): Price | undefined => {
  const picos = (name: string): Picos | undefined => {
    const value = modelInfo[name]
    if (typeof value !== "number" && typeof value !== "string") return undefined
    const parsed = picosFromDollars(value)
    return parsed === undefined || parsed < 0n ? undefined : parsed
  }
  if (priceFieldNames.every((name) => picos(name) === undefined)) return undefined
  const input = picos(priceFields.input) ?? 0n
  return {
    input,
    output: picos(priceFields.output) ?? 0n,
    cacheRead: picos(priceFields.cacheRead) ?? input,
    cacheWrite: picos(priceFields.cacheWrite) ?? input,
    request: picos(priceFields.request) ?? 0n,
    image: picos(priceFields.image) ?? 0n,
    second: picos(priceFields.second) ?? 0n
  }
}

/** What a call with this usage costs, rounded up once to whole nano-dollars. Audio tokens cost what text tokens do. */
export const costOf = (price: Price, usage: Usage): Nanos =>
  nanosFromPicos(
    BigInt(usage.input + usage.audioInput) * price.input +
      BigInt(usage.cacheRead) * price.cacheRead +
      BigInt(usage.cacheWrite) * price.cacheWrite +
      BigInt(usage.output + usage.reasoning + usage.audioOutput) * price.output +
      price.request +
      BigInt(usage.images) * price.image +
      (BigInt(Math.ceil(usage.seconds * 1000)) * price.second + 999n) / 1000n
  )
