import { Context, Data, type Redacted } from "effect"

/** The instance's secrets can be neither read nor made. `message` is one line for the operator; it holds no secret. */
export class SecretsFileError extends Data.TaggedError("SecretsFileError")<{ readonly message: string }> {}

/** The secrets that the whole instance stands on, from the settings or made at the first start (decisions.md, section 2). */
export class InstanceSecrets extends Context.Service<
  InstanceSecrets,
  {
    readonly masterKey: Redacted.Redacted<string>
    /** Whether this very start made the master key: the only moment at which it may be printed. */
    readonly masterKeyGenerated: boolean
    /** 32 bytes, base64. */
    readonly encryptionKey: Redacted.Redacted<string>
    /** Keys that only open what they once sealed, base64. */
    readonly previousEncryptionKeys: ReadonlyArray<Redacted.Redacted<string>>
  }
>()("sluice/security/InstanceSecrets") {}
