import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { setImmediate as turn, setTimeout as pause } from "node:timers/promises"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { Journal, type JournalBatch, type JournalOptions } from "#layers/usage/Journal.ts"
import { decodeOutcome, encodeOutcome, lineOf, storableOutcome, textOfLine } from "#layers/usage/outcome-line.ts"
import type { Outcome } from "#services/usage/UsageLedger.ts"
import { outcomeOf, temporaryDirectory } from "#test/support/usage.ts"

const MIB = 1024 * 1024

const test = (name: string, run: (directory: string) => Promise<void>) =>
  it.effect(name, () => Effect.flatMap(temporaryDirectory, (directory) => Effect.promise(() => run(directory))))

const open = (directory: string, more: Partial<JournalOptions> = {}) =>
  new Journal({ directory, limitBytes: 64 * MIB, ...more })

const some = (count: number): ReadonlyArray<Outcome> =>
  Array.from({ length: count }, (_, index) => outcomeOf(null, BigInt(index)))

const appendAll = (journal: Journal, outcomes: ReadonlyArray<Outcome>) =>
  Promise.all(outcomes.map((outcome) => new Promise<void>((resolve) => journal.append(outcome, resolve))))

const ids = (outcomes: ReadonlyArray<Outcome>) => outcomes.map((outcome) => outcome.callId)

/** Takes and acknowledges all there is. */
const drain = (journal: Journal, limit = 7): ReadonlyArray<Outcome> => {
  const outcomes: Array<Outcome> = []
  for (let batch: JournalBatch | undefined; (batch = journal.next(limit)) !== undefined;) {
    outcomes.push(...batch.outcomes)
    journal.acknowledge(batch)
  }
  return outcomes
}

const segments = (directory: string) => readdirSync(directory).filter((name) => name.endsWith(".journal"))

describe("outcome line", () => {
  it("brings back what was written, money exactly", () => {
    const outcome = outcomeOf("0198c0de-0000-7000-8000-000000000001", 2n ** 62n + 1n, {
      model: 'quote " backslash \\ line\nfeed € 😀',
      firstByteMs: 12.5,
      guardrails: [
        {
          guardrailId: "g",
          guardrailName: "n",
          status: "flagged",
          stage: "post",
          durationMs: 1,
          confidence: 0.5,
          originalContent: "a\nb",
          modifiedContent: null
        }
      ]
    })
    const line = lineOf(encodeOutcome(outcome))
    assert.strictEqual(line.indexOf("\n"), line.length - 1)
    assert.deepStrictEqual(decodeOutcome(textOfLine(line.slice(0, -1))!), outcome)
  })

  it("knows a line that was cut or changed, wherever", () => {
    const line = lineOf(encodeOutcome(outcomeOf(null, 1n))).slice(0, -1)
    for (let length = 0; length < line.length; length++) assert.isUndefined(textOfLine(line.slice(0, length)))
    for (let at = 0; at < line.length; at += 3) {
      const changed = line.slice(0, at) + (line[at] === "0" ? "1" : "0") + line.slice(at + 1)
      assert.isUndefined(textOfLine(changed))
    }
  })

  it("does not read an order of fields that it does not know", () => {
    assert.isUndefined(decodeOutcome("[99,1,2]"))
  })

  it("makes texts storable, and leaves an outcome with good texts as it is", () => {
    const good = outcomeOf(null, 1n)
    assert.strictEqual(storableOutcome(good), good)
    const bad = storableOutcome({ ...good, endUserId: "\0\udc00", model: `${"m".repeat(1023)}😀` })
    assert.strictEqual(bad.endUserId, "\ufffd\ufffd")
    assert.strictEqual(bad.model.length, 1024)
    assert.isTrue(bad.model.isWellFormed())
  })
})

