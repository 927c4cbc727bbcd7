import type { Held, Job, Order, Outcome } from "./load.ts"
import { ask, hear, loadCore, machineSeconds, processorSeconds, start, stop, type Child } from "./processes.ts"
import { chatRequest, type Model } from "./requests.ts"
import { openTarget, type Target, type TargetName } from "./targets.ts"
import type { UpstreamState } from "./upstream.ts"

/** An outcome with what it cost, in processor seconds a second (1 is a core). */
export interface Measured extends Outcome {
  /** Of the target's process. */
  readonly targetLoad: number
  /** Of the stub and the load generator. */
  readonly ownLoad: number
  /** Of everything else on this machine: noise. */
  readonly otherLoad: number
}

/** The stub and the load generator, each in its process. */
export class Bench {
  readonly #upstream: Child
  readonly #loader: Child
  readonly port: number
  readonly #targets: Array<Target> = []

  private constructor(upstream: Child, loader: Child, port: number) {
    this.#upstream = upstream
    this.#loader = loader
    this.port = port
  }

  static async start(): Promise<Bench> {
    const upstream = start({ core: loadCore, args: ["bench/upstream.ts"], ipc: true })
    const { port } = await hear<UpstreamState>(upstream)
    const loader = start({ core: loadCore, args: ["bench/load.ts"], ipc: true })
    await hear(loader)
    return new Bench(upstream, loader, port)
  }

  async open(name: TargetName, nodeFlags: ReadonlyArray<string> = []): Promise<Target> {
    const target = await openTarget(name, this.port, nodeFlags)
    this.#targets.push(target)
    return target
  }

  /** Runs one job against a target. */
  async run(target: Target, model: Model, job: Omit<Job, "port" | "request">): Promise<Measured> {
    const own = () => processorSeconds(this.#upstream.pid) + processorSeconds(this.#loader.pid)
    const theirs = () => (target.child === undefined ? 0 : processorSeconds(target.child.pid))
    const request = chatRequest(target.port, target.headers, model)
    const before = [theirs(), own(), machineSeconds()] as const
    const outcome = await this.#order<Outcome>({ kind: "run", job: { ...job, port: target.port, request } })
    const targetLoad = (theirs() - before[0]) / outcome.seconds
    const ownLoad = (own() - before[1]) / outcome.seconds
    const machineLoad = (machineSeconds() - before[2]) / outcome.seconds
    return { ...outcome, targetLoad, ownLoad, otherLoad: Math.max(0, machineLoad - targetLoad - ownLoad) }
  }

  /** Opens streams in the load generator and leaves them open. */
  hold(target: Target, model: Model, count: number): Promise<Held> {
    const request = chatRequest(target.port, target.headers, model)
    return this.#order({ kind: "hold", port: target.port, request, count })
  }

  held(): Promise<Held> {
    return this.#order({ kind: "held" })
  }

  release(): Promise<Held> {
    return this.#order({ kind: "release" })
  }

  upstreamState(): Promise<UpstreamState> {
    return ask(this.#upstream, {})
  }

  async stop(): Promise<void> {
    for (const target of this.#targets) await target.stop()
    await Promise.all([stop(this.#loader, 2_000), stop(this.#upstream, 2_000)])
  }

  #order<Answer>(order: Order): Promise<Answer> {
    return ask(this.#loader, order)
  }
}
