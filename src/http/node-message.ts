import type { IncomingMessage } from "node:http"
import { NodeHttpServerRequest } from "@effect/platform-node"
import type { HttpServerRequest } from "effect/http"

/** Node's message under a request of the framework. */
export const messageOf = (request: HttpServerRequest.HttpServerRequest): IncomingMessage =>
  NodeHttpServerRequest.toIncomingMessage(request) as IncomingMessage
