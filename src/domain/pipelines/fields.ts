/** Reads of a definition's fields, each fault at its place. */
import { parseDuration } from "#domain/pipelines/duration.ts"
import { DslFault } from "#domain/pipelines/fault.ts"
import type { Entry, ListNode, MapNode, SourceNode } from "#domain/pipelines/source.ts"

/** The kinds of value that a field may hold. A text with `${…}` stands for any of them until the run. */
export type FieldType = "text" | "number" | "boolean" | "list" | "object" | "any"

export interface FieldRule {
  readonly type: FieldType | ReadonlyArray<FieldType>
  readonly required?: boolean
  /** For texts that are one of a few. */
  readonly oneOf?: ReadonlyArray<string>
}

export interface Shape {
  readonly fields: Readonly<Record<string, FieldRule>>
  /** Whether other fields are passed on. */
  readonly open: boolean
}

export const isTemplate = (node: SourceNode): boolean =>
  node.kind === "scalar" && typeof node.value === "string" && node.value.includes("${")

const isOf = (node: SourceNode, type: FieldType): boolean => {
  switch (type) {
    case "text":
      return node.kind === "scalar" && typeof node.value === "string"
    case "number":
      return node.kind === "scalar" && typeof node.value === "number"
    case "boolean":
      return node.kind === "scalar" && typeof node.value === "boolean"
    case "list":
      return node.kind === "list"
    case "object":
      return node.kind === "map"
    case "any":
      return true
  }
}

const names: Readonly<Record<FieldType, string>> = {
  text: "a text",
  number: "a number",
  boolean: "true or false",
  list: "a list",
  object: "a mapping",
  any: "a value"
}

export const mapOf = (node: SourceNode, what: string): MapNode => {
  if (node.kind !== "map") throw new DslFault(`${what} must be a mapping.`, node.at)
  return node
}

export const listOf = (node: SourceNode, what: string): ListNode => {
  if (node.kind !== "list") throw new DslFault(`${what} must be a list.`, node.at)
  return node
}

/** A text that says something. */
export const textOf = (node: SourceNode, what: string, maxLength = 256): string => {
  if (node.kind !== "scalar" || typeof node.value !== "string" || node.value === "") {
    throw new DslFault(`${what} must be a text.`, node.at)
  }
  if (node.value.length > maxLength) throw new DslFault(`${what} has at most ${maxLength} characters.`, node.at)
  if (node.value.includes("\0") || !node.value.isWellFormed()) {
    throw new DslFault(`${what} holds characters that no text may hold.`, node.at)
  }
  return node.value
}

export const required = (map: MapNode, name: string, what: string): Entry => {
  const entry = map.entries.get(name)
  if (entry === undefined) throw new DslFault(`${what} needs '${name}'.`, map.at)
  return entry
}

export const refuseOthers = (map: MapNode, known: ReadonlyArray<string>, what: string): void => {
  for (const [name, entry] of map.entries) {
    if (!known.includes(name)) {
      throw new DslFault(`${what} has no '${name}': there are ${known.join(", ")}.`, entry.keyAt)
    }
  }
}

export const numberOf = (node: SourceNode, what: string, minimum: number, maximum: number, whole: boolean): number => {
  const value = node.kind === "scalar" ? node.value : undefined
  if (typeof value !== "number" || value < minimum || value > maximum || (whole && !Number.isInteger(value))) {
    throw new DslFault(`${what} must be a ${whole ? "whole " : ""}number from ${minimum} to ${maximum}.`, node.at)
  }
  return value
}

export const durationOf = (node: SourceNode, what: string, maximum: number): number => {
  const millis = node.kind === "scalar" ? parseDuration(node.value) : undefined
  if (millis === undefined) throw new DslFault(`${what} must be a duration such as 500ms, 30s, 5m, 2h or 30d.`, node.at)
  if (millis < 1 || millis > maximum) {
    throw new DslFault(`${what} must be from 1ms to ${Math.floor(maximum / 1000)}s.`, node.at)
  }
  return millis
}

/** Holds a step's `with` against its operator's shape. */
export const checkShape = (node: SourceNode, shape: Shape, what: string): void => {
  const map = mapOf(node, what)
  for (const [name, rule] of Object.entries(shape.fields)) {
    const entry = map.entries.get(name)
    if (entry === undefined) {
      if (rule.required === true) throw new DslFault(`${what} needs '${name}'.`, map.at)
      continue
    }
    if (isTemplate(entry.node)) continue
    const types = typeof rule.type === "string" ? [rule.type] : rule.type
    if (!types.some((type) => isOf(entry.node, type))) {
      throw new DslFault(`'${name}' must be ${types.map((type) => names[type]).join(" or ")}.`, entry.node.at)
    }
    const value = entry.node.kind === "scalar" ? entry.node.value : undefined
    if (rule.oneOf !== undefined && !(typeof value === "string" && rule.oneOf.includes(value))) {
      throw new DslFault(`'${name}' must be ${rule.oneOf.join(" or ")}.`, entry.node.at)
    }
  }
  if (!shape.open) refuseOthers(map, Object.keys(shape.fields), what)
}
