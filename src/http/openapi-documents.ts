/**
 * The contract as OpenAPI documents, generated from the one HttpApi: `management.yaml` and `v1.yaml` hold the paths,
 * `_components.yaml` the schemas that both refer to.
 */
import { Context, Option } from "effect"
import { type HttpApiEndpoint, HttpApi, OpenApi } from "effect/http-api"
import { stringify } from "yaml"
import { type Access, Operation } from "#api/access.ts"
import { Api } from "#api/Api.ts"

type Tree = { [key: string]: unknown }

/** The names that `/openapi/{filename}` serves. */
export const documentNames = ["management.yaml", "_components.yaml", "v1.yaml"] as const
export type DocumentName = (typeof documentNames)[number]

/** What the contract declares of one operation. */
export interface DeclaredOperation {
  readonly group: string
  readonly method: string
  /** With `{name}` for parameters. */
  readonly path: string
  readonly access: Access
  readonly codes: ReadonlyArray<number>
}

const templated = (path: string): string => path.replaceAll(/\/:([A-Za-z_]+)/g, "/{$1}")

/** Every operation of the contract. Fails for an endpoint that declares none. */
export const declaredOperations = (): ReadonlyArray<DeclaredOperation> => {
  const operations: Array<DeclaredOperation> = []
  HttpApi.reflect(Api as unknown as HttpApi.Top, {
    onGroup: () => {},
    onEndpoint: ({ endpoint, group }: { endpoint: HttpApiEndpoint.Top; group: { identifier: string } }) => {
      const declared = Option.getOrThrowWith(
        Context.getOption(endpoint.annotations, Operation),
        () => new Error(`${endpoint.method} ${endpoint.path} declares no operation`)
      )
      operations.push({
        group: group.identifier,
        method: endpoint.method,
        path: templated(endpoint.path),
        access: declared.access,
        codes: declared.codes
      })
    }
  })
  return operations
}

const securityOf: { readonly [A in Access]: ReadonlyArray<Tree> } = {
  public: [],
  administrator_read: [{ administrator: [] }],
  administrator: [{ administrator: [] }],
  instance_admin: [{ administrator: [] }],
  control_plane: [{ administrator: [] }],
  developer: [{ api_key: [] }, { session: [] }],
  model: [{ api_key: [] }],
  client_certificate: [{ client_certificate: [] }]
}

const securitySchemes = {
  administrator: { type: "http", scheme: "bearer", description: "The master key or a signed administrator token." },
  api_key: { type: "http", scheme: "bearer", description: "An API key." },
  session: { type: "apiKey", in: "cookie", name: "gateway_session", description: "A developer session." },
  client_certificate: { type: "mutualTLS", description: "A certificate of the client CA, on the mutual-TLS listener." }
}

const envelopeRef = { $ref: "#/components/schemas/ErrorEnvelope" }

const envelopeSchema = {
  type: "object",
  required: ["error"],
  properties: {
    error: {
      type: "object",
      required: ["message", "type", "code"],
      properties: {
        message: { type: "string" },
        type: { type: "string" },
        code: { type: "string" },
        param: { type: "string" }
      }
    }
  }
}

const failureResponse = (description: string): Tree => ({
  description,
  content: { "application/json": { schema: envelopeRef } }
})

const descriptions: Readonly<Record<string, string>> = {
  "400": "The request is malformed or logically invalid.",
  "401": "The credential is missing, invalid or expired.",
  "403": "The caller is known but not allowed.",
  "404": "The resource does not exist for this caller.",
  "409": "The request conflicts with what exists.",
  "413": "The result is over the row cap.",
  "429": "A rate, token or dollar limit is exceeded.",
  "500": "The gateway failed.",
  "502": "The upstream provider failed.",
  "503": "The gateway is overloaded or a dependency is away."
}

/** Only the documented codes, whatever the shared middleware may answer besides. */
const documentedResponses = (generated: Tree, codes: ReadonlyArray<number>): Tree => {
  const responses: Tree = {}
  for (const code of codes) {
    if (code === 500) continue
    const text = String(code)
    responses[text] =
      code < 400 ? (generated[text] ?? { description: "Success" }) : failureResponse(descriptions[text]!)
  }
  if (codes.includes(500)) responses["5XX"] = failureResponse("The gateway or something behind it failed.")
  return responses
}

/** Points references at the shared document. */
const externalised = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(externalised)
  if (typeof value !== "object" || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      key,
      key === "$ref" && typeof inner === "string" ? inner.replace(/^#/, "_components.yaml#") : externalised(inner)
    ])
  )
}

/** Builds the three documents. Pure and costly: once per process. */
export const openApiDocuments = (): Readonly<Record<DocumentName, string>> => {
  const generated = OpenApi.fromApi(Api) as unknown as {
    readonly openapi: string
    readonly paths: { readonly [path: string]: { readonly [method: string]: Tree } }
    readonly components: { readonly schemas: Tree }
  }
  const paths = { management: {} as Record<string, Tree>, model: {} as Record<string, Tree> }
  for (const declared of declaredOperations()) {
    const method = declared.method.toLowerCase()
    const operation = { ...generated.paths[declared.path]?.[method] }
    const isModelApi = declared.access === "model" || declared.access === "client_certificate"
    const target = isModelApi ? paths.model : paths.management
    const methods = (target[declared.path] ??= {})
    methods[method] = {
      ...operation,
      security: securityOf[declared.access],
      responses: documentedResponses((operation["responses"] ?? {}) as Tree, declared.codes)
    }
  }
  const document = (title: string, own: Tree) =>
    stringify(externalised({ openapi: generated.openapi, info: { title, version: "1" }, paths: own }), {
      aliasDuplicateObjects: false
    })
  return {
    "management.yaml": document("Sluice management API", paths.management),
    "v1.yaml": document("Sluice model API", paths.model),
    "_components.yaml": stringify(
      {
        openapi: generated.openapi,
        info: { title: "Sluice shared components", version: "1" },
        paths: {},
        components: { schemas: { ...generated.components.schemas, ErrorEnvelope: envelopeSchema }, securitySchemes }
      },
      { aliasDuplicateObjects: false }
    )
  }
}
