/** What the primary and its workers say to each other. */
import { Schema } from "effect"

const FromWorker = Schema.Union([
  Schema.Struct({ type: Schema.Literal("ready") }),
  Schema.Struct({
    type: Schema.Literal("status"),
    id: Schema.Int,
    metrics: Schema.String,
    dependencies: Schema.Array(Schema.Struct({ name: Schema.String, state: Schema.String, required: Schema.Boolean }))
  })
])
export type FromWorker = typeof FromWorker.Type
export const isFromWorker = Schema.is(FromWorker)

const ToWorker = Schema.Struct({ type: Schema.Literal("status"), id: Schema.Int })
export type ToWorker = typeof ToWorker.Type
export const isToWorker = Schema.is(ToWorker)

/** The environment variable that tells a worker which one it is. */
export const workerIndexVariable = "SLUICE_WORKER_INDEX"
