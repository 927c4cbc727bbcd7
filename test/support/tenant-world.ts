/** One tenant with a row of every kind, for tests that look at it from another tenant. */
import { assert } from "vitest"
import type { OpenDatabase } from "#test/support/acceptance.ts"
import { administratorToken } from "#test/support/administrators.ts"
import type { Gateway, Reply } from "#test/support/Gateway.ts"
import { sessionCookie } from "#test/support/sessions.ts"

type Headers = Record<string, string>

export interface World {
  readonly tenant: string
  /** Part of every row of the tenant and of no other's. */
  readonly marker: string
  readonly administrator: Headers
  readonly developer: Headers
  /** Row ids by kind, and the plaintext of the key. */
  readonly ids: {
    readonly user: string
    readonly organization: string
    readonly team: string
    readonly customer: string
    readonly key: string
    readonly token: string
    readonly guardrail: string
    readonly callback: string
    readonly tag: string
    readonly group: string
    readonly developerKey: string
    readonly developerToken: string
    readonly dataset: string
    readonly suite: string
    readonly job: string
    readonly definition: string
    readonly run: string
    readonly runToCancel: string
    readonly runToTerminate: string
  }
}

/** What both tenants call their own: no name that one has taken may be refused to the other. */
export const sharedName = "same-name"
/** The principal that is a member of the tenant's group, beside which another one is put in and taken out. */
export const memberOf = (world: World): string => `user:${world.marker}`

/** Whether a text tells anything of a tenant's rows. */
export const leakIn = (text: string, world: World): string | undefined =>
  [world.marker, ...Object.values(world.ids)].find((secret) => text.includes(secret))

export const makeWorld = async (gateway: Gateway, database: OpenDatabase, tenant: string): Promise<World> => {
  const marker = `secret-of-${tenant}`
  const administrator = {
    authorization: `Bearer ${await administratorToken({ sub: `admin-${marker}`, role: "tenant_admin", tenant })}`
  }
  const send = async (
    method: string,
    path: string,
    body: unknown,
    headers: Headers = administrator
  ): Promise<Reply> => {
    const reply = await gateway.request(method, path, { body, headers })
    assert.include([200, 201, 202], reply.status, `${tenant} ${method} ${path}: ${reply.text}`)
    return reply
  }
  const make = async (path: string, body: unknown, field: string): Promise<string> =>
    String(((await send("POST", path, body)).json as Readonly<Record<string, unknown>>)[field])

  const user = await make("/user/new", { name: marker, user_email: "same@x.org", user_role: "developer" }, "id")
  const organization = await make("/organization/new", { organization_alias: marker }, "organization_id")
  const team = await make("/team/new", { team_alias: marker, organization_id: organization }, "team_id")
  await send("POST", "/team/member_add", { team_id: team, user_id: user })
  await send("POST", "/organization/member_add", { organization_id: organization, user_id: user })
  await make("/budget/new", { budget_id: sharedName, name: marker, max_budget: 5 }, "budget_id")
  const customer = await make("/customer/new", { user_id: sharedName, end_user_name: marker }, "customer_id")
  const issued = (
    await send("POST", "/key/generate", { key_name: marker, key_alias: sharedName, user_id: user, team_id: team })
  ).json as { readonly key: string; readonly key_id: string }
  const callback = await make(
    "/callback/new",
    { url: `https://callbacks.invalid/${marker}`, events: ["pipeline.run.failed"] },
    "callback_id"
  )
  const tag = await make("/tag/new", { tag_name: sharedName, description: marker }, "tag_id")
  await send("POST", "/config/update", { [sharedName]: marker })
  const group = (
    (await send("POST", "/management/v1/groups/", { name: sharedName })).json as {
      readonly group: { readonly id: string }
    }
  ).group.id
  await send("POST", `/management/v1/groups/${group}/members`, { principal_id: `user:${marker}` })
  await send("POST", `/management/v1/groups/${group}/permissions`, { privilege: "select", object_id: marker })
  await send("POST", "/management/v1/catalog/tags", {
    ns: "ns",
    key: sharedName,
    value: marker,
    target: { table: sharedName }
  })
  const dataset = await make(
    "/management/dataset/new",
    {
      name: sharedName,
      content: { name: marker, storage_format: "parquet", table_ref: { snapshot_ids: ["1"] } }
    },
    "asset_id"
  )
  const suite = await make(
    "/management/eval_suite/new",
    {
      name: sharedName,
      content: { name: marker, eval_type: "exact_match", test_cases: [{ id: "a", input: marker, expected: "x" }] }
    },
    "asset_id"
  )
  const job = await make("/management/eval_job/new", { eval_suite_id: suite }, "eval_job_id")
  const definition = await make(
    "/management/pipelines/definitions",
    { dsl_source: `name: ${sharedName}\nsteps:\n- {id: check, operator: human_review, with: {title: ${marker}}}` },
    "asset_id"
  )
  /** A run that waits for somebody, so that it stays as it is. */
  const waitingRun = async (): Promise<string> => {
    const id = await make("/management/pipelines/runs", { definition_id: definition }, "run_id")
    const deadline = performance.now() + 20_000
    const path = `/management/pipelines/runs/${id}`
    while (!(await send("GET", path, undefined)).text.includes("awaiting_review")) {
      assert.isBelow(performance.now(), deadline, "the run does not come to its review")
    }
    return id
  }
  const [run, runToCancel, runToTerminate] = [await waitingRun(), await waitingRun(), await waitingRun()]
  const developer = { cookie: await sessionCookie(database, user) }
  const minted = (await send("POST", "/developer/v1/keys", { key_alias: marker }, developer)).json as {
    readonly id: string
    readonly key: string
  }
  const guardrail = await make(
    "/guardrail/new",
    { guardrail_name: sharedName, guardrail_type: "deny_list", mode: "log", config: { phrases: [marker] } },
    "guardrail_id"
  )
  const call = {
    model: "sandbox/chat",
    messages: [{ role: "user", content: `hello ${marker}` }],
    max_tokens: 5
  }
  // The guardrail is in force a moment after it was made; its log then holds what was said.
  const deadline = performance.now() + 10_000
  do {
    assert.isBelow(performance.now(), deadline, "the guardrail logs nothing")
    await send("POST", "/v1/chat/completions", call, { authorization: `Bearer ${minted.key}` })
  } while (!(await send("GET", "/guardrail/logs", undefined)).text.includes(marker))
  return {
    tenant,
    marker,
    administrator,
    developer,
    ids: {
      user,
      organization,
      team,
      customer,
      key: issued.key_id,
      token: issued.key,
      guardrail,
      callback,
      tag,
      group,
      developerKey: minted.id,
      developerToken: minted.key,
      dataset,
      suite,
      job,
      definition,
      run,
      runToCancel,
      runToTerminate
    }
  }
}
