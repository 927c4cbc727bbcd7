/** Promise 1 and 9 of the design: the contract is the specification's list, and every endpoint declares who may call it. */
import { readFileSync } from "node:fs"
import { assert, describe, it } from "vitest"
import { parse } from "yaml"
import { declaredOperations, openApiDocuments } from "#http/openapi-documents.ts"

interface Documented {
  readonly document: string
  readonly group: string
  readonly operation: string
  readonly codes: string
}

const documented: ReadonlyArray<Documented> = readFileSync(new URL("operations.tsv", import.meta.url), "utf8")
  .trim()
  .split("\n")
  .slice(1)
  .map((line) => {
    const [document = "", group = "", method = "", path = "", codes = ""] = line.split("\t")
    return { document, group, operation: `${method} ${path}`, codes: codes.split(",").sort().join(",") }
  })

/** The groups of the specification that are not served yet, whole or in part. */
const pending = new Set<string>([
  "v1 (admin-attested surface)",
  "Assistants, threads, responses",
  "Batches, files, fine-tuning",
  "Knowledge, insights, web",
  "Vector stores"
])

const declared = declaredOperations().map((operation) => ({
  ...operation,
  operation: `${operation.method} ${operation.path}`,
  documentedCodes: [...new Set(operation.codes.map((code) => (code === 500 ? "5XX" : String(code))))].sort().join(",")
}))

describe("the contract", () => {
  it("has 222 operations to reach", () => assert.strictEqual(documented.length, 222))

  it("declares no operation twice", () => {
    assert.strictEqual(new Set(declared.map(({ operation }) => operation)).size, declared.length)
  })

  for (const { codes, group, operation } of documented) {
    const found = declared.find((one) => one.operation === operation)
    if (found === undefined && pending.has(group)) continue
    it(operation, () => {
      assert.isDefined(found, "not declared")
      // A documented 500 and 5XX are one code here.
      assert.strictEqual(found?.documentedCodes, codes.replace("500,5XX", "5XX"))
    })
  }

  it("declares nothing that is not documented", () => {
    const known = new Set(documented.map(({ operation }) => operation))
    assert.deepStrictEqual(
      declared.map(({ operation }) => operation).filter((operation) => !known.has(operation)),
      []
    )
  })
})

describe("the OpenAPI documents", () => {
  const documents = openApiDocuments()
  const parsed = {
    management: parse(documents["management.yaml"]) as { paths: Record<string, Record<string, { responses: object }>> },
    model: parse(documents["v1.yaml"]) as { paths: Record<string, Record<string, { responses: object }>> },
    components: parse(documents["_components.yaml"]) as { components: { schemas: object } }
  }

  it("hold every declared operation with its documented codes, and nothing else", () => {
    const inDocuments = [parsed.management, parsed.model].flatMap(({ paths }) =>
      Object.entries(paths).flatMap(([path, methods]) =>
        Object.entries(methods).map(
          ([method, { responses }]) => `${method.toUpperCase()} ${path} ${Object.keys(responses).sort().join(",")}`
        )
      )
    )
    assert.deepStrictEqual(
      inDocuments.sort(),
      declared.map(({ documentedCodes, operation }) => `${operation} ${documentedCodes}`).sort()
    )
  })

  it("refer only to components that exist", () => {
    const names = Object.keys(parsed.components.components.schemas)
    const references = Object.values(documents).flatMap((text) => [
      ...text.matchAll(/#\/components\/schemas\/([A-Za-z0-9_.-]+)/g)
    ])
    assert.isNotEmpty(references)
    for (const [, name] of references) assert.include(names, name)
  })
})
