import { Redacted } from "effect"
import type { JsonObject } from "#domain/json.ts"
import type { ModelOperation } from "#domain/operations.ts"
import { readBase } from "#layers/inference/wires/bases.ts"
import { chatOfConverse, usageOfConverse } from "#layers/inference/wires/bedrock/decode.ts"
import { embedder, encodeInvoke, invokeUsage, vectorsOf } from "#layers/inference/wires/bedrock/embed.ts"
import { encodeConverse } from "#layers/inference/wires/bedrock/encode.ts"
import { classifyBedrock } from "#layers/inference/wires/bedrock/problems.ts"
import { ConverseDecoder } from "#layers/inference/wires/bedrock/stream.ts"
import { answered, type ChatHead, chatHead } from "#layers/inference/wires/chat/answer.ts"
import { refusable } from "#layers/inference/wires/chat/fields.ts"
import { ChatStream } from "#layers/inference/wires/chat/stream.ts"
import { embeddingAnswer, type EmbeddingRequest, readEmbedding } from "#layers/inference/wires/embeddings.ts"
import { isProblem, readAnswer } from "#layers/inference/wires/problems.ts"
import { type AwsCredentials, signV4 } from "#layers/inference/wires/sigv4.ts"
import { stringOf } from "#layers/inference/wires/values.ts"
import type { UpstreamCall } from "#services/inference/ProviderRouter.ts"
import type { BoundWire, Exchange, Wire, WireRequest, WireTarget } from "#services/inference/Wire.ts"

const chatOperations: ReadonlySet<ModelOperation> = new Set<ModelOperation>(["chat", "completion"])
const embedOperations: ReadonlySet<ModelOperation> = new Set<ModelOperation>(["embedding"])

const chatExchange = (call: UpstreamCall, request: WireRequest, head: ChatHead): Exchange => ({
  request,
  decode: (response) => {
    const answer = readAnswer(response.body)
    if (isProblem(answer)) return answer
    const chat = chatOfConverse(answer, head)
    return isProblem(chat) ? chat : answered(chat, usageOfConverse(answer["usage"]))
  },
  openStream: () => new ConverseDecoder(new ChatStream(head, call.wantsUsage))
})

const embedExchange = (asked: EmbeddingRequest, request: WireRequest, head: ChatHead): Exchange => ({
  request,
  decode: (response) => {
    const answer = readAnswer(response.body)
    if (isProblem(answer)) return answer
    return embeddingAnswer(asked, head.model, vectorsOf(answer), invokeUsage(answer, response.headers))
  },
  openStream: () => new ConverseDecoder(new ChatStream(head, false))
})

const regionName = /^[a-z]{2}(?:-[a-z]+)+-\d{1,2}$/

interface Account {
  readonly region: string
  readonly credentials: AwsCredentials | undefined
  /** A Bedrock API key, which needs no signature. */
  readonly bearer: string | undefined
}

/** A key id without its secret is no credential. */
const keyId = /^A[KS]IA[A-Z0-9]{12,}$/

const accountOf = (target: WireTarget): Account | string => {
  const params = Redacted.value(target.params)
  const hostRegion = /^https:\/\/bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com/.exec(target.apiBase)?.[1]
  const region = stringOf(params["aws_region_name"]) ?? stringOf(params["aws_region"]) ?? hostRegion
  if (region === undefined) return "aws_region_name is missing"
  if (!regionName.test(region)) return "aws_region_name is no region"
  const accessKeyId = stringOf(params["aws_access_key_id"])
  const secretAccessKey = stringOf(params["aws_secret_access_key"])
  if (accessKeyId !== undefined && secretAccessKey !== undefined) {
    const sessionToken = stringOf(params["aws_session_token"])
    return { region, credentials: { accessKeyId, secretAccessKey, sessionToken }, bearer: undefined }
  }
  const bearer = target.apiKey === undefined ? undefined : Redacted.value(target.apiKey)
  if (bearer === undefined || keyId.test(bearer)) {
    return "aws_access_key_id and aws_secret_access_key are missing, and so is an api_key of Bedrock"
  }
  return { region, credentials: undefined, bearer }
}

const endpoint = (region: string): string =>
  `https://bedrock-runtime.${region}.amazonaws.com${region.startsWith("cn-") ? ".cn" : ""}`

/** Amazon Bedrock: chat by Converse, embeddings of Titan and Cohere by InvokeModel, signed or with a Bedrock API key. */
export const bedrockWire: Wire = {
  name: "bedrock",
  bind: (target: WireTarget) => {
    const account = accountOf(target)
    if (typeof account === "string") return account
    const { bearer, credentials, region } = account
    const base = readBase(target.apiBase === "" ? endpoint(region) : target.apiBase)
    if (typeof base === "string") return base
    const { upstreamModel: model } = target
    const { host } = new URL(base.origin)
    const resource = `${base.path}/model/${encodeURIComponent(model)}`
    const headers: Readonly<Record<string, string>> = {
      "content-type": "application/json",
      ...(bearer === undefined ? {} : { authorization: `Bearer ${bearer}` })
    }
    const post = (action: string, body: JsonObject): WireRequest => ({
      method: "POST",
      path: `${resource}/${action}`,
      headers,
      body: JSON.stringify(body)
    })
    const wire: BoundWire = {
      origin: base.origin,
      operations: embedder(model) === undefined ? chatOperations : embedOperations,
      streamType: "text/event-stream",
      classify: classifyBedrock,
      encode: (call) =>
        refusable(() => {
          if (call.operation === "embedding") {
            const asked = readEmbedding(call, target, ["input_type", "truncate"])
            return embedExchange(asked, post("invoke", encodeInvoke(asked, call.body, model)), chatHead(call, model))
          }
          const { body, jsonTool } = encodeConverse(call, target)
          const request = post(call.stream ? "converse-stream" : "converse", body)
          return chatExchange(call, request, chatHead(call, model, jsonTool))
        })
    }
    if (credentials === undefined) return wire
    const scope = { region, service: "bedrock" }
    return {
      ...wire,
      sign: (request, now) => {
        const signed = signV4({ ...request, headers: { ...request.headers, host } }, credentials, scope, now)
        return { ...request, headers: { ...request.headers, ...signed } }
      }
    }
  }
}
