/** How well personal data and prompt injection are recognised, measured on the labelled texts beside this file. */
import { readFileSync } from "node:fs"
import { findPii, piiEntities, type PiiEntity } from "#domain/pii.ts"
import { injectionScore } from "#layers/guardrails/types/promptInjection.ts"

/** Half of the texts were looked at while the recognisers were improved; the other half was not. */
export type Split = "tuned" | "held_out"

interface Labelled {
  readonly lang: string
  readonly split: Split
  readonly text: string
}

interface LabelledAttempt extends Labelled {
  readonly attack: boolean
}

interface Span {
  readonly entity: string
  readonly start: number
  readonly end: number
}

/** What was right, what was said though it is not so, and what was missed. */
export interface Counts {
  right: number
  wrong: number
  missed: number
}

export const precisionOf = ({ right, wrong }: Counts): number => (right + wrong === 0 ? 1 : right / (right + wrong))
export const recallOf = ({ missed, right }: Counts): number => (right + missed === 0 ? 1 : right / (right + missed))

const read = <A>(name: string): ReadonlyArray<A> =>
  readFileSync(new URL(`./corpus/${name}.jsonl`, import.meta.url), "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as A)

export const piiTexts = read<Labelled>("pii")
export const injectionTexts = read<LabelledAttempt>("injection")

const mark = /\[\[([A-Z_]+)\|(.*?)\]\]/gs

/** Takes the marks `[[EMAIL|a@b.example]]` out of a text: they say what stands where. */
export const unmarked = (marked: string): { readonly text: string; readonly spans: ReadonlyArray<Span> } => {
  const spans: Array<Span> = []
  let text = ""
  let at = 0
  for (const match of marked.matchAll(mark)) {
    text += marked.slice(at, match.index)
    spans.push({ entity: match[1]!, start: text.length, end: text.length + match[2]!.length })
    text += match[2]!
    at = match.index + match[0].length
  }
  return { text: text + marked.slice(at), spans }
}

const keyOf = (span: Span): string => `${span.entity} ${span.start} ${span.end}`

/** A mistake, for people who improve the recognisers. */
export interface Mistake {
  readonly split: Split
  readonly kind: "wrong" | "missed"
  readonly what: string
  readonly text: string
}

/** Counts a span as right only where its kind, its start and its end are. */
export const measurePii = (texts: ReadonlyArray<Labelled>) => {
  const counts = new Map<PiiEntity, Counts>(piiEntities.map((entity) => [entity, { right: 0, wrong: 0, missed: 0 }]))
  const mistakes: Array<Mistake> = []
  const everything = new Set(piiEntities)
  for (const { split, text: marked } of texts) {
    const { spans, text } = unmarked(marked)
    const wanted = new Map(spans.map((span) => [keyOf(span), span]))
    for (const found of findPii(text, everything)) {
      const count = counts.get(found.entity)!
      if (wanted.delete(keyOf(found))) count.right++
      else {
        count.wrong++
        mistakes.push({ split, kind: "wrong", what: `${found.entity} ${text.slice(found.start, found.end)}`, text })
      }
    }
    for (const span of wanted.values()) {
      counts.get(span.entity as PiiEntity)!.missed++
      mistakes.push({ split, kind: "missed", what: `${span.entity} ${text.slice(span.start, span.end)}`, text })
    }
  }
  return { counts, mistakes }
}

/** The threshold that `prompt_injection` has unless its config names one. */
export const injectionThreshold = 0.7

export const measureInjection = (texts: ReadonlyArray<LabelledAttempt>, threshold = injectionThreshold) => {
  const counts: Counts = { right: 0, wrong: 0, missed: 0 }
  const mistakes: Array<Mistake> = []
  for (const { attack, split, text } of texts) {
    const { score } = injectionScore(text)
    const fires = score >= threshold
    if (fires && attack) counts.right++
    else if (fires) counts.wrong++
    else if (attack) counts.missed++
    if (fires !== attack) mistakes.push({ split, kind: fires ? "wrong" : "missed", what: score.toFixed(2), text })
  }
  return { counts, mistakes }
}

const row = (name: string, all: Counts, heldOut: Counts): string => {
  const percent = (value: number) => `${(value * 100).toFixed(1)} %`
  const cells = [
    name,
    String(all.right + all.missed),
    percent(precisionOf(all)),
    percent(recallOf(all)),
    String(heldOut.right + heldOut.missed),
    percent(precisionOf(heldOut)),
    percent(recallOf(heldOut))
  ]
  return `| ${cells.join(" | ")} |`
}

const sum = (counts: Iterable<Counts>): Counts => {
  const total = { right: 0, wrong: 0, missed: 0 }
  for (const { missed, right, wrong } of counts) {
    total.right += right
    total.wrong += wrong
    total.missed += missed
  }
  return total
}

/** The table that docs/guardrails.md publishes. */
export const accuracyTable = (): string => {
  const heldOut = <A extends Labelled>(texts: ReadonlyArray<A>) => texts.filter(({ split }) => split === "held_out")
  const pii = measurePii(piiTexts).counts
  const piiHeldOut = measurePii(heldOut(piiTexts)).counts
  return [
    "| | labelled | precision | recall | of these held out | precision | recall |",
    "|---|---|---|---|---|---|---|",
    ...piiEntities.map((entity) => row(`\`${entity}\``, pii.get(entity)!, piiHeldOut.get(entity)!)),
    row("all personal data", sum(pii.values()), sum(piiHeldOut.values())),
    row("`prompt_injection`", measureInjection(injectionTexts).counts, measureInjection(heldOut(injectionTexts)).counts)
  ].join("\n")
}
