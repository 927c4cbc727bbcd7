import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { missingField, type ValidationFailed } from "#domain/errors.ts"
import { instantText } from "#domain/instants.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { actorOf } from "#domain/principal.ts"
import { type CredentialTarget, CredentialVault, type MaskedCredential } from "#services/models/CredentialVault.ts"
import { Provisioning } from "#services/models/Provisioning.ts"

const shown = (credential: MaskedCredential) => ({
  id: credential.id,
  credential_id: credential.id,
  credential_name: credential.credentialName,
  credential_info: credential.credentialInfo,
  created_by: credential.createdBy,
  created_at: instantText(credential.createdAt),
  updated_at: instantText(credential.updatedAt)
})

const isGiven = (text: string | null | undefined): text is string => text !== undefined && text !== null && text !== ""

interface Reference {
  readonly credential_id?: string | null
  readonly id?: string | null
  readonly credential_name?: string | null
}

const targetOf = (reference: Reference): Effect.Effect<CredentialTarget, ValidationFailed> => {
  const id = [reference.id, reference.credential_id].find(isGiven)
  if (id !== undefined) return Effect.succeed({ id })
  return isGiven(reference.credential_name)
    ? Effect.succeed({ credentialName: reference.credential_name })
    : Effect.fail(missingField("credential_id"))
}

const parsedObject = (text: string): JsonObject | undefined => {
  try {
    const value = JSON.parse(text) as Json
    return isJsonObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** `credential_values` as a text holds a JSON object, or else is the key itself. */
const valuesOf = (values: string | JsonObject | null | undefined): JsonObject => {
  if (values === null || values === undefined || values === "") return {}
  return typeof values === "string" ? (parsedObject(values) ?? { api_key: values }) : values
}

export const CredentialHandlers = HttpApiBuilder.group(
  Api,
  "credential",
  Effect.fn(function* (handlers) {
    const vault = yield* CredentialVault
    const provisioning = yield* Provisioning
    return handlers.handleAll({
      new: Effect.fnUntraced(function* ({ payload }) {
        const id = yield* vault.create({
          credentialName: isGiven(payload.credential_name) ? payload.credential_name : null,
          credentialInfo: { ...payload.credential_info, ...valuesOf(payload.credential_values) },
          actor: actorOf(yield* ManagementCaller)
        })
        return { credential_id: id }
      }),
      update: Effect.fnUntraced(function* ({ payload }) {
        const info: JsonObject = { ...payload.credential_info, ...valuesOf(payload.credential_values) }
        yield* vault.update(yield* targetOf(payload), {
          ...(isGiven(payload.credential_name) ? { credentialName: payload.credential_name } : {}),
          ...(Object.keys(info).length === 0 ? {} : { credentialInfo: info }),
          actor: actorOf(yield* ManagementCaller)
        })
        return { updated: true }
      }),
      delete: Effect.fnUntraced(function* ({ payload }) {
        yield* vault.remove(yield* targetOf(payload), actorOf(yield* ManagementCaller))
        return { deleted: true }
      }),
      list: () => Effect.map(vault.list, (credentials) => ({ data: credentials.map(shown) })),
      presets: () =>
        Effect.sync(() => ({
          data: provisioning.presets().map(({ detected, preset }) => ({
            name: preset.name,
            api_base: preset.apiBase,
            custom_llm_provider: preset.name,
            api_key_header: preset.apiKeyHeader,
            detected
          }))
        })),
      provision: Effect.fnUntraced(function* ({ payload }) {
        const done = yield* provisioning.provision(payload.provider, actorOf(yield* ManagementCaller))
        return { ...shown(done.credential), models_synchronized: done.modelsSynchronized, reason: done.reason }
      })
    })
  })
)
