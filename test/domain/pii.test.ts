import { assert, it } from "@effect/vitest"
import { describe } from "vitest"
import { findPii, piiEntities } from "#domain/pii.ts"
import { redact, redactionTokensIn, rehydrate } from "#domain/redaction.ts"
import { findSecrets } from "#domain/secrets-scan.ts"

const all = new Set(piiEntities)
const found = (text: string) => findPii(text, all).map((span) => [span.entity, text.slice(span.start, span.end)])

describe("personal data", () => {
  const cases: ReadonlyArray<readonly [string, ReadonlyArray<ReadonlyArray<string>>]> = [
    ["Write to jane.doe+news@mail.example.co.uk.", [["EMAIL", "jane.doe+news@mail.example.co.uk"]]],
    ["Schreib an jürgen@müller.de, bitte", [["EMAIL", "jürgen@müller.de"]]],
    ["Call +49 30 901820 today", [["PHONE", "+49 30 901820"]]],
    ["my number is (415) 555-2671", [["PHONE", "(415) 555-2671"]]],
    ["Tel. 030 901820", [["PHONE", "030 901820"]]],
    ["pay with 4111 1111 1111 1111 now", [["CREDIT_CARD", "4111 1111 1111 1111"]]],
    ["amex 378282246310005", [["CREDIT_CARD", "378282246310005"]]],
    ["IBAN DE89 3704 0044 0532 0130 00, thanks", [["IBAN", "DE89 3704 0044 0532 0130 00"]]],
    ["SSN 536-90-4399", [["US_SSN", "536-90-4399"]]],
    [
      "from 192.168.1.77 to 2001:db8::8a2e:370:7334",
      [
        ["IP_ADDRESS", "192.168.1.77"],
        ["IP_ADDRESS", "2001:db8::8a2e:370:7334"]
      ]
    ],
    ["see https://example.org/a?b=c, ok", [["URL", "https://example.org/a?b=c"]]],
    ["visit www.example.com.", [["URL", "www.example.com"]]],
    ["I met Dr. Angela Merkel", [["PERSON", "Angela Merkel"]]],
    ["My name is Chukwuemeka Obi", [["PERSON", "Chukwuemeka Obi"]]],
    ["Yesterday Anna Schmidt called", [["PERSON", "Anna Schmidt"]]],
    ["key ghp_" + "a1B2".repeat(9), [["API_KEY", "ghp_" + "a1B2".repeat(9)]]]
  ]
  for (const [text, spans] of cases) it(`in: ${text}`, () => assert.deepStrictEqual(found(text), spans))

  const innocent = [
    "Order 4111 1111 1111 1112 shipped", // fails Luhn
    "DE89 3704 0044 0532 0130 01", // fails its checksum
    "Version 1.2.3.4 of 2024-01-31 at 10:30:15",
    "ratio 3.14159265358979, id 123456789012",
    "std::vector<int> a::b",
    "666-12-3456 and 000-11-2222",
    "The United States and New York City",
    "@handle and a@b",
    "1,234,567.89 dollars"
  ]
  for (const text of innocent) it(`nothing in: ${text}`, () => assert.deepStrictEqual(found(text), []))

  it("takes no longer for 1 MB that was made to be slow", () => {
    for (const unit of ["4 ", "4-", "DE89 ", "4111 ", "123-45-", "0 1 ", "1.1.1.1.", "Anna ", "a@", "://a:", "::"]) {
      const text = unit.repeat(Math.ceil(1_000_000 / unit.length))
      findPii(text, all)
      // The processor's time, because others may use the machine as well.
      const took = () => {
        const start = process.cpuUsage()
        findPii(text, all)
        const { system, user } = process.cpuUsage(start)
        return (user + system) / 1000
      }
      const limit = unit === "4 " || unit === "DE89 " ? 100 : 200
      assert.isBelow(Math.min(took(), took(), took()), limit, unit)
    }
  })

  it("gives spans left to right that never overlap", () => {
    const text = "mail https://a.example/x?m=bob@b.example 4111111111111111 bob@b.example 10.0.0.1 ".repeat(50)
    let end = 0
    for (const span of findPii(text, all)) {
      assert.isAtLeast(span.start, end)
      end = span.end
    }
    assert.isAbove(end, 0)
  })

  it("redacts and restores exactly", () => {
    const text = "Anna Schmidt <anna@example.com> wrote to anna@example.com 👋 from 10.1.2.3"
    const { text: redacted, tokens } = redact(text, findPii(text, all))
    assert.notInclude(redacted, "anna@")
    assert.match(redacted, /<EMAIL_[0-9a-f]{12}>/)
    assert.strictEqual(redactionTokensIn(redacted).length, new Set(tokens.map((token) => token.token)).size)
    const values = new Map(tokens.map((token) => [token.token, token.value]))
    assert.strictEqual(
      rehydrate(redacted, (token) => values.get(token)),
      text
    )
    assert.strictEqual(
      rehydrate("<EMAIL_000000>", () => undefined),
      "<EMAIL_000000>"
    )
  })
})

describe("secrets", () => {
  it("finds issued forms and assigned random values, not placeholders", () => {
    const kinds = (text: string) => findSecrets(text).map((span) => span.kind)
    assert.deepStrictEqual(kinds("id AKIAIOSFODNN7EXAMPLE."), ["aws_access_key"])
    assert.deepStrictEqual(kinds("password = 'hT7#kQ9!zR2p'"), ["assigned_secret"])
    assert.deepStrictEqual(kinds("postgres://bob:s3cr3tpw@db/x"), ["url_password"])
    const pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow==\n-----END RSA PRIVATE KEY-----"
    assert.deepStrictEqual(
      findSecrets(`x ${pem} y`).map((span) => span.end - span.start),
      [pem.length]
    )
    assert.deepStrictEqual(kinds("api_key=YOUR_API_KEY password: ${PASSWORD} secret: something"), [])
    assert.deepStrictEqual(kinds("the password reset page; sk-learn and task-force-management-system"), [])
  })
})
