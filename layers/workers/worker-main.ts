/** The entry file of every worker thread: loads its handler, shares the thread among jobs. */
import { parentPort, workerData } from "node:worker_threads"
import type { FromThread, ToThread } from "#layers/workers/messages.ts"
import type { JobHandler } from "#services/workers/WorkerThreads.ts"

const port = parentPort!
/** How long one job runs before the next has its turn, in milliseconds. */
const slice = 5
const running = new Map<number, Generator<void, unknown, void>>()
let scheduled = false

const answer = (message: FromThread) => port.postMessage(message)

const problemOf = (cause: unknown): string => (cause instanceof Error ? (cause.stack ?? cause.message) : String(cause))

const advance = (id: number, job: Generator<void, unknown, void>): void => {
  const end = performance.now() + slice
  try {
    for (;;) {
      const step = job.next()
      if (step.done === true) {
        running.delete(id)
        answer({ id, value: step.value })
        return
      }
      if (performance.now() >= end) return
    }
  } catch (cause) {
    running.delete(id)
    answer({ id, problem: problemOf(cause) })
  }
}

const turn = (): void => {
  for (const [id, job] of running) {
    running.delete(id)
    running.set(id, job)
    advance(id, job)
    break
  }
  if (running.size > 0) setImmediate(turn)
  else scheduled = false
}

const { handle } = (await import((workerData as { readonly handler: string }).handler)) as {
  readonly handle: JobHandler<unknown, unknown>
}

port.on("message", (message: ToThread) => {
  if ("cancel" in message) {
    running.delete(message.cancel)
    answer({ alive: true })
    return
  }
  try {
    running.set(message.id, handle(message.job))
  } catch (cause) {
    answer({ id: message.id, problem: problemOf(cause) })
  }
  if (!scheduled) {
    scheduled = true
    setImmediate(turn)
  }
})
