/** Moments as the wire writes them: ISO 8601 in, ISO 8601 in UTC out; Unix milliseconds in memory. */

const iso = /^(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?)?$/i

const daysIn = (year: number, month: number): number => new Date(Date.UTC(year, month, 0)).getUTCDate()

/** Reads an ISO 8601 date or date-time; without an offset it is UTC. Undefined for anything else, 31 February included. */
export const parseInstant = (text: string): number | undefined => {
  const match = iso.exec(text)
  if (match === null) return undefined
  const [year, month, day] = [Number(match[1]), Number(match[2]), Number(match[3])]
  if (month < 1 || month > 12 || day < 1 || day > daysIn(year, month)) return undefined
  const zone = match[4] === undefined || match[7] !== undefined ? "" : "Z"
  const millis = Date.parse(text.replace(" ", "T").toUpperCase() + zone)
  return Number.isNaN(millis) ? undefined : millis
}

export const instantText = (millis: number): string => new Date(millis).toISOString()
