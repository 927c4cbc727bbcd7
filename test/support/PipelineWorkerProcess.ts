/** `sluice worker` as its operators meet it: a process of its own, beside a gateway. */
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("../..", import.meta.url))

export interface PipelineWorkerProcess {
  readonly child: ChildProcess
  /** Everything it has printed so far, both streams. */
  readonly output: () => string
  /** SIGTERM; returns the exit code. */
  readonly stop: () => Promise<number | null>
  /** `kill -9`. */
  readonly kill: () => Promise<void>
}

/** Starts it and waits until it says that it works. Throws with what it said when it ends instead. */
export const startPipelineWorker = async (env: Readonly<Record<string, string>>): Promise<PipelineWorkerProcess> => {
  const child = spawn(process.execPath, ["--stack-trace-limit=0", "bin/main.js", "worker"], {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: process.env["PATH"], ...env }
  })
  let output = ""
  const ended = once(child, "exit")
  const working = new Promise<void>((resolve) => {
    const collect = (chunk: Buffer) => {
      output += chunk.toString()
      if (output.includes("works on pipelines")) resolve()
    }
    child.stdout.on("data", collect)
    child.stderr.on("data", collect)
  })
  await Promise.race([
    working,
    ended.then(() => {
      throw new Error(`the worker ended:\n${output}`)
    })
  ])
  const end = async (signal: NodeJS.Signals): Promise<number | null> => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill(signal)
      await ended
    }
    return child.exitCode
  }
  return {
    child,
    output: () => output,
    stop: () => end("SIGTERM"),
    kill: async () => void (await end("SIGKILL"))
  }
}
