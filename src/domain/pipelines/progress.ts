/** What the history of a run comes to, and what is to be done next. */
import type { Json } from "#domain/json.ts"
import type { PipelineDefinition, Step } from "#domain/pipelines/definition.ts"
import { isSettled, type StepStatus } from "#domain/pipelines/next-steps.ts"
import type { ReviewDecision, RunError, RunEvent } from "#domain/pipelines/runs.ts"
import { allReferences } from "#domain/pipelines/templates.ts"

/** The tries of a step or of one item. */
export interface Tries {
  started: number
  failed: number
  /** The number of the last try that failed. */
  lastFailed: number
  /** Unix milliseconds; undefined: at once. */
  retryAt: number | undefined
}

export interface ItemProgress extends Tries {
  done: boolean
  output: Json
}

export interface StepProgress extends Tries {
  status: StepStatus
  output: Json
  error: RunError | undefined
  /** Of a review: when it is over. */
  deadline: number | undefined
  decision: ReviewDecision | undefined
  /** Of a map. */
  items: number | undefined
  readonly done: Map<number, ItemProgress>
}

export interface RunProgress {
  started: boolean
  cancelled: boolean
  readonly steps: Map<string, StepProgress>
  /** UTF-16 code units of all outputs. */
  outputSize: number
}

/** A step of a definition with all it needs. */
export interface PlannedStep {
  readonly step: Step
  readonly needs: ReadonlySet<string>
  /** The branches that this step is a way of. */
  readonly branches: ReadonlySet<string>
}

export interface Plan {
  readonly definition: PipelineDefinition
  readonly steps: ReadonlyMap<string, PlannedStep>
  /** Reviews whose output some step reads: their rejection is handled (decisions.md, section 10.2). */
  readonly handled: ReadonlySet<string>
}

const branchTargets = (step: Step): ReadonlyArray<string> =>
  step.operator === "branch" ? [...step.cases.flatMap((one) => one.steps), ...step.otherwise] : []

/** What a step's expressions stand in. */
export const expressionsOf = (step: Step): Json => {
  switch (step.operator) {
    case "branch":
      return [step.when, ...step.cases.map((one) => one.when)]
    case "map":
      return [step.when, step.items, step.task.with]
    default:
      return [step.when, step.with]
  }
}

/** Works out what each step needs: what is written, what its expressions read, and the branch that leads to it. */
export const planOf = (definition: PipelineDefinition): Plan => {
  const known = new Set(definition.steps.map((step) => step.id))
  const steps = new Map<string, PlannedStep>()
  const handled = new Set<string>()
  for (const step of definition.steps) {
    const branches = new Set(
      definition.steps.filter((other) => branchTargets(other).includes(step.id)).map((other) => other.id)
    )
    const read = allReferences(expressionsOf(step), known).steps
    for (const id of read) handled.add(id)
    steps.set(step.id, { step, needs: new Set([...step.needs, ...read, ...branches]), branches })
  }
  return { definition, steps, handled }
}

const newTries = (): Tries => ({ started: 0, failed: 0, lastFailed: 0, retryAt: undefined })

export const newProgress = (plan: Plan): RunProgress => ({
  started: false,
  cancelled: false,
  outputSize: 0,
  steps: new Map(
    Array.from(plan.steps.keys(), (id): [string, StepProgress] => [
      id,
      {
        ...newTries(),
        status: "pending",
        output: null,
        error: undefined,
        deadline: undefined,
        decision: undefined,
        items: undefined,
        done: new Map()
      }
    ])
  )
})

/** The progress of one item, made when first asked for. */
export const itemOf = (step: StepProgress, item: number): ItemProgress => {
  let found = step.done.get(item)
  if (found === undefined) step.done.set(item, (found = { ...newTries(), done: false, output: null }))
  return found
}

/**
 * Whether an event that is about to be written still says something new. Where several may work on a run, one whose try
 * was given up meanwhile, or made by another, must not write any more.
 */
export const isNews = (progress: RunProgress, event: RunEvent): boolean => {
  if (event.type === "run_started") return !progress.started
  if (!("step" in event)) return true
  const step = progress.steps.get(event.step)
  if (step === undefined || isSettled(step)) return false
  const item = "item" in event && event.item !== undefined ? step.done.get(event.item) : undefined
  if (item?.done === true) return false
  const started = ("item" in event && event.item !== undefined ? item : step)?.started ?? 0
  switch (event.type) {
    case "step_started":
      return event.attempt > started
    case "step_completed":
    case "step_failed":
      return event.attempt === undefined || event.attempt >= started
    case "map_started":
      return step.items === undefined
    case "review_requested":
      return step.status === "pending"
    default:
      return true
  }
}

/** Takes an event in. An event that comes twice (the answer to its write was lost) changes nothing the second time. */
export const applyEvent = (plan: Plan, progress: RunProgress, event: RunEvent): void => {
  if (event.type === "run_started") progress.started = true
  if (event.type === "cancel_requested") progress.cancelled = true
  if (!("step" in event)) return
  const step = progress.steps.get(event.step)
  if (step === undefined || isSettled(step)) return
  switch (event.type) {
    case "step_started": {
      const tries = event.item === undefined ? step : itemOf(step, event.item)
      tries.started = Math.max(tries.started, event.attempt)
      tries.retryAt = undefined
      return
    }
    case "step_completed": {
      if (event.item === undefined) {
        step.status = "completed"
        // The items have been written one by one.
        const { items } = step
        step.output =
          items === undefined ? event.output : Array.from({ length: items }, (_, item) => itemOf(step, item).output)
      } else {
        const item = itemOf(step, event.item)
        if (item.done) return
        item.done = true
        item.output = event.output
      }
      progress.outputSize += JSON.stringify(event.output).length
      return
    }
    case "step_failed": {
      const tries = event.item === undefined ? step : itemOf(step, event.item)
      if (event.attempt <= tries.lastFailed) return
      tries.lastFailed = event.attempt
      tries.failed++
      tries.retryAt = event.retryAt ?? undefined
      if (event.retryAt === null) {
        step.status = "failed"
        step.error = event.error
      }
      return
    }
    case "step_skipped":
      step.status = "skipped"
      return
    case "map_started":
      step.items = event.items
      return
    case "review_requested":
      step.status = "waiting"
      step.deadline = event.deadline
      return
    case "review_decided": {
      const { approved, reason, reviewer } = event
      step.decision = { approved, reason, reviewer }
      step.output = { approved, reason, reviewer }
      if (approved || plan.handled.has(event.step)) step.status = "completed"
      else {
        step.status = "failed"
        step.error = {
          code: "review_rejected",
          message: reason === "" ? "The review was rejected." : `The review was rejected: ${reason}`,
          step: event.step
        }
      }
      return
    }
  }
}

/** Why a step that can run is not to: `branch`, another way was taken; `needs`, all that it needs was skipped. */
export const skipReason = (plan: Plan, progress: RunProgress, id: string): "branch" | "needs" | undefined => {
  const { branches, needs, step } = plan.steps.get(id)!
  const ways = [...branches].map((branch) => progress.steps.get(branch)!)
  if (ways.length > 0) {
    const taken = ways.some((way) => {
      const output = way.output
      return (
        way.status === "completed" &&
        typeof output === "object" &&
        output !== null &&
        "steps" in output &&
        Array.isArray(output.steps) &&
        output.steps.includes(id)
      )
    })
    if (!taken) return "branch"
  }
  if (step.when !== null || needs.size === 0) return undefined
  return [...needs].every((needed) => progress.steps.get(needed)!.status === "skipped") ? "needs" : undefined
}
