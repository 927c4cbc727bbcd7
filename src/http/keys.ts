import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ManagementCaller } from "#api/access.ts"
import { Api } from "#api/Api.ts"
import { defaultPageSize } from "#api/fields.ts"
import { forbidden, invalidValue, missingField, notFound, type GatewayError } from "#domain/errors.ts"
import { isUuid } from "#domain/ids.ts"
import { instantText, parseInstant } from "#domain/instants.ts"
import type { Key, KeyTarget } from "#domain/keys.ts"
import { dollarsNumber, nanosFromDollars } from "#domain/money.ts"
import { rowCallerOf } from "#domain/people.ts"
import { actorOf, type ManagementPrincipal, publicTenant, rowScopeOf, tenantOf } from "#domain/principal.ts"
import { type IssuedKey, KeyStore } from "#services/keys/KeyStore.ts"
import { Teams } from "#services/people/Teams.ts"
import { Users } from "#services/people/Users.ts"
import { Tenants } from "#services/tenants/Tenants.ts"

/** A key as lists show it. The token is not known any more; its last four characters tell several apart. */
const shown = (key: Key) => ({
  token: `sk-...${key.tokenHint}`,
  id: key.id,
  key_id: key.id,
  key_name: key.keyName,
  key_alias: key.keyAlias,
  user_id: key.userId,
  team_id: key.teamId,
  organization_id: key.organizationId,
  tenant: key.tenant,
  max_budget: key.maxBudget === null ? null : dollarsNumber(key.maxBudget),
  models: key.models,
  rpm_limit: key.rpmLimit,
  tpm_limit: key.tpmLimit,
  budget_id: key.budgetId,
  expires: key.expires === null ? null : instantText(key.expires),
  metadata: key.metadata,
  blocked: key.blocked,
  created_by: key.createdBy,
  created_at: instantText(key.createdAt),
  updated_at: instantText(key.updatedAt)
})

const issued = ({ key, plaintext }: IssuedKey) => ({ key: plaintext, key_id: key.id, key_name: key.keyName })

const byTokenOrId = (text: string): KeyTarget => (isUuid(text) ? { id: text } : { token: text })

interface Reference {
  readonly key?: string | null
  readonly key_id?: string | null
}

const isGiven = (text: string | null | undefined): text is string => text !== undefined && text !== null && text !== ""

/** The key that a request names; naming none finds none, since these operations document no 400. */
const targetOf = ({ key, key_id: id }: Reference): Effect.Effect<KeyTarget, GatewayError> => {
  if (isGiven(key)) return Effect.succeed(byTokenOrId(key))
  return isGiven(id) ? Effect.succeed({ id }) : Effect.fail(notFound("key"))
}

const orNull = (text: string | null | undefined): string | null => (isGiven(text) ? text : null)

const nanosOf = (dollars: number | null | undefined) =>
  dollars === null || dollars === undefined ? null : (nanosFromDollars(dollars) ?? null)

const millisOf = (text: string | null | undefined) =>
  text === null || text === undefined ? null : (parseInstant(text) ?? null)

const tenantSlug = /^[a-z][a-z0-9_-]{0,39}$/

