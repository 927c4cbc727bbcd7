/** The stub upstream as a process of its own: says its port, then its counts when asked. */
import { StubUpstream } from "#test/support/StubUpstream.ts"

/** The stub's counts, the answer to any message. */
export interface UpstreamState {
  readonly port: number
  readonly received: number
  readonly aborted: number
  readonly open: number
}

if (import.meta.main) {
  const stub = await StubUpstream.start({ record: false })
  const state = (): UpstreamState => ({
    port: stub.port,
    received: stub.received,
    aborted: stub.aborted,
    open: stub.open
  })
  process.on("disconnect", () => process.exit(0))
  process.on("message", () => process.send?.(state()))
  process.send?.(state())
}
