import { type ChildProcess, fork } from "node:child_process"
import { fileURLToPath } from "node:url"
import { Effect, Layer } from "effect"
import { Unavailable } from "#domain/errors.ts"
import type { Json } from "#domain/json.ts"
import type { ExpressionAnswer, ExpressionJob } from "#layers/pipelines/expression-jobs.ts"
import {
  ExpressionFailed,
  Expressions,
  type ExpressionScope,
  type SchemaViolation
} from "#services/pipelines/Expressions.ts"

export interface ExpressionProcessOptions {
  /** Default 2. */
  readonly processes?: number
  /** Milliseconds after which a job's process is ended. Default 5 s. */
  readonly timeout?: number
  /** Jobs that may wait. Default 2000. */
  readonly maxWaiting?: number
}

interface Waiting {
  readonly job: ExpressionJob
  readonly settle: (outcome: Effect.Effect<string, ExpressionFailed | Unavailable>) => void
}

const heapMiB = 256

const entry = fileURLToPath(new URL("./expression-process.ts", import.meta.url))

const overloaded = new Unavailable({
  code: "overloaded",
  message: "The gateway has too much to do at the moment.",
  retryAfter: 1
})

const failed = (message: string) => Effect.fail(new ExpressionFailed({ message }))

/** One job at a time: whoever does not come back in time has ended nobody but itself. */
class Evaluator {
  #child: ChildProcess | undefined
  #current: Waiting | undefined
  #timer: NodeJS.Timeout | undefined
  readonly #timeout: number
  readonly #free: (evaluator: Evaluator) => void

  constructor(timeout: number, free: (evaluator: Evaluator) => void) {
    this.#timeout = timeout
    this.#free = free
  }

  start(waiting: Waiting): void {
    const child = (this.#child ??= this.#open())
    this.#current = waiting
    this.#timer = setTimeout(() => this.#lost(child, `It took longer than ${this.#timeout} ms`), this.#timeout)
    child.send(waiting.job)
  }

  #open(): ChildProcess {
    const child = fork(entry, {
      env: {},
      execArgv: ["--disable-warning=ExperimentalWarning", `--max-old-space-size=${heapMiB}`],
      stdio: ["ignore", "ignore", "ignore", "ipc"]
    })
    child.on("message", (answer: ExpressionAnswer) => {
      if (child === this.#child) {
        this.#settle("value" in answer ? Effect.succeed(answer.value) : failed(answer.problem))
      }
    })
    child.on("error", (cause: Error) => this.#lost(child, cause.message))
    child.on("exit", () => this.#lost(child, "It took more memory than there is"))
    child.unref()
    child.channel?.unref()
    return child
  }

  #settle(outcome: Effect.Effect<string, ExpressionFailed | Unavailable>): void {
    clearTimeout(this.#timer)
    const current = this.#current
    this.#current = undefined
    if (current === undefined) return
    current.settle(outcome)
    this.#free(this)
  }

  #lost(child: ChildProcess, why: string): void {
    if (child !== this.#child) return
    this.#child = undefined
    child.kill("SIGKILL")
    this.#settle(failed(why))
  }

  close(): void {
    const child = this.#child
    this.#child = undefined
    clearTimeout(this.#timer)
    child?.kill("SIGKILL")
  }
}

class Pool {
  readonly #evaluators: ReadonlyArray<Evaluator>
  readonly #free: Array<Evaluator>
  readonly #waiting: Array<Waiting> = []
  readonly #maxWaiting: number

  constructor(options: ExpressionProcessOptions) {
    this.#maxWaiting = options.maxWaiting ?? 2000
    const free = (evaluator: Evaluator) => {
      this.#free.push(evaluator)
      this.#next()
    }
    this.#evaluators = Array.from(
      { length: options.processes ?? 2 },
      () => new Evaluator(options.timeout ?? 5000, free)
    )
    this.#free = [...this.#evaluators]
  }

  add(waiting: Waiting): boolean {
    if (this.#waiting.length >= this.#maxWaiting) return false
    this.#waiting.push(waiting)
    this.#next()
    return true
  }

  forget(waiting: Waiting): void {
    const at = this.#waiting.indexOf(waiting)
    if (at >= 0) this.#waiting.splice(at, 1)
  }

  #next(): void {
    while (this.#free.length > 0 && this.#waiting.length > 0) this.#free.pop()!.start(this.#waiting.shift()!)
  }

  close(): void {
    for (const evaluator of this.#evaluators) evaluator.close()
  }
}

const scopeText = ({ inputs, steps }: ExpressionScope): string =>
  JSON.stringify({
    inputs,
    steps: Object.fromEntries(Object.entries(steps).map(([id, output]) => [id, { output }]))
  })

const hasExpression = (template: Json): boolean => JSON.stringify(template).includes("${")

/** JSONata and Ajv in processes of their own. A text grows past all memory in one call of a function, and an expression can be
 * slow in ways that nothing in JavaScript stops: either ends a process, which must not be the gateway's. */
export const layer = (options: ExpressionProcessOptions = {}): Layer.Layer<Expressions> =>
  Layer.effect(
    Expressions,
    Effect.gen(function* () {
      const pool = yield* Effect.acquireRelease(
        Effect.sync(() => new Pool(options)),
        (pool) => Effect.sync(() => pool.close())
      )
      const run = (job: ExpressionJob) =>
        Effect.callback<string, ExpressionFailed | Unavailable>((resume) => {
          const waiting: Waiting = { job, settle: resume }
          if (!pool.add(waiting)) {
            resume(Effect.fail(overloaded))
            return undefined
          }
          return Effect.sync(() => pool.forget(waiting))
        })
      return Expressions.of({
        render: (template, scope) =>
          hasExpression(template)
            ? Effect.map(
                run({ kind: "render", template: JSON.stringify(template), scope: scopeText(scope), now: scope.now }),
                (text) => JSON.parse(text) as Json
              )
            : Effect.succeed(template),
        renderEach: (template, scope, items) =>
          hasExpression(template)
            ? Effect.map(
                run({
                  kind: "each",
                  template: JSON.stringify(template),
                  scope: scopeText(scope),
                  items: JSON.stringify(items),
                  now: scope.now
                }),
                (text) => JSON.parse(text) as ReadonlyArray<Json>
              )
            : Effect.succeed(items.map(() => template)),
        test: (condition, scope) =>
          Effect.map(
            run({ kind: "test", condition, scope: scopeText(scope), now: scope.now }),
            (text) => text === "true"
          ),
        violation: (schema, value) =>
          Effect.map(
            run({ kind: "violation", schema: JSON.stringify(schema), value: JSON.stringify(value) }),
            (text) => (JSON.parse(text) as SchemaViolation | null) ?? undefined
          )
      })
    })
  )
