import { Cause, Effect, Exit, FiberSet } from "effect"
import { Unavailable } from "#domain/errors.ts"

/** One entry of a batch: what to ingest, and whom to tell. */
interface Pending<A, B, E> {
  readonly entry: A
  readonly resume: (outcome: Effect.Effect<B, E>) => void
}

interface Mailbox<A, B, E> {
  readonly waiting: Array<Pending<A, B, E>>
  busy: boolean
}

const overloaded = new Unavailable({
  code: "overloaded",
  message: "More scores are waiting than the gateway takes.",
  retryAfter: 1
})

const draining = new Unavailable({ code: "draining", message: "The gateway is stopping.", retryAfter: 1 })

/**
 * An actor a schema: what arrives while a transaction runs goes into the next one together, because writers of one tenant
 * wait for each other in any case (the head of its provenance chain), and one commit for many costs what one for one does.
 * `run` answers each entry by itself; a batch that dies is tried entry by entry, so that no entry takes others with it.
 */
export const makeBatches = <A, B, E>(options: {
  readonly most: number
  readonly waiting: number
  readonly run: (
    schema: string,
    entries: ReadonlyArray<A>
  ) => Effect.Effect<ReadonlyArray<Effect.Effect<B, E>>, Unavailable>
}) =>
  Effect.gen(function* () {
    const fork = yield* FiberSet.makeRuntime<never, void, never>()
    const mailboxes = new Map<string, Mailbox<A, B, E | Unavailable>>()

    const settle = (
      batch: ReadonlyArray<Pending<A, B, E | Unavailable>>,
      exit: Exit.Exit<ReadonlyArray<Effect.Effect<B, E>>, Unavailable>
    ) => {
      for (const [index, pending] of batch.entries()) {
        if (Exit.isSuccess(exit)) pending.resume(exit.value[index] ?? Effect.die(new Error("an entry has no outcome")))
        else pending.resume(Cause.hasInterruptsOnly(exit.cause) ? Effect.fail(draining) : Effect.failCause(exit.cause))
      }
    }

    const attempt = (schema: string, batch: ReadonlyArray<Pending<A, B, E | Unavailable>>) =>
      Effect.exit(
        options.run(
          schema,
          batch.map(({ entry }) => entry)
        )
      )

    const handle = Effect.fnUntraced(function* (schema: string, batch: ReadonlyArray<Pending<A, B, E | Unavailable>>) {
      const exit = yield* attempt(schema, batch)
      if (batch.length === 1 || Exit.isSuccess(exit) || !Cause.hasDies(exit.cause)) return settle(batch, exit)
      for (const pending of batch) settle([pending], yield* attempt(schema, [pending]))
    })

    const work = (schema: string, mailbox: Mailbox<A, B, E | Unavailable>) =>
      Effect.gen(function* () {
        while (mailbox.waiting.length > 0) {
          const batch = mailbox.waiting.splice(0, options.most)
          yield* Effect.onInterrupt(handle(schema, batch), () => Effect.sync(() => settle(batch, Exit.fail(draining))))
        }
      }).pipe(
        Effect.ensuring(
          Effect.sync(() => {
            mailbox.busy = false
            settle(mailbox.waiting.splice(0), Exit.fail(draining))
          })
        )
      )

    const submit = (schema: string, entry: A): Effect.Effect<B, E | Unavailable> =>
      Effect.callback((resume) => {
        let mailbox = mailboxes.get(schema)
        if (mailbox === undefined) mailboxes.set(schema, (mailbox = { waiting: [], busy: false }))
        if (mailbox.waiting.length >= options.waiting) return resume(Effect.fail(overloaded))
        mailbox.waiting.push({ entry, resume })
        if (mailbox.busy) return
        mailbox.busy = true
        fork(work(schema, mailbox))
      })

    return { submit }
  })
