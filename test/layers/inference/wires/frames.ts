/** Writes frames of `application/vnd.amazon.eventstream`, for upstreams that speak it. */
import { crc32 } from "node:zlib"
import { isJsonObject, type Json, type JsonObject } from "#domain/json.ts"

const headerOf = (name: string, value: string): Buffer => {
  const text = Buffer.from(value)
  const length = Buffer.alloc(3)
  length.writeUInt8(7)
  length.writeUInt16BE(text.length, 1)
  return Buffer.concat([Buffer.from([name.length]), Buffer.from(name), length, text])
}

const uint32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

/** Lengths of any value, rightly checked: the beginning of a frame that lies. */
export const prelude = (total: number, headers: number): Buffer => {
  const lengths = Buffer.concat([uint32(total), uint32(headers)])
  return Buffer.concat([lengths, uint32(crc32(lengths))])
}

/** A frame of raw parts: `headers` as they are on the wire. */
export const rawFrame = (headers: Buffer, payload: Buffer): Buffer => {
  const checked = Buffer.concat([prelude(16 + headers.length + payload.length, headers.length), headers, payload])
  return Buffer.concat([checked, uint32(crc32(checked))])
}

export const frame = (headers: Readonly<Record<string, string>>, payload: Json): Buffer =>
  rawFrame(
    Buffer.concat(Object.entries(headers).map(([name, value]) => headerOf(name, value))),
    Buffer.from(JSON.stringify(payload))
  )

/** An event as Bedrock sends it. */
export const eventFrame = (type: string, payload: Json): Buffer =>
  frame({ ":event-type": type, ":content-type": "application/json", ":message-type": "event" }, payload)

/** Events that are each an object of one field, named like the event. */
export const framesOf = (events: ReadonlyArray<JsonObject>): Buffer =>
  Buffer.concat(
    events.flatMap((event) =>
      Object.entries(event).map(([type, payload]) => eventFrame(type, isJsonObject(payload) ? payload : {}))
    )
  )
