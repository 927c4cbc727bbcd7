/** Kinds of personal data that are numbers: told apart by checksums, ranges, shape and the words before them. */
import { parsePhoneNumberFromString, type CountryCode } from "libphonenumber-js/min"
import type { AddSpan, PiiEntity } from "#domain/pii.ts"

const hasDigit = /\d/

/** ISO/IEC 7812-1, annex B. */
export const passesLuhn = (digits: string): boolean => {
  let sum = 0
  for (let i = digits.length - 1, double = false; i >= 0; i--, double = !double) {
    const digit = digits.charCodeAt(i) - 48
    sum += double ? (digit > 4 ? 2 * digit - 9 : 2 * digit) : digit
  }
  return sum % 10 === 0
}

/** Ranges of the card schemes with the lengths that they issue. */
const cardForm =
  /^(?:4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}|6(?:011|4[4-9]\d|5\d\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|095|[689]\d)\d{11}|62\d{14,17}|(?:5018|5020|5038|6304|6759|676[1-3])\d{8,15})$/

const isDigit = (code: number): boolean => code >= 48 && code <= 57

/** Whether the digits of a text that stand in `[start, end)`, without what separates them, are a card's. */
const isCard = (digits: string): boolean => cardForm.test(digits) && !/^(\d)\1+$/.test(digits) && passesLuhn(digits)

/** Where the group of digits that starts at `at` ends. */
const groupEnd = (text: string, at: number, end: number): number => {
  let last = at
  while (last < end && isDigit(text.charCodeAt(last))) last++
  return last
}

/**
 * Cards in a stretch of digits, each two apart by no more than one space or hyphen. A card starts where a group of digits
 * does and ends where one does.
 */
const cardsWithin = (text: string, start: number, end: number, groups: number, add: AddSpan): void => {
  const digits = groups === 1 ? text.slice(start, end) : text.slice(start, end).replace(/[ -]/g, "")
  let at = start
  /** How many digits stand before `at`. */
  let before = 0
  while (at < end) {
    const next = groupEnd(text, at, end)
    let found = -1
    let count = next - at
    const first = text.charCodeAt(at)
    // Cards are written in groups of four and more; digits spelled out one by one count where they stand alone.
    if (first >= 50 && first <= 54 && (count >= 4 || groups <= 19)) {
      for (let last = next; count <= 19;) {
        if (count >= 12 && isCard(digits.slice(before, before + count))) found = last
        if (found !== -1 || last >= end) break
        const following = groupEnd(text, last + 1, end)
        count += following - last - 1
        last = following
      }
    }
    if (found !== -1) add("CREDIT_CARD", at, found, 0.97)
    before += found === -1 ? next - at : count
    at = (found === -1 ? next : found) + 1
  }
}

/** Walks from one stretch of digits to the next; only those of twelve and more digits are looked into. */
const cards = (text: string, add: AddSpan): void => {
  const { length } = text
  let at = 0
  while (at < length) {
    if (!isDigit(text.charCodeAt(at))) {
      at++
      continue
    }
    const start = at
    let digits = 0
    let groups = 1
    for (;;) {
      const code = text.charCodeAt(at)
      if (isDigit(code)) digits++
      else if ((code === 32 || code === 45) && isDigit(text.charCodeAt(at + 1))) groups++
      else break
      at++
    }
    // Behind a decimal point there are fractions.
    if (digits >= 12 && text[start - 1] !== ".") cardsWithin(text, start, at, groups, add)
  }
}

/** Lengths by country (ISO 13616 registry). */
const ibanLengths = new Map<string, number>(
  (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 EE20 EG29 ES24 FI18 FO18 " +
    "FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 " +
    "LY25 MC27 MD24 ME22 MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22 SA24 SC31 SE24 SI19 SK24 SM27 " +
    "SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20"
  )
    .split(" ")
    .map((entry) => [entry.slice(0, 2), Number(entry.slice(2))] as const)
)

/** ISO 7064 MOD 97-10 over the number with its first four characters moved to the end. */
export const passesIban = (iban: string): boolean => {
  if (ibanLengths.get(iban.slice(0, 2)) !== iban.length) return false
  let rest = 0
  for (const character of iban.slice(4) + iban.slice(0, 4)) {
    const value = parseInt(character, 36)
    rest = (rest * (value > 9 ? 100 : 10) + value) % 97
  }
  return rest === 1
}

const isAlphanumeric = (code: number): boolean =>
  isDigit(code) || (code >= 65 && code <= 90) || (code >= 97 && code <= 122)

/** The letters of a country as one number, whatever their case; -1 for what is no letter. */
const countryAt = (text: string, at: number): number => {
  const first = text.charCodeAt(at) & ~32
  const second = text.charCodeAt(at + 1) & ~32
  return first >= 65 && first <= 90 && second >= 65 && second <= 90 ? first * 128 + second : -1
}

const ibanLengthAt = new Map(Array.from(ibanLengths, ([country, length]) => [countryAt(country, 0), length]))

