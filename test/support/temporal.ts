/** The Temporal server of the run, and what tests ask it besides. */
import { Connection, WorkflowNotFoundError, Client } from "@temporalio/client"
import { Effect, Layer } from "effect"
import * as PipelineRunsPostgres from "#layers/pipelines/PipelineRunsPostgres.ts"
import * as PipelineWorkerTemporal from "#layers/pipelines/PipelineWorkerTemporal.ts"
import type { TemporalOptions } from "#layers/pipelines/temporal/connection.ts"
import * as WorkflowEngineTemporal from "#layers/pipelines/WorkflowEngineTemporal.ts"
import { Duration } from "effect"
import type { Definitions, Doings } from "#test/support/pipelines.ts"

/** A queue of its own, so that no other test's worker takes its runs. */
export const temporalOptions = (address: string): TemporalOptions => ({
  address,
  namespace: "default",
  taskQueue: `test-${crypto.randomUUID()}`,
  apiKey: undefined,
  tls: undefined
})

/** Gateway and worker in one process, and the runs over them. */
export const temporalEngine = (options: TemporalOptions, doings: Doings, definitions: Definitions) =>
  PipelineRunsPostgres.layer.pipe(
    Layer.provideMerge(WorkflowEngineTemporal.layer({ ...options, sweepMs: 500 })),
    Layer.merge(
      PipelineWorkerTemporal.layer({ ...options, drainTimeout: Duration.zero }).pipe(Layer.provide(doings.layer))
    ),
    Layer.provide(definitions.layer),
    Layer.orDie,
    Layer.fresh
  )

/** Temporal itself, as an operator's command line has it. */
export const temporalClient = async (address: string) => {
  const connection = await Connection.connect({ address })
  const client = new Client({ connection })
  const handle = (runId: string) => client.workflow.getHandle(`pipeline-run-${runId}`)
  return {
    handle,
    close: () => connection.close(),
    describe: async (runId: string) => {
      try {
        return await handle(runId).describe()
      } catch (cause) {
        if (cause instanceof WorkflowNotFoundError) return undefined
        throw cause
      }
    },
    /** Days of the timers that the workflow has begun and that neither fired nor were cancelled. */
    timers: async (runId: string): Promise<ReadonlyArray<number>> => {
      const { events = [] } = await handle(runId).fetchHistory()
      const open = new Map<string, number>()
      for (const event of events ?? []) {
        const started = event.timerStartedEventAttributes
        if (started?.timerId) open.set(started.timerId, Number(started.startToFireTimeout?.seconds ?? 0) / 86_400)
        const ended = event.timerCanceledEventAttributes?.timerId ?? event.timerFiredEventAttributes?.timerId
        if (ended) open.delete(ended)
      }
      return [...open.values()]
    }
  }
}

export type TemporalClient = Awaited<ReturnType<typeof temporalClient>>

export const asking = <A>(ask: () => Promise<A>) => Effect.promise(ask)
