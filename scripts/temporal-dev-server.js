// Starts a Temporal server for development and tests, prints its address, and ends it when it is ended itself.
//
//   node scripts/temporal-dev-server.js            run one: the `temporal` command that was built before or is on the PATH;
//                                                  else TEMPORAL_ADDRESS, if set, is the answer
//   node scripts/temporal-dev-server.js --build    the same, and where Go is present, build the command if there is none
//   node scripts/temporal-dev-server.js --install  only build the command; prints where it is
//   ... --until-stdin-ends                         for a parent that may die without a word
//
// Exit code 3: none can be had, and standard error says why. JavaScript, because it may run on a Node that knows no types.
import { spawn, spawnSync } from "node:child_process"
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { homedir } from "node:os"
import { delimiter, join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { fileURLToPath } from "node:url"

/** The newest release that `go install` takes: later ones replace a module by a folder of their own. */
const version = "v1.5.1"

const windows = process.platform === "win32"
const command = windows ? "temporal.exe" : "temporal"
const home = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "sluice", `temporal-${version}`)
const built = join(home, command)

const onPath = (name) =>
  (process.env.PATH ?? "")
    .split(delimiter)
    .map((folder) => join(folder, name))
    .find((path) => existsSync(path))

/** The command, where there is one already. */
export const findTemporal = () => (existsSync(built) ? built : onPath(command))

/** Why there is no server. */
class Unavailable extends Error {}

const isAlive = (pid) => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

/** One build at a time: a second one waits for the first. */
const withLock = async (work) => {
  const lock = join(home, "lock")
  mkdirSync(home, { recursive: true })
  for (;;) {
    try {
      writeFileSync(lock, String(process.pid), { flag: "wx" })
      break
    } catch (cause) {
      if (cause.code !== "EEXIST") throw cause
      if (existsSync(built)) return
      const holder = Number(existsSync(lock) ? readFileSync(lock, "utf8") : "0")
      if (holder !== 0 && !isAlive(holder)) rmSync(lock, { force: true })
      await pause(500)
    }
  }
  try {
    await work()
  } finally {
    rmSync(lock, { force: true })
  }
}

const run = (program, args, env) =>
  new Promise((resolve, reject) => {
    const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: ["ignore", "ignore", "pipe"] })
    let said = ""
    child.stderr.on("data", (chunk) => (said = (said + chunk).slice(-4000)))
    child.once("error", reject)
    child.once("close", (code) => {
      if (code === 0) return resolve()
      const why = said.trim().split("\n").at(-1) ?? ""
      reject(new Unavailable(`'${program} ${args[0]}' failed (${code}): ${why}`))
    })
  })

/** Builds the command with Go: minutes at first, as a Temporal server is in it. Tests need no optimized one. */
const build = async () => {
  if (existsSync(built)) return
  const go = onPath(windows ? "go.exe" : "go")
  if (go === undefined) throw new Unavailable("there is no Go to build the 'temporal' command with")
  await withLock(async () => {
    if (existsSync(built)) return
    const target = join(home, `build-${process.pid}`)
    try {
      console.error(`Building Temporal's command ${version} with Go, once; this takes some minutes.`)
      await run(
        go,
        ["install", "-gcflags=all=-N -l", "-ldflags=-s -w", `github.com/temporalio/cli/cmd/temporal@${version}`],
        {
          GOBIN: target,
          CGO_ENABLED: "0"
        }
      )
      renameSync(join(target, command), built)
    } finally {
      rmSync(target, { recursive: true, force: true })
    }
  })
}

const freePort = () =>
  new Promise((resolve, reject) => {
    const server = createServer()
    server.once("error", reject)
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })

/** Resolves when it serves. Its data is in memory. */
const serve = async (temporal) => {
  const address = `127.0.0.1:${await freePort()}`
  const args = ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", address.split(":")[1]]
  const child = spawn(temporal, [...args, "--log-level", "error"], { stdio: ["ignore", "pipe", "inherit"] })
  const end = () => child.kill("SIGTERM")
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, end)
  if (process.argv.includes("--until-stdin-ends")) process.stdin.on("end", end).on("error", end).resume()
  child.once("exit", (code, signal) => process.exit(signal === "SIGTERM" ? 0 : (code ?? 1)))
  const deadline = Date.now() + 60_000
  while (Date.now() < deadline) {
    const asked = spawnSync(temporal, ["operator", "namespace", "describe", "default", "--address", address], {
      timeout: 10_000
    })
    if (asked.status === 0) return address
    await pause(200)
  }
  end()
  throw new Unavailable(`${temporal} did not start within a minute`)
}

const main = async () => {
  if (process.argv.includes("--install")) {
    await build()
    return console.log(built)
  }
  if (process.argv.includes("--build") && findTemporal() === undefined && !process.env.TEMPORAL_ADDRESS) await build()
  const temporal = findTemporal()
  if (temporal !== undefined) return console.log(await serve(temporal))
  if (process.env.TEMPORAL_ADDRESS) return console.log(process.env.TEMPORAL_ADDRESS)
  throw new Unavailable("no 'temporal' command is on the PATH or was built, and TEMPORAL_ADDRESS is not set")
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    await main()
  } catch (cause) {
    console.error(cause instanceof Unavailable ? cause.message : String(cause))
    process.exit(3)
  }
}
