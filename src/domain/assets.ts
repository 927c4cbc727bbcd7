/** Catalog assets: versioned, content-hashed, append-only (management-api.md, "Dataset", "Eval suite", "Versioning"). */
import { canonicalJson } from "#domain/canonical-json.ts"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { operators } from "#domain/pipelines/definition.ts"

export const assetKinds = ["dataset", "eval_suite", "pipeline_definition"] as const
export type AssetKind = (typeof assetKinds)[number]

/** How large an asset may grow. */
export const assetBounds = {
  /** Characters of canonical JSON, items left out. */
  content: 256 * 1024,
  depth: 32,
  /** Characters of canonical JSON of one item or test case. */
  item: 256 * 1024,
  /** Items that one request may bring. */
  itemsPerRequest: 20_000,
  items: 200_000,
  /** Characters of canonical JSON of all items of one version. */
  itemBytes: 64 * 1024 * 1024
} as const

/** The most rows of the spend log that one request samples. */
export const maxSample = 1000

const name = { type: "string", minLength: 1, maxLength: 256 } as const

/** Test cases and the items of datasets (decisions.md, section 10.3). `input` and `expected` are the caller's business. */
const testCase = {
  type: "object",
  properties: {
    id: { type: "string", minLength: 1, maxLength: 256 },
    weight: { type: "number", exclusiveMinimum: 0, maximum: 1_000_000 }
  }
} as const

const snapshotIds = {
  type: "array",
  maxItems: 1000,
  items: { type: ["string", "integer"], minLength: 1, maxLength: 256 }
} as const

/** The JSON Schema (draft 2020-12) that the content of each kind satisfies. Further members are the caller's business. */
export const assetSchemas: Readonly<Record<AssetKind, JsonObject>> = {
  dataset: {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Dataset",
    type: "object",
    required: ["name", "storage_format", "table_ref"],
    properties: {
      name,
      description: { type: "string", maxLength: 10_000 },
      storage_format: { type: "string", minLength: 1, maxLength: 64 },
      table_ref: { type: "object", properties: { snapshot_ids: snapshotIds } },
      provenance: {
        type: "object",
        properties: { items: { type: "array", maxItems: assetBounds.itemsPerRequest, items: testCase } }
      }
    }
  },
  eval_suite: {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Eval suite",
    type: "object",
    required: ["name", "eval_type", "test_cases"],
    properties: {
      name,
      description: { type: "string", maxLength: 10_000 },
      eval_type: { type: "string", minLength: 1, maxLength: 64 },
      test_cases: { type: "array", maxItems: assetBounds.itemsPerRequest, items: testCase },
      pass_threshold: { type: "number", minimum: 0, maximum: 1 },
      dataset_snapshot_ids: snapshotIds
    }
  },
  pipeline_definition: {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Pipeline definition",
    type: "object",
    required: ["name", "steps"],
    properties: {
      name,
      dsl_source: { type: "string", maxLength: assetBounds.content },
      inputs: { type: "object" },
      steps: {
        type: "array",
        minItems: 1,
        maxItems: 1000,
        items: {
          type: "object",
          required: ["id", "operator"],
          properties: {
            id: { type: "string", minLength: 1, maxLength: 128 },
            operator: { enum: operators }
          }
        }
      }
    }
  }
}

/** Where the items of a kind stand in its document; undefined: it has none. */
const itemPaths: Readonly<Record<AssetKind, ReadonlyArray<string> | undefined>> = {
  dataset: ["provenance", "items"],
  eval_suite: ["test_cases"],
  pipeline_definition: undefined
}

export const itemPathOf = (kind: AssetKind): string => itemPaths[kind]?.join(".") ?? ""

/** A document taken apart: its items, and the rest. */
export interface SplitDocument {
  readonly content: JsonObject
  readonly items: ReadonlyArray<JsonObject>
}

/** The document must satisfy its kind's schema. */
export const splitDocument = (kind: AssetKind, document: JsonObject): SplitDocument => {
  const path = itemPaths[kind]
  if (path === undefined) return { content: document, items: [] }
  let items: ReadonlyArray<JsonObject> = []
  const without = (value: JsonObject, [first, ...rest]: ReadonlyArray<string>): JsonObject => {
    if (first === undefined) return value
    const { [first]: member, ...others } = value
    if (rest.length > 0) return isJsonObject(member) ? { ...others, [first]: without(member, rest) } : value
    if (Array.isArray(member)) items = member.filter(isJsonObject)
    return others
  }
  const content = without(document, path)
  return { content, items }
}

/** The whole document again. */
export const joinDocument = (kind: AssetKind, { content, items }: SplitDocument): JsonObject => {
  const put = (value: JsonObject, [first, ...rest]: ReadonlyArray<string>): JsonObject => {
    if (first === undefined) return value
    if (rest.length === 0) return { ...value, [first]: items }
    const member = value[first]
    return { ...value, [first]: put(isJsonObject(member) ? member : {}, rest) }
  }
  return put(content, itemPaths[kind] ?? [])
}

/**
 * The canonical text of a document around its items, which stand between the two, joined with commas: so that a large
 * list is hashed where it lies.
 */
export const canonicalAround = (kind: AssetKind, content: JsonObject): readonly [before: string, after: string] => {
  const before = canonicalJson(content)
  if (itemPaths[kind] === undefined) return [before, ""]
  // Long enough not to stand in the content by chance, and not chosen by whoever wrote it.
  const mark = crypto.randomUUID()
  const text = canonicalJson(joinDocument(kind, { content, items: [{ mark }] }))
  const item = `{"mark":"${mark}"}`
  const at = text.indexOf(item)
  return [text.slice(0, at), text.slice(at + item.length)]
}

/** The weight of a test case: 1 where it says nothing. */
export const weightOf = (item: JsonObject): number => {
  const weight = item["weight"]
  return typeof weight === "number" ? weight : 1
}

/** The table snapshots that a dataset's content names: the pin that makes an evaluation reproducible. */
export const snapshotIdsOf = (content: JsonObject): ReadonlyArray<string> => {
  const table = content["table_ref"]
  return isJsonObject(table) ? textsOf(table["snapshot_ids"]) : []
}

/** The dataset snapshots that a suite's content names. */
export const suiteSnapshotsOf = (content: JsonObject): ReadonlyArray<string> => textsOf(content["dataset_snapshot_ids"])

const textsOf = (value: Json | undefined): ReadonlyArray<string> => (Array.isArray(value) ? value.map(String) : [])

/** Whether a value nests deeper than `levels`. */
export const isDeeperThan = (value: Json, levels: number): boolean => {
  if (typeof value !== "object" || value === null) return false
  if (levels === 0) return true
  const members = isJsonObject(value) ? Object.values(value) : value
  return members.some((member) => isDeeperThan(member, levels - 1))
}
