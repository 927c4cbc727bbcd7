import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "#api/Api.ts"
import { undocumentedPageSize } from "#api/people-fields.ts"
import { instantText } from "#domain/instants.ts"
import { dollarsNumber } from "#domain/money.ts"
import type { Customer, CustomerTarget } from "#domain/people.ts"
import { limitsOf, pageOf, rowCaller, shownLimits, textOrNull } from "#http/people-fields.ts"
import { isGiven } from "#http/row-owner.ts"
import { Customers } from "#services/people/Customers.ts"

const shown = (customer: Customer) => ({
  id: customer.id,
  customer_id: customer.id,
  end_user_id: customer.endUserId,
  external_user_id: customer.endUserId,
  end_user_name: customer.endUserName,
  alias: customer.endUserName,
  organization_id: customer.organizationId,
  spend: dollarsNumber(customer.totalSpend),
  blocked: customer.blocked,
  default_model: null,
  allowed_model_region: null,
  ...shownLimits(customer),
  created_at: instantText(customer.createdAt)
})

const targetOf = (payload: {
  readonly customer_id: string
  readonly id?: string | null
  readonly end_user_id?: string | null
}): CustomerTarget => ({
  either: payload.customer_id,
  ...(isGiven(payload.id) ? { id: payload.id } : {}),
  ...(isGiven(payload.end_user_id) ? { endUserId: payload.end_user_id } : {})
})

export const CustomerHandlers = HttpApiBuilder.group(
  Api,
  "customer",
  Effect.fn(function* (handlers) {
    const customers = yield* Customers
    return handlers.handleAll({
      new: Effect.fnUntraced(function* ({ payload }) {
        const name = textOrNull(payload.end_user_name) ?? textOrNull(payload.alias)
        const id = yield* customers.create(
          {
            endUserId: textOrNull(payload.end_user_id) ?? payload.user_id,
            ...(name === null ? {} : { endUserName: name }),
            ...limitsOf(payload)
          },
          yield* rowCaller
        )
        return { customer_id: id }
      }),
      update: Effect.fnUntraced(function* ({ payload }) {
        yield* customers.update(
          targetOf(payload),
          {
            ...(payload.end_user_name === undefined ? {} : { endUserName: payload.end_user_name }),
            ...(payload.blocked === undefined ? {} : { blocked: payload.blocked }),
            ...limitsOf(payload)
          },
          yield* rowCaller
        )
        return { updated: true }
      }),
      delete: Effect.fnUntraced(function* ({ payload }) {
        yield* customers.remove(targetOf(payload), yield* rowCaller)
        return { deleted: true }
      }),
      list: Effect.fnUntraced(function* ({ query }) {
        const { hasMore, rows } = yield* customers.list(pageOf(query, undocumentedPageSize), yield* rowCaller)
        return { data: rows.map(shown), has_more: hasMore }
      })
    })
  })
)
