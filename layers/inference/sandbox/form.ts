import { createHash } from "node:crypto"
import { make } from "effect/http/MultipartParser"
import { audioHeadBytes } from "#domain/audio.ts"
import type { Json, JsonObject } from "#domain/json.ts"
import type { StreamedBody } from "#services/inference/Wire.ts"

/** What is remembered of a file. */
export interface FormFile {
  readonly field: string
  readonly filename: string
  readonly size: number
  /** Its first bytes. */
  readonly head: Buffer
  /** SHA-256 of all of it, hexadecimal. */
  readonly digest: string
}

export interface Form {
  readonly fields: JsonObject
  readonly files: ReadonlyArray<FormFile>
}

/** Reads a form to its end, keeping no file. Calls back once, with undefined for what is no form; returns how to stop. */
export const readForm = (
  upload: StreamedBody,
  contentType: string,
  done: (form: Form | undefined) => void
): (() => void) => {
  const fields = new Map<string, Json>()
  const files: Array<FormFile> = []
  let over = false
  const end = (form: Form | undefined) => {
    if (over) return
    over = true
    stream.destroy()
    done(form)
  }
  const parser = make({
    headers: { "content-type": contentType },
    onField: (info, value) => void fields.set(info.name, Buffer.from(value).toString()),
    onFile: (info) => {
      const hash = createHash("sha256")
      let head = Buffer.alloc(0)
      let size = 0
      return (chunk) => {
        if (chunk === null) {
          files.push({ field: info.name, filename: info.filename ?? "", size, head, digest: hash.digest("hex") })
          return
        }
        hash.update(chunk)
        size += chunk.length
        if (head.length < audioHeadBytes) head = Buffer.concat([head, chunk]).subarray(0, audioHeadBytes)
      }
    },
    onError: () => end(undefined),
    onDone: () => end({ fields: Object.fromEntries(fields), files })
  })
  const stream = upload.open()
  stream.on("data", (chunk: Buffer) => parser.write(chunk))
  stream.on("end", () => parser.end())
  stream.on("error", () => end(undefined))
  return () => {
    over = true
    stream.destroy()
  }
}