export const KeyHandlers = HttpApiBuilder.group(
  Api,
  "key",
  Effect.fn(function* (handlers) {
    const store = yield* KeyStore
    const tenants = yield* Tenants
    const users = yield* Users
    const teams = yield* Teams

    const isProvisioned = (tenant: string): boolean =>
      tenant === publicTenant || (tenants.dormant ? tenantSlug.test(tenant) : tenants.slugs.includes(tenant))

    /** The tenant of a new key: the caller's, or what the master key says. */
    const tenantFor = (caller: ManagementPrincipal, asked: string | null): Effect.Effect<string, GatewayError> => {
      const own = tenantOf(caller)
      if (caller._tag !== "MasterKey" && !isProvisioned(own)) {
        return Effect.fail(forbidden("The caller's tenant is not provisioned."))
      }
      if (asked === null || asked === own) return Effect.succeed(own)
      if (caller._tag !== "MasterKey") {
        return Effect.fail(invalidValue("tenant", "Only the master key may create keys for another tenant."))
      }
      return isProvisioned(asked)
        ? Effect.succeed(asked)
        : Effect.fail(invalidValue("tenant", "This tenant is not provisioned."))
    }

    /** The organization of a new key: one that the caller may write to. */
    const organizationFor = (
      caller: ManagementPrincipal,
      asked: string | null
    ): Effect.Effect<string | null, GatewayError> => {
      const { organizationId } = rowScopeOf(caller)
      if (organizationId === undefined) return Effect.succeed(asked)
      if (organizationId === "") return Effect.fail(forbidden("The caller belongs to no organization."))
      return asked === null || asked === organizationId
        ? Effect.succeed(organizationId)
        : Effect.fail(invalidValue("organization_id", "The caller may only create keys of its own organization."))
    }

    /**
     * An organization's administrator names users and teams of the organization only: a key is charged to the budgets of
     * whom it names, and they are not its to spend.
     */
    const requireOwners = Effect.fnUntraced(function* (
      principal: ManagementPrincipal,
      owners: { readonly user_id?: string | null; readonly team_id?: string | null }
    ) {
      const caller = rowCallerOf(principal)
      if (caller.organizationId === undefined) return
      const absent = (param: string) => () => Effect.fail(invalidValue(param, `The caller has no such ${param}.`))
      if (isGiven(owners.user_id)) {
        yield* Effect.catchTag(users.find({ id: owners.user_id }, caller), "NotFound", absent("user_id"))
      }
      if (isGiven(owners.team_id)) {
        yield* Effect.catchTag(teams.find(owners.team_id, caller), "NotFound", absent("team_id"))
      }
    })

    const setBlocked = Effect.fnUntraced(function* (reference: Reference, blocked: boolean) {
      const caller = yield* ManagementCaller
      yield* store.setBlocked(yield* targetOf(reference), blocked, rowScopeOf(caller), actorOf(caller))
    })

    return handlers.handleAll({
      block: ({ payload }) => Effect.as(setBlocked(payload, true), { blocked: true }),
      unblock: ({ payload }) => Effect.as(setBlocked(payload, false), { unblocked: true }),
      delete: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        const targets = [
          ...[payload.key, ...(payload.keys ?? [])].filter(isGiven).map(byTokenOrId),
          ...[payload.key_id].filter(isGiven).map((id) => ({ id })),
          ...(payload.key_aliases ?? []).filter(isGiven).map((alias) => ({ alias }))
        ]
        if (targets.length === 0) return yield* missingField("keys")
        return { deleted_keys: yield* store.discard(targets, rowScopeOf(caller), actorOf(caller)) }
      }),
      generate: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        yield* requireOwners(caller, payload)
        return issued(
          yield* store.generate({
            tenant: yield* tenantFor(caller, orNull(payload.tenant)),
            keyName: payload.key_name ?? null,
            keyAlias: payload.key_alias ?? null,
            userId: orNull(payload.user_id),
            teamId: orNull(payload.team_id),
            organizationId: yield* organizationFor(caller, orNull(payload.organization_id)),
            maxBudget: nanosOf(payload.max_budget),
            models: [...new Set(payload.models)],
            rpmLimit: payload.rpm_limit ?? null,
            tpmLimit: payload.tpm_limit ?? null,
            budgetId: orNull(payload.budget_id),
            expires: millisOf(payload.expires),
            metadata: payload.metadata ?? {},
            actor: actorOf(caller)
          })
        )
      }),
      info: Effect.fnUntraced(function* ({ query }) {
        return shown(yield* store.find(yield* targetOf(query), rowScopeOf(yield* ManagementCaller)))
      }),
      list: Effect.fnUntraced(function* ({ query }) {
        const found = yield* store.list(
          {
            ...(isGiven(query.user_id) ? { userId: query.user_id } : {}),
            ...(isGiven(query.team_id) ? { teamId: query.team_id } : {}),
            ...(isGiven(query.organization_id) ? { organizationId: query.organization_id } : {}),
            ...(isGiven(query.search) ? { search: query.search } : {}),
            page: query.page ?? 1,
            pageSize: query.page_size ?? defaultPageSize
          },
          rowScopeOf(yield* ManagementCaller)
        )
        return { data: found.keys.map(shown), total: found.total }
      }),
      update: Effect.fnUntraced(function* ({ payload }) {
        const caller = yield* ManagementCaller
        yield* requireOwners(caller, payload.team_id === undefined ? {} : { team_id: payload.team_id })
        yield* store.update(
          byTokenOrId(payload.key),
          {
            ...(payload.key_name === undefined ? {} : { keyName: payload.key_name }),
            ...(payload.key_alias === undefined ? {} : { keyAlias: payload.key_alias }),
            ...(payload.team_id === undefined ? {} : { teamId: orNull(payload.team_id) }),
            ...(payload.max_budget === undefined ? {} : { maxBudget: nanosOf(payload.max_budget) }),
            ...(payload.models === undefined ? {} : { models: [...new Set(payload.models)] }),
            ...(payload.rpm_limit === undefined ? {} : { rpmLimit: payload.rpm_limit }),
            ...(payload.tpm_limit === undefined ? {} : { tpmLimit: payload.tpm_limit }),
            ...(payload.budget_id === undefined ? {} : { budgetId: orNull(payload.budget_id) }),
            ...(payload.expires === undefined ? {} : { expires: millisOf(payload.expires) }),
            ...(payload.metadata === undefined ? {} : { metadata: payload.metadata ?? {} }),
            actor: actorOf(caller)
          },
          rowScopeOf(caller)
        )
        return { updated: true }
      }),
      regenerate: Effect.fnUntraced(function* ({ params }) {
        const caller = yield* ManagementCaller
        return issued(yield* store.regenerate(byTokenOrId(params.key), rowScopeOf(caller), actorOf(caller)))
      })
    })
  })
)
