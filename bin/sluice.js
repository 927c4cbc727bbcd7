#!/usr/bin/env node
// npm may have been run by an older Node than the program needs: the pinned one lies beside us.
import { spawn } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"

const pathOf = (relative) => fileURLToPath(new URL(relative, import.meta.url))
const pinned = pathOf("../node_modules/.bin/node")
const { scripts } = JSON.parse(readFileSync(pathOf("../package.json"), "utf8"))
const flags = scripts.start.split(" ").filter((word) => word.startsWith("--"))

const child = spawn(
  existsSync(pinned) ? pinned : process.execPath,
  [...flags, pathOf("main.js"), ...process.argv.slice(2)],
  {
    stdio: "inherit"
  }
)
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal))
child.on("exit", (code, signal) => process.exit(signal === null ? (code ?? 1) : 1))
