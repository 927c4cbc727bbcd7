/**
 * Every served endpoint by every class of caller, against access.tsv: `401` and `403` are those refusals with their
 * envelope, `served` is whatever else the operation answers.
 */
import { readFileSync } from "node:fs"
import { SignJWT } from "jose"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { declaredOperations } from "#http/openapi-documents.ts"
import { type OpenDatabase, openDatabase } from "#test/support/acceptance.ts"
import { administratorToken } from "#test/support/administrators.ts"
import { type Gateway, jwtSecret, masterKey, startGateway } from "#test/support/Gateway.ts"
import { sessionCookie } from "#test/support/sessions.ts"

const linesOf = (file: string): ReadonlyArray<ReadonlyArray<string>> =>
  readFileSync(new URL(file, import.meta.url), "utf8")
    .trim()
    .split("\n")
    .map((line) => line.split("\t"))

const [[, , ...callers] = [], ...rows] = linesOf("access.tsv")
const expectations = new Map(rows.map(([method = "", path = "", ...cells]) => [`${method} ${path}`, cells]))
const documented = linesOf("operations.tsv")
  .slice(1)
  .map(([, , method, path]) => `${method} ${path}`)

const declared = declaredOperations()

const nobodysId = "01890000-0000-7000-8000-000000000000"

/** What exists in the callers' tenant, where a row that does not would be refused itself. */
interface Fixtures {
  readonly groupId: string
  readonly organizationId: string
}

const pathOf = (template: string, { groupId }: Fixtures): string =>
  template
    .replace("{filename}", "management.yaml")
    .replace("groups/{id}/members", `groups/${groupId}/members`)
    .replaceAll(/\{[^}]+\}/g, nobodysId)

/** Where a caller is refused only after its body has been read. */
const bodyOf = (operation: string, { organizationId }: Fixtures): unknown => {
  const bodies: Readonly<Record<string, unknown>> = {
    "POST /organization/new": { organization_alias: "x" },
    "POST /organization/delete": { organization_id: organizationId },
    "POST /management/v1/groups/": { name: "group of the access test" },
    "POST /management/v1/groups/{id}/members": { principal_id: "user:x" },
    "POST /management/v1/groups/{id}/members/remove": { principal_id: "user:x" },
    "POST /management/v1/groups/{id}/permissions": { privilege: "select" },
    "POST /management/v1/groups/{id}/permissions/remove": { privilege: "select" }
  }
  return bodies[operation] ?? {}
}

const messages = {
  model: "API key is invalid or expired.",
  other: "Developer session is invalid or expired."
} as const

describe("the table of access", () => {
  it("has every documented operation once", () => {
    assert.strictEqual(rows.length, documented.length)
    assert.deepStrictEqual([...expectations.keys()].toSorted(), documented.toSorted())
  })

  it("says something known of every caller", () => {
    for (const [operation, cells] of expectations) {
      assert.strictEqual(cells.length, callers.length, operation)
      for (const cell of cells) assert.include(["401", "403", "served"], cell, operation)
    }
  })
})

describe("every endpoint by every class of caller", () => {
  let database: OpenDatabase
  let gateway: Gateway
  let fixtures: Fixtures = { groupId: "", organizationId: "" }
  const credentials = new Map<string, Record<string, string>>()

  beforeAll(async () => {
    database = await openDatabase()
    gateway = await startGateway({ databaseUrl: database.url, env: { GATEWAY_TENANTS: "acme" } })
    const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
    const developer = await gateway.admin("POST", "/user/new", { name: "Dev", user_role: "developer" })
    const { id: userId } = developer.json as { readonly id: string }
    const expired = await new SignJWT({ class: "control_plane", role: "instance_admin" })
      .setProtectedHeader({ alg: "HS256" })
      .setSubject("late")
      .setExpirationTime(Math.floor(Date.now() / 1000) - 60)
      .sign(Buffer.from(jwtSecret))
    const administrator = await administratorToken({ role: "tenant_admin", tenant: "acme" })
    const make = async (path: string, body: unknown) =>
      (await gateway.request("POST", path, { token: administrator, body })).json
    const organization = await make("/organization/new", { organization_alias: "O" })
    const group = await make("/management/v1/groups/", { name: "G" })
    fixtures = {
      groupId: (group as { readonly group: { readonly id: string } }).group.id,
      organizationId: (organization as { readonly organization_id: string }).organization_id
    }
    const tenantAs = async (role: "viewer" | "org_admin" | "tenant_admin" | "instance_admin") =>
      bearer(await administratorToken({ role, tenant: "acme", organization_id: fixtures.organizationId }))
    const all: Readonly<Record<string, Record<string, string>>> = {
      nobody: {},
      bad_token: bearer("nonsense"),
      expired_token: bearer(expired),
      api_key: bearer((await gateway.key({})).key),
      developer_key: bearer((await gateway.key({ user_id: userId })).key),
      developer_session: { cookie: await sessionCookie(database, userId) },
      viewer: await tenantAs("viewer"),
      org_admin: await tenantAs("org_admin"),
      tenant_admin: await tenantAs("tenant_admin"),
      tenant_instance_admin: await tenantAs("instance_admin"),
      instance_admin: bearer(await administratorToken({ class: "control_plane", role: "instance_admin" })),
      master_key: bearer(masterKey)
    }
    for (const [name, headers] of Object.entries(all)) credentials.set(name, headers)
    assert.deepStrictEqual([...credentials.keys()], callers)
  })
  afterAll(async () => {
    await gateway.stop()
    await database.close()
  })

  for (const { access, method, path } of declared) {
    const operation = `${method} ${path}`
    it(operation, async () => {
      const cells = expectations.get(operation)
      assert.isDefined(cells, "not in access.tsv")
      const body = method === "GET" ? undefined : bodyOf(operation, fixtures)
      for (const [index, caller] of callers.entries()) {
        const expected = cells?.[index]
        const reply = await gateway.request(method, pathOf(path, fixtures), {
          ...(body === undefined ? {} : { body }),
          headers: credentials.get(caller) ?? {}
        })
        const { error } = (reply.json ?? {}) as { readonly error?: Readonly<Record<string, unknown>> }
        const seen = `${caller}: ${reply.status} ${JSON.stringify(error)}`
        if (expected === "served") {
          assert.notInclude([401, 403], reply.status, seen)
          // What an operation depends on may be away; nothing else that a client sends is the gateway's fault.
          assert.isTrue(reply.status < 500 || String(error?.["code"]).endsWith("_not_configured"), seen)
        } else {
          assert.strictEqual(String(reply.status), expected, seen)
          assert.strictEqual(error?.["type"], expected === "401" ? "authentication_error" : "permission_error", seen)
          if (expected === "401") {
            const surface = access === "model" || access === "client_certificate" ? "model" : "other"
            assert.strictEqual(error?.["message"], messages[surface], seen)
            assert.deepStrictEqual(Object.keys(error ?? {}), ["message", "type", "code"], seen)
          }
        }
      }
    })
  }
})
