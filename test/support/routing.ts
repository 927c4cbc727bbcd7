import { Effect, Layer, Redacted } from "effect"
import type { JsonObject } from "#domain/json.ts"
import { providerRouterUndici, type ProviderRouterOptions } from "#layers/inference/ProviderRouterUndici.ts"
import { transportUndici } from "#layers/inference/TransportUndici.ts"
import type { StreamControl, StreamedAnswer, StreamEnd, UpstreamCall } from "#services/inference/ProviderRouter.ts"
import { CredentialVault } from "#services/models/CredentialVault.ts"
import { ModelRegistry, type RegisteredModel } from "#services/models/ModelRegistry.ts"

/** A registered model in few words. */
export const row = (
  id: string,
  modelName: string,
  gatewayParams: JsonObject,
  modelInfo: JsonObject = {}
): RegisteredModel => ({ id, modelName, gatewayParams, modelInfo, createdAt: 0 })

/** Models and credentials that a test changes at will. */
export class Registered {
  rows: ReadonlyArray<RegisteredModel>
  credentials: Readonly<Record<string, JsonObject>>
  readonly #listeners: Array<() => void> = []

  constructor(rows: ReadonlyArray<RegisteredModel>, credentials: Readonly<Record<string, JsonObject>> = {}) {
    this.rows = rows
    this.credentials = credentials
  }

  change(rows: ReadonlyArray<RegisteredModel>, credentials = this.credentials): void {
    this.rows = rows
    this.credentials = credentials
    for (const listener of this.#listeners) listener()
  }

  get layer() {
    const subscribe = (listener: () => void) => Effect.sync(() => void this.#listeners.push(listener))
    return Layer.mergeAll(
      Layer.mock(ModelRegistry, {
        snapshot: () => this.rows,
        onChange: (listener) => subscribe(() => listener(this.rows))
      }),
      Layer.mock(CredentialVault, {
        reveal: (name) => {
          const found = this.credentials[name]
          return found === undefined ? undefined : Redacted.make(found)
        },
        onChange: subscribe
      })
    )
  }
}

/** The router over real connections, with waits short enough for tests. */
export const routerLayer = (registered: Registered, options: Partial<ProviderRouterOptions> = {}) =>
  providerRouterUndici({
    sandbox: true,
    environment: {},
    ...options,
    routing: { backoff: 2, longestBackoff: 4, ...options.routing }
  }).pipe(Layer.provide([transportUndici({ allowPrivate: true }), registered.layer]))

export const chatCall = (model: string, more: Partial<UpstreamCall> = {}): UpstreamCall => ({
  operation: "chat",
  model,
  body: { model, messages: [{ role: "user", content: "Hi" }], ...(more.stream === true ? { stream: true } : {}) },
  stream: false,
  wantsUsage: false,
  requestId: "req-test",
  ...more
})

/** A stream read to its end. */
export interface Collected {
  readonly text: string
  readonly parts: ReadonlyArray<Buffer>
  readonly end: StreamEnd
}

/** Reads a stream; `each` sees every part, with the means to pause or give up. */
export const collect = (
  answer: StreamedAnswer,
  each: (part: Buffer, control: StreamControl) => void = () => undefined
): Promise<Collected> =>
  new Promise((resolve) => {
    const parts: Array<Buffer> = []
    const control: StreamControl = answer.start({
      chunk: (part) => {
        parts.push(part)
        each(part, control)
      },
      end: (end) => resolve({ parts, end, text: Buffer.concat(parts).toString() })
    })
  })
