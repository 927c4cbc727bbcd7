/** AWS Signature Version 4 (docs.aws.amazon.com, "Create a signed AWS API request"). */
import { createHash, createHmac } from "node:crypto"

export interface AwsCredentials {
  readonly accessKeyId: string
  readonly secretAccessKey: string
  readonly sessionToken: string | undefined
}

export interface SignedScope {
  readonly region: string
  readonly service: string
}

/** What is signed. Header names are lower case, and `host` is among them; `path` holds the query and is escaped. */
export interface Signable {
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | Buffer
}

const sha256 = (data: string | Buffer): string => createHash("sha256").update(data).digest("hex")

const hmac = (key: string | Buffer, data: string): Buffer => createHmac("sha256", key).update(data).digest()

/** Everything but RFC 3986's unreserved characters is escaped. */
const escaped = (text: string): string =>
  encodeURIComponent(text).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`)

/** The path with its segments escaped once more, as every service but S3 wants it. */
const canonicalPath = (path: string): string => path.split("/").map(escaped).join("/")

const canonicalQuery = (query: string): string =>
  [...new URLSearchParams(query)]
    .map(([name, value]) => [escaped(name), escaped(value)] as const)
    .sort((left, right) => (left[0] === right[0] ? (left[1] < right[1] ? -1 : 1) : left[0] < right[0] ? -1 : 1))
    .map(([name, value]) => `${name}=${value}`)
    .join("&")

/** `20150830T123600Z` of a time in Unix milliseconds. */
const amzDate = (now: number): string => new Date(now).toISOString().replace(/[-:]|\.\d{3}/g, "")

/** The headers that a signed request adds: `authorization`, `x-amz-date` and, for temporary keys, the session's token. */
export const signV4 = (
  request: Signable,
  credentials: AwsCredentials,
  scope: SignedScope,
  now: number
): Readonly<Record<string, string>> => {
  const date = amzDate(now)
  const day = date.slice(0, 8)
  const { sessionToken } = credentials
  const added: Record<string, string> = {
    "x-amz-date": date,
    ...(sessionToken === undefined ? {} : { "x-amz-security-token": sessionToken })
  }
  const headers = Object.entries({ ...request.headers, ...added }).sort(([left], [right]) => (left < right ? -1 : 1))
  const signed = headers.map(([name]) => name).join(";")
  const [path = "/", query = ""] = request.path.split("?", 2)
  const canonical = [
    request.method,
    canonicalPath(path),
    canonicalQuery(query),
    ...headers.map(([name, value]) => `${name}:${value.trim().replace(/ +/g, " ")}`),
    "",
    signed,
    sha256(request.body)
  ].join("\n")
  const credentialScope = `${day}/${scope.region}/${scope.service}/aws4_request`
  const key = [scope.region, scope.service, "aws4_request"].reduce(
    hmac,
    hmac(`AWS4${credentials.secretAccessKey}`, day)
  )
  const toSign = ["AWS4-HMAC-SHA256", date, credentialScope, sha256(canonical)].join("\n")
  const signature = hmac(key, toSign).toString("hex")
  const credential = `${credentials.accessKeyId}/${credentialScope}`
  return {
    ...added,
    authorization: `AWS4-HMAC-SHA256 Credential=${credential}, SignedHeaders=${signed}, Signature=${signature}`
  }
}
