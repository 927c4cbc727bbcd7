import { mkdtempSync, rmSync } from "node:fs"
import { connect, createServer, type Socket } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Redacted, type Scope } from "effect"

/** A way to a database that a test can close. */
export interface DatabaseGate {
  /** Leads to the same database, through the gate. */
  readonly url: Redacted.Redacted<string>
  /** Breaks every connection and refuses new ones: PostgreSQL is away. */
  readonly cut: () => void
  readonly restore: () => void
  /** Keeps what PostgreSQL answers from now on, until `release`. Requests still reach it. */
  readonly hold: () => void
  readonly release: () => void
  /** From now on nothing passes on the connections that there are, nor do they end; new ones are not concerned. */
  readonly silence: () => void
  /** Completes when PostgreSQL has answered something that is held. */
  readonly heldAnswer: Effect.Effect<void>
}

const targetOf = (url: URL): { readonly path: string } | { readonly host: string; readonly port: number } => {
  const host = url.searchParams.get("host")
  const port = url.searchParams.get("port") ?? "5432"
  return host?.startsWith("/") === true
    ? { path: join(host, `.s.PGSQL.${port}`) }
    : { host: url.hostname, port: Number(url.port || "5432") }
}

/** A gate before a database. */
export const databaseGate = (database: Redacted.Redacted<string>): Effect.Effect<DatabaseGate, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.callback<DatabaseGate & { readonly close: () => void }>((resume) => {
      const url = new URL(Redacted.value(database))
      const target = targetOf(url)
      const directory = mkdtempSync(join(tmpdir(), "gate-"))
      const pairs = new Set<readonly [Socket, Socket]>()
      const kept: Array<readonly [Socket, Buffer]> = []
      const silenced = new Set<Socket>()
      let open = true
      let holding = false
      let onHeld: (() => void) | undefined
      const server = createServer((client) => {
        if (!open) return client.destroy()
        const upstream = connect(target)
        const pair = [client, upstream] as const
        pairs.add(pair)
        const close = () => {
          pairs.delete(pair)
          client.destroy()
          upstream.destroy()
        }
        client.on("data", (chunk: Buffer) => silenced.has(client) || upstream.write(chunk))
        upstream.on("data", (chunk: Buffer) => {
          if (silenced.has(client)) return
          if (!holding) return client.write(chunk)
          kept.push([client, chunk])
          return onHeld?.()
        })
        for (const socket of pair) socket.on("error", close).on("close", close)
      })
      const cut = () => {
        open = false
        for (const [client, upstream] of pairs) {
          client.destroy()
          upstream.destroy()
        }
      }
      server.listen(join(directory, ".s.PGSQL.5432"), () => {
        url.searchParams.set("host", directory)
        url.searchParams.set("port", "5432")
        resume(
          Effect.succeed({
            url: Redacted.make(url.href),
            cut,
            restore: () => {
              open = true
            },
            silence: () => {
              for (const [client] of pairs) silenced.add(client)
            },
            hold: () => {
              holding = true
            },
            release: () => {
              holding = false
              for (const [client, chunk] of kept.splice(0)) client.write(chunk)
            },
            heldAnswer: Effect.callback<void>((resume) => {
              if (kept.length > 0) return resume(Effect.void)
              onHeld = () => resume(Effect.void)
              return undefined
            }),
            close: () => {
              cut()
              server.close()
              rmSync(directory, { recursive: true, force: true })
            }
          })
        )
      })
    }),
    (gate) => Effect.sync(gate.close)
  )
