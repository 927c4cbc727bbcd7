import { randomUUID } from "node:crypto"
import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"

/**
 * What this data dir is called among the gateways of one PostgreSQL: made once, so that a restarted gateway recognises
 * what its former life had leased.
 */
export const instanceId = (dataDir: string): string => {
  const path = join(dataDir, "instance-id")
  mkdirSync(dataDir, { recursive: true, mode: 0o700 })
  try {
    writeFileSync(path, randomUUID(), { flag: "wx", mode: 0o600 })
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "EEXIST") throw cause
  }
  return readFileSync(path, "utf8").trim()
}
