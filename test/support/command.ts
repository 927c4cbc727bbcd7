/** The command line as its users meet it. */
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"

const main = fileURLToPath(new URL("../../src/main.ts", import.meta.url))

export interface CommandResult {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

/** Runs `sluice` with these arguments to its end. */
export const sluice = (parts: ReadonlyArray<string>, env: Readonly<Record<string, string>>): Promise<CommandResult> =>
  new Promise((resolve) => {
    const child = spawn(process.execPath, ["--stack-trace-limit=0", main, ...parts], {
      env: { PATH: process.env["PATH"], ...env }
    })
    let [out, err] = ["", ""]
    child.stdout.on("data", (chunk: Buffer) => void (out += chunk.toString()))
    child.stderr.on("data", (chunk: Buffer) => void (err += chunk.toString()))
    child.once("close", (code) => resolve({ code, out, err }))
  })
