/** Handlers of images, audio, moderation and rerank. */
import { Effect } from "effect"
import type { HttpServerRequest } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { ModelCaller, RequestId } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { type GatewayError, invalidFormat, InvalidRequest, invalidValue, missingField } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import { ImageGenerationRequest, ModerationRequest, RerankRequest, SpeechRequest } from "#domain/media-requests.ts"
import type { ModelOperation } from "#domain/operations.ts"
import type { ApiKeyPrincipal, MasterKeyPrincipal } from "#domain/principal.ts"
import { makeGovernedCall, readJson } from "#http/governed.ts"
import { messageOf } from "#http/node-message.ts"
import { checker } from "#http/inference.ts"
import { UploadSpool } from "#services/files/UploadSpool.ts"
import { ModelCalls } from "#services/inference/ModelCalls.ts"
import { ModelRegistry } from "#services/models/ModelRegistry.ts"

type MediaOperation = Extract<
  ModelOperation,
  "image" | "image_edit" | "speech" | "transcription" | "moderation" | "rerank"
>

/** `model_info.mode` of the models that serve an operation where the request names none. */
const modes: { readonly [O in MediaOperation]: ReadonlyArray<string> } = {
  image: ["image_generation"],
  image_edit: ["image_edit", "image_generation"],
  speech: ["audio_speech"],
  transcription: ["audio_transcription"],
  moderation: ["moderation"],
  rerank: ["rerank"]
}

const checks = {
  image: checker(ImageGenerationRequest),
  image_edit: checker(ImageGenerationRequest),
  speech: checker(SpeechRequest),
  moderation: checker(ModerationRequest),
  rerank: checker(RerankRequest)
}

/** What a form's image is counted as, in tokens. */
const tokensPerFile = 2_000

const isForm = (request: HttpServerRequest.HttpServerRequest): boolean =>
  /^multipart\/form-data\b/i.test(request.headers["content-type"] ?? "")

const unstreamed = (body: JsonObject): Effect.Effect<void, GatewayError> =>
  body["stream"] === true || body["stream"] === "true"
    ? Effect.fail(
        new InvalidRequest({
          code: "unsupported_parameter",
          message: "'stream' is not supported by this operation.",
          param: "stream"
        })
      )
    : Effect.void

/** A form carries texts only: `n` is the one field that the gateway itself reads as a number. */
const withNumbers = (fields: JsonObject): JsonObject => {
  const count = Number(fields["n"])
  return Number.isInteger(count) && typeof fields["n"] === "string" ? { ...fields, n: count } : fields
}

export const MediaHandlers = HttpApiBuilder.group(
  Api,
  "media",
  Effect.fn(function* (handlers) {
    const governed = yield* makeGovernedCall
    const registry = yield* ModelRegistry
    const spool = yield* UploadSpool
    const calls = yield* ModelCalls

    /** The first that was registered for the operation and that the caller may use. */
    const defaultModel = (operation: MediaOperation, caller: ApiKeyPrincipal | MasterKeyPrincipal) => {
      const allowed = caller._tag === "ApiKey" ? caller.key.models : undefined
      const rows = registry.snapshot().filter((row) => allowed === undefined || allowed.has(row.modelName))
      for (const mode of modes[operation]) {
        const found = rows.findLast((row) => row.modelInfo["mode"] === mode)
        if (found !== undefined) return found.modelName
      }
      return undefined
    }

    const modelOf = (operation: MediaOperation, body: JsonObject, caller: ApiKeyPrincipal | MasterKeyPrincipal) => {
      const given = body["model"]
      const model = given === undefined || given === null || given === "" ? defaultModel(operation, caller) : given
      if (model === undefined) return Effect.fail(missingField("model"))
      return typeof model === "string" && model.length <= 256
        ? Effect.succeed(model)
        : Effect.fail(invalidFormat("model", "'model' must be one text."))
    }

    const json = (operation: Exclude<MediaOperation, "transcription">) =>
      Effect.fnUntraced(function* ({ request }: { readonly request: HttpServerRequest.HttpServerRequest }) {
        const caller = yield* ModelCaller
        const { body, promptBound } = yield* readJson(request, checks[operation])
        if (operation === "image" || operation === "image_edit") yield* unstreamed(body)
        const model = yield* modelOf(operation, body, caller)
        const requestId = yield* RequestId
        const call = { caller, requestId, operation, model, body, promptBound, stream: false, wantsUsage: false }
        return yield* governed(request, call)
      })

    const form = (operation: "transcription" | "image_edit", file: string) =>
      Effect.fnUntraced(function* ({ request }: { readonly request: HttpServerRequest.HttpServerRequest }) {
        const caller = yield* ModelCaller
        // Before the first byte goes to the disk; whatever the form turns out to be, it was a request.
        yield* calls.admitUpload(caller, operation)
        const received = yield* spool.receive(messageOf(request))
        const { files } = received
        const body = withNumbers(received.fields)
        if (!files.some(({ field }) => field === file || field === `${file}[]`)) return yield* missingField(file)
        yield* unstreamed(body)
        if (operation === "image_edit") yield* checks.image_edit(body)
        const model = yield* modelOf(operation, body, caller)
        const requestId = yield* RequestId
        const promptBound = Buffer.byteLength(JSON.stringify(body)) + files.length * tokensPerFile
        const call = {
          caller,
          requestId,
          operation,
          model,
          body,
          files,
          promptBound,
          counted: true,
          stream: false,
          wantsUsage: false
        }
        return yield* governed(request, call)
      }, Effect.scoped)

    const editJson = json("image_edit")
    const editForm = form("image_edit", "image")
    const transcribe = form("transcription", "file")
    const moderation = json("moderation")
    return handlers
      .handleRaw("images", json("image"))
      .handleRaw("image_edits", (input) => (isForm(input.request) ? editForm(input) : editJson(input)))
      .handleRaw("speech", json("speech"))
      .handleRaw("transcriptions", (input) =>
        isForm(input.request)
          ? transcribe(input)
          : Effect.fail(invalidValue("file", "The body must be multipart/form-data with the audio in 'file'."))
      )
      .handleRaw("moderations", moderation)
      .handleRaw("moderations_alias", moderation)
      .handleRaw("rerank", json("rerank"))
  })
)
