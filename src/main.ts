import "effect/schema/SchemaJITCompiler/enable"
import { NodeRuntime, NodeServices } from "@effect/platform-node"
import { Cause, Effect, Runtime } from "effect"
import { CliError, Command } from "effect/cli"
import { migrate } from "#src/commands/migrate.ts"
import { pipelineWorkerCommand } from "#src/commands/pipeline-worker.ts"
import { provenance } from "#src/commands/provenance.ts"
import { reseal } from "#src/commands/reseal.ts"
import { serve } from "#src/commands/serve.ts"
import { session } from "#src/commands/session.ts"
import { token } from "#src/commands/token.ts"

const sluice = Command.make("sluice").pipe(
  Command.withDescription("An LLM gateway: keys, exact budgets, limits, guardrails, tenants and audit"),
  Command.withSubcommands([serve, pipelineWorkerCommand, migrate, token, session, provenance, reseal])
)

/** One line for what an operator can mend; the whole cause for what only a developer can. */
const explain = (cause: Cause.Cause<unknown>): string => {
  const failure = cause.reasons.find((reason) => reason._tag === "Fail")?.error
  return failure instanceof Error && failure.message !== "" ? failure.message : Cause.pretty(cause)
}

/** `serve` is what runs when nothing else is asked for. */
const argumentsOf = (argv: ReadonlyArray<string>): ReadonlyArray<string> => (argv.length === 0 ? ["serve"] : argv)

const program = Command.runWith(sluice, { version: "0.1.0" })(argumentsOf(process.argv.slice(2))).pipe(
  Effect.tapCause((cause) =>
    Cause.hasInterruptsOnly(cause) ||
    cause.reasons.some((reason) => reason._tag === "Fail" && CliError.isCliError(reason.error))
      ? Effect.void
      : Effect.sync(() => console.error(`sluice: ${explain(cause)}`))
  ),
  Effect.provide(NodeServices.layer)
)

NodeRuntime.runMain(program, {
  disableErrorReporting: true,
  // A signal asks for a drain, which is a success (design.md, promise 10).
  teardown: (exit, onExit) => Runtime.defaultTeardown(exit, (code) => onExit(code === 130 ? 0 : code))
})
