/** From YAML to a checked definition. */
import { Result } from "effect"
import type { ValidationFailed } from "#domain/errors.ts"
import type { Json, JsonObject } from "#domain/json.ts"
import {
  type BranchCase,
  bounds,
  defaultAttempts,
  defaults,
  isOperator,
  type Operator,
  operators,
  type PipelineDefinition,
  type RetryPolicy,
  type Step,
  type Task,
  type TaskOperator
} from "#domain/pipelines/definition.ts"
import { DslFault, faultError } from "#domain/pipelines/fault.ts"
import {
  checkShape,
  durationOf,
  isTemplate,
  listOf,
  mapOf,
  numberOf,
  refuseOthers,
  required,
  textOf
} from "#domain/pipelines/fields.ts"
import { cycleOf } from "#domain/pipelines/graph.ts"
import { shapes } from "#domain/pipelines/operators.ts"
import { schemaProblem } from "#domain/pipelines/schema-check.ts"
import { jsonOf, type MapNode, objectOf, parseSource, type SourceNode } from "#domain/pipelines/source.ts"
import { partsOf, type References, referencesOf, TemplateFault } from "#domain/pipelines/templates.ts"

const idForm = /^[A-Za-z_][A-Za-z0-9_]*$/
const stepFields = ["id", "operator", "needs", "with", "when", "retry", "timeout"]
const taskFields = ["operator", "with", "retry", "timeout"]

class Compiler {
  readonly #source: string
  readonly #ids = new Set<string>()
  /** What each step needs, with where that was said. */
  readonly #needs = new Map<string, Map<string, number>>()
  #expressions = 0

  constructor(source: string) {
    this.#source = source
  }

  compile(): PipelineDefinition {
    const root = mapOf(parseSource(this.#source), "A definition")
    refuseOthers(root, ["name", "description", "inputs", "steps", "outputs"], "A definition")
    const name = textOf(required(root, "name", "A definition").node, "'name'")
    const describedAs = root.entries.get("description")
    const description = describedAs === undefined ? "" : textOf(describedAs.node, "'description'", 4096)
    const inputs = this.#inputs(root)
    const list = listOf(required(root, "steps", "A definition").node, "'steps'")
    if (list.items.length === 0) throw new DslFault("A definition has at least one step.", list.at)
    const excess = list.items[bounds.steps]
    if (excess !== undefined) throw new DslFault(`A definition has at most ${bounds.steps} steps.`, excess.at)
    // First all names: a step may read one that stands below it.
    for (const item of list.items) this.#name(mapOf(item, "A step"))
    const steps = list.items.map((item) => this.#step(item as MapNode))
    this.#refuseCycles()
    const outputsAt = root.entries.get("outputs")
    const outputs = outputsAt === undefined ? {} : this.#outputs(outputsAt.node)
    return { name, description, inputs, steps, outputs }
  }

  #inputs(root: MapNode): JsonObject {
    const entry = root.entries.get("inputs")
    if (entry === undefined) return {}
    const map = mapOf(entry.node, "'inputs'")
    if (map.end - map.at > bounds.inputsSchema) {
      throw new DslFault(`The schema of 'inputs' is longer than ${bounds.inputsSchema} characters.`, map.at)
    }
    const schema = objectOf(map)
    const problem = schemaProblem(schema)
    if (problem === undefined) return schema
    let at: SourceNode = map
    for (const segment of problem.path) {
      const next: SourceNode | undefined =
        at.kind === "map" ? at.entries.get(segment)?.node : at.kind === "list" ? at.items[Number(segment)] : undefined
      if (next === undefined) break
      at = next
    }
    throw new DslFault(`Bad schema: ${problem.message}.`, at.at)
  }

  #name(step: MapNode): void {
    const { node } = required(step, "id", "A step")
    const id = textOf(node, "'id'", bounds.idLength)
    if (!idForm.test(id)) {
      throw new DslFault(`'${id}' cannot be an id: letters, digits and _, starting with a letter or _.`, node.at)
    }
    if (this.#ids.has(id)) throw new DslFault(`There are two steps '${id}'.`, node.at)
    this.#ids.add(id)
    this.#needs.set(id, new Map())
  }

  #step(step: MapNode): Step {
    const id = String(jsonOf(step.entries.get("id")!.node))
    refuseOthers(step, stepFields, `The step '${id}'`)
    const needs = this.#stepNames(step.entries.get("needs")?.node, "'needs'")
    for (const [needed, at] of needs) this.#need(id, needed, at)
    const whenAt = step.entries.get("when")
    const when = whenAt === undefined ? null : this.#condition(whenAt.node, id)
    const common = { id, needs: Array.from(needs.keys()), when }
    const operator = this.#operator(step, `The step '${id}'`)
    switch (operator) {
      case "branch":
        return { ...common, operator, ...this.#branch(step, id) }
      case "map":
        return { ...common, operator, ...this.#map(step, id) }
      case "human_review": {
        this.#refuse(step, "retry", operator)
        const timeout = this.#timeout(step, defaults.reviewTimeout, bounds.reviewTimeout)
        return { ...common, operator, with: this.#with(step, operator, id, false), timeout }
      }
      default:
        return { ...common, ...this.#task(step, operator, id, false) }
    }
  }

  #operator(step: MapNode, what: string): Operator {
    const { node } = required(step, "operator", what)
    const name = textOf(node, "'operator'")
    if (isOperator(name)) return name
    throw new DslFault(`Unknown operator '${name}': there are ${operators.join(", ")}.`, node.at)
  }

  #task(step: MapNode, operator: TaskOperator, id: string, insideMap: boolean): Task {
    return {
      operator,
      with: this.#with(step, operator, id, insideMap),
      retry: this.#retry(step, operator, insideMap),
      timeout: this.#timeout(step, defaults.taskTimeout, bounds.taskTimeout)
    }
  }

  #with(step: MapNode, operator: TaskOperator | "human_review", id: string, insideMap: boolean): Json {
    const entry = step.entries.get("with")
    const what = `'with' of ${operator}`
    if (operator === "transform") {
      if (entry === undefined) throw new DslFault("transform needs 'with': the value to make.", step.at)
    } else {
      const node: SourceNode = entry?.node ?? { kind: "map", at: step.at, end: step.at, entries: new Map() }
      checkShape(node, shapes[operator], what)
      if (operator === "chat" && node.kind === "map" && node.entries.has("messages") === node.entries.has("prompt")) {
        throw new DslFault(`${what} needs either 'messages' or 'prompt'.`, node.at)
      }
    }
    if (entry === undefined) return {}
    this.#read(entry.node, id, insideMap)
    return jsonOf(entry.node)
  }

  #retry(step: MapNode, operator: TaskOperator, insideMap: boolean): RetryPolicy {
    const entry = step.entries.get("retry")
    const attempts = defaultAttempts(operator)
    const { backoff, delay, maxDelay } = defaults
    if (entry === undefined) return { attempts, delay, backoff, maxDelay }
    const map = mapOf(entry.node, "'retry'")
    refuseOthers(map, ["attempts", "delay", "backoff", "max_delay"], "'retry'")
    const longest = insideMap ? bounds.mapRetryDelay : bounds.retryDelay
    const given = (name: string) => map.entries.get(name)?.node
    const delayAt = given("delay")
    const own = delayAt === undefined ? delay : durationOf(delayAt, "'delay'", longest)
    const maxAt = given("max_delay")
    const attemptsAt = given("attempts")
    const backoffAt = given("backoff")
    return {
      attempts: attemptsAt === undefined ? attempts : numberOf(attemptsAt, "'attempts'", 1, bounds.attempts, true),
      delay: own,
      backoff: backoffAt === undefined ? backoff : numberOf(backoffAt, "'backoff'", 1, 10, false),
      maxDelay: maxAt === undefined ? Math.max(own, maxDelay) : durationOf(maxAt, "'max_delay'", longest)
    }
  }

  #timeout(step: MapNode, otherwise: number, maximum: number): number {
    const entry = step.entries.get("timeout")
    return entry === undefined ? otherwise : durationOf(entry.node, "'timeout'", maximum)
  }

