// The program's entry. JavaScript, so that a start with a warm cache compiles nothing and strips no types. The cache lies in
// the data dir, where nobody else can write.
import { existsSync, mkdirSync, readdirSync, statSync } from "node:fs"
import { enableCompileCache } from "node:module"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

const dataDir = process.env.GATEWAY_DATA_DIR || "./data"
try {
  // Not recursive: Node's recursive mkdir never ends in a file system that refuses with ENOENT, such as /proc.
  if (!existsSync(dataDir)) mkdirSync(dataDir, { mode: 0o700 })
  enableCompileCache(process.env.NODE_COMPILE_CACHE ?? join(dataDir, "compile-cache"))
} catch {
  // The start itself says what is wrong with the data dir.
}

const root = fileURLToPath(new URL("..", import.meta.url))

/** Whether a source was changed after the bundle was made (`npm ci` and `npm run bundle` make it). A removed one changes its folder. */
const isBundleStale = () => {
  const made = statSync(join(root, "dist/main.js"), { throwIfNoEntry: false })?.mtimeMs ?? 0
  const isNewer = (path) => statSync(path).mtimeMs > made
  return (
    isNewer(join(root, "package-lock.json")) ||
    ["src", "services", "layers"].some(
      (folder) =>
        isNewer(join(root, folder)) ||
        readdirSync(join(root, folder), { recursive: true }).some((name) => isNewer(join(root, folder, name)))
    )
  )
}

await import(isBundleStale() ? "../src/main.ts" : "../dist/main.js")
