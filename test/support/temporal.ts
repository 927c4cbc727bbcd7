/** A Temporal server, where one can be had, and what tests ask it besides. */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { Client, Connection, WorkflowNotFoundError } from "@temporalio/client"
import { Duration, Layer } from "effect"
import * as PipelineRunsPostgres from "#layers/pipelines/PipelineRunsPostgres.ts"
import * as PipelineWorkerTemporal from "#layers/pipelines/PipelineWorkerTemporal.ts"
import type { TemporalOptions } from "#layers/pipelines/temporal/connection.ts"
import * as WorkflowEngineTemporal from "#layers/pipelines/WorkflowEngineTemporal.ts"
import type { Definitions, Doings } from "#test/support/pipelines.ts"

const script = fileURLToPath(new URL("../../scripts/temporal-dev-server.js", import.meta.url))

export interface TemporalServer {
  /** Undefined: there is none, and `skipped` says why. */
  readonly address: string | undefined
  readonly skipped: string
  readonly close: () => Promise<void>
}

/**
 * A server of the test file's own, or the one of TEMPORAL_ADDRESS. With SLUICE_TEST_TEMPORAL=1 its command is built where Go is
 * present, which may take minutes; otherwise what is there is taken.
 */
export const temporalServer = async (): Promise<TemporalServer> => {
  const build = process.env["SLUICE_TEST_TEMPORAL"] === "1" ? ["--build"] : []
  const child = spawn(process.execPath, [script, "--until-stdin-ends", ...build], { stdio: ["pipe", "pipe", "pipe"] })
  let said = ""
  child.stderr.on("data", (chunk: Buffer) => void (said += chunk.toString()))
  const ended = once(child, "exit")
  const address = await Promise.race([
    once(createInterface({ input: child.stdout }), "line").then(([line]) => String(line)),
    ended.then(() => undefined)
  ])
  const skipped = address === undefined ? (said.trim().split("\n").at(-1) ?? "") : ""
  if (address === undefined) console.warn(`Temporal: tests are skipped: ${skipped}`)
  return {
    address,
    skipped,
    close: async () => {
      child.stdin.end()
      await ended
    }
  }
}

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
    workflowService: connection.workflowService,
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
