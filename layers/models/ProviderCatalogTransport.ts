import { Effect, Layer, Redacted } from "effect"
import { isJsonObject, type Json } from "#domain/json.ts"
import type { ProviderPreset } from "#domain/providers/presets.ts"
import type { WireName } from "#domain/providers/wires.ts"
import { Transport, type TransportControl } from "#services/inference/Transport.ts"
import { CatalogUnreadable, ProviderCatalog } from "#services/models/ProviderCatalog.ts"

const MAX_BYTES = 8 * 1024 * 1024
const MAX_MODELS = 1000
const TIMEOUT_MS = 10_000

/** How a wire's providers are asked for their models, and where the names stand in the answer. */
interface CatalogShape {
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  readonly list: string
  readonly name: string
}

const shapes: Readonly<Record<WireName, CatalogShape | undefined>> = {
  openai: { path: "/models", list: "data", name: "id" },
  anthropic: {
    path: "/v1/models?limit=1000",
    headers: { "anthropic-version": "2023-06-01" },
    list: "data",
    name: "id"
  },
  gemini: { path: "/v1beta/models?pageSize=1000", list: "models", name: "name" },
  cohere: { path: "/v1/models?page_size=1000", list: "models", name: "name" },
  // Deployments of an account, listed by other services than the one that serves them.
  azure: undefined,
  bedrock: undefined
}

const parse = (body: Buffer): Json | undefined => {
  try {
    return JSON.parse(body.toString("utf8")) as Json
  } catch {
    return undefined
  }
}

const namesIn = (answer: Json | undefined, shape: CatalogShape): ReadonlyArray<string> | undefined => {
  // Some OpenAI-compatible providers answer the bare list.
  const list = isJsonObject(answer) ? answer[shape.list] : answer
  if (!Array.isArray(list)) return undefined
  const names = (list as ReadonlyArray<Json>).flatMap((entry) => {
    const name = isJsonObject(entry) ? entry[shape.name] : undefined
    const plain = typeof name === "string" ? name.replace(/^models\//, "") : ""
    return plain !== "" && plain.length <= 200 && /^[\x21-\x7e]+$/.test(plain) ? [plain] : []
  })
  return [...new Set(names)].slice(0, MAX_MODELS)
}

const unreadable = (reason: string) => new CatalogUnreadable({ reason })

/** Asks over the guarded transport: bounded in size and time, no redirects, no private addresses where those are refused. */
export const layer: Layer.Layer<ProviderCatalog, never, Transport> = Layer.effect(
  ProviderCatalog,
  Effect.gen(function* () {
    const transport = yield* Transport

    const get = (origin: string, path: string, headers: Readonly<Record<string, string>>) =>
      Effect.callback<Buffer, CatalogUnreadable>((resume) => {
        const chunks: Array<Buffer> = []
        let size = 0
        let control: TransportControl | undefined
        const settle = (outcome: Effect.Effect<Buffer, CatalogUnreadable>) => {
          clearTimeout(timer)
          resume(outcome)
        }
        const give = (reason: string) => {
          control?.abort()
          settle(Effect.fail(unreadable(reason)))
        }
        const timer = setTimeout(() => give("it did not answer in time"), TIMEOUT_MS)
        control = transport.send(
          origin,
          { method: "GET", path, headers, body: "" },
          {
            head: (status) => {
              if (status !== 200) give(`it answered ${status}`)
            },
            data: (chunk) => {
              size += chunk.length
              if (size > MAX_BYTES) give("its list is too long")
              else chunks.push(chunk)
            },
            end: () => settle(Effect.succeed(Buffer.concat(chunks))),
            failed: ({ message }) => settle(Effect.fail(unreadable(message)))
          }
        )
        return Effect.sync(() => {
          clearTimeout(timer)
          control?.abort()
        })
      })

    const keyHeader = (preset: ProviderPreset, key: string): Readonly<Record<string, string>> =>
      preset.apiKeyHeader === null
        ? {}
        : { [preset.apiKeyHeader]: preset.apiKeyHeader === "authorization" ? `Bearer ${key}` : key }

    return ProviderCatalog.of({
      models: Effect.fn("ProviderCatalog.models")(function* (preset, access) {
        const shape = shapes[preset.wire]
        const base = access.apiBase ?? preset.apiBase
        if (shape === undefined || base === null) return yield* unreadable("it does not list its models")
        if (!URL.canParse(base) || !/^https?:$/.test(new URL(base).protocol)) {
          return yield* unreadable("its base is no http address")
        }
        const url = new URL(base)
        const body = yield* get(url.origin, url.pathname.replace(/\/+$/, "") + shape.path, {
          accept: "application/json",
          ...shape.headers,
          ...keyHeader(preset, Redacted.value(access.apiKey))
        })
        const names = namesIn(parse(body), shape)
        return names ?? (yield* unreadable("its answer is no list of models"))
      })
    })
  })
)
