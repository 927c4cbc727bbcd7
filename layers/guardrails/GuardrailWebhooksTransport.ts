import { Clock, Effect, Layer, Redacted } from "effect"
import { uuidv7 } from "#domain/ids.ts"
import { isJsonObject, type Json } from "#domain/json.ts"
import { webhookHeaders } from "#domain/webhooks.ts"
import { GuardrailWebhooks, WebhookFailed, type WebhookMessage } from "#services/guardrails/GuardrailWebhooks.ts"
import { Transport } from "#services/inference/Transport.ts"

/** How much longer than its question an answer may be, in bytes. */
const answerRoom = 64 * 1024

const failed = (why: string) => new WebhookFailed({ why })

const answerOf = (bytes: Buffer): Effect.Effect<{ readonly [key: string]: Json }, WebhookFailed> => {
  try {
    const answer: Json = JSON.parse(bytes.toString("utf8"))
    return isJsonObject(answer) ? Effect.succeed(answer) : Effect.fail(failed("its answer is no JSON object"))
  } catch {
    return Effect.fail(failed("its answer is not valid JSON"))
  }
}

const make = Effect.gen(function* () {
  const transport = yield* Transport
  const clock = yield* Clock.Clock

  const post = ({ body, secret, url }: WebhookMessage) =>
    Effect.suspend(() => {
      const target = new URL(url)
      const text = JSON.stringify(body)
      const now = clock.currentTimeMillisUnsafe()
      const id = `msg_${uuidv7(now)}`
      const signature =
        secret === undefined
          ? { "webhook-id": id, "webhook-timestamp": String(Math.floor(now / 1000)) }
          : webhookHeaders(Redacted.value(secret), { id, body: text }, now)
      const question = Buffer.from(text)
      const maxAnswer = question.length + answerRoom
      return Effect.callback<Buffer, WebhookFailed>((resume) => {
        const chunks: Array<Buffer> = []
        let size = 0
        const control = transport.send(
          target.origin,
          {
            method: "POST",
            path: target.pathname + target.search,
            headers: {
              "content-type": "application/json",
              accept: "application/json",
              "accept-encoding": "identity",
              "user-agent": "sluice-guardrails/1",
              ...signature
            },
            body: question
          },
          {
            head: (status) => {
              if (status >= 200 && status < 300) return
              control.abort()
              resume(Effect.fail(failed(`it answered ${status}`)))
            },
            data: (chunk) => {
              size += chunk.length
              if (size <= maxAnswer) return void chunks.push(chunk)
              control.abort()
              resume(Effect.fail(failed("its answer is too long")))
            },
            end: () => resume(Effect.succeed(Buffer.concat(chunks))),
            failed: (failure) => resume(Effect.fail(failed(failure.message)))
          }
        )
        return Effect.sync(() => control.abort())
      }).pipe(Effect.flatMap(answerOf))
    })

  return GuardrailWebhooks.of({ post })
})

/** Webhooks over the guarded transport. */
export const layer: Layer.Layer<GuardrailWebhooks, never, Transport> = Layer.effect(GuardrailWebhooks, make)
