/** Who may call an operation, and which codes it documents: declared beside each endpoint of the contract. */
import { Context } from "effect"
import { HttpApiMiddleware } from "effect/http-api"
import { gatewayErrors } from "#api/envelope.ts"
import type { ApiKeyPrincipal, DeveloperPrincipal, ManagementPrincipal, MasterKeyPrincipal } from "#domain/principal.ts"

/**
 * The callers of decisions.md, section 3. `administrator_read` admits viewers, `administrator` does not;
 * `instance_admin` is the master key or a control-plane instance administrator; `control_plane` answers a tenant's
 * principal with 403 `control_plane_only`; `model` is an API key or the master key; `client_certificate` is whoever the
 * mutual-TLS listener has admitted.
 */
export type Access =
  | "public"
  | "administrator_read"
  | "administrator"
  | "instance_admin"
  | "control_plane"
  | "developer"
  | "model"
  | "client_certificate"

/** What is declared beside an endpoint. `codes` are the documented ones of operations.tsv; 500 stands for its 5XX. */
export interface OperationShape {
  readonly access: Access
  readonly codes: ReadonlyArray<number>
}

export class Operation extends Context.Service<Operation, OperationShape>()("sluice/api/Operation") {}

/**
 * The annotations of an endpoint:
 * `HttpApiEndpoint.post("block", "/key/block", {…}).annotateMerge(operation("administrator", 200, 401, 404))`.
 * The 5XX that every operation documents need not be named.
 */
export const operation = (access: Access, ...codes: ReadonlyArray<number>) =>
  Context.make(Operation, { access, codes: [...codes, 500] })

/** The request's id, as the `X-Request-Id` header carries it. */
export class RequestId extends Context.Service<RequestId, string>()("sluice/api/RequestId") {}

/** The attested caller of a management operation. */
export class ManagementCaller extends Context.Service<ManagementCaller, ManagementPrincipal>()(
  "sluice/api/ManagementCaller"
) {}

/** The attested caller of a self-service operation. */
export class DeveloperCaller extends Context.Service<DeveloperCaller, DeveloperPrincipal>()(
  "sluice/api/DeveloperCaller"
) {}

/** The attested caller of a model operation. */
export class ModelCaller extends Context.Service<ModelCaller, ApiKeyPrincipal | MasterKeyPrincipal>()(
  "sluice/api/ModelCaller"
) {}

/** Outermost on every group: request id, every failure as the envelope, defects as `internal_error`. */
export class Enveloped extends HttpApiMiddleware.Service<Enveloped, { provides: RequestId }>()("sluice/api/Enveloped", {
  error: gatewayErrors
}) {}

/** Admits administrators as the endpoint's `Operation` says. */
export class ManagementAccess extends HttpApiMiddleware.Service<
  ManagementAccess,
  { provides: ManagementCaller; requires: RequestId }
>()("sluice/api/ManagementAccess", { error: gatewayErrors }) {}

/** Admits developers: a key with an owner, or a live session. */
export class DeveloperAccess extends HttpApiMiddleware.Service<
  DeveloperAccess,
  { provides: DeveloperCaller; requires: RequestId }
>()("sluice/api/DeveloperAccess", { error: gatewayErrors }) {}

/** Admits API keys and the master key, and adds the quota headers. */
export class ModelAccess extends HttpApiMiddleware.Service<
  ModelAccess,
  { provides: ModelCaller; requires: RequestId }
>()("sluice/api/ModelAccess", { error: gatewayErrors }) {}

/** Reads and checks a JSON body before it is decoded: size, UTF-8, well-formedness, depth. For groups with typed payloads. */
export class JsonBody extends HttpApiMiddleware.Service<JsonBody, { requires: RequestId }>()("sluice/api/JsonBody", {
  error: gatewayErrors
}) {}