const ibans = (text: string, add: AddSpan): void => {
  for (let start = 0; start < text.length - 14; start++) {
    if (!isDigit(text.charCodeAt(start + 2)) || !isDigit(text.charCodeAt(start + 3))) continue
    if (start > 0 && isAlphanumeric(text.charCodeAt(start - 1))) continue
    const length = ibanLengthAt.get(countryAt(text, start))
    if (length === undefined) continue
    let count = 4
    let at = start + 4
    for (; at < text.length && count < length; at++) {
      const code = text.charCodeAt(at)
      if (isAlphanumeric(code)) count++
      else if ((code !== 32 && code !== 0xa0 && code !== 45) || !isAlphanumeric(text.charCodeAt(at + 1))) break
    }
    if (count !== length || isAlphanumeric(text.charCodeAt(at))) continue
    if (
      passesIban(
        text
          .slice(start, at)
          .replace(/[ \u00a0-]/g, "")
          .toUpperCase()
      )
    )
      add("IBAN", start, at, 0.99)
  }
}

const ssn = /(?<![\d-])(?!000|666|9\d\d)\d{3}([- ]?)(?!00)\d{2}\1(?!0000)\d{4}(?![\d-])/g
const ssnContext = /\bssn\b|social security|soc\.? sec/i

const ssns = (text: string, add: AddSpan): void => {
  for (const match of text.matchAll(ssn)) {
    const named = ssnContext.test(text.slice(Math.max(0, match.index - 40), match.index))
    if (match[1] === "-" || named) add("US_SSN", match.index, match.index + match[0].length, named ? 0.98 : 0.9)
  }
}

/** Scripts that write no space around a number. */
const unspaced = "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Hangul}\\p{Script=Thai}"
const phoneForm = new RegExp(
  `(?:(?<![\\p{L}\\p{N}.,_=#&+/-])|(?<=[,=${unspaced}])(?=\\+))(?:\\+|00|\\()?\\(?\\d(?:[\\s().\\u2010-\\u2013/-]{0,3}\\d){6,14}(?!(?![${unspaced}])\\p{L}|[\\p{N}_=]|[.,-]\\d)`,
  "gu"
)
const phoneContext =
  /(?:phone|tel|call|cell|mobile|fax|whatsapp|telefon|handy|anruf|appel|portable|móvil|teléfono|número|numéro|numero|cellulare|celular|ring|dial|text|sms|电话|電話|手机)\P{L}{0,6}(?:(?:no|nr|number|me|us|him|her|at|on|is|ist|est|es|è|é|le|la|il|el|unter|au|al)\P{L}{1,4}){0,3}$/iu
const dateLike = /^(?:\d{4}[-/. ]\d{1,2}[-/. ]\d{1,2}(?!\d{3})|\d{1,2}[-/. ]\d{1,2}[-/. ]\d{2,4}(?:$|[ T]+\d{1,2}$))/
/** Numbering plans tried for numbers without a country code. */
const regions: ReadonlyArray<CountryCode> = [
  "US",
  "GB",
  "DE",
  "FR",
  "ES",
  "IT",
  "NL",
  "CH",
  "AT",
  "IN",
  "BR",
  "AU",
  "JP"
]
/** How many numbers of one text are looked up in the numbering plans; further ones are judged by their shape. */
const maxLookups = 400

const phones = (text: string, add: AddSpan): void => {
  let lookups = 0
  const isValid = (number: string, region?: CountryCode): boolean => {
    if (lookups >= maxLookups) return true
    lookups++
    const parsed = parsePhoneNumberFromString(number, region)
    // A plus says already that it is one: ranges that nobody was given yet are numbers as well.
    return (region === undefined ? parsed?.isPossible() : parsed?.isValid()) === true
  }
  for (const match of text.matchAll(phoneForm)) {
    const shape = match[0]
    const digits = shape.replace(/\D/g, "")
    const add_ = (confidence: number) => add("PHONE", match.index, match.index + shape.length, confidence)
    if (shape.startsWith("+") || shape.startsWith("(+")) {
      if (
        isValid(
          `+${digits.replace(/^(\d{1,3})0(?=\d{9,})/, (all) => (shape.includes("(0)") ? all.slice(0, -1) : all))}`
        )
      )
        add_(0.95)
      continue
    }
    if (shape.startsWith("00") && digits.length >= 10) {
      if (isValid(`+${digits.slice(2)}`)) add_(0.9)
      continue
    }
    const named = phoneContext.test(text.slice(Math.max(0, match.index - 40), match.index))
    if (named && digits.length <= 15) {
      add_(0.9)
      continue
    }
    if (dateLike.test(shape) || !/\D/.test(shape)) continue
    const american = /^(?:\(?1\)?[ .-])?\(?[2-9]\d\d\)?[ .-]{1,2}[2-9]\d\d[ .-]\d{4}$/.test(shape)
    const trunk = /^\(?0[1-9]/.test(shape) && digits.length >= 9 && digits.length <= 12
    if (american ? isValid(digits, "US") : trunk && regions.some((region) => isValid(digits, region))) add_(0.8)
  }
}

/** CREDIT_CARD, IBAN, US_SSN and PHONE. Cheap when a text has no digit. */
export const digitEntities = (text: string, wanted: ReadonlySet<PiiEntity>, add: AddSpan): void => {
  if (!hasDigit.test(text)) return
  cards(text, add)
  ibans(text, add)
  ssns(text, add)
  if (wanted.has("PHONE")) phones(text, add)
}
