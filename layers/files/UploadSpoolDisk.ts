import { createReadStream, createWriteStream, mkdirSync, readdirSync, rmSync, type WriteStream } from "node:fs"
import { open, unlink } from "node:fs/promises"
import type { IncomingMessage } from "node:http"
import { dirname, join } from "node:path"
import { once } from "node:events"
import { randomUUID } from "node:crypto"
import { Effect, Layer } from "effect"
import { make, type MultipartError, type PartInfo } from "effect/http/MultipartParser"
import { audioHeadBytes, audioSeconds } from "#domain/audio.ts"
import { Unavailable, ValidationFailed } from "#domain/errors.ts"
import type { Json } from "#domain/json.ts"
import { UploadSpool, type UploadedForm } from "#services/files/UploadSpool.ts"
import type { UploadedFile } from "#services/inference/ProviderRouter.ts"

export interface UploadSpoolOptions {
  /** A directory of this process alone: whatever a former life left in it is removed. */
  readonly directory: string
  /** Which directories beside it belong to nobody any more: they are removed too. */
  readonly abandoned?: (name: string) => boolean
  /** Bytes that may lie there at once; 4 GiB. */
  readonly capacity?: number
  /** Bytes of one form; 512 MiB. */
  readonly largestForm?: number
}

const mebibyte = 1024 * 1024
const largestField = mebibyte
const mostParts = 256
/** The longest wait for the next piece of a form, in milliseconds. */
const stallMillis = 30_000
/** How much of a refused form is still read and dropped, so that its sender gets to see the answer. */
const discardedBytes = 64 * mebibyte

const invalid = (message: string) => new ValidationFailed({ code: "malformed_json", message })
const halted = invalid("The body stopped before its end.")

const full = new Unavailable({
  code: "overloaded",
  message: "The gateway is taking as many uploads as it may.",
  retryAfter: 5
})

const tooLong = (bytes: number) =>
  new ValidationFailed({ code: "value_too_long", message: `The form is larger than ${bytes / mebibyte} MiB.` })

const faultOf = (error: MultipartError, largestForm: number): ValidationFailed => {
  if (error._tag !== "ReachedLimit") return invalid("The body is not a valid multipart form.")
  if (error.limit === "MaxParts") {
    return new ValidationFailed({ code: "value_too_long", message: `The form has more than ${mostParts} parts.` })
  }
  return error.limit === "MaxFieldSize"
    ? new ValidationFailed({ code: "value_too_long", message: "A field of the form is larger than 1 MiB." })
    : tooLong(largestForm)
}

/** One file on its way to the disk. */
interface Spooling {
  readonly info: PartInfo
  readonly path: string
  readonly sink: WriteStream
  size: number
}

const headOf = async (path: string): Promise<Buffer> => {
  const file = await open(path)
  try {
    const { bytesRead, buffer } = await file.read(Buffer.alloc(audioHeadBytes), 0, audioHeadBytes, 0)
    return buffer.subarray(0, bytesRead)
  } finally {
    await file.close()
  }
}

const finished = async ({ info, path, sink, size }: Spooling): Promise<UploadedFile> => {
  if (!sink.writableFinished) await once(sink, "finish")
  return {
    field: info.name,
    filename: info.filename ?? "",
    contentType: info.contentType,
    size,
    seconds: audioSeconds(await headOf(path), size),
    open: () => createReadStream(path, { highWaterMark: 256 * 1024 })
  }
}

/** The next piece of a message, or a failure when it takes too long. */
const nextPiece = async (pieces: AsyncIterator<Buffer>): Promise<Buffer | undefined> => {
  let timer: NodeJS.Timeout | undefined
  const stalled = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(halted), stallMillis)
  })
  try {
    const next = await Promise.race([pieces.next(), stalled])
    return next.done === true ? undefined : next.value
  } finally {
    clearTimeout(timer)
  }
}

/** The form's state while it is read: `paths` are there from the first byte on, so that all of them can be removed. */
class Reading {
  readonly paths: Array<string> = []
  readonly #directory: string
  readonly #largestForm: number
  readonly #spooling: Array<Spooling> = []
  readonly #fields = new Map<string, Json>()
  #failure: unknown

  constructor(directory: string, largestForm: number) {
    this.#directory = directory
    this.#largestForm = largestForm
  }