  #branch(step: MapNode, id: string) {
    this.#refuse(step, "retry", "branch")
    this.#refuse(step, "timeout", "branch")
    const map = mapOf(required(step, "with", "branch").node, "'with' of branch")
    refuseOthers(map, ["cases", "else"], "'with' of branch")
    const list = listOf(required(map, "cases", "branch").node, "'cases'")
    if (list.items.length === 0) throw new DslFault("A branch has at least one case.", list.at)
    const excess = list.items[bounds.branchCases]
    if (excess !== undefined) throw new DslFault(`A branch has at most ${bounds.branchCases} cases.`, excess.at)
    const follow = (node: SourceNode | undefined, what: string): ReadonlyArray<string> => {
      const names = this.#stepNames(node, what)
      for (const [name, at] of names) this.#need(name, id, at)
      return Array.from(names.keys())
    }
    const cases = list.items.map((item): BranchCase => {
      const one = mapOf(item, "A case")
      refuseOthers(one, ["when", "steps"], "A case")
      return {
        when: this.#condition(required(one, "when", "A case").node, id),
        steps: follow(required(one, "steps", "A case").node, "'steps' of a case")
      }
    })
    return { cases, otherwise: follow(map.entries.get("else")?.node, "'else'") }
  }

  #map(step: MapNode, id: string) {
    this.#refuse(step, "retry", "map")
    const map = mapOf(required(step, "with", "map").node, "'with' of map")
    refuseOthers(map, ["items", "concurrency", "step"], "'with' of map")
    const items = required(map, "items", "map").node
    if (items.kind !== "list" && !isTemplate(items)) throw new DslFault("'items' must be a list.", items.at)
    this.#read(items, id, false)
    const concurrencyAt = map.entries.get("concurrency")?.node
    const inner = mapOf(required(map, "step", "map").node, "'step' of map")
    refuseOthers(inner, taskFields, "'step' of map")
    const operator = this.#operator(inner, "'step' of map")
    if (operator === "branch" || operator === "map" || operator === "human_review") {
      throw new DslFault(`${operator} cannot stand inside map.`, inner.entries.get("operator")!.node.at)
    }
    return {
      items: jsonOf(items),
      concurrency:
        concurrencyAt === undefined
          ? defaults.concurrency
          : numberOf(concurrencyAt, "'concurrency'", 1, bounds.concurrency, true),
      task: this.#task(inner, operator, id, true),
      timeout: this.#timeout(step, defaults.mapTimeout, bounds.mapTimeout)
    }
  }

  #refuse(step: MapNode, name: string, operator: Operator): void {
    const entry = step.entries.get(name)
    if (entry !== undefined) throw new DslFault(`${operator} takes no '${name}'.`, entry.keyAt)
  }

  #outputs(node: SourceNode): JsonObject {
    const map = mapOf(node, "'outputs'")
    this.#read(map, undefined, false)
    return objectOf(map)
  }

  /** A list of steps' ids, or one. */
  #stepNames(node: SourceNode | undefined, what: string): ReadonlyMap<string, number> {
    const names = new Map<string, number>()
    if (node === undefined) return names
    for (const item of node.kind === "list" ? node.items : [node]) {
      const name = textOf(item, what)
      if (!this.#ids.has(name)) throw new DslFault(`Unknown reference: there is no step '${name}'.`, item.at)
      if (names.has(name)) throw new DslFault(`${what} names '${name}' twice.`, item.at)
      names.set(name, item.at)
    }
    return names
  }

  #need(id: string, needed: string, at: number): void {
    const needs = this.#needs.get(id)
    if (needs !== undefined && !needs.has(needed)) needs.set(needed, at)
  }

  /** A condition is one expression and nothing beside it. */
  #condition(node: SourceNode, id: string): string {
    if (node.kind === "scalar" && typeof node.value === "boolean") return `\${${node.value}}`
    const text = textOf(node, "'when'", bounds.expression + 3)
    const parts = this.#parts(node, text)
    if (parts.length !== 1 || typeof parts[0] === "string") {
      throw new DslFault("'when' must be one expression: ${…}.", node.at)
    }
    this.#read(node, id, false)
    return text
  }

  #parts(node: SourceNode, text: string) {
    try {
      return partsOf(text)
    } catch (cause) {
      throw this.#placed(cause, node, text)
    }
  }

  /** Checks each expression below a node and notes what the step needs for it. */
  #read(node: SourceNode, id: string | undefined, insideMap: boolean): void {
    if (node.kind === "list") for (const item of node.items) this.#read(item, id, insideMap)
    else if (node.kind === "map") for (const entry of node.entries.values()) this.#read(entry.node, id, insideMap)
    else if (typeof node.value === "string") {
      const text = node.value
      for (const part of this.#parts(node, text)) {
        if (typeof part === "string") continue
        if (++this.#expressions > bounds.expressions) {
          throw new DslFault(`A definition has at most ${bounds.expressions} expressions.`, node.at)
        }
        let references: References
        try {
          references = referencesOf(part, this.#ids, insideMap)
        } catch (cause) {
          throw this.#placed(cause, node, text)
        }
        if (id === undefined) continue
        for (const needed of references.steps) this.#need(id, needed, this.#offsetIn(node, text, part.at))
      }
    }
  }

  #placed(cause: unknown, node: SourceNode, text: string): unknown {
    return cause instanceof TemplateFault ? new DslFault(cause.message, this.#offsetIn(node, text, cause.at)) : cause
  }

  /** Where a place in a string stands in the source: exact where the source spells the string as it is. */
  #offsetIn(node: SourceNode, text: string, at: number): number {
    const raw = this.#source.slice(node.at, node.end)
    const lineStart = text.lastIndexOf("\n", at - 1) + 1
    const lineEnd = text.indexOf("\n", at)
    const line = text.slice(lineStart, lineEnd < 0 ? undefined : lineEnd).trim()
    const inLine = text.slice(lineStart, at).trimStart().length
    const found = line === "" ? -1 : raw.indexOf(line)
    return found < 0 ? node.at : node.at + found + inLine
  }

  #refuseCycles(): void {
    const cycle = cycleOf(new Map(Array.from(this.#needs, ([id, needs]) => [id, new Set(needs.keys())])))
    if (cycle === undefined) return
    const [first = "", second = first] = cycle
    const at = this.#needs.get(first)?.get(second) ?? 0
    throw new DslFault(`These steps need each other: ${[...cycle, first].join(" -> ")}.`, at)
  }
}

/** Compiles a definition. The failure says line and column. */
export const compileDefinition = (source: string): Result.Result<PipelineDefinition, ValidationFailed> => {
  try {
    return Result.succeed(new Compiler(source).compile())
  } catch (cause) {
    if (cause instanceof DslFault) return Result.fail(faultError(source, cause))
    throw cause
  }
}
