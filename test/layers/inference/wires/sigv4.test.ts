import { assert, describe, it } from "@effect/vitest"
import { signV4 } from "#layers/inference/wires/sigv4.ts"

const credentials = {
  accessKeyId: "AKIDEXAMPLE",
  secretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
  sessionToken: undefined
}

const now = Date.UTC(2015, 7, 30, 12, 36, 0)

const signature = (headers: Readonly<Record<string, string>>) => /Signature=(\w+)$/.exec(headers["authorization"]!)?.[1]

describe("Signature Version 4", () => {
  it("signs AWS's published example", () => {
    const signed = signV4(
      {
        method: "GET",
        path: "/?Action=ListUsers&Version=2010-05-08",
        headers: { "content-type": "application/x-www-form-urlencoded; charset=utf-8", host: "iam.amazonaws.com" },
        body: ""
      },
      credentials,
      { region: "us-east-1", service: "iam" },
      now
    )
    assert.strictEqual(signed["x-amz-date"], "20150830T123600Z")
    assert.strictEqual(signature(signed), "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7")
    assert.include(
      signed["authorization"],
      "Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, SignedHeaders=content-type;host;x-amz-date"
    )
  })

  const bedrock = (more: object = {}) => ({
    method: "POST",
    path: "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse",
    headers: { "content-type": "application/json", host: "bedrock-runtime.eu-central-1.amazonaws.com" },
    body: '{"messages":[{"role":"user","content":[{"text":"Grün?"}]}]}',
    ...more
  })

  const scope = { region: "eu-central-1", service: "bedrock" }

  it("escapes an escaped path once more, and signs the session's token", () => {
    const session = { ...credentials, sessionToken: "FwoGZXIvYXdzEXAMPLE==" }
    const signed = signV4(bedrock(), session, scope, now)
    assert.strictEqual(signed["x-amz-security-token"], session.sessionToken)
    assert.include(signed["authorization"], "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token")
    assert.strictEqual(signature(signed), "8c80829d3a7e5909adf2855a2e2a0af18a78c68bc849b027f8232496d1345fb8")
  })

  it("signs another signature for anything that changes", () => {
    const first = signature(signV4(bedrock(), credentials, scope, now))
    const others = [
      signV4(bedrock({ body: "{}" }), credentials, scope, now),
      signV4(bedrock({ path: "/model/x/converse" }), credentials, scope, now),
      signV4(bedrock(), credentials, { ...scope, region: "us-east-1" }, now),
      signV4(bedrock(), { ...credentials, secretAccessKey: "other" }, scope, now),
      signV4(bedrock(), credentials, scope, now + 1_000)
    ].map(signature)
    assert.strictEqual(new Set([first, ...others]).size, 6)
  })
})
