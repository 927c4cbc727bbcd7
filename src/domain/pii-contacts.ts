/** Addresses of mail, web and network: found by the character that each must have, then widened by hand. Linear. */
import { isIPv6 } from "node:net"
import type { AddSpan } from "#domain/pii.ts"

const localCharacter = /[\p{L}\p{N}.!#$%&'*+/=?^_`{|}~-]/u
const domain = /^(?:[\p{L}\p{N}](?:[\p{L}\p{N}-]{0,61}[\p{L}\p{N}])?\.){1,8}(?:\p{L}{2,24}|xn--[a-z0-9-]{2,59})/u
/** Scripts that write no space before an address. */
const unspaced = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}]/u
const maxLocal = 64
const maxDomain = 253

const emails = (text: string, add: AddSpan): void => {
  let from = 0
  for (let at = text.indexOf("@"); at !== -1; at = text.indexOf("@", at + 1)) {
    const host = domain.exec(text.slice(at + 1, at + 1 + maxDomain))?.[0]
    if (host === undefined) continue
    let start = at
    // What is written before an address in such a script belongs to it only where the address ends in that script as well.
    const spaced = at > 0 && !unspaced.test(text[at - 1]!)
    while (start > from && at - start < maxLocal && localCharacter.test(text[start - 1]!)) {
      if (spaced && text.charCodeAt(start - 1) > 0x7f && unspaced.test(text[start - 1]!)) break
      start--
    }
    while (start < at && /^[.'*/={|`?&]/.test(text[start]!)) start++
    // "mailto:" and quotes end at a character outside the set; a word and a slash do not.
    if (start === at || text[at - 1] === ".") continue
    const end = at + 1 + host.length
    // What stands between a user and a host in an address of the web is a password.
    if (text[start - 1] === ":" && /:\/\/[^\s/@]*:$/.test(text.slice(Math.max(0, start - 80), start))) continue
    add("EMAIL", start, end, 0.98)
    from = end
  }
}

const scheme = /(?:https?|ftps?|wss?|sftp|ssh|git|s3|file)$/i
const urlEnd = /[\s"'<>`{}|\\^\u3000-\u3002\uff0c\uff1b]/g
const trailing = /[.,;:!?)\]*_]+$/

const expandUrl = (text: string, start: number, bodyStart: number, add: AddSpan): number => {
  urlEnd.lastIndex = bodyStart
  let end = urlEnd.exec(text)?.index ?? text.length
  const body = text.slice(bodyStart, end)
  const tail = trailing.exec(body.slice(-64))?.[0] ?? ""
  // A closing parenthesis belongs to the address when it was opened there.
  const kept = tail.startsWith(")") && body.includes("(") ? tail.length - 1 : tail.length
  end -= kept
  if (end - bodyStart >= 3 && /[\p{L}\p{N}[]/u.test(text[bodyStart]!)) add("URL", start, end, 0.95)
  return Math.max(end, bodyStart)
}

const urls = (text: string, add: AddSpan): void => {
  let from = 0
  for (let at = text.indexOf("://"); at !== -1; at = text.indexOf("://", Math.max(at + 3, from))) {
    const name = scheme.exec(text.slice(Math.max(from, at - 6), at))?.[0]
    if (name !== undefined) from = expandUrl(text, at - name.length, at + 3, add)
  }
  from = 0
  for (let at = text.indexOf("www."); at !== -1; at = text.indexOf("www.", Math.max(at + 4, from))) {
    if (at === 0 || !/[\p{L}\p{N}./@-]/u.test(text[at - 1]!)) {
      if (domain.test(text.slice(at, at + maxDomain))) from = expandUrl(text, at, at, add)
    }
  }
}

const ipv4 = /(?<![\d.A-Za-z])(?:\d{1,3}\.){3}\d{1,3}(?![\dA-Za-z]|\.\d)/g
const ipv6 = /(?<![0-9A-Za-z:.])[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]{1,44}(?![0-9A-Za-z:])/g
/** Words before a dotted number that make it a version. */
const version =
  /(?:\bv|versi[oó]\p{L}{0,2}|versão|versie|wersj\p{L}|верси\p{L}|sürümü?|संस्करण|الإصدار|版本|バージョン|버전|release|build|firmware|driver|chapter|section|kapitel|chapitre|capítulo)[\s:.]{0,3}$/iu

const addresses = (text: string, add: AddSpan): void => {
  for (const match of text.matchAll(ipv4)) {
    const parts = match[0].split(".")
    if (parts.some((part) => Number(part) > 255 || (part.length > 1 && part.startsWith("0")))) continue
    if (version.test(text.slice(Math.max(0, match.index - 14), match.index))) continue
    add("IP_ADDRESS", match.index, match.index + match[0].length, 0.96)
  }
  if (!text.includes(":")) return
  for (const match of text.matchAll(ipv6)) {
    const address = match[0].endsWith("::") ? match[0] : match[0].replace(/[.:]$/, "")
    // "::" between words is an operator in many languages, and a few short groups are a time of day.
    if (!isIPv6(address)) continue
    if (address !== "::1" && !/[0-9A-Fa-f]{3}/.test(address) && address.split(":").length < 5) continue
    add("IP_ADDRESS", match.index, match.index + address.length, 0.96)
  }
}

/** EMAIL, URL and IP_ADDRESS. */
export const contactEntities = (text: string, add: AddSpan): void => {
  emails(text, add)
  urls(text, add)
  addresses(text, add)
}
