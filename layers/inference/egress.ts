import { lookup } from "node:dns"
import type { LookupFunction } from "node:net"
import * as egress from "#domain/egress.ts"

export { checkLiteral, EgressRefused, mayConnect } from "#domain/egress.ts"

/** The guarded look-up over the system's resolver. */
export const guardedLookup = (allowPrivate: boolean): LookupFunction => egress.guardedLookup(allowPrivate, lookup)
