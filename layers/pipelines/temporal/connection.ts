/** How to reach Temporal, for the gateway's client and the worker alike. */
import { readFile } from "node:fs/promises"
import { Redacted } from "effect"

/** Files are PEM. */
export interface TemporalTls {
  readonly certFile: string | undefined
  readonly keyFile: string | undefined
  readonly caFile: string | undefined
  /** The name in the server's certificate, where it is not the host of the address. */
  readonly serverName: string | undefined
}

export interface TemporalOptions {
  /** `host:port` of the frontend. */
  readonly address: string
  readonly namespace: string
  readonly taskQueue: string
  readonly apiKey: Redacted.Redacted<string> | undefined
  /** Undefined: no TLS. */
  readonly tls: TemporalTls | undefined
}

/** As both of Temporal's connections take it. Fails when a file cannot be read. */
export const connectionOptions = async ({ address, apiKey, tls }: TemporalOptions) => {
  const read = (path: string | undefined) => (path === undefined ? undefined : readFile(path))
  const [certificate, key, ca] = await Promise.all([read(tls?.certFile), read(tls?.keyFile), read(tls?.caFile)])
  return {
    address,
    tls:
      tls === undefined
        ? false
        : {
            ...(tls.serverName === undefined ? {} : { serverNameOverride: tls.serverName }),
            ...(ca === undefined ? {} : { serverRootCACertificate: ca }),
            ...(certificate === undefined || key === undefined ? {} : { clientCertPair: { crt: certificate, key } })
          },
    ...(apiKey === undefined ? {} : { apiKey: Redacted.value(apiKey) })
  }
}
