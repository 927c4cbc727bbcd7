/** multipart/form-data as it goes to an upstream: files are read from where they lie while they are sent. */
import { randomBytes } from "node:crypto"
import { Readable } from "node:stream"
import type { Json, JsonObject } from "#domain/json.ts"
import type { UploadedFile } from "#services/inference/ProviderRouter.ts"
import type { StreamedBody } from "#services/inference/Wire.ts"

/** A quoted parameter of a header: what would end it is encoded as browsers do. */
const quoted = (text: string): string =>
  text.replaceAll('"', "%22").replaceAll("\r", "%0D").replaceAll("\n", "%0A").slice(0, 1024)

const mimeType = /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+(?:\s*;\s*[\w-]+=[\w."-]+)*$/

const valuesOf = (value: Json): ReadonlyArray<Json> => (Array.isArray(value) ? (value as ReadonlyArray<Json>) : [value])

const textOf = (value: Json): string => (typeof value === "string" ? value : JSON.stringify(value))

/** The body and its `Content-Type`. A list becomes one field an element; null leaves the field out. */
export const multipartBody = (
  fields: JsonObject,
  files: ReadonlyArray<UploadedFile>
): { readonly contentType: string; readonly upload: StreamedBody } => {
  const boundary = `sluice-${randomBytes(18).toString("hex")}`
  const opening = (disposition: string, type = ""): Buffer =>
    Buffer.from(`--${boundary}\r\nContent-Disposition: form-data; ${disposition}\r\n${type}\r\n`)
  const parts: Array<Buffer | UploadedFile> = []
  for (const [name, value] of Object.entries(fields)) {
    for (const one of valuesOf(value)) {
      if (one === null) continue
      parts.push(opening(`name="${quoted(name)}"`), Buffer.from(textOf(one)), Buffer.from("\r\n"))
    }
  }
  for (const file of files) {
    const type = mimeType.test(file.contentType) ? file.contentType : "application/octet-stream"
    parts.push(
      opening(`name="${quoted(file.field)}"; filename="${quoted(file.filename)}"`, `Content-Type: ${type}\r\n`),
      file,
      Buffer.from("\r\n")
    )
  }
  parts.push(Buffer.from(`--${boundary}--\r\n`))
  async function* read(): AsyncGenerator<Buffer, void> {
    for (const part of parts) {
      if (Buffer.isBuffer(part)) yield part
      else for await (const chunk of part.open()) yield chunk as Buffer
    }
  }
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    upload: {
      length: parts.reduce((sum, part) => sum + (Buffer.isBuffer(part) ? part.length : part.size), 0),
      open: () => Readable.from(read(), { objectMode: false, highWaterMark: 64 * 1024 })
    }
  }
}

const dataUrl = /^data:([a-z0-9.+-]+\/[a-z0-9.+-]+)(?:;[a-z0-9=._-]+)*;base64,/i

/** A file that came as a data URL inside a JSON body; undefined: it is none. */
export const fileOfDataUrl = (field: string, value: Json, at: number): UploadedFile | undefined => {
  if (typeof value !== "string") return undefined
  const head = dataUrl.exec(value.slice(0, 256))
  if (head?.[1] === undefined) return undefined
  const bytes = Buffer.from(value.slice(head[0].length), "base64")
  return {
    field,
    filename: `${field.replace(/\W/g, "")}-${at}.${head[1].slice(head[1].indexOf("/") + 1).replace(/\W.*/, "")}`,
    contentType: head[1].toLowerCase(),
    size: bytes.length,
    seconds: undefined,
    open: () => Readable.from([bytes], { objectMode: false })
  }
}
