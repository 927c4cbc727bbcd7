import type { IncomingMessage } from "node:http"
import { Context, type Effect, type Scope } from "effect"
import type { Unavailable, ValidationFailed } from "#domain/errors.ts"
import type { JsonObject } from "#domain/json.ts"
import type { UploadedFile } from "#services/inference/ProviderRouter.ts"

/** A form that was received whole. A field that came several times is a list. */
export interface UploadedForm {
  readonly fields: JsonObject
  readonly files: ReadonlyArray<UploadedFile>
}

/**
 * Takes multipart forms in without holding their files in memory. They are on disk before the call is made, because its
 * model may be named after the file, and because what has been sent to one upstream can then be sent to the next.
 */
export class UploadSpool extends Context.Service<
  UploadSpool,
  {
    /**
     * Reads the message to its end. Its files live until the scope closes. Fails with `value_too_long` (512 MiB of
     * files; 1 MiB a field), `malformed_json` for a body that is no form or stops halfway, 503 `overloaded` when too
     * much is spooled already.
     */
    readonly receive: (
      message: IncomingMessage
    ) => Effect.Effect<UploadedForm, ValidationFailed | Unavailable, Scope.Scope>
  }
>()("sluice/files/UploadSpool") {}
