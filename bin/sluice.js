#!/usr/bin/env node
// npm may have been run by an older Node than the program needs: the pinned one lies beside us.
import { spawnSync } from "node:child_process"
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"

const pinned = fileURLToPath(new URL("../node_modules/.bin/node", import.meta.url))
const main = fileURLToPath(new URL("../src/main.ts", import.meta.url))
const node = existsSync(pinned) ? pinned : process.execPath
const run = spawnSync(node, ["--stack-trace-limit=0", main, ...process.argv.slice(2)], { stdio: "inherit" })
process.exit(run.status ?? 1)
