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

/** Reads the whole body. Fails with `value_too_long`, or `malformed_json` for one that stops halfway. */
export const readBody = (message: IncomingMessage): Effect.Effect<Buffer, ValidationFailed> =>
  Effect.callback((resume) => {
    const chunks: Array<Buffer> = []
    let size = 0
    const settle = (outcome: Effect.Effect<Buffer, ValidationFailed>) => {
      clearTimeout(timer)
      message.off("data", onData).off("end", onEnd).off("error", onError).off("close", onError)
      resume(outcome)
    }
    const onError = () => settle(Effect.fail(halted))
    const timer = setTimeout(onError, stallMillis)
    const onData = (chunk: Buffer) => {
      timer.refresh()
      size += chunk.length
      if (size <= maxBodyBytes) chunks.push(chunk)
      else if (size > maxDiscardedBytes) settle(Effect.fail(tooLong))
      else chunks.length = 0
    }
    const onEnd = () => {
      if (size > maxBodyBytes) return settle(Effect.fail(tooLong))
      settle(Effect.succeed(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)))
    }
    if (message.readableEnded) return onEnd()
    if (message.destroyed) return onError()
    message.on("data", onData).on("end", onEnd).on("error", onError).on("close", onError)
    return Effect.sync(() => settle(Effect.interrupt))
  })

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

/** Decodes a body as UTF-8. Fails with `malformed_json`. */
export const bodyText = (bytes: Buffer): Effect.Effect<string, ValidationFailed> =>
  isUtf8(bytes) ? Effect.succeed(bytes.toString("utf8")) : Effect.fail(malformedJson("The body is not valid UTF-8."))

/** Parses a JSON text from outside. Fails with `malformed_json`. */
export const parseJson = (text: string): Effect.Effect<Json, ValidationFailed> => {
  if (nestsTooDeep(text)) return Effect.fail(malformedJson(`The body nests deeper than ${maxDepth} levels.`))
  try {
    return Effect.succeed(JSON.parse(text) as Json)
  } catch {
    return Effect.fail(malformedJson("The body is not valid JSON."))
  }
}
