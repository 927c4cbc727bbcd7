/**
 * Preloaded into the peer, for two things it has no setting for. It listens on every interface: here it stays on
 * loopback. And its streams fail with "TypeError: immutable" beside current versions of @hono/node-server (its issue
 * 1389): here the headers of an event stream are copied, so that it can change them, at the cost of that one copy.
 */
import { Server } from "node:net"

const listen = Server.prototype.listen as (...args: ReadonlyArray<unknown>) => Server
Server.prototype.listen = function (this: Server, ...args: ReadonlyArray<unknown>): Server {
  const [port, host, ...rest] = args
  if (typeof port !== "number") return listen.apply(this, [...args])
  if (typeof host === "function") return listen.call(this, port, "127.0.0.1", host)
  return listen.call(this, port, "127.0.0.1", ...rest)
} as typeof Server.prototype.listen

const { fetch, Response } = globalThis
globalThis.fetch = async (...args: Parameters<typeof fetch>) => {
  const response = await fetch(...args)
  if (response.headers.get("content-type")?.startsWith("text/event-stream") !== true) return response
  return new Response(response.body, { status: response.status, headers: response.headers })
}
