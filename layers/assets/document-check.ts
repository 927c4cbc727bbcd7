/** Whether documents may become assets: their kind's JSON Schema, sizes, depths. Faults name the request's field. */
import { Ajv2020, type ErrorObject, type ValidateFunction } from "ajv/dist/2020.js"
import { assetBounds, type AssetKind, assetKinds, assetSchemas, isDeeperThan } from "#domain/assets.ts"
import { canonicalJson } from "#domain/canonical-json.ts"
import { invalidValue, missingField, ValidationFailed } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import { isStorableJson } from "#domain/storable.ts"

const ajv = new Ajv2020({ strict: false, logger: false })

const validators = new Map<AssetKind, ValidateFunction>(
  assetKinds.map((kind) => [kind, ajv.compile(assetSchemas[kind])])
)

const pathOf = (path: string, pointer: string, more = ""): string =>
  [path, ...pointer.split("/").slice(1), more]
    .filter((part) => part !== "")
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"))
    .join(".")

const tooLong = (param: string, message: string) => new ValidationFailed({ code: "value_too_long", message, param })

const faultOf = (error: ErrorObject, path: string): ValidationFailed => {
  if (error.keyword === "required") {
    return missingField(pathOf(path, error.instancePath, String(error.params["missingProperty"])))
  }
  const param = pathOf(path, error.instancePath)
  const message = `'${param}' ${error.message ?? "is not valid"}.`
  return error.keyword === "maxLength" || error.keyword === "maxItems"
    ? tooLong(param, message)
    : invalidValue(param, message)
}

/** The first fault of a document; undefined: there is none. `path` is where it stands in the request. */
export const documentFault = (kind: AssetKind, document: JsonObject, path: string): ValidationFailed | undefined => {
  if (isDeeperThan(document, assetBounds.depth)) {
    return invalidValue(path, `'${path}' nests deeper than ${assetBounds.depth} levels.`)
  }
  if (!isStorableJson(document)) return invalidValue(path, `'${path}' holds a text with NUL characters.`)
  const validate = validators.get(kind)
  if (validate === undefined || validate(document)) return undefined
  const [error] = validate.errors ?? []
  return error === undefined ? invalidValue(path, `'${path}' is not valid.`) : faultOf(error, path)
}

/** A fault of the size of a document without its items. */
export const contentFault = (canonical: string, path: string): ValidationFailed | undefined =>
  canonical.length <= assetBounds.content
    ? undefined
    : tooLong(path, `'${path}' is longer than ${assetBounds.content} characters.`)

/** An item as it is stored. */
export interface StoredItem {
  readonly id: string
  readonly weight: number
  /** Canonical JSON. */
  readonly text: string
}

/** Items in canonical form, each with an id of its own, or the first fault. */
export const storedItems = (
  items: ReadonlyArray<JsonObject>,
  path: string,
  newId: () => string,
  weightOf: (item: JsonObject) => number
): ReadonlyArray<StoredItem> | ValidationFailed => {
  if (items.length > assetBounds.itemsPerRequest) {
    return tooLong(path, `'${path}' has more than ${assetBounds.itemsPerRequest} entries.`)
  }
  const ids = new Set<string>()
  const stored: Array<StoredItem> = []
  for (const [index, item] of items.entries()) {
    const named = item["id"]
    const id = typeof named === "string" ? named : newId()
    if (ids.has(id)) return invalidValue(`${path}.${index}.id`, "Two entries have the same id.")
    ids.add(id)
    const text = canonicalJson({ ...item, id })
    if (text.length > assetBounds.item) {
      return tooLong(`${path}.${index}`, `An entry is longer than ${assetBounds.item} characters.`)
    }
    stored.push({ id, weight: weightOf(item), text })
  }
  return stored
}
