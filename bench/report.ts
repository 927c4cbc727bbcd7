import { availableParallelism, cpus } from "node:os"
import type { Spread } from "./stats.ts"
import { canPin, gatewayCore, loadCore } from "./processes.ts"
import { titles, type TargetName } from "./targets.ts"

/** What one run found out about one target. Medians over the rounds; times in ms, memory in MB. */
export interface TargetResult {
  readonly name: TargetName
  readonly perSecond: number
  readonly rounds: ReadonlyArray<number>
  /** Processor time of the target a call, in µs. */
  readonly microsPerCall: number
  /** Processor seconds a second at saturation: of the target, of stub and load generator together, of all else. */
  readonly targetLoad: number
  readonly ownLoad: number
  readonly otherLoad: number
  readonly errors: number
  readonly halfRate: number
  readonly latency: Spread
  readonly directLatency: Spread
  readonly firstByte: Spread
  readonly streamsPerSecond: number
  readonly memory: number | undefined
  readonly startup: { readonly first: number; readonly later: number } | undefined
}

/** A run: what it was made with, what it found, and what the reader must know. */
export interface Report {
  readonly at: string
  readonly node: string
  readonly processor: string
  readonly cores: number
  readonly pinned: boolean
  readonly mode: "full" | "quick"
  readonly results: ReadonlyArray<TargetResult>
  readonly notes: ReadonlyArray<string>
}

export const makeReport = (
  mode: Report["mode"],
  results: ReadonlyArray<TargetResult>,
  notes: ReadonlyArray<string>
): Report => ({
  at: new Date().toISOString(),
  node: process.version,
  processor: cpus()[0]?.model ?? "unknown",
  cores: availableParallelism(),
  pinned: canPin,
  mode,
  results,
  notes
})

const number = (value: number | undefined, digits = 0): string =>
  value === undefined || !Number.isFinite(value)
    ? "-"
    : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })

const share = (value: number, of: number | undefined): string =>
  of === undefined || of === 0 || !Number.isFinite(value) ? "-" : `${number((100 * value) / of)} %`

interface Row {
  readonly title: string
  readonly cell: (result: TargetResult) => string
  readonly meaning: string
}

const rows = (results: ReadonlyArray<TargetResult>, seen: (result: TargetResult) => boolean): ReadonlyArray<Row> => {
  const of = (name: TargetName) => results.find((result) => result.name === name)
  const gateway = (cell: (result: TargetResult) => string) => (result: TargetResult) =>
    seen(result) ? cell(result) : "-"
  const peer = of("portkey")
  return [
    {
      title: "requests/s",
      cell: (result) => number(result.perSecond),
      meaning: "64 connections, each starting its next call when the last has ended; median of the interleaved rounds."
    },
    {
      title: "  lowest - highest round",
      cell: (result) => `${number(Math.min(...result.rounds))} - ${number(Math.max(...result.rounds))}`,
      meaning: "How far the rounds lie apart: what the machine's noise is worth."
    },
    {
      title: "  of the bare proxy",
      cell: gateway((result) => share(result.perSecond, of("bare")?.perSecond)),
      meaning: "Aim for Sluice: at least 60 %."
    },
    {
      title: "  times the peer",
      cell: gateway((result) => (peer === undefined ? "-" : number(result.perSecond / peer.perSecond, 1))),
      meaning: "Aim for Sluice: at least 6."
    },
    {
      title: "processor µs a call",
      cell: gateway((result) => number(result.microsPerCall)),
      meaning:
        "Processor time of the gateway's process a call (PostgreSQL not counted); less touched by noise than the rate."
    },
    {
      title: "  bare proxy's, as a share",
      cell: gateway((result) => share(of("bare")?.microsPerCall ?? Number.NaN, result.microsPerCall)),
      meaning:
        "The bare proxy's processor time divided by the target's: the stricter comparison, whatever held the rates down."
    },
    {
      title: "  cores busy: gateway",
      cell: gateway((result) => number(result.targetLoad, 2)),
      meaning: "At saturation. Near 1: the gateway was the limit, as it should be."
    },
    {
      title: "  cores busy: stub + load",
      cell: (result) => number(result.ownLoad, 2),
      meaning: "Near 1 beside a gateway well below 1: the load generator was the limit, and the rate is a lower bound."
    },
    {
      title: "  cores busy: others",
      cell: (result) => number(result.otherLoad, 2),
      meaning: "What else ran on this machine meanwhile. Above 0.1 the figures are noisy: run again on a quiet machine."
    },
    {
      title: "half load, requests/s",
      cell: gateway((result) => number(result.halfRate)),
      meaning: "Half of the target's own rate above, started by the clock (open loop)."
    },
    {
      title: "  added p50, ms",
      cell: gateway((result) => number(result.latency.p50 - result.directLatency.p50, 2)),
      meaning:
        "p50 through the gateway less p50 direct at the same rate. A call counts from when it was due, waiting included."
    },
    {
      title: "  added p99, ms",
      cell: gateway((result) => number(result.latency.p99 - result.directLatency.p99, 2)),
      meaning: "The same of p99; below 0 it is noise. Aim for Sluice: under 5."
    },
    {
      title: "first streamed byte p50, ms",
      cell: (result) => number(result.firstByte.p50, 2),
      meaning:
        "100 streams/s by the clock, 20 chunks 5 ms apart: from when the call was due to the first byte of the body."
    },
    {
      title: "first streamed byte p99, ms",
      cell: (result) => number(result.firstByte.p99, 2),
      meaning: "The same."
    },
    {
      title: "streams/s",
      cell: (result) => number(result.streamsPerSecond),
      meaning: "64 connections, whole streams of 23 events (20 with content) with no pause between them."
    },
    {
      title: "memory, MB",
      cell: gateway((result) => number(result.memory)),
      meaning: "Resident set of the gateway's Node process after all load (without PostgreSQL)."
    },
    {
      title: "first start, ms",
      cell: gateway((result) => number(result.startup?.first)),
      meaning: "From the start of the process to its first answer (Sluice: /readyz 200, with its database made)."
    },
    {
      title: "later start, ms",
      cell: gateway((result) => number(result.startup?.later)),
      meaning: "The same on data that exists. Aim for Sluice: under 2,000."
    }
  ]
}

/** The run as one table, what each row means, and the notes. */
export const print = (report: Report): string => {
  const { results } = report
  const table = rows(results, (result) => result.name !== "direct")
  const head = ["", ...results.map((result) => titles[result.name])]
  const body = table.map((row) => [row.title, ...results.map(row.cell)])
  const widths = head.map((_, column) => Math.max(...[head, ...body].map((line) => line[column]?.length ?? 0)))
  const line = (cells: ReadonlyArray<string>) =>
    cells
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
      .join("  ")
  const pinning = report.pinned
    ? `Gateway pinned to core ${gatewayCore}; stub, load generator and PostgreSQL share core ${loadCore}.`
    : "Processes could not be pinned to cores (no taskset): expect more noise."
  return [
    `Node ${report.node}, ${report.cores} cores, ${report.processor}. ${pinning} Mode: ${report.mode}.`,
    "",
    line(head),
    widths.map((width) => "-".repeat(width)).join("  "),
    ...body.map(line),
    "",
    ...table.map((row) => `${row.title.trim()}: ${row.meaning}`),
    ...(report.notes.length === 0 ? [] : ["", ...report.notes.map((note) => `! ${note}`)])
  ].join("\n")
}