describe("Journal", () => {
  test("confirms all outcomes of a turn together, once they are in the file", async (directory) => {
    const journal = open(directory)
    let confirmed = 0
    const outcomes = some(50)
    for (const outcome of outcomes) journal.append(outcome, () => (confirmed += 1))
    assert.strictEqual(confirmed, 0)
    await turn()
    assert.strictEqual(confirmed, 50)
    const text = readFileSync(join(directory, segments(directory)[0]!), "utf8")
    assert.deepStrictEqual(text, outcomes.map((outcome) => lineOf(encodeOutcome(outcome))).join(""))
    journal.close()
  })

  test("gives everything out once and in order, also what did not fit the queue", async (directory) => {
    const journal = open(directory, { queueLimit: 10, segmentBytes: 20_000 })
    const outcomes = some(500)
    const seen: Array<Outcome> = []
    for (let at = 0; at < 500; at += 25) {
      await appendAll(journal, outcomes.slice(at, at + 25))
      assert.isAtMost(journal.queued, 10)
      const batch = journal.next(17)!
      seen.push(...batch.outcomes)
      journal.acknowledge(batch)
    }
    seen.push(...drain(journal))
    assert.deepStrictEqual(ids(seen), ids(outcomes))
    assert.strictEqual(journal.backlog, 0)
    await appendAll(journal, outcomes.slice(0, 3))
    assert.strictEqual(journal.queued, 3, "back in memory after the backlog")
    assert.deepStrictEqual(ids(drain(journal)), ids(outcomes.slice(0, 3)))
    assert.isAtMost(segments(directory).length, 1, "drained segments are deleted")
    journal.close()
    assert.deepStrictEqual(readdirSync(directory), [])
  })

  test("gives the next process what was not acknowledged, and nothing else", async (directory) => {
    const outcomes = some(100)
    const killed = open(directory, { segmentBytes: 8000 })
    await appendAll(killed, outcomes)
    killed.acknowledge(killed.next(40)!)
    assert.isDefined(killed.next(10), "taken, never acknowledged")

    const journal = open(directory)
    const later = some(5)
    await appendAll(journal, later)
    const first = journal.next(1000)!
    const rest: Array<Outcome> = [...first.outcomes]
    journal.acknowledge(first)
    rest.push(...drain(journal))
    assert.deepStrictEqual(ids(rest), ids([...outcomes.slice(40), ...later]))
    journal.close()
    assert.deepStrictEqual(readdirSync(directory), [])
  })

  test("passes over a torn end and a damaged line, and tells of them", async (directory) => {
    const outcomes = some(4)
    const lines = outcomes.map((outcome) => lineOf(encodeOutcome(outcome)))
    writeFileSync(join(directory, "000000000001.journal"), lines[0]! + lines[1]!.replace("gpt", "GPT") + lines[2]!)
    writeFileSync(join(directory, "000000000002.journal"), lines[3]! + lines[0]!.slice(0, -1))
    const unreadable: Array<readonly [string, number, boolean]> = []
    const journal = open(directory, {
      onUnreadable: (segment, found, torn) => unreadable.push([segment, found.length, torn])
    })
    assert.deepStrictEqual(ids(drain(journal)), ids([outcomes[0]!, outcomes[2]!, outcomes[3]!, outcomes[0]!]))
    assert.deepStrictEqual(unreadable, [["000000000001.journal", 1, false]])
    // The last line was whole but for its line feed; had it been cut earlier, it would be passed over.
    writeFileSync(join(directory, "000000000009.journal"), lines[0]! + lines[1]!.slice(0, -20))
    const again = open(directory, {
      onUnreadable: (segment, found, torn) => unreadable.push([segment, found.length, torn])
    })
    assert.deepStrictEqual(ids(drain(again)), ids([outcomes[0]!]))
    assert.deepStrictEqual(unreadable.at(-1), ["000000000009.journal", 1, true])
  })

  test("is full at seven eighths of its limit, still takes the calls in flight, and empties again", async (directory) => {
    const journal = open(directory, { limitBytes: MIB })
    const outcomes: Array<Outcome> = []
    while (!journal.full) {
      const more = some(100)
      outcomes.push(...more)
      await appendAll(journal, more)
    }
    assert.isAtLeast(journal.backlog, MIB * 0.875)
    const inFlight = some(20)
    await appendAll(journal, inFlight)
    const onDisk = segments(directory).reduce((sum, name) => sum + statSync(join(directory, name)).size, 0)
    assert.isBelow(onDisk, MIB)
    assert.deepStrictEqual(ids(drain(journal, 1000)), ids([...outcomes, ...inFlight]))
    assert.isFalse(journal.full)
    journal.close()
  })

  test("a disk that refuses stops admission, loses nothing, and is tried again", async (directory) => {
    let failures = 0
    const path = join(directory, "journal")
    const journal = open(path, { segmentBytes: 2000, onFailed: () => (failures += 1) })
    const before = some(5)
    await appendAll(journal, before)
    assert.deepStrictEqual(ids(drain(journal)), ids(before))
    // Without its directory the journal cannot begin a segment.
    rmSync(path, { recursive: true })
    const refused = some(10)
    const confirmed = appendAll(journal, refused)
    await turn()
    assert.isTrue(journal.full)
    assert.strictEqual(failures, 1)
    assert.deepStrictEqual(ids(journal.takeUnwritten()), ids(refused), "offered for another place")
    journal.settleUnwritten(false)
    mkdirSync(path)
    await confirmed
    assert.isFalse(journal.full)
    assert.deepStrictEqual(ids(drain(journal)), ids(refused))

    rmSync(path, { recursive: true })
    const kept = some(10)
    const keptConfirmed = appendAll(journal, kept)
    await turn()
    assert.deepStrictEqual(ids(journal.takeUnwritten()), ids(kept))
    journal.settleUnwritten(true)
    await keptConfirmed
    assert.isTrue(journal.full, "the disk is still away")
    mkdirSync(path)
    while (journal.full) await pause(20)
    assert.deepStrictEqual(drain(journal), [])
    journal.close()
  })

  test("calls back when what was appended before is acknowledged", async (directory) => {
    const journal = open(directory)
    await appendAll(journal, some(3))
    let drained = 0
    journal.onDrained(() => (drained += 1))
    const forget = journal.onDrained(() => (drained += 100))
    forget()
    const batch = journal.next(100)!
    await appendAll(journal, some(1))
    assert.strictEqual(drained, 0)
    journal.acknowledge(batch)
    assert.strictEqual(drained, 1, "what came later is not waited for")
    journal.close()
  })
})
