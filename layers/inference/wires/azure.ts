import { Redacted } from "effect"
import type { ModelOperation } from "#domain/operations.ts"
import { readBase } from "#layers/inference/wires/bases.ts"
import { keyHeader } from "#layers/inference/wires/credential.ts"
import { bindOpenAiShape } from "#layers/inference/wires/openai.ts"
import { stringOf } from "#layers/inference/wires/values.ts"
import type { Wire } from "#services/inference/Wire.ts"

/** Below a deployment, or below `/openai/v1`, which names the deployment as the model. */
const paths: Partial<Record<ModelOperation, string>> = {
  chat: "chat/completions",
  completion: "chat/completions",
  embedding: "embeddings",
  image: "images/generations",
  image_edit: "images/edits",
  speech: "audio/speech",
  transcription: "audio/transcriptions"
}

/** Versions of the API without a date. */
const undated = new Set(["v1", "latest", "preview"])

/**
 * Azure OpenAI: OpenAI's shape below a deployment, whose name is the model's. With an `api_version` of a date requests go
 * to `/openai/deployments/…`, without one to the undated `/openai/v1`. The key goes into `api-key`; `azure_ad_token`, a
 * token of Microsoft Entra, into `authorization`.
 */
export const azureWire: Wire = {
  name: "azure",
  bind: (target) => {
    const base = readBase(target.apiBase)
    if (typeof base === "string") return base
    const params = Redacted.value(target.params)
    const version = stringOf(params["api_version"])?.trim() ?? ""
    if (version !== "" && !undated.has(version) && !/^\d{4}-\d{2}-\d{2}(-preview)?$/.test(version)) {
      return "api_version is neither a date nor v1"
    }
    const token = stringOf(params["azure_ad_token"])
    if (token === undefined && target.apiKey === undefined) return "api_key or azure_ad_token is missing"
    const root = base.path.replace(/\/openai(\/v1)?$/, "")
    const dated = version !== "" && !undated.has(version)
    const deployment = `${root}/openai/deployments/${encodeURIComponent(target.upstreamModel)}`
    const prefix = dated ? deployment : `${root}/openai/v1`
    const query = dated || version === "preview" ? `?api-version=${version}` : ""
    const credential = token === undefined ? keyHeader(target, "api-key") : { authorization: `Bearer ${token}` }
    return bindOpenAiShape(target, base.origin, {
      path: (operation) => (paths[operation] === undefined ? undefined : `${prefix}/${paths[operation]}${query}`),
      headers: { "content-type": "application/json", ...credential }
    })
  }
}
