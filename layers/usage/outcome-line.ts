/**
 * A journal line: the CRC-32 of the text in eight hex digits, a blank, the text, a line feed. The text is a JSON array,
 * half as long and half as costly as an object with names; its first element is the version of the order of the rest.
 */
import { crc32 } from "node:zlib"
import type { GuardrailEvent } from "#domain/guardrails.ts"
import type { ModelOperation } from "#domain/operations.ts"
import type { Charge } from "#services/budgets/BudgetLedger.ts"
import type { Outcome, OutcomeStatus } from "#services/usage/UsageLedger.ts"

const VERSION = 1

/** Longest text of one field that a record keeps, in UTF-16 code units; clients choose some of them. */
const TEXT_LIMIT = 1024
/** Longest guarded content that the guardrail log keeps. */
const CONTENT_LIMIT = 32_768

const isStorable = (text: string | null, limit = TEXT_LIMIT): boolean =>
  text === null || (text.length <= limit && !text.includes("\0") && text.isWellFormed())

const storableText = (text: string, limit = TEXT_LIMIT): string =>
  isStorable(text, limit) ? text : text.slice(0, limit).replaceAll("\0", "\ufffd").toWellFormed()

const storableOrNull = (text: string | null, limit?: number): string | null =>
  text === null ? null : storableText(text, limit)

/** The ids of owners came out of PostgreSQL, and a deployment's texts are checked when they go in. */
const hasStorableTexts = (outcome: Outcome): boolean =>
  isStorable(outcome.requestId) &&
  isStorable(outcome.endUserId) &&
  isStorable(outcome.model) &&
  isStorable(outcome.provider) &&
  isStorable(outcome.upstreamModel) &&
  isStorable(outcome.actor ?? null) &&
  outcome.guardrails.every(
    (event) =>
      isStorable(event.guardrailId) &&
      isStorable(event.guardrailName) &&
      isStorable(event.originalContent, CONTENT_LIMIT) &&
      isStorable(event.modifiedContent, CONTENT_LIMIT)
  )

/**
 * The outcome with texts that PostgreSQL can hold: it stores no NUL and no half of a surrogate pair, and a client must
 * not decide how much is written. Over-long texts are cut.
 */
export const storableOutcome = (outcome: Outcome): Outcome =>
  hasStorableTexts(outcome)
    ? outcome
    : {
        ...outcome,
        requestId: storableText(outcome.requestId),
        tenant: storableText(outcome.tenant),
        userId: storableOrNull(outcome.userId),
        teamId: storableOrNull(outcome.teamId),
        organizationId: storableOrNull(outcome.organizationId),
        endUserId: storableOrNull(outcome.endUserId),
        model: storableText(outcome.model),
        provider: storableOrNull(outcome.provider),
        upstreamModel: storableOrNull(outcome.upstreamModel),
        deploymentId: storableOrNull(outcome.deploymentId),
        errorCode: storableOrNull(outcome.errorCode),
        ...(outcome.actor === undefined ? {} : { actor: storableText(outcome.actor) }),
        guardrails: outcome.guardrails.map((event) => ({
          ...event,
          guardrailId: storableText(event.guardrailId),
          guardrailName: storableText(event.guardrailName),
          originalContent: storableOrNull(event.originalContent, CONTENT_LIMIT),
          modifiedContent: storableOrNull(event.modifiedContent, CONTENT_LIMIT)
        }))
      }

/** The text of an outcome, without checksum. */
export const encodeOutcome = (outcome: Outcome): string => {
  const usage = outcome.usage
  return JSON.stringify([
    VERSION,
    outcome.callId,
    outcome.requestId,
    outcome.recordedAt,
    outcome.startedAt,
    outcome.tenant,
    outcome.keyId,
    outcome.userId,
    outcome.teamId,
    outcome.organizationId,
    outcome.endUserId,
    outcome.operation,
    outcome.model,
    outcome.provider,
    outcome.upstreamModel,
    outcome.deploymentId,
    outcome.status,
    outcome.httpStatus,
    outcome.errorCode,
    outcome.stream ? 1 : 0,
    [
      usage.input,
      usage.cacheRead,
      usage.cacheWrite,
      usage.output,
      usage.reasoning,
      usage.audioInput,
      usage.audioOutput,
      usage.images,
      usage.seconds,
      usage.estimated ? 1 : 0
    ],
    String(outcome.cost),
    outcome.priced ? 1 : 0,
    outcome.durationMs,
    outcome.firstByteMs,
    outcome.charges.map((charge) => [charge.account, charge.windowStart, String(charge.nanos)]),
    outcome.guardrails.map((event) => [
      event.guardrailId,
      event.guardrailName,
      event.status,
      event.stage,
      event.durationMs,
      event.confidence,
      event.originalContent,
      event.modifiedContent
    ]),
    ...(outcome.actor === undefined && outcome.action === undefined
      ? []
      : [outcome.actor ?? null, outcome.action ?? null])
  ])
}

