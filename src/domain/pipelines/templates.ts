/** `${…}` in the strings of a definition: JSONata over `inputs` and `steps.<id>.output`. */
import jsonata, { type ExprNode } from "jsonata"
import { isJsonObject, type Json } from "#domain/json.ts"
import { bounds } from "#domain/pipelines/definition.ts"

/** One `${…}`: its source and where that begins in the string. */
export interface Expression {
  readonly source: string
  readonly at: number
}

export type Part = string | Expression

/** What is wrong with a string, and where in it. */
export class TemplateFault extends Error {
  readonly at: number

  constructor(message: string, at: number) {
    super(message)
    this.at = at
  }
}

/** What an expression reads. */
export interface References {
  readonly inputs: boolean
  readonly steps: ReadonlySet<string>
  /** `item` or `index`, inside `map`. */
  readonly item: boolean
}

interface Found {
  inputs: boolean
  readonly steps: Set<string>
  item: boolean
}

interface JsonataProblem {
  readonly code?: string
  readonly message: string
  readonly position?: number
}

/** Candidates for the brace that ends an expression; the first that leaves a whole expression does. */
const maxBraces = 64

const parsed = (source: string): { readonly ast: ExprNode } | { readonly problem: JsonataProblem } => {
  try {
    return { ast: jsonata(source).ast() }
  } catch (cause) {
    const problem = cause as JsonataProblem
    return { problem: cause instanceof RangeError ? { message: "The expression nests too deep" } : problem }
  }
}

/** The parts of a string; `$${` stands for `${` itself. Throws a `TemplateFault`. */
export const partsOf = (text: string): ReadonlyArray<Part> => {
  if (!text.includes("${")) return [text]
  const parts: Array<Part> = []
  let literal = ""
  let at = 0
  while (at < text.length) {
    const open = text.indexOf("${", at)
    if (open < 0) break
    if (open > 0 && text[open - 1] === "$") {
      literal += `${text.slice(at, open - 1)}\${`
      at = open + 2
      continue
    }
    literal += text.slice(at, open)
    const start = open + 2
    const { end, problem } = endOf(text, start)
    if (end === undefined) throw problem
    if (literal !== "") parts.push(literal)
    literal = ""
    parts.push({ source: text.slice(start, end), at: start })
    at = end + 1
  }
  literal += text.slice(at)
  if (literal !== "") parts.push(literal)
  return parts
}

const endOf = (text: string, start: number) => {
  let first: TemplateFault | undefined
  let brace = text.indexOf("}", start)
  if (brace < 0) return { end: undefined, problem: new TemplateFault("'${' has no closing '}'.", start - 2) }
  for (let count = 0; brace >= 0 && count < maxBraces; count++) {
    if (brace - start > bounds.expression) {
      first ??= new TemplateFault(`An expression has at most ${bounds.expression} characters.`, start)
      break
    }
    const source = text.slice(start, brace)
    const result = parsed(source)
    if ("ast" in result) return { end: brace, problem: undefined }
    const { message, position = 0 } = result.problem
    // JSONata counts to the end of the token that it stumbled over.
    first = new TemplateFault(`Bad expression: ${message}.`, start + Math.max(0, Math.min(position - 1, source.length)))
    brace = text.indexOf("}", brace + 1)
  }
  return { end: undefined, problem: first }
}

/** Functions whose value is not the same when a resumed run asks again, and the one that hides what it reads. */
const refused: ReadonlySet<string> = new Set(["random", "shuffle", "eval"])

const isRoot = (node: ExprNode): boolean => node.type === "variable" && node.value === "$"
const isContext = (node: ExprNode): boolean => node.type === "variable" && node.value === ""

/**
 * What an expression reads. Only what stands at the root is looked at: inside `[…]`, `.(…)` and the like names are those
 * of the data. Throws a `TemplateFault` for a name that is neither `inputs`, a step's output, nor (in `map`) the item.
 */
