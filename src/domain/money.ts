/**
 * Exact money (decisions.md, section 6): amounts are integer nano-dollars, prices integer pico-dollars per unit
 * (a nano-dollar is too coarse for a cached token of a small model), and the wire carries decimal dollars.
 */

/** An amount of money in nano-dollars (1e-9 USD). */
export type Nanos = bigint

/** A price in pico-dollars (1e-12 USD) per unit. */
export type Picos = bigint

const decimal = /^([+-]?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d{1,3}))?$/

const scaled = (dollars: number | string, digits: number): bigint | undefined => {
  const match = decimal.exec(typeof dollars === "number" ? String(dollars) : dollars.trim())
  if (match === null) return undefined
  const fraction = match[3] ?? ""
  const exponent = Number(match[4] ?? "0") + digits - fraction.length
  if (exponent > 60) return undefined
  const integer = BigInt(match[2] + fraction)
  const magnitude = exponent >= 0 ? integer * 10n ** BigInt(exponent) : roundUp(integer, 10n ** BigInt(-exponent))
  return match[1] === "-" ? -magnitude : magnitude
}

const roundUp = (value: bigint, divisor: bigint): bigint => (value + divisor - 1n) / divisor

/** Dollars, as a JSON number or a `numeric` of PostgreSQL, to nano-dollars; digits below a nano are rounded up. */
export const nanosFromDollars = (dollars: number | string): Nanos | undefined => scaled(dollars, 9)

/** Dollars per unit to pico-dollars per unit; digits below a pico are rounded up. */
export const picosFromDollars = (dollars: number | string): Picos | undefined => scaled(dollars, 12)

/** The exact decimal text of an amount, as PostgreSQL's `numeric` and the quota headers take it. */
export const dollarsText = (nanos: Nanos): string => {
  const magnitude = (nanos < 0n ? -nanos : nanos).toString().padStart(10, "0")
  const fraction = magnitude.slice(-9).replace(/0+$/, "")
  const text = magnitude.slice(0, -9) + (fraction === "" ? "" : `.${fraction}`)
  return nanos < 0n ? `-${text}` : text
}

/** The decimal number that goes on the wire. Exact to the nano-dollar up to eight million dollars. */
export const dollarsNumber = (nanos: Nanos): number => Number(dollarsText(nanos))

/** Rounds a sum of pico-dollars up to whole nano-dollars, so that a call is never charged below its price. */
export const nanosFromPicos = (picos: Picos): Nanos => roundUp(picos, 1000n)
