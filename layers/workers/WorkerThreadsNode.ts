import { Worker } from "node:worker_threads"
import { Effect, Layer } from "effect"
import { Unavailable } from "#domain/errors.ts"
import type { FromThread, ToThread } from "#layers/workers/messages.ts"
import { type WorkerThread, type WorkerThreadOptions, WorkerThreads } from "#services/workers/WorkerThreads.ts"

const overloaded = new Unavailable({
  code: "overloaded",
  message: "The gateway has too much to do at the moment.",
  retryAfter: 1
})

/** How long a thread may stay silent after a job was cancelled before it counts as stuck. */
const silence = 2000

/** Heap of one thread; a job that wants more ends the thread, not the process. */
const maxHeapMiB = 1024

interface Pending {
  readonly weight: number
  readonly succeed: (value: unknown) => void
  readonly fail: (problem: string) => void
  timer: NodeJS.Timeout | undefined
}

/** The main side of one thread: plain callbacks, because it answers message events. */
class Thread {
  private worker: Worker | undefined
  private readonly pending = new Map<number, Pending>()
  private weight = 0
  private nextId = 1
  private stuck: NodeJS.Timeout | undefined
  private closed = false
  private readonly options: WorkerThreadOptions

  constructor(options: WorkerThreadOptions) {
    this.options = options
  }

  private start(): Worker {
    const worker = new Worker(new URL("./worker-main.ts", import.meta.url), {
      name: this.options.name,
      workerData: { handler: this.options.handler.href },
      execArgv: ["--disable-warning=ExperimentalWarning"],
      resourceLimits: { maxOldGenerationSizeMb: maxHeapMiB }
    })
    worker.on("message", (message: FromThread) => this.receive(worker, message))
    worker.on("error", (cause: unknown) => this.lost(worker, String(cause)))
    worker.on("exit", (code) => this.lost(worker, `exit code ${code}`))
    worker.unref()
    return worker
  }

  private receive(worker: Worker, message: FromThread): void {
    if (worker !== this.worker) return
    if (this.stuck !== undefined) {
      clearTimeout(this.stuck)
      this.stuck = undefined
    }
    if ("alive" in message) return
    const job = this.take(message.id)
    if (job === undefined) return
    if ("value" in message) job.succeed(message.value)
    else job.fail(message.problem)
  }

  private lost(worker: Worker, problem: string): void {
    if (worker !== this.worker) return
    this.worker = undefined
    clearTimeout(this.stuck)
    this.stuck = undefined
    for (const id of Array.from(this.pending.keys())) this.take(id)?.fail(`the thread ended: ${problem}`)
  }

  private take(id: number): Pending | undefined {
    const job = this.pending.get(id)
    if (job === undefined) return undefined
    this.pending.delete(id)
    this.weight -= job.weight
    clearTimeout(job.timer)
    if (this.pending.size === 0) this.worker?.unref()
    return job
  }

  private post(message: ToThread): void {
    this.worker?.postMessage(message)
  }

  add(job: unknown, weight: number, succeed: Pending["succeed"], fail: Pending["fail"]): number | undefined {
    if (this.closed || this.pending.size >= this.options.maxJobs) return undefined
    // One job over the limit is let in when nothing else waits: otherwise it could never run.
    if (this.pending.size > 0 && this.weight + weight > this.options.maxWeight) return undefined
    this.worker ??= this.start()
    const id = this.nextId++
    const entry: Pending = { weight, succeed, fail, timer: undefined }
    entry.timer = setTimeout(() => this.late(id), this.options.timeout)
    this.pending.set(id, entry)
    this.weight += weight
    this.worker.ref()
    this.post({ id, job })
    return id
  }

  private late(id: number): void {
    const problem = `no result after ${this.options.timeout} ms`
    const worker = this.worker
    if (this.options.endsLate === true && worker !== undefined) {
      this.lost(worker, problem)
      void worker.terminate()
      return
    }
    const { fail } = this.pending.get(id)!
    this.cancel(id)
    this.suspect()
    fail(problem)
  }

  cancel(id: number): void {
    if (this.take(id) === undefined) return
    this.post({ cancel: id })
  }

  /** Ends the thread unless it shows life. Not at every cancellation: a client that goes away must not end others' jobs. */
  private suspect(): void {
    const worker = this.worker
    if (worker === undefined || this.stuck !== undefined) return
    this.stuck = setTimeout(() => void worker.terminate(), silence)
    this.stuck.unref()
  }

  async close(): Promise<void> {
    this.closed = true
    const worker = this.worker
    if (worker === undefined) return
    this.lost(worker, "closed")
    await worker.terminate()
  }
}

const open = <Job, Result>(options: WorkerThreadOptions) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => new Thread(options)),
      (thread) => Effect.promise(() => thread.close())
    ),
    (thread): WorkerThread<Job, Result> => ({
      run: (job, weight) =>
        Effect.callback<Result, Unavailable>((resume) => {
          const id = thread.add(
            job,
            weight,
            (value) => resume(Effect.succeed(value as Result)),
            (problem) =>
              resume(
                Effect.andThen(
                  Effect.logWarning(`A job of the ${options.name} thread failed: ${problem}`),
                  Effect.fail(overloaded)
                )
              )
          )
          if (id === undefined) {
            resume(Effect.fail(overloaded))
            return undefined
          }
          return Effect.sync(() => thread.cancel(id))
        })
    })
  )

/** Node's worker threads, running TypeScript as it is. */
export const layer: Layer.Layer<WorkerThreads> = Layer.succeed(WorkerThreads, { open })
