import * as fs from "node:fs"
import { join, resolve } from "node:path"
import { Effect, Layer, Option, Redacted } from "effect"
import { isAlive } from "#layers/storage/PostgresCluster.ts"
import { DatabaseServer, type DatabaseStartError } from "#services/storage/DatabaseServer.ts"

/** Lines of `postmaster.pid`, counted from 0. */
const line = { pid: 0, port: 3, socketDirectory: 4, address: 5, status: 7 } as const

/** Where a socket named relative to the data directory lies; an absolute name is taken as it is. */
const socketDirectory = (data: string, written: string): string => resolve(data, written)

/**
 * How to reach the embedded PostgreSQL that another process runs in this data dir, as that server itself wrote it down;
 * none when there is no such server. Throws when the data dir's password cannot be read.
 */
const urlOfRunning = (dataDir: string): Option.Option<string> => {
  const home = join(dataDir, "postgres")
  const data = join(home, "data")
  const path = join(data, "postmaster.pid")
  if (!fs.existsSync(path)) return Option.none()
  const lines = fs.readFileSync(path, "utf8").split("\n")
  const text = (at: number): string => lines[at]?.trim() ?? ""
  const pid = Number(text(line.pid))
  if (text(line.status) !== "ready" || !Number.isInteger(pid) || !isAlive(pid)) return Option.none()
  const password = fs.readFileSync(join(home, "password"), "utf8").trim()
  const url = new URL(`postgresql://sluice:${password}@localhost/postgres`)
  if (text(line.socketDirectory) === "") {
    url.host = `${text(line.address) || "127.0.0.1"}:${text(line.port)}`
  } else {
    url.searchParams.set("host", socketDirectory(data, text(line.socketDirectory)))
    url.searchParams.set("port", text(line.port))
  }
  return Option.some(url.href)
}

/**
 * The database of a gateway that is running in the data dir, for commands beside it; where none is running, `otherwise`.
 * The data dir is not locked: the gateway has it.
 */
export const layer = (
  dataDir: string,
  otherwise: Layer.Layer<DatabaseServer, DatabaseStartError>
): Layer.Layer<DatabaseServer, DatabaseStartError> =>
  Layer.unwrap(
    Effect.sync(() =>
      Option.match(urlOfRunning(dataDir), {
        onNone: () => otherwise,
        onSome: (url) =>
          Layer.succeed(DatabaseServer, {
            url: Redacted.make(url),
            kind: "external",
            state: Effect.succeed("ready" as const)
          })
      })
    )
  )
