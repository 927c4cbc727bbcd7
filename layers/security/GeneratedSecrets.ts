import { randomBytes } from "node:crypto"
import * as fs from "node:fs"
import { join } from "node:path"
import { Effect, Layer, Redacted, Schema } from "effect"
import { InstanceSecrets, SecretsFileError } from "#services/security/InstanceSecrets.ts"

/** What the settings say of the instance's secrets; an absent one is made and kept in the data dir. */
export interface InstanceSecretsOptions {
  readonly dataDir: string
  readonly masterKey?: Redacted.Redacted<string> | undefined
  readonly encryptionKey?: Redacted.Redacted<string> | undefined
  /** Comma-separated, each 32 bytes, base64. */
  readonly previousEncryptionKeys?: Redacted.Redacted<string> | undefined
}

/** The file's name in the data dir. */
export const SECRETS_FILE = "secrets.json"

const Kept = Schema.Struct({
  master_key: Schema.optionalKey(Schema.NonEmptyString),
  encryption_key: Schema.optionalKey(Schema.NonEmptyString)
})
type Kept = typeof Kept.Type

const decodeKept = Schema.decodeUnknownSync(Kept)

const codeOf = (cause: unknown): string | undefined => (cause as NodeJS.ErrnoException | undefined)?.code

const read = (path: string): Kept | undefined => {
  let text: string
  try {
    text = fs.readFileSync(path, "utf8")
  } catch (cause) {
    if (codeOf(cause) === "ENOENT") return undefined
    throw cause
  }
  // A copied or restored data dir may have lost the mode.
  if (process.platform !== "win32" && (fs.statSync(path).mode & 0o077) !== 0) fs.chmodSync(path, 0o600)
  let kept: Kept
  try {
    kept = decodeKept(JSON.parse(text))
  } catch {
    // The parser's own message would quote the file.
    throw new Error("it is not the JSON that was written there")
  }
  if (kept.encryption_key !== undefined && Buffer.from(kept.encryption_key, "base64").length !== 32) {
    throw new Error("its encryption_key is not 32 bytes, base64")
  }
  return kept
}

const writeDurably = (path: string, kept: Kept): void => {
  const file = fs.openSync(path, "wx", 0o600)
  try {
    fs.writeFileSync(file, `${JSON.stringify(kept, undefined, 2)}\n`)
    fs.fsyncSync(file)
  } finally {
    fs.closeSync(file)
  }
}

/** Puts the file in place only if it is still what was read; false: another process was first. */
const keep = (path: string, before: Kept | undefined, kept: Kept): boolean => {
  const temporary = `${path}.${randomBytes(6).toString("hex")}`
  writeDurably(temporary, kept)
  try {
    if (before === undefined) fs.linkSync(temporary, path)
    else fs.renameSync(temporary, path)
    return true
  } catch (cause) {
    if (codeOf(cause) === "EEXIST") return false
    throw cause
  } finally {
    fs.rmSync(temporary, { force: true })
  }
}

// Longer than any API key, so that the comparison of the two ends at their lengths.
const newMasterKey = (): string => `mk-${randomBytes(48).toString("base64url")}`

const make = (options: InstanceSecretsOptions) => {
  const previousEncryptionKeys = (
    options.previousEncryptionKeys === undefined ? "" : Redacted.value(options.previousEncryptionKeys)
  )
    .split(",")
    .map((key) => key.trim())
    .filter((key) => key !== "")
    .map((key) => Redacted.make(key))
  const { encryptionKey, masterKey } = options
  if (masterKey !== undefined && encryptionKey !== undefined) {
    return { masterKey, encryptionKey, previousEncryptionKeys, masterKeyGenerated: false }
  }
  fs.mkdirSync(options.dataDir, { recursive: true, mode: 0o700 })
  const path = join(options.dataDir, SECRETS_FILE)
  while (true) {
    const before = read(path)
    const kept: Kept = {
      ...before,
      ...(masterKey === undefined ? { master_key: before?.master_key ?? newMasterKey() } : {}),
      ...(encryptionKey === undefined
        ? { encryption_key: before?.encryption_key ?? randomBytes(32).toString("base64") }
        : {})
    }
    const complete = kept.master_key === before?.master_key && kept.encryption_key === before?.encryption_key
    if (!complete && !keep(path, before, kept)) continue
    return {
      masterKey: masterKey ?? Redacted.make(kept.master_key ?? ""),
      masterKeyGenerated: masterKey === undefined && before?.master_key === undefined,
      encryptionKey: encryptionKey ?? Redacted.make(kept.encryption_key ?? ""),
      previousEncryptionKeys
    }
  }
}

/**
 * The instance's secrets. What the settings leave out is read from `<dataDir>/secrets.json` (mode 0600), and made there
 * at the first start. A file that cannot be used is never replaced: the encryption key in it may be the only one.
 */
export const layer = (options: InstanceSecretsOptions): Layer.Layer<InstanceSecrets, SecretsFileError> =>
  Layer.effect(
    InstanceSecrets,
    Effect.try({
      try: () => InstanceSecrets.of(make(options)),
      catch: (cause) =>
        new SecretsFileError({
          message: `${join(options.dataDir, SECRETS_FILE)} cannot be used: ${
            (cause instanceof Error ? cause.message : String(cause)).split("\n")[0] ?? ""
          }`
        })
    })
  )