export const referencesOf = (expression: Expression, known: ReadonlySet<string>, insideMap: boolean): References => {
  const result = parsed(expression.source)
  if ("problem" in result) throw new TemplateFault(`Bad expression: ${result.problem.message}.`, expression.at)
  const found: Found = { inputs: false, steps: new Set(), item: false }
  const whereOf = (node: ExprNode) =>
    expression.at + Math.max(0, (node.position ?? 1) - String(node.value ?? "").length)
  const fault = (message: string, node: ExprNode) => new TemplateFault(message, whereOf(node))

  const visitRoot = (steps: ReadonlyArray<ExprNode>, whole: ExprNode) => {
    const [first, second, third] = steps
    if (first === undefined) throw fault("Name what to read: inputs, or steps.<id>.output.", whole)
    if (first.type !== "name") throw fault("Name what to read: inputs, or steps.<id>.output.", first)
    const name = String(first.value)
    if (name === "inputs") found.inputs = true
    else if (insideMap && (name === "item" || name === "index")) found.item = true
    else if (name !== "steps") {
      throw fault(
        `Unknown reference '${name}': there are inputs and steps${insideMap ? ", item and index" : ""}.`,
        first
      )
    } else {
      if (second?.type !== "name" || (first.stages ?? []).length > 0) {
        throw fault("Write steps.<id>.output, with the step's id.", first)
      }
      const id = String(second.value)
      if (!known.has(id)) throw fault(`Unknown reference: there is no step '${id}'.`, second)
      if (third?.type !== "name" || third.value !== "output" || (second.stages ?? []).length > 0) {
        throw fault(`Of a step only its output can be read: steps.${id}.output.`, second)
      }
      found.steps.add(id)
    }
  }

  const visitParts = (value: unknown, root: boolean): void => {
    if (Array.isArray(value)) for (const member of value) visitParts(member, root)
    else if (typeof value === "object" && value !== null) visit(value as ExprNode, root)
  }

  const visit = (node: ExprNode, root: boolean): void => {
    if (String(node.type) === "path") {
      const steps = node.steps ?? []
      const [first] = steps
      if (first !== undefined) {
        if (isRoot(first)) visitRoot(steps.slice(1), first)
        else if (root && isContext(first)) visitRoot(steps.slice(1), first)
        else if (root && (first.type === "name" || first.type === "wildcard" || first.type === "descendant")) {
          visitRoot(steps, first)
        } else visit(first, root)
        visitParts((first as { readonly stages?: unknown }).stages, false)
      }
      for (const step of steps.slice(1)) visit(step, false)
      visitParts((node as { readonly group?: unknown }).group, false)
      return
    }
    if (isRoot(node) || (root && isContext(node))) throw fault("Name what to read: inputs, or steps.<id>.output.", node)
    if (root && (node.type === "wildcard" || node.type === "descendant")) {
      throw fault("Name what to read: inputs, or steps.<id>.output.", node)
    }
    if (node.type === "variable" && refused.has(String(node.value))) {
      throw fault(`$${String(node.value)} cannot be used: a resumed run must come to the same value.`, node)
    }
    // The body of a transform is evaluated over what its pattern finds.
    const nested = node.type === "transform"
    for (const [name, member] of Object.entries(node)) {
      if (name === "value" || name === "position" || name === "type") continue
      visitParts(member, root && !nested && name !== "stages" && name !== "group" && name !== "predicate")
    }
  }
  visit(result.ast, true)
  return found
}

/** Visits each string of a value. */
export const eachText = (value: Json, visit: (text: string) => void): void => {
  if (typeof value === "string") visit(value)
  else if (Array.isArray(value)) for (const member of value) eachText(member as Json, visit)
  else if (isJsonObject(value)) for (const member of Object.values(value)) eachText(member, visit)
}

/** What all expressions of a checked value read. */
export const allReferences = (value: Json, known: ReadonlySet<string>): References => {
  const all: Found = { inputs: false, steps: new Set(), item: false }
  eachText(value, (text) => {
    for (const part of partsOf(text)) {
      if (typeof part === "string") continue
      const { inputs, item, steps } = referencesOf(part, known, true)
      all.inputs ||= inputs
      all.item ||= item
      for (const id of steps) all.steps.add(id)
    }
  })
  return all
}
