/** Request bodies: bounded in size, time and depth, valid UTF-8, well-formed JSON (decisions.md, section 4). */
import { isUtf8 } from "node:buffer"
import type { IncomingMessage } from "node:http"
import { Effect } from "effect"
import { ValidationFailed } from "#domain/errors.ts"
import type { Json } from "#domain/json.ts"
import { malformedJson } from "#http/failures.ts"

/** 32 MiB. */
export const maxBodyBytes = 32 * 1024 * 1024

/** How much of an oversized body is still read and dropped, so that its sender gets to see the answer. */
const maxDiscardedBytes = 2 * maxBodyBytes

/** The longest wait for the next piece of a body. */
const stallMillis = 30_000

/** How deep a JSON body may nest. */
export const maxDepth = 128

const tooLong = new ValidationFailed({
  code: "value_too_long",
  message: `The body is larger than ${maxBodyBytes / 1024 / 1024} MiB.`
})

const halted = malformedJson("The body stopped before its end.")

/**
 * Reads the whole body and calls back once, with `value_too_long`, or `malformed_json` for one that stops halfway. Returns
 * what stops reading without a word.
 */
export const receiveBody = (
  message: IncomingMessage,
  received: (body: Buffer | ValidationFailed) => void
): (() => void) => {
  const chunks: Array<Buffer> = []
  let size = 0
  const stop = () => {
    clearTimeout(timer)
    message.off("data", onData).off("end", onEnd).off("error", onError).off("close", onError)
  }
  const settle = (body: Buffer | ValidationFailed) => {
    stop()
    received(body)
  }
  const onError = () => settle(halted)
  const timer = setTimeout(onError, stallMillis)
  const onData = (chunk: Buffer) => {
    timer.refresh()
    size += chunk.length
    if (size <= maxBodyBytes) chunks.push(chunk)
    else if (size > maxDiscardedBytes) settle(tooLong)
    else chunks.length = 0
  }
  const onEnd = () => settle(size > maxBodyBytes ? tooLong : chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks))
  if (message.readableEnded) onEnd()
  else if (message.destroyed) onError()
  else message.on("data", onData).on("end", onEnd).on("error", onError).on("close", onError)
  return stop
}

/** {@link receiveBody} as an effect. */
export const readBody = (message: IncomingMessage): Effect.Effect<Buffer, ValidationFailed> =>
  Effect.callback((resume) =>
    Effect.sync(
      receiveBody(message, (body) => resume(Buffer.isBuffer(body) ? Effect.succeed(body) : Effect.fail(body)))
    )
  )

const openers = /[[{]/g

/** Whether the text's brackets nest deeper than `maxDepth`. Brackets in strings do not count. */
export const nestsTooDeep = (text: string): boolean => {
  // Few brackets cannot nest deep: nearly every body ends here.
  openers.lastIndex = 0
  let count = 0
  while (count <= maxDepth && openers.exec(text) !== null) count++
  if (count <= maxDepth) return false
  let depth = 0
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === 0x22) {
      do {
        at = text.indexOf('"', at + 1)
        if (at < 0) return false
      } while (escaped(text, at))
    } else if (code === 0x5b || code === 0x7b) {
      if (++depth > maxDepth) return true
    } else if (code === 0x5d || code === 0x7d) depth--
  }
  return false
}

const escaped = (text: string, quote: number): boolean => {
  let backslashes = 0
  while (text.charCodeAt(quote - 1 - backslashes) === 0x5c) backslashes++
  return backslashes % 2 === 1
}

const notUtf8 = malformedJson("The body is not valid UTF-8.")
const tooDeep = malformedJson(`The body nests deeper than ${maxDepth} levels.`)
const notJson = malformedJson("The body is not valid JSON.")

/** A body from outside as text, or what is wrong with it: `malformed_json`. */
export const textOf = (bytes: Buffer): string | ValidationFailed => (isUtf8(bytes) ? bytes.toString("utf8") : notUtf8)

/** What a text from outside says, or what is wrong with it: `malformed_json`. */
export const jsonOf = (text: string): Json | ValidationFailed => {
  if (nestsTooDeep(text)) return tooDeep
  try {
    return JSON.parse(text) as Json
  } catch {
    return notJson
  }
}

/** What was read, or the failure that it is. */
export const orFail = <A>(read: A | ValidationFailed): Effect.Effect<A, ValidationFailed> =>
  read instanceof ValidationFailed ? Effect.fail(read) : Effect.succeed(read)
