/**
 * The workflow that interprets any definition, whatever its type is called: a worker runs a module's default export where no
 * workflow of that name is registered. It decides by the same rule as the embedded engine (`nextSteps`) and does nothing
 * itself; only what is deterministic may be imported here.
 */
import {
  ApplicationFailure,
  CancellationScope,
  condition,
  continueAsNew,
  defineSignal,
  isCancellation,
  proxyActivities,
  setHandler,
  workflowInfo
} from "@temporalio/workflow"
import { maxRunning, nextSteps, type StepState } from "#domain/pipelines/next-steps.ts"
import { reviewSignal } from "#domain/pipelines/runs.ts"
import {
  type Activities,
  type DecisionSignal,
  type EndedAs,
  type Ending,
  heartbeatTimeout,
  type Over,
  type RunArgument
} from "#layers/pipelines/temporal/protocol.ts"

/** How often and when a step is tried stands in its definition; what is repeated here is a worker or database that was lost. */
const retry = { initialInterval: 1000, backoffCoefficient: 2, maximumInterval: 30_000 }

const quick = proxyActivities<Activities>({ startToCloseTimeout: 60_000, retry })
const { work } = proxyActivities<Activities>({
  // Longer than a step may take by its definition, whose own time ends it first.
  startToCloseTimeout: "8 days",
  heartbeatTimeout,
  cancellationType: "WAIT_CANCELLATION_COMPLETED",
  retry
})

/** Events of a history after which a new one is begun even if that has to be waited for; Temporal ends a workflow at 51,200. */
const longHistory = 30_000

const isOver = (answer: object): answer is Over => "over" in answer

/** Someone else ended the run. */
class RunOver extends Error {}

export default async function interpret(key: RunArgument): Promise<{ readonly status: EndedAs }> {
  const decisions: Array<DecisionSignal> = []
  let awake = false
  setHandler(defineSignal<[DecisionSignal | undefined]>(reviewSignal), (decision) => {
    decisions.push(decision ?? {})
    awake = true
  })

  const steps = new CancellationScope()
  const running = new Map<string, Promise<void>>()
  const states = new Map<string, StepState>()
  let broken: Error | undefined

  const take = <A extends object>(answer: A | Over): A => {
    if (isOver(answer)) throw new RunOver()
    return answer
  }

  const start = (id: string, effect: () => Promise<StepState | Over>) => {
    const done = steps
      .run(effect)
      .then((answer) => void states.set(id, take(answer)))
      .catch((error: Error) => void (broken ??= error))
      .finally(() => {
        running.delete(id)
        awake = true
      })
    running.set(id, done)
  }

  /** The end is written whatever is cancelled meanwhile. */
  const finish = (ending: Ending): Promise<EndedAs> =>
    CancellationScope.nonCancellable(async () => {
      steps.cancel()
      await Promise.all(running.values())
      return quick.finish(key, ending)
    })

  const drive = async (): Promise<EndedAs> => {
    const outline = take(await quick.open(key))
    const plan = { steps: new Map(outline.map(({ id, needs }) => [id, { needs: new Set(needs) }])) }
    for (const { id, state } of outline) states.set(id, state)
    while (true) {
      awake = false
      if (broken !== undefined) throw broken
      for (const decision of decisions.splice(0)) {
        for (const { id, state } of take(await quick.decide(key, decision))) states.set(id, state)
      }
      const next = nextSteps(plan, { steps: states }, (id) => running.has(id), Date.now())
      if (next.failed !== undefined) return finish({ type: "failed", step: next.failed.step })
      if (next.complete) return finish({ type: "completed" })
      const { continueAsNewSuggested, historyLength } = workflowInfo()
      if (continueAsNewSuggested && running.size === 0) await continueAsNew<typeof interpret>(key)
      for (const id of next.expired) start(id, () => quick.expire(key, id))
      if (historyLength < longHistory) {
        for (const id of next.ready.slice(0, Math.max(0, maxRunning - running.size))) start(id, () => work(key, id))
      }
      const woken = () => awake || decisions.length > 0
      if (next.dueAt === undefined) await condition(woken)
      else await condition(woken, Math.max(1, next.dueAt - Date.now()))
    }
  }

  try {
    const status = await drive()
    if (status === "failed")
      throw ApplicationFailure.nonRetryable("The run failed; why stands in the gateway.", "run_failed")
    return { status }
  } catch (error) {
    if (error instanceof RunOver) {
      steps.cancel()
      return { status: "over" }
    }
    if (isCancellation(error)) await finish({ type: "cancelled" })
    throw error
  }
}
