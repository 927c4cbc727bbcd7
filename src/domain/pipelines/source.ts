/** YAML text as a tree of values that know where they stand. */
import { isAlias, isMap, isScalar, isSeq, type Node as YamlNode, parseDocument } from "yaml"
import type { Json, JsonObject } from "#domain/json.ts"
import { bounds } from "#domain/pipelines/definition.ts"
import { DslFault } from "#domain/pipelines/fault.ts"
import { isStorableText } from "#domain/storable.ts"

interface Located {
  /** Offset of its first character. */
  readonly at: number
  readonly end: number
}

export interface ScalarNode extends Located {
  readonly kind: "scalar"
  readonly value: string | number | boolean | null
}

export interface ListNode extends Located {
  readonly kind: "list"
  readonly items: ReadonlyArray<SourceNode>
}

export interface Entry {
  readonly keyAt: number
  readonly node: SourceNode
}

export interface MapNode extends Located {
  readonly kind: "map"
  readonly entries: ReadonlyMap<string, Entry>
}

export type SourceNode = ScalarNode | ListNode | MapNode

/** The value that a node stands for. */
export const jsonOf = (node: SourceNode): Json => {
  switch (node.kind) {
    case "scalar":
      return node.value
    case "list":
      return node.items.map(jsonOf)
    case "map":
      return objectOf(node)
  }
}

export const objectOf = (node: MapNode): JsonObject =>
  Object.fromEntries(Array.from(node.entries, ([name, entry]) => [name, jsonOf(entry.node)]))

const tooDeep = (at: number) => new DslFault(`This nests deeper than ${bounds.depth} levels.`, at)

const refuseUnstorable = (text: string, at: number): void => {
  if (!isStorableText(text)) throw new DslFault("A text holds characters that no text may hold.", at)
}

/** Parses a definition's source. Throws a `DslFault` at the first fault. */
export const parseSource = (source: string): SourceNode => {
  if (source.length > bounds.source) {
    throw new DslFault(`The definition is longer than ${bounds.source} characters.`, bounds.source)
  }
  // Comments are stored too.
  if (!isStorableText(source)) {
    refuseUnstorable(source, Math.max(0, source.search(/\0|[\ud800-\udfff]/u)))
  }
  const document = (() => {
    try {
      return parseDocument(source, { schema: "core", version: "1.2", logLevel: "silent", prettyErrors: false })
    } catch (cause) {
      // The parser recurses into nested collections.
      throw cause instanceof RangeError ? tooDeep(0) : cause
    }
  })()
  const [problem] = [...document.errors, ...document.warnings]
  // Its own recursion ends as a problem of the text.
  if (problem?.message.startsWith("Maximum call stack") === true) throw tooDeep(problem.pos[0])
  if (problem !== undefined) throw new DslFault(problem.message.split("\n")[0]!, problem.pos[0])
  let nodes = 0

  const convert = (node: YamlNode | null | undefined, depth: number, at: number): SourceNode => {
    // Aliases are followed, so a short text can stand for a tree without end: the count is what bounds it.
    if (++nodes > bounds.nodes) throw new DslFault(`The definition has more than ${bounds.nodes} values.`, at)
    if (depth > bounds.depth) throw tooDeep(at)
    const [start, end] = node?.range ?? [at, at]
    if (node === null || node === undefined) return { kind: "scalar", at, end: at, value: null }
    if (isAlias(node)) return convert(node.resolve(document), depth + 1, start)
    if (isSeq(node)) {
      return {
        kind: "list",
        at: start,
        end,
        items: node.items.map((item) => convert(item as YamlNode | null, depth + 1, start))
      }
    }
    if (isMap(node)) {
      const entries = new Map<string, Entry>()
      for (const pair of node.items) {
        const key = pair.key as YamlNode
        const keyAt = key.range?.[0] ?? start
        if (!isScalar(key)) throw new DslFault("A name must be a text.", keyAt)
        const name = String(key.value)
        refuseUnstorable(name, keyAt)
        if (name === "__proto__") throw new DslFault("'__proto__' cannot be a name.", keyAt)
        entries.set(name, { keyAt, node: convert(pair.value as YamlNode | null, depth + 1, keyAt) })
      }
      return { kind: "map", at: start, end, entries }
    }
    const value: unknown = isScalar(node) ? node.value : null
    if (typeof value === "string") refuseUnstorable(value, start)
    if (typeof value === "number" && !Number.isFinite(value)) throw new DslFault("A number must be finite.", start)
    if (value === null || typeof value === "string" || typeof value === "number" || typeof value === "boolean") {
      return { kind: "scalar", at: start, end, value }
    }
    throw new DslFault("This value is of no JSON type.", start)
  }
  return convert(document.contents, 0, 0)
}