type Text = string | null

/** What `encodeOutcome` writes, element by element. */
type Fields = [
  version: number,
  callId: string,
  requestId: string,
  recordedAt: number,
  startedAt: number,
  tenant: string,
  keyId: Text,
  userId: Text,
  teamId: Text,
  organizationId: Text,
  endUserId: Text,
  operation: ModelOperation,
  model: string,
  provider: Text,
  upstreamModel: Text,
  deploymentId: Text,
  status: OutcomeStatus,
  httpStatus: number,
  errorCode: Text,
  stream: number,
  usage: [number, number, number, number, number, number, number, number, number, number],
  cost: string,
  priced: number,
  durationMs: number,
  firstByteMs: number | null,
  charges: Array<[string, number, string]>,
  guardrails: Array<
    [string, string, GuardrailEvent["status"], GuardrailEvent["stage"], number, number | null, Text, Text]
  >,
  actor?: Text,
  action?: Text
]

const chargeOf = ([account, windowStart, nanos]: Fields[25][number]): Charge => ({
  account,
  windowStart,
  nanos: BigInt(nanos)
})

const guardrailOf = (fields: Fields[26][number]): GuardrailEvent => ({
  guardrailId: fields[0],
  guardrailName: fields[1],
  status: fields[2],
  stage: fields[3],
  durationMs: fields[4],
  confidence: fields[5],
  originalContent: fields[6],
  modifiedContent: fields[7]
})

/** Reads what `encodeOutcome` wrote; undefined for a version that this program does not know. */
export const decodeOutcome = (text: string): Outcome | undefined => {
  const fields = JSON.parse(text) as Fields
  if (fields[0] !== VERSION) return undefined
  const usage = fields[20]
  return {
    callId: fields[1],
    requestId: fields[2],
    recordedAt: fields[3],
    startedAt: fields[4],
    tenant: fields[5],
    keyId: fields[6],
    userId: fields[7],
    teamId: fields[8],
    organizationId: fields[9],
    endUserId: fields[10],
    operation: fields[11],
    model: fields[12],
    provider: fields[13],
    upstreamModel: fields[14],
    deploymentId: fields[15],
    status: fields[16],
    httpStatus: fields[17],
    errorCode: fields[18],
    stream: fields[19] === 1,
    usage: {
      input: usage[0],
      cacheRead: usage[1],
      cacheWrite: usage[2],
      output: usage[3],
      reasoning: usage[4],
      audioInput: usage[5],
      audioOutput: usage[6],
      images: usage[7],
      seconds: usage[8],
      estimated: usage[9] === 1
    },
    cost: BigInt(fields[21]),
    priced: fields[22] === 1,
    durationMs: fields[23],
    firstByteMs: fields[24],
    charges: fields[25].map(chargeOf),
    guardrails: fields[26].map(guardrailOf),
    ...(fields[27] == null ? {} : { actor: fields[27] }),
    ...(fields[28] == null ? {} : { action: fields[28] })
  }
}

const checksum = (text: string): string => crc32(text).toString(16).padStart(8, "0")

/** The whole line of a text, line feed included. */
export const lineOf = (text: string): string => `${checksum(text)} ${text}\n`

/** The text of a line without its line feed; undefined when it is not what was written. */
export const textOfLine = (line: string): string | undefined => {
  const text = line.slice(9)
  return line.length > 9 && line[8] === " " && line.slice(0, 8) === checksum(text) ? text : undefined
}
