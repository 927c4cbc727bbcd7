/** Which addresses a call may go to, decided on the resolved address at the socket (design.md, promise 7). */
import type { lookup, LookupAddress } from "node:dns"
import { isIP, type LookupFunction } from "node:net"
import ipaddr from "ipaddr.js"

/** An address that the egress guard refuses. */
export class EgressRefused extends Error {
  override readonly name = "EgressRefused"
}

const parsed = (address: string): ipaddr.IPv4 | ipaddr.IPv6 | undefined => {
  const plain = address.replace(/^\[|\]$/g, "").replace(/%.*$/, "")
  return ipaddr.isValid(plain) ? ipaddr.process(plain) : undefined
}

const cidrs = (...ranges: ReadonlyArray<string>) => ranges.map((range) => ipaddr.parseCIDR(range))

/** Link-local addresses and the metadata services of clouds outside them: never a model's home. */
const metadata = cidrs("169.254.0.0/16", "fe80::/10", "100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::254/128")

/** IPv6 ranges that carry an IPv4 address, with the byte at which it starts. */
const embedding: ReadonlyArray<readonly [range: [ipaddr.IPv4 | ipaddr.IPv6, number], at: number]> = [
  [ipaddr.parseCIDR("64:ff9b::/96"), 12],
  [ipaddr.parseCIDR("2002::/16"), 2],
  [ipaddr.parseCIDR("::/96"), 12]
]

const within = (address: ipaddr.IPv4 | ipaddr.IPv6, range: [ipaddr.IPv4 | ipaddr.IPv6, number]): boolean =>
  address.kind() === range[0].kind() && address.match(range as [ipaddr.IPv4, number] & [ipaddr.IPv6, number])

const embedded = (address: ipaddr.IPv4 | ipaddr.IPv6): ipaddr.IPv4 | undefined => {
  if (address.kind() !== "ipv6" || address.range() === "loopback" || address.range() === "unspecified") return undefined
  const found = embedding.find(([range]) => within(address, range))
  if (found === undefined) return undefined
  return new ipaddr.IPv4(address.toByteArray().slice(found[1], found[1] + 4))
}

/**
 * Whether a call may go to an address. Only global unicast passes; with `allowPrivate` also loopback and private
 * networks, but link-local and metadata addresses never.
 */
export const mayConnect = (text: string, allowPrivate: boolean): boolean => {
  const address = parsed(text)
  if (address === undefined) return false
  const inner = embedded(address)
  const all = inner === undefined ? [address] : [address, inner]
  if (all.some((one) => metadata.some((range) => within(one, range)))) return false
  const kinds: ReadonlyArray<string> = all.map((one) => one.range())
  if (kinds.some((kind) => kind === "multicast" || kind === "broadcast" || kind === "unspecified")) return false
  if (allowPrivate) return true
  return inner === undefined && kinds.every((kind) => kind === "unicast")
}

/** Refuses a literal address before anything is resolved. A name is judged by `guardedLookup`. */
export const checkLiteral = (hostname: string, allowPrivate: boolean): EgressRefused | undefined => {
  const plain = hostname.replace(/^\[|\]$/g, "")
  return isIP(plain) === 0 || mayConnect(plain, allowPrivate) ? undefined : new EgressRefused("address not allowed")
}

/**
 * A `lookup` for sockets: a name with any refused address is refused, so that the answer that was checked is the one
 * that is connected to, whatever the name resolves to a moment later.
 * `resolve` is the system's own look-up.
 */
export const guardedLookup =
  (allowPrivate: boolean, resolve: typeof lookup): LookupFunction =>
  (hostname, options, callback) => {
    resolve(hostname, { ...options, all: true }, (error, addresses: ReadonlyArray<LookupAddress>) => {
      if (error !== null) return callback(error, "", 0)
      const [first] = addresses
      if (first === undefined || !addresses.every(({ address }) => mayConnect(address, allowPrivate))) {
        return callback(new EgressRefused("address not allowed"), "", 0)
      }
      if (options.all === true) return callback(null, [...addresses])
      return callback(null, first.address, first.family)
    })
  }
