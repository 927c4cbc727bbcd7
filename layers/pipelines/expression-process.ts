/** The entry file of an expression process: one job at a time, each in its own scope. */
import { Worker } from "node:worker_threads"
import jsonata, { type Expression } from "jsonata"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"
import { type Part, partsOf } from "#domain/pipelines/templates.ts"
import { makeAjv } from "#domain/pipelines/schema-check.ts"
import { type ExpressionAnswer, expressionBounds, type ExpressionJob } from "#layers/pipelines/expression-jobs.ts"

const cacheSize = 500

/** The newest few of what was made for a text. */
const remembered = <A>(make: (text: string) => A) => {
  const made = new Map<string, A>()
  return (text: string): A => {
    const known = made.get(text)
    if (known !== undefined) return known
    const fresh = make(text)
    if (made.size >= cacheSize) made.delete(made.keys().next().value!)
    made.set(text, fresh)
    return fresh
  }
}

const { sequence, stack, timeout } = expressionBounds
const expressionOf = remembered((source): Expression => jsonata(source, { timeout, stack, sequence }))
const templateOf = remembered((text): ReadonlyArray<Part> => partsOf(text))
const validatorOf = remembered((schema) => makeAjv().compile(JSON.parse(schema) as JsonObject))

// Definitions of all tenants share the process: nothing that one does to the language's own objects may meet another.
Object.freeze(Object.prototype)
Object.freeze(Function.prototype)

interface Scope {
  readonly root: JsonObject
  readonly now: number
}

const evaluated = async (source: string, { now, root }: Scope): Promise<Json | undefined> => {
  const value: unknown = await expressionOf(source).evaluate(root, {
    now: () => new Date(now).toISOString(),
    millis: () => now
  })
  if (value === undefined) return undefined
  // A function has no JSON, and sequences carry more than their items.
  const text: string | undefined = JSON.stringify(value)
  return text === undefined ? undefined : (JSON.parse(text) as Json)
}

const asText = (value: Json | undefined): string =>
  value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value)

const rendered = async (template: Json, scope: Scope): Promise<Json> => {
  if (typeof template === "string") {
    const parts = templateOf(template)
    const [only] = parts
    if (parts.length === 0) return ""
    if (parts.length === 1 && only !== undefined) {
      return typeof only === "string" ? only : ((await evaluated(only.source, scope)) ?? null)
    }
    let text = ""
    for (const part of parts) text += typeof part === "string" ? part : asText(await evaluated(part.source, scope))
    return text
  }
  if (Array.isArray(template)) {
    const list: Array<Json> = []
    for (const member of template as ReadonlyArray<Json>) list.push(await rendered(member, scope))
    return list
  }
  if (!isJsonObject(template)) return template
  const object: Record<string, Json> = Object.create(null)
  for (const [name, member] of Object.entries(template)) object[name] = await rendered(member, scope)
  return object
}

const answerTo = async (job: ExpressionJob): Promise<Json> => {
  switch (job.kind) {
    case "render":
      return rendered(JSON.parse(job.template) as Json, { root: JSON.parse(job.scope) as JsonObject, now: job.now })
    case "each": {
      const template = JSON.parse(job.template) as Json
      const root = JSON.parse(job.scope) as JsonObject
      const list: Array<Json> = []
      for (const item of JSON.parse(job.items) as ReadonlyArray<JsonObject>) {
        list.push(await rendered(template, { root: { ...root, ...item }, now: job.now }))
      }
      return list
    }
    case "test": {
      const [part] = templateOf(job.condition)
      if (part === undefined || typeof part === "string") return false
      const scope = { root: JSON.parse(job.scope) as JsonObject, now: job.now }
      return (await evaluated(`$boolean((${part.source}\n))`, scope)) === true
    }
    case "violation": {
      const validate = validatorOf(job.schema)
      if (validate(JSON.parse(job.value))) return null
      const [error] = validate.errors ?? []
      const missing: unknown = error?.keyword === "required" ? error.params["missingProperty"] : undefined
      const path = (error?.instancePath ?? "").split("/").slice(1)
      return {
        path: [...path, ...(typeof missing === "string" ? [missing] : [])].join("."),
        message: error?.message ?? "does not satisfy the schema"
      }
    }
  }
}

process.on("message", (job: ExpressionJob) => {
  answerTo(job)
    .then((value): ExpressionAnswer => {
      const text = JSON.stringify(value)
      return text.length > expressionBounds.answer
        ? { problem: `The result is longer than ${expressionBounds.answer} characters` }
        : { value: text }
    })
    .catch((cause: unknown): ExpressionAnswer => {
      const problem = cause as { readonly message?: unknown }
      return { problem: typeof problem?.message === "string" ? problem.message : "The expression failed" }
    })
    .then((answer) => process.send?.(answer))
})
process.on("disconnect", () => process.exit())

// A job without end must not outlive the gateway: a busy process does not notice that the gateway is gone.
new Worker(`setInterval(() => { if (process.ppid !== ${process.ppid}) process.kill(process.pid, "SIGKILL") }, 2000)`, {
  eval: true
}).unref()
