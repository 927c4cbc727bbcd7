/** Certificate authorities of a test and what they issue, as PEM texts. */
import "reflect-metadata"
import { webcrypto } from "node:crypto"
import * as x509 from "@peculiar/x509"

x509.cryptoProvider.set(webcrypto as unknown as Crypto)

const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" } as const
const day = 86_400_000

export interface Issued {
  readonly cert: string
  readonly key: string
}

export interface IssueOptions {
  readonly name: string
  /** Milliseconds from now. */
  readonly from?: number
  readonly until?: number
}

const keysOf = () => webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"])

type KeyPair = Awaited<ReturnType<typeof keysOf>>

const keyText = async (keys: KeyPair): Promise<string> =>
  x509.PemConverter.encode(await webcrypto.subtle.exportKey("pkcs8", keys.privateKey), "PRIVATE KEY")

let serial = 1

const span = (from: number, until: number) => ({
  serialNumber: (serial++).toString(16).padStart(4, "0"),
  notBefore: new Date(Date.now() + from),
  notAfter: new Date(Date.now() + until)
})

/** An authority that issues client certificates and the server's own, for 127.0.0.1. */
export const certificateAuthority = async (name: string) => {
  const keys = await keysOf()
  const root = await x509.X509CertificateGenerator.createSelfSigned({
    ...span(-day, day),
    name: `CN=${name}`,
    keys,
    signingAlgorithm: algorithm,
    extensions: [
      new x509.BasicConstraintsExtension(true, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true)
    ]
  })
  const issue = async (options: IssueOptions, extensions: Array<x509.Extension>): Promise<Issued> => {
    const own = await keysOf()
    const issued = await x509.X509CertificateGenerator.create({
      ...span(options.from ?? -day, options.until ?? day),
      subject: `CN=${options.name}`,
      issuer: root.subject,
      publicKey: own.publicKey,
      signingKey: keys.privateKey,
      signingAlgorithm: algorithm,
      extensions
    })
    return { cert: issued.toString("pem"), key: await keyText(own) }
  }
  return {
    cert: root.toString("pem"),
    client: (options: IssueOptions) =>
      issue(options, [new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.clientAuth])]),
    server: () =>
      issue({ name: "localhost" }, [
        new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
        new x509.SubjectAlternativeNameExtension([
          { type: "dns", value: "localhost" },
          { type: "ip", value: "127.0.0.1" }
        ])
      ])
  }
}
