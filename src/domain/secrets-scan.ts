/** Finds credentials in text: forms that their issuers document, and assignments of random-looking values. */

/** A credential found in a text, in UTF-16 positions. */
export interface SecretSpan {
  readonly start: number
  readonly end: number
  /** What it is: `aws_access_key`, `private_key`, … */
  readonly kind: string
  /** In [0, 1]. */
  readonly confidence: number
}

interface SecretForm {
  readonly kind: string
  /** One of these must occur for the expression to be tried: looking for plain text costs next to nothing. */
  readonly needles: ReadonlyArray<string>
  /** Bounded repeats only. Group 1, where there is one, is the secret. */
  readonly pattern: RegExp
  readonly confidence: number
}

const forms: ReadonlyArray<SecretForm> = [
  {
    kind: "aws_access_key",
    needles: ["AKIA", "ASIA"],
    pattern: /(?<![A-Za-z0-9])A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])/g,
    confidence: 0.95
  },
  {
    kind: "github_token",
    needles: ["ghp_", "gho_", "ghu_", "ghs_", "ghr_"],
    pattern: /(?<![A-Za-z0-9_])gh[pousr]_[A-Za-z0-9]{36,255}/g,
    confidence: 0.98
  },
  { kind: "github_token", needles: ["github_pat_"], pattern: /github_pat_[A-Za-z0-9_]{22,255}/g, confidence: 0.98 },
  { kind: "gitlab_token", needles: ["glpat-"], pattern: /glpat-[A-Za-z0-9_-]{20,64}/g, confidence: 0.98 },
  {
    kind: "slack_token",
    needles: ["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-"],
    pattern: /xox[abprs]-[A-Za-z0-9-]{10,200}/g,
    confidence: 0.98
  },
  {
    kind: "slack_webhook",
    needles: ["hooks.slack.com/"],
    pattern: /hooks\.slack\.com\/services\/[A-Za-z0-9/]{20,120}/g,
    confidence: 0.95
  },
  {
    kind: "google_api_key",
    needles: ["AIza"],
    pattern: /(?<![A-Za-z0-9_-])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])/g,
    confidence: 0.95
  },
  {
    kind: "stripe_key",
    needles: ["sk_live_", "rk_live_", "sk_test_", "rk_test_"],
    pattern: /[sr]k_(?:live|test)_[A-Za-z0-9]{16,128}/g,
    confidence: 0.98
  },
  {
    kind: "api_key",
    needles: ["sk-"],
    pattern: /(?<![A-Za-z0-9])sk-(?=[A-Za-z_-]{0,40}[0-9])[A-Za-z0-9_-]{20,256}/g,
    confidence: 0.9
  },
  {
    kind: "npm_token",
    needles: ["npm_"],
    pattern: /(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])/g,
    confidence: 0.98
  },
  { kind: "huggingface_token", needles: ["hf_"], pattern: /(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,64}/g, confidence: 0.95 },
  {
    kind: "sendgrid_key",
    needles: ["SG."],
    pattern: /(?<![A-Za-z0-9])SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}/g,
    confidence: 0.98
  },
  {
    kind: "jwt",
    needles: ["eyJ"],
    pattern: /(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,2048}\.eyJ[A-Za-z0-9_-]{8,8192}\.[A-Za-z0-9_-]{16,1024}/g,
    confidence: 0.95
  },
  {
    kind: "private_key",
    needles: ["PRIVATE KEY-----"],
    pattern:
      /-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----\s{0,4}(?:[A-Za-z-]{1,20}: [^\n]{0,100}\n\s{0,2}){0,3}[A-Za-z0-9+/=\s]{0,16384}(?:-----END [A-Z ]{0,20}PRIVATE KEY-----)?/g,
    confidence: 1
  },
  {
    kind: "url_password",
    needles: ["://"],
    pattern: /:\/\/[A-Za-z0-9._%-]{1,64}:([^\s/@:"'<>]{3,128})@/g,
    confidence: 0.85
  }
]

/** Names under which credentials are assigned; the value follows. */
const assignment =
  /(?:api[_-]?key|secret(?:[_-]?(?:access)?[_-]?key)?|access[_-]?(?:key|token)|auth[_-]?token|client[_-]?secret|passw(?:or)?d|pwd|bearer)["']?(?:\s{0,4}[:=]>?\s{0,4}|\s)["']?([^\s"'`,;<>(){}[\]]{8,256})/gi

const placeholder =
  /^(?:\$|%|\*+$|x+$|\.+$)|example|placeholder|your[_-]?|changeme|redacted|undefined|process\.env|os\.environ/i

/** Bits a character (Shannon): random keys have more than 3, words and numbers mostly less. */
const entropy = (text: string): number => {
  const counts = new Map<string, number>()
  for (const character of text) counts.set(character, (counts.get(character) ?? 0) + 1)
  let bits = 0
  for (const count of counts.values()) bits -= (count / text.length) * Math.log2(count / text.length)
  return bits
}

const looksRandom = (value: string): boolean =>
  !placeholder.test(value) &&
  ((/\d/.test(value) && /[A-Za-z]/.test(value)) || /[^A-Za-z0-9._-]/.test(value)) &&
  entropy(value) >= (value.length >= 20 ? 3.3 : 2.7)

const collect = (text: string, pattern: RegExp, add: (start: number, end: number, value: string) => void): void => {
  for (const match of text.matchAll(pattern)) {
    const value = match[1] ?? match[0]
    const start = match.index + match[0].lastIndexOf(value)
    add(start, start + value.length, value)
  }
}

/** Credentials in their order, never overlapping. */
export const findSecrets = (text: string): ReadonlyArray<SecretSpan> => {
  const found: Array<SecretSpan> = []
  for (const form of forms) {
    if (!form.needles.some((needle) => text.includes(needle))) continue
    collect(text, form.pattern, (start, end) => {
      found.push({ start, end, kind: form.kind, confidence: form.confidence })
    })
  }
  collect(text, assignment, (start, end, value) => {
    if (looksRandom(value)) found.push({ start, end, kind: "assigned_secret", confidence: 0.75 })
  })
  found.sort((a, b) => a.start - b.start || b.confidence - a.confidence)
  const spans: Array<SecretSpan> = []
  for (const span of found) {
    const last = spans.at(-1)
    if (last === undefined || span.start >= last.end) spans.push(span)
    else if (span.confidence > last.confidence) spans[spans.length - 1] = span
  }
  return spans
}
