/** What the acceptance tests share: a database of their own, the books in it, a deadline for what must come true. */
import { Effect, Exit, Layer, ManagedRuntime, Redacted, Scope } from "effect"
import * as SqlClient from "effect/sql/SqlClient"
import * as DatabasePostgres from "#layers/storage/DatabasePostgres.ts"
import { DatabaseServer } from "#services/storage/DatabaseServer.ts"
import type { Gateway } from "#test/support/Gateway.ts"
import { freshDatabase } from "#test/support/Postgres.ts"

export interface OpenDatabase {
  readonly url: string
  readonly query: <Row>(statement: string, values?: ReadonlyArray<unknown>) => Promise<ReadonlyArray<Row>>
  readonly close: () => Promise<void>
}

/** A fresh migrated database, with a connection of the test's own. */
export const openDatabase = async (): Promise<OpenDatabase> => {
  const scope = Scope.makeUnsafe()
  const url = await Effect.runPromise(Scope.provide(freshDatabase(), scope))
  const runtime = ManagedRuntime.make(queries(url))
  return {
    url: Redacted.value(url),
    query: (statement, values = []) =>
      runtime.runPromise(
        Effect.flatMap(SqlClient.SqlClient, (sql) => sql.unsafe(statement, values)) as Effect.Effect<
          ReadonlyArray<never>,
          unknown,
          SqlClient.SqlClient
        >
      ),
    close: async () => {
      await runtime.dispose()
      await Effect.runPromise(Scope.close(scope, Exit.void))
    }
  }
}

const queries = (url: Redacted.Redacted<string>) =>
  DatabasePostgres.layer({ poolSize: 2 }).pipe(
    Layer.provide(Layer.succeed(DatabaseServer, { url, kind: "external", state: Effect.succeed("ready" as const) }))
  )

/** Asks until the answer satisfies, or throws with the last answer after the deadline. */
export const until = async <A>(
  ask: () => Promise<A>,
  satisfies: (answer: A) => boolean,
  deadlineMs = 10_000
): Promise<A> => {
  const deadline = performance.now() + deadlineMs
  for (;;) {
    const answer = await ask()
    if (satisfies(answer)) return answer
    if (performance.now() > deadline) throw new Error(`still not so: ${JSON.stringify(answer)}`)
    await new Promise((resolve) => setTimeout(resolve, 25))
  }
}

/** The three books that must agree to the nano-dollar (design.md, promise 4). */
export interface Books {
  readonly rows: number
  readonly rowSpend: string
  readonly dailyRequests: number
  readonly dailySpend: string
  readonly keyRequests: number
  readonly keySpend: string
}

/** The books of one key, once everything journalled has been written. */
export const booksOf = async (database: OpenDatabase, keyId: string): Promise<Books> => {
  const [row] = await database.query<Record<keyof Books, string>>(
    `SELECT
      (SELECT count(*)::text FROM spend_logs WHERE key_id = $1::text::uuid) AS "rows",
      (SELECT coalesce(sum(spend), 0)::text FROM spend_logs WHERE key_id = $1::text::uuid) AS "rowSpend",
      (SELECT coalesce(sum(requests), 0)::text FROM daily_usage WHERE key_id = $1::text::uuid) AS "dailyRequests",
      (SELECT coalesce(sum(spend), 0)::text FROM daily_usage WHERE key_id = $1::text::uuid) AS "dailySpend",
      (SELECT coalesce(sum(requests), 0)::text FROM key_usage WHERE key_id = $1::text::uuid) AS "keyRequests",
      (SELECT coalesce(sum(spend), 0)::text FROM key_usage WHERE key_id = $1::text::uuid) AS "keySpend"`,
    [keyId]
  )
  return {
    rows: Number(row!.rows),
    rowSpend: trimmed(row!.rowSpend),
    dailyRequests: Number(row!.dailyRequests),
    dailySpend: trimmed(row!.dailySpend),
    keyRequests: Number(row!.keyRequests),
    keySpend: trimmed(row!.keySpend)
  }
}

const trimmed = (decimal: string): string =>
  decimal.includes(".") ? decimal.replace(/0+$/, "").replace(/\.$/, "") : decimal

/** Registers a model on a stub upstream. Prices are in dollars per token. */
export const registerModel = async (
  gateway: Gateway,
  name: string,
  apiBase: string,
  modelInfo: Readonly<Record<string, unknown>> = {},
  params: Readonly<Record<string, unknown>> = {}
): Promise<string> => {
  const reply = await gateway.admin("POST", "/model/new", {
    model_name: name,
    gateway_params: { model: `openai/${name}`, api_base: apiBase, api_key: "sk-upstream", ...params },
    model_info: modelInfo
  })
  if (reply.status !== 201) throw new Error(`/model/new answered ${reply.status}: ${reply.text}`)
  return (reply.json as { readonly model_id: string }).model_id
}

export const chatBody = (model: string, more: Readonly<Record<string, unknown>> = {}) => ({
  model,
  messages: [{ role: "user", content: "Hello" }],
  ...more
})
