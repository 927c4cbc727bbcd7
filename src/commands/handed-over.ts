/** Connections on their way from the primary to a worker. */
import type { Worker } from "node:cluster"

interface Handle {
  readonly close: () => void
}

const isHandle = (value: unknown): value is Handle =>
  typeof value === "object" && value !== null && "close" in value && typeof value.close === "function"

/**
 * Closes the connection that was being handed to a worker when the worker died. `node:cluster` hands one over at a time
 * and keeps it open until the worker has said that it took it; of one that a `kill -9` caught on the way it never hears,
 * and its client would wait for ever. Closed, the client sees its connection reset, as those that the worker had, and may
 * ask again. A handle that has gone over is closed already: closing it once more does nothing.
 */
export const closeOnDeath = (worker: Worker): void => {
  const channel = worker.process
  const send = channel.send.bind(channel) as (...parts: ReadonlyArray<unknown>) => boolean
  let last: Handle | undefined
  channel.send = (...parts: ReadonlyArray<unknown>): boolean => {
    if (isHandle(parts[1])) last = parts[1]
    return send(...parts)
  }
  worker.once("exit", () => last?.close())
}
