import { connect, type Socket } from "node:net"

/** What the load generator wants to know of one answer. */
export interface Exchange {
  /** The first byte of the body, of whatever framing. */
  readonly first: () => void
  /** The end; `ok` for a whole answer with status 200 (a stream's with `[DONE]` in its last event). */
  readonly done: (ok: boolean) => void
}

const headEnd = "\r\n\r\n"
const lastChunk = "0\r\n\r\n"

/**
 * A keep-alive HTTP/1.1 client connection that reads just enough of an answer to know where it ends, because every
 * microsecond spent here is taken from the stub on the same core. Chunked bodies end where the bytes read "0 CR LF CR
 * LF", which no body of the stub contains.
 */
export class Connection {
  readonly #port: number
  #socket: Socket | undefined
  #exchange: Exchange | undefined
  #head: Buffer | undefined
  #reading = false
  #remaining = 0
  #chunked = false
  #began = false
  #ok = false
  #close = false
  #tail = ""

  constructor(port: number) {
    this.#port = port
  }

  /** Sends one request; the exchange hears of the answer. One at a time. */
  send(request: Buffer, exchange: Exchange): void {
    this.#exchange = exchange
    this.#reading = false
    this.#head = undefined
    this.#began = false
    this.#tail = ""
    this.#socket ??= this.#open()
    this.#socket.write(request)
  }

  destroy(): void {
    this.#exchange = undefined
    this.#socket?.destroy()
    this.#socket = undefined
  }

  #open(): Socket {
    const socket = connect({ port: this.#port, host: "127.0.0.1", noDelay: true })
    socket.on("data", (bytes: Buffer) => this.#read(bytes))
    socket.on("error", () => socket.destroy())
    socket.on("close", () => {
      if (this.#socket !== socket) return
      this.#socket = undefined
      this.#end(false)
    })
    return socket
  }

  #end(ok: boolean): void {
    const exchange = this.#exchange
    this.#exchange = undefined
    if (this.#close) {
      this.#close = false
      this.#socket?.destroy()
      this.#socket = undefined
    }
    exchange?.done(ok)
  }

  #read(bytes: Buffer): void {
    if (this.#exchange === undefined) return
    if (this.#reading) return this.#body(bytes)
    const all = this.#head === undefined ? bytes : Buffer.concat([this.#head, bytes])
    const end = all.indexOf(headEnd)
    if (end === -1) {
      this.#head = all
      return
    }
    const head = all.toString("latin1", 0, end).toLowerCase()
    this.#reading = true
    this.#ok = head.startsWith("200", 9)
    this.#close = head.includes("\r\nconnection: close")
    const length = head.indexOf("\r\ncontent-length:")
    this.#chunked = length === -1
    this.#remaining = length === -1 ? 0 : Number.parseInt(head.slice(length + 17, length + 32), 10)
    const body = all.subarray(end + headEnd.length)
    if (body.length > 0 || (!this.#chunked && this.#remaining === 0)) this.#body(body)
  }

  #body(bytes: Buffer): void {
    if (!this.#began) {
      this.#began = true
      this.#exchange?.first()
    }
    if (!this.#chunked) {
      this.#remaining -= bytes.length
      if (this.#remaining <= 0) this.#end(this.#ok && this.#remaining === 0)
      return
    }
    const latest = bytes.toString("latin1", Math.max(0, bytes.length - 48))
    this.#tail = latest.length < 48 ? (this.#tail + latest).slice(-48) : latest
    if (!this.#tail.endsWith(lastChunk)) return
    this.#end(this.#ok && (!this.#tail.includes("data: ") || this.#tail.includes("data: [DONE]")))
  }
}