  async read(message: IncomingMessage, took: (bytes: number) => boolean): Promise<UploadedForm> {
    const contentType = message.headers["content-type"] ?? ""
    const parser = make({
      headers: { "content-type": contentType },
      maxParts: mostParts,
      maxFieldSize: largestField,
      maxTotalSize: this.#largestForm,
      onField: (info, value) => this.#field(info.name, Buffer.from(value)),
      onFile: (info) => this.#file(info),
      onError: (error) => this.#fail(faultOf(error, this.#largestForm)),
      onDone: () => undefined
    })
    const pieces = message[Symbol.asyncIterator]() as AsyncIterator<Buffer>
    try {
      for (let piece = await nextPiece(pieces); piece !== undefined; piece = await nextPiece(pieces)) {
        if (!took(piece.length)) this.#fail(full)
        parser.write(piece)
        if (this.#failure !== undefined) throw this.#failure
        await this.#drained()
      }
      parser.end()
      if (this.#failure !== undefined) throw this.#failure
      return { fields: Object.fromEntries(this.#fields), files: await Promise.all(this.#spooling.map(finished)) }
    } catch (error) {
      await discard(pieces)
      throw this.#failure ?? (error instanceof ValidationFailed ? error : halted)
    }
  }

  /** Ends the reading, if it still goes on, and takes every file away. */
  async remove(): Promise<void> {
    this.#fail(halted)
    // Settled, not all: whatever one of them says, no file may stay behind.
    await Promise.allSettled(
      this.#spooling.map(async ({ sink }) => {
        sink.destroy()
        if (!sink.closed) await once(sink, "close")
      })
    )
    await Promise.all(this.paths.map((path) => unlink(path).catch(() => undefined)))
  }

  #fail(failure: unknown): void {
    this.#failure ??= failure
  }

  #field(name: string, value: Buffer): void {
    const text = value.toString("utf8")
    const before = this.#fields.get(name)
    this.#fields.set(name, before === undefined ? text : [...(Array.isArray(before) ? before : [before]), text])
  }

  #file(info: PartInfo): (chunk: Uint8Array | null) => void {
    const path = join(this.#directory, randomUUID())
    this.paths.push(path)
    const sink = createWriteStream(path, { flags: "wx", mode: 0o600, highWaterMark: mebibyte })
    sink.on("error", (cause) => this.#fail(cause))
    const spooling: Spooling = { info, path, sink, size: 0 }
    this.#spooling.push(spooling)
    return (chunk) => {
      if (chunk === null) return void sink.end()
      spooling.size += chunk.length
      // The parser reuses nothing, but the piece it cuts from belongs to the socket.
      sink.write(chunk)
    }
  }

  async #drained(): Promise<void> {
    const sink = this.#spooling.at(-1)?.sink
    if (sink?.writableNeedDrain !== true) return
    await Promise.race([once(sink, "drain"), once(sink, "close")])
    if (this.#failure !== undefined) throw this.#failure
  }
}

/** Reads on for a while without keeping anything. */
const discard = async (pieces: AsyncIterator<Buffer>): Promise<void> => {
  try {
    let left = discardedBytes
    for (let piece = await nextPiece(pieces); piece !== undefined && left > 0; piece = await nextPiece(pieces)) {
      left -= piece.length
    }
  } catch {
    // The sender has gone: nobody waits for an answer any more.
  }
}

/** Forms in files of the data directory, mode 0600. */
export const layer = (options: UploadSpoolOptions): Layer.Layer<UploadSpool> =>
  Layer.effect(
    UploadSpool,
    Effect.sync(() => {
      const { directory, capacity = 4096 * mebibyte, largestForm = 512 * mebibyte } = options
      rmSync(directory, { recursive: true, force: true })
      mkdirSync(directory, { recursive: true, mode: 0o700 })
      for (const name of options.abandoned === undefined ? [] : readdirSync(dirname(directory))) {
        if (options.abandoned?.(name) === true) rmSync(join(dirname(directory), name), { recursive: true, force: true })
      }
      let spooled = 0

      const receive = (message: IncomingMessage) =>
        Effect.gen(function* () {
          const declared = Number(message.headers["content-length"] ?? 0)
          if (declared > largestForm + mebibyte) {
            message.resume()
            return yield* tooLong(largestForm)
          }
          const reading = new Reading(directory, largestForm)
          let bytes = 0
          const took = (more: number): boolean => {
            bytes += more
            spooled += more
            return spooled <= capacity
          }
          yield* Effect.addFinalizer(() =>
            Effect.promise(async () => {
              spooled -= bytes
              await reading.remove()
            })
          )
          return yield* Effect.tryPromise({
            try: () => reading.read(message, took),
            catch: (error) => error
          }).pipe(
            Effect.catch((error) =>
              error instanceof ValidationFailed || error instanceof Unavailable ? Effect.fail(error) : Effect.die(error)
            )
          )
        })

      return UploadSpool.of({ receive })
    })
  )
