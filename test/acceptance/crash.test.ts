/** Promise 3: kill -9 of the whole process group under load; no finished call lost or counted twice, no reservation left. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { chatBody, registerModel, until } from "#test/support/acceptance.ts"
import { type Gateway, startGateway } from "#test/support/Gateway.ts"
import { StubUpstream } from "#test/support/StubUpstream.ts"

describe.each([
  ["one process", {}, 10],
  ["three processes", { GATEWAY_PROCESSES: "3" }, 4]
] as const)("kill -9 under load, %s", (_name, env, rounds) => {
  let stub: StubUpstream
  let dataDir: string

  beforeAll(async () => {
    stub = await StubUpstream.start({ record: false })
    dataDir = mkdtempSync(join(tmpdir(), "sluice-crash-"))
  })

  afterAll(async () => {
    await stub.stop()
    rmSync(dataDir, { recursive: true, force: true })
  })

  /** Calls until the gateway is gone; counts what was answered whole, and what got no answer. */
  const load = async (gateway: Gateway, key: string, deadline: number) => {
    let answered = 0
    let unanswered = 0
    const worker = async (index: number) => {
      while (performance.now() < deadline + 20_000) {
        try {
          const reply = await gateway.request("POST", "/v1/chat/completions", {
            token: key,
            body: chatBody("priced", { max_tokens: 10, stream: index % 3 === 0 })
          })
          if (reply.status === 200 && (index % 3 !== 0 || reply.text.endsWith("data: [DONE]\n\n"))) answered++
        } catch {
          unanswered++
          return
        }
      }
    }
    const workers = Promise.all(Array.from({ length: 12 }, (_, index) => worker(index)))
    await new Promise((resolve) => setTimeout(resolve, deadline - performance.now()))
    // On a busy machine a round may need longer to have something to lose.
    await until(
      () => Promise.resolve(answered),
      (count) => count >= 30,
      15_000
    )
    await gateway.kill()
    await workers
    return { answered, unanswered }
  }

  it(`counts every finished call once, ${rounds} times over`, async () => {
    let gateway = await startGateway({ dataDir, env })
    await registerModel(gateway, "priced", stub.url, { cost_per_request: 0.001 })
    const { key } = await gateway.key({ max_budget: 1_000_000, rpm_limit: 1_000_000, tpm_limit: 1_000_000_000 })
    let answered = 0
    let unanswered = 0
    for (let round = 0; round < rounds; round++) {
      const outcome = await load(gateway, key, performance.now() + 150 + round * 60)
      answered += outcome.answered
      unanswered += outcome.unanswered
      gateway = await startGateway({ dataDir, env })
      const usage = (await gateway.request("GET", "/v1/usage", { token: key })).json as {
        total_requests: number
        total_spend: number
      }
      // A call may have finished whose last byte did not get through: at most those without an answer.
      assert.isAtLeast(usage.total_requests, answered, `round ${round}`)
      assert.isAtMost(usage.total_requests, answered + unanswered, `round ${round}`)
      assert.strictEqual(usage.total_spend, Number((usage.total_requests * 0.001).toFixed(9)), `round ${round}`)
    }
    assert.isAbove(answered, 100)
    // The budget's books agree with the usage, and what is free is the limit less what was spent.
    const usage = (await gateway.request("GET", "/v1/usage", { token: key })).json as { total_spend: number }
    const reply = await until(
      () => gateway.request("GET", "/v1/models", { token: key }),
      ({ headers }) => headers.get("x-gateway-budget-remaining") !== null
    )
    assert.strictEqual(reply.status, 200)
    const call = await gateway.request("POST", "/v1/chat/completions", {
      token: key,
      body: chatBody("priced", { max_tokens: 10 })
    })
    assert.strictEqual(
      Number(call.headers.get("x-gateway-budget-remaining")),
      Number((1_000_000 - usage.total_spend - 0.001).toFixed(9))
    )
    assert.strictEqual(await gateway.stop(), 0)
  }, 180_000)
})
