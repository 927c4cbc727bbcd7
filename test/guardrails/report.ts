/** `node test/guardrails/report.ts [--mistakes]`: the table of docs/guardrails.md, and what was got wrong. */
import { accuracyTable, injectionTexts, measureInjection, measurePii, piiTexts } from "#test/guardrails/accuracy.ts"

console.log(accuracyTable())
if (process.argv.includes("--mistakes")) {
  for (const { kind, split, text, what } of [
    ...measurePii(piiTexts).mistakes,
    ...measureInjection(injectionTexts).mistakes
  ]) {
    if (split === "tuned") console.log(`${kind}\t${what}\t${JSON.stringify(text)}`)
  }
}
