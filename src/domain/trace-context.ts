/** W3C Trace Context (https://www.w3.org/TR/trace-context/): where a call stands in the trace of whoever made it. */

/** A span of another program, as its `traceparent` names it. */
export interface RemoteParent {
  /** 32 lower-case hex digits, not all zero. */
  readonly traceId: string
  /** 16 lower-case hex digits, not all zero. */
  readonly spanId: string
  readonly sampled: boolean
  /** Whether the trace id was made at random (the flag of level 2), which samplers further down may rely on. */
  readonly random: boolean
  /** `tracestate`, to be passed on as it came. */
  readonly state: string | undefined
}

const form = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/
const zeros = /^0+$/

/** What every implementation must be able to pass on. */
const longestState = 512
const mostMembers = 32
const member = /^[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/

/** Whole members from the left, as many as fit; undefined: there are none, or it is malformed and worth nothing. */
const stateOf = (header: string | undefined): string | undefined => {
  if (header === undefined || header.length > 16 * longestState) return undefined
  const members = header
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")
  if (members.length === 0 || members.length > mostMembers || !members.every((one) => member.test(one))) {
    return undefined
  }
  let state = ""
  for (const one of members) {
    const longer = state === "" ? one : `${state},${one}`
    if (longer.length > longestState) break
    state = longer
  }
  return state === "" ? undefined : state
}

/** The parent that a request names; undefined: none, or none that can be understood, and a new trace begins. */
export const remoteParentOf = (
  traceparent: string | undefined,
  tracestate: string | undefined
): RemoteParent | undefined => {
  // Later versions may be longer, and are read as far as this one goes.
  const found = traceparent === undefined || traceparent.length > 512 ? null : form.exec(traceparent.trim())
  if (found === null) return undefined
  const [, version, traceId, spanId, flags, rest] = found
  if (version === "ff" || (version === "00" && rest !== undefined)) return undefined
  if (zeros.test(traceId!) || zeros.test(spanId!)) return undefined
  const bits = Number.parseInt(flags!, 16)
  return {
    traceId: traceId!,
    spanId: spanId!,
    sampled: (bits & 1) === 1,
    random: (bits & 2) === 2,
    state: stateOf(tracestate)
  }
}

/** The header that names a span as the parent of what it asks for. */
export const traceparentOf = (traceId: string, spanId: string, sampled: boolean, random: boolean): string =>
  `00-${traceId}-${spanId}-0${(sampled ? 1 : 0) + (random ? 2 : 0)}`
