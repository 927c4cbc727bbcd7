import type { JsonObject } from "#domain/json.ts"
import { detectedKey, type ProviderPreset } from "#domain/providers/presets.ts"

export type Environment = Readonly<Record<string, string | undefined>>

const value = (environment: Environment, names: ReadonlyArray<string>): string | undefined =>
  names.map((name) => environment[name]?.trim()).find((text) => text !== undefined && text !== "")

/** A provider's settings in the environment, by the names under which a credential or a model's row holds them. */
const settings: Readonly<Record<string, Readonly<Record<string, ReadonlyArray<string>>>>> = {
  azure: { api_version: ["AZURE_OPENAI_API_VERSION", "AZURE_API_VERSION"] },
  bedrock: { aws_region: ["AWS_REGION", "AWS_DEFAULT_REGION"] }
}

/** The API keys of Bedrock (docs.aws.amazon.com, "Use an Amazon Bedrock API key"); they need no signature. */
const bedrockKey = "AWS_BEARER_TOKEN_BEDROCK"

/** An AWS access key: two parts that belong together, and a token if it is a temporary one. */
const accessKey: Readonly<Record<string, ReadonlyArray<string>>> = {
  aws_access_key_id: ["AWS_ACCESS_KEY_ID"],
  aws_secret_access_key: ["AWS_SECRET_ACCESS_KEY"],
  aws_session_token: ["AWS_SESSION_TOKEN"]
}

const read = (environment: Environment, fields: Readonly<Record<string, ReadonlyArray<string>>>): JsonObject =>
  Object.fromEntries(
    Object.entries(fields).flatMap(([field, names]) => {
      const found = value(environment, names)
      return found === undefined ? [] : [[field, found] as const]
    })
  )

/** What the environment says of a provider that is no secret: region, version of the API. */
export const settingsFrom = (preset: ProviderPreset, environment: Environment): JsonObject =>
  read(environment, settings[preset.name] ?? {})

/**
 * The provider's account in the environment: `api_key`, or for Bedrock the parts of an access key, where no key of
 * Bedrock's own goes before it, as in AWS's own clients. Empty: there is none.
 */
export const accountFrom = (preset: ProviderPreset, environment: Environment): JsonObject => {
  const variable = detectedKey(preset, environment)
  const key = variable === undefined ? undefined : environment[variable]?.trim()
  if (key === undefined || key === "") return {}
  return preset.wire === "bedrock" && variable !== bedrockKey ? read(environment, accessKey) : { api_key: key }
}
