/**
 * The threads that large texts are checked in, kept apart so that nobody's slow check holds up everybody: what is sure to be
 * quick shares one thread; what may be slow has a thread to itself for as long as it runs, the callers take turns, and no
 * caller has more than one of those threads.
 */
import { Deferred, Effect, Exit, FiberSet } from "effect"
import { Unavailable } from "#domain/errors.ts"
import type { ThreadJob, ThreadResult } from "#layers/guardrails/check-job.ts"
import { type WorkerThread, WorkerThreads } from "#services/workers/WorkerThreads.ts"

const overloaded = new Unavailable({
  code: "overloaded",
  message: "The gateway has too much to do at the moment.",
  retryAfter: 1
})

/** Who a job is for, and how much it is. */
export interface Work {
  /** Callers of one share take turns as one: a tenant, or a key where there are no tenants. */
  readonly share: string
  readonly characters: number
  /** Nanoseconds that it takes at the very worst. */
  readonly worstNanos: number
}

export interface CheckLanes {
  /** Fails with `overloaded` when too much waits, here or of the same share, or the job does not end in its time. */
  readonly run: (job: ThreadJob, work: Work) => Effect.Effect<ThreadResult, Unavailable>
}

export interface LaneOptions {
  /** Jobs that may take longer than this at worst get a thread of their own, in milliseconds. */
  readonly quick: number
  /** Threads for those. */
  readonly slowThreads: number
  /** Milliseconds that a slow job may run, and wait for its turn. */
  readonly slowTimeout: number
  readonly maxWait: number
  /** Characters of all jobs in the shared thread; one share has half of that at most. */
  readonly quickCharacters: number
  /** The same for the jobs that wait for a thread of their own. */
  readonly slowCharacters: number
}

export const defaultLanes: LaneOptions = {
  quick: 100,
  slowThreads: 2,
  slowTimeout: 5000,
  maxWait: 15_000,
  quickCharacters: 64 * 1024 * 1024,
  slowCharacters: 128 * 1024 * 1024
}

const maxJobs = 512

/** What is under way, over all and of each share. */
class Load {
  readonly #shares = new Map<string, { jobs: number; characters: number }>()
  #jobs = 0
  #characters = 0
  readonly #maxCharacters: number

  constructor(maxCharacters: number) {
    this.#maxCharacters = maxCharacters
  }

  /** Whether there is room. Whoever has nothing under way is let in with half a share, whatever its size. */
  admit({ characters, share }: Work): boolean {
    const own = this.#shares.get(share) ?? { jobs: 0, characters: 0 }
    if (this.#jobs >= maxJobs || own.jobs >= maxJobs / 2) return false
    if (own.jobs > 0 && own.characters + characters > this.#maxCharacters / 2) return false
    if (this.#jobs > 0 && this.#characters + characters > this.#maxCharacters) return false
    this.#shares.set(share, { jobs: own.jobs + 1, characters: own.characters + characters })
    this.#jobs++
    this.#characters += characters
    return true
  }

  leave({ characters, share }: Work): void {
    const own = this.#shares.get(share)
    if (own === undefined) return
    this.#jobs--
    this.#characters -= characters
    if (own.jobs === 1) this.#shares.delete(share)
    else this.#shares.set(share, { jobs: own.jobs - 1, characters: own.characters - characters })
  }
}

type Thread = WorkerThread<ThreadJob, ThreadResult>

interface Waiting {
  readonly work: Work
  readonly start: (thread: Thread) => void
}

/** Hands free threads to waiting jobs, share by share. */
class Turns {
  readonly #free: Array<Thread>
  readonly #waiting = new Map<string, Array<Waiting>>()
  readonly #running = new Set<string>()

  constructor(threads: ReadonlyArray<Thread>) {
    this.#free = [...threads]
  }

  wait(waiting: Waiting): void {
    const { share } = waiting.work
    const own = this.#waiting.get(share)
    if (own === undefined) this.#waiting.set(share, [waiting])
    else own.push(waiting)
    this.#next()
  }

  forget(waiting: Waiting): boolean {
    const { share } = waiting.work
    const own = this.#waiting.get(share)
    const at = own?.indexOf(waiting) ?? -1
    if (own === undefined || at === -1) return false
    own.splice(at, 1)
    if (own.length === 0) this.#waiting.delete(share)
    return true
  }

  done(waiting: Waiting, thread: Thread): void {
    this.#running.delete(waiting.work.share)
    this.#free.push(thread)
    this.#next()
  }

  #next(): void {
    for (const [share, own] of this.#waiting) {
      if (this.#free.length === 0) return
      if (this.#running.has(share)) continue
      const waiting = own.shift()!
      // To the end of the line, where it waits for its next turn.
      this.#waiting.delete(share)
      if (own.length > 0) this.#waiting.set(share, own)
      this.#running.add(share)
      waiting.start(this.#free.shift()!)
    }
  }
}

/** Opens the threads; they start with their first jobs and end with the scope. */
export const makeCheckLanes = Effect.fnUntraced(function* (given: Partial<LaneOptions> = {}) {
  const options = { ...defaultLanes, ...given }
  const threads = yield* WorkerThreads
  const run = yield* FiberSet.makeRuntime<never, void, never>()
  const handler = new URL("./check-job.ts", import.meta.url)
  const shared: Thread = yield* threads.open<ThreadJob, ThreadResult>({
    name: "guardrails",
    handler,
    maxJobs,
    maxWeight: options.quickCharacters,
    timeout: options.maxWait
  })
  const own: Array<Thread> = []
  for (let i = 0; i < options.slowThreads; i++) {
    own.push(
      yield* threads.open<ThreadJob, ThreadResult>({
        name: `guardrails, slow ${i + 1}`,
        handler,
        maxJobs: 1,
        maxWeight: options.slowCharacters,
        timeout: options.slowTimeout,
        endsLate: true
      })
    )
  }
  const turns = new Turns(own)
  const quickLoad = new Load(options.quickCharacters)
  const slowLoad = new Load(options.slowCharacters)

  const quick = (job: ThreadJob, work: Work) => shared.run(job, work.characters)

  /** A job that has its thread runs to its end even if nobody waits for it any more: it cannot be stopped in between. */
  const slow = (job: ThreadJob, work: Work): Effect.Effect<ThreadResult, Unavailable> =>
    Effect.suspend(() => {
      const result = Deferred.makeUnsafe<ThreadResult, Unavailable>()
      const waiting: Waiting = {
        work,
        start: (thread) => {
          const ended = Effect.onExit(thread.run(job, work.characters), (exit) =>
            Effect.sync(() => {
              Deferred.doneUnsafe(result, exit)
              turns.done(waiting, thread)
            })
          )
          run(Effect.asVoid(Effect.exit(ended)))
        }
      }
      turns.wait(waiting)
      return Effect.onExit(
        Effect.timeoutOrElse(Deferred.await(result), {
          duration: options.maxWait,
          orElse: () => Effect.fail(overloaded)
        }),
        (exit) => Effect.sync(() => void (Exit.isFailure(exit) && turns.forget(waiting)))
      )
    })

  const lanes: CheckLanes = {
    run: (job, work) =>
      Effect.suspend(() => {
        const [lane, load] =
          work.worstNanos <= options.quick * 1e6 ? ([quick, quickLoad] as const) : ([slow, slowLoad] as const)
        if (!load.admit(work)) return Effect.fail(overloaded)
        return Effect.ensuring(
          lane(job, work),
          Effect.sync(() => load.leave(work))
        )
      })
  }
  return lanes
})
