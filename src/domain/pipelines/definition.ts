/** Pipeline definitions (decisions.md, section 10.1): what the YAML language says, as plain data. */
import type { Json, JsonObject } from "#domain/json.ts"

export const operators = [
  "chat",
  "embed",
  "rerank",
  "moderate",
  "guardrail",
  "retrieve",
  "extract",
  "web_fetch",
  "sql_query",
  "transform",
  "branch",
  "map",
  "human_review"
] as const

export type Operator = (typeof operators)[number]

/** The operators that decide over other steps; they cannot stand inside `map`. */
export type ControlOperator = "branch" | "map" | "human_review"
export type TaskOperator = Exclude<Operator, ControlOperator>

export const isOperator = (name: string): name is Operator => operators.some((known) => known === name)

/** How often and when a failed step is tried again. Times are in milliseconds. */
export interface RetryPolicy {
  /** Tries in all, the first included. */
  readonly attempts: number
  readonly delay: number
  /** Each wait is this many times the one before. */
  readonly backoff: number
  readonly maxDelay: number
}

/** What a step does, once or for each item of a `map`. */
export interface Task {
  readonly operator: TaskOperator
  /** With `${…}` in its strings. */
  readonly with: Json
  readonly retry: RetryPolicy
  /** Milliseconds that one try may take. */
  readonly timeout: number
}

interface StepFields {
  readonly id: string
  /** What was written; what expressions refer to is needed besides. */
  readonly needs: ReadonlyArray<string>
  readonly when: string | null
}

export interface TaskStep extends StepFields, Task {}

export interface BranchCase {
  readonly when: string
  readonly steps: ReadonlyArray<string>
}

export interface BranchStep extends StepFields {
  readonly operator: "branch"
  readonly cases: ReadonlyArray<BranchCase>
  readonly otherwise: ReadonlyArray<string>
}

export interface MapStep extends StepFields {
  readonly operator: "map"
  /** One expression that yields an array. */
  readonly items: Json
  readonly concurrency: number
  readonly task: Task
  /** Milliseconds for all items. */
  readonly timeout: number
}

export interface ReviewStep extends StepFields {
  readonly operator: "human_review"
  readonly with: Json
  /** Milliseconds until an undecided review fails. */
  readonly timeout: number
}

export type Step = TaskStep | BranchStep | MapStep | ReviewStep

export interface PipelineDefinition {
  readonly name: string
  readonly description: string
  /** The JSON Schema of `initial_inputs`. */
  readonly inputs: JsonObject
  readonly steps: ReadonlyArray<Step>
  readonly outputs: JsonObject
}

/** Bounds of the language. Sizes in UTF-16 code units, times in milliseconds. */
export const bounds = {
  source: 128 * 1024,
  depth: 32,
  nodes: 20_000,
  steps: 200,
  idLength: 64,
  expression: 4096,
  expressions: 2000,
  inputsSchema: 64 * 1024,
  branchCases: 50,
  concurrency: 64,
  mapItems: 10_000,
  attempts: 20,
  retryDelay: 30 * 86_400_000,
  mapRetryDelay: 5 * 60_000,
  taskTimeout: 86_400_000,
  mapTimeout: 7 * 86_400_000,
  reviewTimeout: 366 * 86_400_000
} as const

export const defaults = {
  taskTimeout: 10 * 60_000,
  mapTimeout: 86_400_000,
  reviewTimeout: 30 * 86_400_000,
  concurrency: 8,
  delay: 1000,
  backoff: 2,
  maxDelay: 60_000
} as const

/** Tries of a step that says nothing: one for what only computes, three for what asks somebody. */
export const defaultAttempts = (operator: TaskOperator): number => (operator === "transform" ? 1 : 3)

/** The type that workflow engines know a version by (management-api.md, "pipeline", rule 1). */
export const workflowType = (assetId: string, version: number): string => `pipeline_${assetId.slice(0, 8)}_v${version}`
