import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { Effect, type Scope } from "effect"

/** A process of its own that holds a data dir and its embedded PostgreSQL, as a gateway does. */
export interface EmbeddedGateway {
  readonly pid: number
  /** Where its PostgreSQL is, or empty when it only holds the lock. */
  readonly url: string
  /** From the call until it was up. */
  readonly startMs: number
  /** `kill -9`; returns when the process is gone. */
  readonly kill: Effect.Effect<void>
  /** SIGTERM; returns the exit code. */
  readonly stop: Effect.Effect<number | null>
}

/** What the process is to do. */
export interface EmbeddedGatewayOptions {
  readonly dataDir: string
  readonly mode?: "postgres" | "lock"
  /** Only for a test that runs as root. */
  readonly uid?: number
}

const program = fileURLToPath(new URL("./embedded-gateway-main.ts", import.meta.url))

const ended = async (child: ChildProcess): Promise<number | null> => {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit")
  return child.exitCode
}

/** Starts it; fails with the one line it wrote when it could not start. Killed when the scope closes. */
export const startEmbeddedGateway = (
  options: EmbeddedGatewayOptions
): Effect.Effect<EmbeddedGateway, string, Scope.Scope> => {
  const began = performance.now()
  const acquire = Effect.sync(() =>
    spawn(process.execPath, [program, options.dataDir, options.mode ?? "postgres"], {
      stdio: ["ignore", "pipe", "inherit"],
      ...(options.uid === undefined ? {} : { uid: options.uid, gid: options.uid })
    })
  )
  return Effect.acquireRelease(acquire, (child) =>
    Effect.promise(() => {
      child.kill("SIGKILL")
      return ended(child)
    })
  ).pipe(
    Effect.flatMap((child) =>
      Effect.callback<EmbeddedGateway, string>((resume) => {
        const lines = createInterface({ input: child.stdout })
        lines.once("line", (line) => {
          const said = JSON.parse(line) as { url?: string; error?: string }
          resume(
            said.url === undefined
              ? Effect.fail(said.error ?? line)
              : Effect.succeed({
                  pid: child.pid ?? 0,
                  url: said.url,
                  startMs: performance.now() - began,
                  kill: Effect.promise(() => {
                    child.kill("SIGKILL")
                    return ended(child)
                  }).pipe(Effect.asVoid),
                  stop: Effect.promise(() => {
                    child.kill("SIGTERM")
                    return ended(child)
                  })
                })
          )
        })
        child.once("exit", (code, signal) => resume(Effect.fail(`exited with ${code ?? signal} without a word`)))
      })
    )
  )
}
