import { Clock, Deferred, Duration, Effect, Scope } from "effect"
import type { Share } from "#layers/budgets/Share.ts"
import { realClock } from "#layers/budgets/Holder.ts"
import { ChangeFeed } from "#services/storage/ChangeFeed.ts"

const channel = "sluice_ledger_recall"
const payloadBytes = 7000
const patience = Duration.millis(250)

/** A call for the idle shares of accounts, or (without accounts) the answer to one. */
interface Message {
  readonly from: string
  readonly call: string
  readonly accounts?: ReadonlyArray<string>
}

const messageOf = (payload: string): Message | undefined => {
  try {
    return JSON.parse(payload) as Message
  } catch {
    return undefined
  }
}

/** Asks other processes for what they hold and do not use, and answers when they ask. */
export interface Recall {
  /** Returns when all `others` have answered, or after a quarter of a second. */
  readonly recall: (shares: ReadonlyArray<Share>, others: number) => Effect.Effect<void>
}

export interface RecallOptions {
  readonly life: string
  /** Gives back what is free of these accounts; `done` when the database has it. */
  readonly giveBack: (accounts: ReadonlyArray<string>, done: () => void) => void
}

export const make = Effect.fnUntraced(function* ({ giveBack, life }: RecallOptions) {
  const feed = yield* ChangeFeed
  const scope = yield* Scope.Scope
  const fork = Effect.runForkWith(yield* Effect.context())
  const calls = new Map<string, { left: number; readonly done: Deferred.Deferred<void> }>()
  let count = 0
  let closed = false

  const send = (message: Message) =>
    Effect.catch(feed.notify(channel, JSON.stringify(message)), (error) =>
      Effect.logDebug("Budgets: a recall could not be sent", error)
    )

  yield* Scope.addFinalizer(
    scope,
    Effect.sync(() => {
      closed = true
    })
  )
  yield* feed.subscribe(channel, (payload) => {
    const message = messageOf(payload)
    if (closed || message === undefined) return
    if (message.accounts === undefined) {
      const call = calls.get(message.call)
      if (call !== undefined && --call.left <= 0) Deferred.doneUnsafe(call.done, Effect.void)
    } else if (message.from !== life) {
      giveBack(message.accounts, () => {
        if (!closed) fork(Effect.forkIn(send({ from: life, call: message.call }), scope))
      })
    }
  })

  const recall = Effect.fnUntraced(function* (shares: ReadonlyArray<Share>, others: number) {
    const parts: Array<Array<string>> = []
    let room = 0
    for (const { account } of shares) {
      const bytes = Buffer.byteLength(JSON.stringify(account)) + 1
      if (bytes > payloadBytes) continue
      if (room < bytes) {
        parts.push([])
        room = payloadBytes
      }
      parts.at(-1)?.push(account)
      room -= bytes
    }
    if (parts.length === 0) return
    const call = `${life}:${count++}`
    const done = yield* Deferred.make<void>()
    calls.set(call, { left: others * parts.length, done })
    yield* Effect.forEach(parts, (accounts) => send({ from: life, call, accounts }), { discard: true }).pipe(
      Effect.andThen(Deferred.await(done)),
      Effect.timeoutOption(patience),
      Effect.provideService(Clock.Clock, realClock),
      Effect.ensuring(Effect.sync(() => calls.delete(call)))
    )
  })

  const made: Recall = { recall }
  return made
})
