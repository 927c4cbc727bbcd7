import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "#api/Api.ts"
import { notFound } from "#domain/errors.ts"
import { declaredOperations, type DocumentName, documentNames, openApiDocuments } from "#http/openapi-documents.ts"

const isDocumentName = (name: string): name is DocumentName => documentNames.some((known) => known === name)

export const OpenApiHandlers = HttpApiBuilder.group(
  Api,
  "openapi",
  Effect.fn(function* (handlers) {
    // Built when first asked for: a start need not wait for it.
    const documents = yield* Effect.cached(Effect.sync(openApiDocuments))
    return handlers.handleAll({
      file: ({ params }) => {
        const { filename } = params
        if (!isDocumentName(filename)) return Effect.fail(notFound("document"))
        return Effect.map(documents, (texts) =>
          HttpServerResponse.text(texts[filename], { contentType: "application/yaml; charset=utf-8" })
        )
      }
    })
  })
)

export const SchemaHandlers = HttpApiBuilder.group(Api, "schema", (handlers) =>
  handlers.handleAll({
    management: () =>
      Effect.sync(() => {
        const operations = declaredOperations().filter(({ access }) => access !== "model")
        return {
          version: "v1",
          documents: documentNames.map((name) => `/openapi/${name}`),
          groups: Object.fromEntries(
            [...Map.groupBy(operations, ({ group }) => group)].map(([group, members]) => [
              group,
              members.map(({ access, codes, method, path }) => ({ method, path, access, codes }))
            ])
          )
        }
      })
  })
)
