/** An upstream that takes forms of any size and keeps nothing of them but counts and a hash. */
import { createHash } from "node:crypto"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { make } from "effect/http/MultipartParser"

export interface ReceivedFile {
  readonly field: string
  readonly filename: string
  readonly contentType: string
  readonly size: number
  readonly digest: string
}

export interface ReceivedForm {
  readonly path: string
  readonly contentLength: number
  readonly fields: Readonly<Record<string, string>>
  readonly files: ReadonlyArray<ReceivedFile>
}

export class UploadStub {
  readonly forms: Array<ReceivedForm> = []
  /** Statuses of the next answers; 200 when none is left. */
  readonly statuses: Array<number> = []
  answer: unknown = { text: "heard", usage: { type: "duration", seconds: 12.5 } }
  readonly #server: Server

  private constructor() {
    this.#server = createServer((request, response) => {
      const fields: Record<string, string> = {}
      const files: Array<ReceivedFile> = []
      const parser = make({
        headers: { "content-type": request.headers["content-type"] ?? "" },
        maxPartSize: 1024 * 1024 * 1024,
        onField: (info, value) => void (fields[info.name] = Buffer.from(value).toString()),
        onFile: (info) => {
          const hash = createHash("sha256")
          let size = 0
          return (chunk) => {
            if (chunk !== null) {
              size += chunk.length
              return void hash.update(chunk)
            }
            const { contentType, filename = "", name: field } = info
            files.push({ field, filename, contentType, size, digest: hash.digest("hex") })
          }
        },
        onError: () => request.destroy(),
        onDone: () => {
          const contentLength = Number(request.headers["content-length"])
          this.forms.push({ path: request.url ?? "", contentLength, fields, files })
          response.writeHead(this.statuses.shift() ?? 200, { "content-type": "application/json" })
          response.end(JSON.stringify(this.answer))
        }
      })
      request.on("data", (chunk: Buffer) => parser.write(chunk))
      request.on("end", () => parser.end())
      request.on("error", () => undefined)
    })
  }

  static start(): Promise<UploadStub> {
    const stub = new UploadStub()
    return new Promise((resolve) => stub.#server.listen(0, "127.0.0.1", () => resolve(stub)))
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1`
  }

  stop(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve())
      this.#server.closeAllConnections()
    })
  }
}
