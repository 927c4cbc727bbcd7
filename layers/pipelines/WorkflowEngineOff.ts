import { Effect, Layer } from "effect"
import { Unavailable } from "#domain/errors.ts"
import { WorkflowEngine } from "#services/pipelines/WorkflowEngine.ts"

const refusal = new Unavailable({
  code: "workflow_engine_not_configured",
  message: "No workflow engine is configured."
})

const refuse = () => Effect.fail(refusal)

/** `GATEWAY_WORKFLOW_ENGINE=off`. */
export const layer: Layer.Layer<WorkflowEngine> = Layer.succeed(WorkflowEngine, {
  namespace: "",
  refusal,
  workflowId: () => "",
  start: refuse,
  discard: () => Effect.void,
  decide: refuse,
  cancel: refuse,
  terminate: refuse,
  history: refuse,
  refresh: () => Effect.succeed(false)
})
