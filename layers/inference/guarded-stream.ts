/**
 * A stream under a post guardrail: what the model says is held back in sentence windows until it is checked, so that
 * blocked text never reaches the client (decisions.md, section 8).
 */
import { Effect } from "effect"
import type { GuardrailBlocked } from "#domain/errors.ts"
import type { GuardrailEvent } from "#domain/guardrails.ts"
import type { ModelOperation } from "#domain/operations.ts"
import { ChatGuard } from "#layers/inference/guards/chat.ts"
import type { EventGuard, ReadyText } from "#layers/inference/guards/guard.ts"
import { GenerateContentGuard } from "#layers/inference/guards/generate-content.ts"
import { MessagesGuard } from "#layers/inference/guards/messages.ts"
import { tellGuardrails } from "#layers/inference/call-spans.ts"
import type { GuardrailPolicy } from "#services/guardrails/GuardrailEngine.ts"
import type { StreamConsumer, StreamControl, StreamedAnswer, StreamEnd } from "#services/inference/ProviderRouter.ts"
import type { Span } from "#services/telemetry/Tracing.ts"

/** Events that may wait for their checks before the upstream is asked to pause. */
const highWater = 64

const guardOf = (operation: ModelOperation, wholeAnswer: boolean): EventGuard => {
  switch (operation) {
    case "messages":
      return new MessagesGuard(wholeAnswer)
    case "generate_content":
      return new GenerateContentGuard(wholeAnswer)
    default:
      return new ChatGuard(wholeAnswer)
  }
}

/**
 * Starts a streamed answer under a policy, in the event shape of its operation. Everything that leaves has been checked; a block
 * cancels the upstream and ends the stream with the failure. `run` runs one effect in the background. Where the call is
 * traced, all windows are one span.
 */
export const guardStream = (
  operation: ModelOperation,
  answer: StreamedAnswer,
  policy: GuardrailPolicy,
  events: Array<GuardrailEvent>,
  consumer: StreamConsumer,
  run: (effect: Effect.Effect<void>) => unknown,
  parent: Span | undefined
): StreamControl => {
  const span = parent?.child("guardrails post", "internal")
  const earlier = events.length
  const guard = guardOf(operation, policy.wholeAnswer)
  const queue: Array<string> = []
  let upstreamEnd: StreamEnd | undefined
  const state = { over: false }
  /** Windows that passed, summed up: a stream is one entry of the log for each guardrail. */
  const passed = new Map<string, GuardrailEvent>()
  let working = false
  let pausedByClient = false
  let pausedByQueue = false
  let control: StreamControl | undefined

  const release = Effect.fnUntraced(function* (ready: ReadonlyArray<ReadyText>) {
    for (const text of ready) {
      const verdict = yield* policy.check("post", [text.checked], span)
      if (state.over) return
      for (const event of verdict.events) {
        if (event.status !== "passed") events.push(event)
        else {
          const durationMs = event.durationMs + (passed.get(event.guardrailId)?.durationMs ?? 0)
          passed.set(event.guardrailId, { ...event, durationMs })
        }
      }
      if (verdict.blocked !== undefined) return block(verdict.blocked)
      const event = text.release(verdict.texts[0] ?? text.checked)
      if (event !== undefined) consumer.chunk(event)
    }
  })

  const told = () => {
    if (span === undefined) return
    tellGuardrails(span, events.slice(earlier))
    span.end()
  }

  const block = (failure: GuardrailBlocked) => {
    state.over = true
    span?.error(failure.code, false)
    told()
    const generated = upstreamEnd ?? control?.cancel()
    consumer.end({ usage: generated?.usage, text: generated?.text ?? (() => ""), failure })
  }

  const work = Effect.gen(function* () {
    for (let event = queue.shift(); event !== undefined && !state.over; event = queue.shift()) {
      if (pausedByQueue && queue.length < highWater / 2) {
        pausedByQueue = false
        if (!pausedByClient) control?.resume()
      }
      const { ready, rest } = guard.take(event)
      yield* release(ready)
      if (!state.over && rest !== undefined) consumer.chunk(rest)
    }
    if (state.over || upstreamEnd === undefined) return
    if (upstreamEnd.failure === undefined) yield* release(guard.flush())
    if (state.over) return
    state.over = true
    events.push(...passed.values())
    told()
    consumer.end(upstreamEnd)
  })

  const wake = () => {
    if (working || state.over) return
    working = true
    run(
      Effect.ensuring(
        work,
        Effect.sync(() => {
          working = false
          if (!state.over && (queue.length > 0 || upstreamEnd !== undefined)) wake()
        })
      )
    )
  }

  control = answer.start({
    chunk: (bytes) => {
      for (const event of bytes.toString("utf8").split(/\r\n\r\n|\n\n|\r\r/)) if (event !== "") queue.push(event)
      if (queue.length > highWater && !pausedByQueue) {
        pausedByQueue = true
        // Deferred, because the first chunk may come before `start` has returned. By then the queue may be worked off, and
        // nobody would resume what is paused after that.
        queueMicrotask(() => {
          if (pausedByQueue) control?.pause()
        })
      }
      wake()
    },
    end: (end) => {
      upstreamEnd = end
      wake()
    }
  })

  return {
    pause: () => {
      pausedByClient = true
      control?.pause()
    },
    resume: () => {
      pausedByClient = false
      if (!pausedByQueue) control?.resume()
    },
    cancel: () => {
      state.over = true
      told()
      return upstreamEnd ?? control.cancel()
    }
  }
}
