/** Scores into PostgreSQL: many in one transaction, the verdict with the score that decides. */
import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Clock, Effect, Result } from "effect"
import { SqlClient } from "effect/sql"
import { InvalidRequest, type NotFound, notFound } from "#domain/errors.ts"
import { evaluationEvent, type EvalJobStatus, type Verdict } from "#domain/evals.ts"
import { isUuid } from "#domain/ids.ts"
import type { JsonObject } from "#domain/json.ts"
import type { JobProgress, NewScore } from "#services/evals/EvalLeaseManager.ts"
import { EvalRunStarter } from "#services/evals/EvalRunStarter.ts"
import type { EvaluationResult } from "#services/evals/EvaluationEvents.ts"
import { Provenance, type ProvenanceEntry } from "#services/provenance/Provenance.ts"

/** `available_at` of an item that is scored: no clock reaches it. */
export const neverAgain = "9223372036854775807"

export interface ScoreEntry {
  /** Undefined: of any tenant. */
  readonly tenant: string | undefined
  readonly score: NewScore
}

export type ScoreOutcome = Effect.Effect<JobProgress, InvalidRequest | NotFound>

export interface WrittenScores {
  /** In the order of the entries. */
  readonly outcomes: ReadonlyArray<ScoreOutcome>
  /** Scores that were new. */
  readonly results: ReadonlyArray<EvaluationResult>
  /** Items that were not scored before, by lease. */
  readonly finished: ReadonlyMap<string, number>
}

interface JobRow {
  readonly id: string
  readonly tenant: string
  readonly organization_id: string
  readonly eval_suite_id: string
  readonly eval_suite_version: number
  readonly pipeline_run_id: string
  status: EvalJobStatus
  readonly expected_count: number
  scored_count: number
  score_count: number
  aggregate_score: number | null
  verdict: Verdict | null
}

interface InsertedRow {
  readonly job_id: string
  readonly n: number
}

interface FinishedRow {
  readonly job_id: string
  readonly lease_id: string | null
}

interface Decision {
  readonly aggregate_score: number
  readonly verdict: Verdict
}

const closed = new InvalidRequest({
  code: "invalid_state",
  message: "The eval job takes no more scores.",
  param: "eval_job_id"
})

const takesScores = (status: EvalJobStatus): boolean =>
  status === "created" || status === "running" || status === "completed"

const array = (type: "text" | "float8", values: ReadonlyArray<unknown>) =>
  Result.getOrThrow(PgTypes.array(values, PgTypes.OID[type]))

const progressOf = (job: JobRow): JobProgress => ({
  status: job.status,
  scoreCount: job.score_count,
  aggregateScore: job.aggregate_score ?? undefined,
  verdict: job.verdict ?? undefined
})

const resultOf = (score: NewScore, tenant: string, at: number): EvaluationResult => ({
  tenant,
  evalJobId: score.jobId,
  testCaseId: score.testCaseId,
  score: score.score,
  label: score.label,
  explanation: score.explanation,
  genAiResponseId: score.genAiResponseId,
  scoredBy: score.scoredBy,
  at
})

/** Named as the event's attributes are (GenAI semantic conventions); the explanation stays with the score. */
const payloadOf = (result: EvaluationResult): JsonObject => ({
  eval_job_id: result.evalJobId,
  "gen_ai.evaluation.score.value": result.score,
  ...(result.label === null ? {} : { "gen_ai.evaluation.score.label": result.label }),
  ...(result.genAiResponseId === null ? {} : { "gen_ai.response.id": result.genAiResponseId }),
  scored_by: result.scoredBy,
  test_case_id: result.testCaseId
})

/** The scores of one statement's parameters, in the order of the entries. */
const scoreParameters = (entries: ReadonlyArray<ScoreEntry>) => [
  array(
    "text",
    entries.map(({ score }) => score.jobId)
  ),
  array(
    "text",
    entries.map(({ score }) => score.testCaseId)
  )
]

/**
 * Locks are taken in one order: the jobs by their ids, their items, the provenance chain. Whoever decides a job holds its
 * row, so there is one verdict, and it counts every score that was committed before.
 */
export const makeScoreRows = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const provenance = yield* Provenance
  const runs = yield* EvalRunStarter
  const clock = yield* Clock.Clock

  const decide = (schema: string, job: JobRow, at: Date) =>
    // `numeric` adds exactly: neither the order of the scores nor a rounded sum can turn the verdict.
    sql.unsafe<Decision>(
      `WITH mean AS (
        SELECT sum(weight::numeric * score::numeric ORDER BY test_case_id, scored_by) / sum(weight::numeric) AS value
        FROM ${schema}.eval_scores WHERE job_id = $1
      ) UPDATE ${schema}.eval_jobs SET status = 'completed', completed_at = $2, aggregate_score = mean.value::float8,
        verdict = CASE WHEN mean.value >= pass_threshold::numeric THEN 'pass' ELSE 'fail' END
      FROM mean WHERE id = $1 AND status <> 'completed' RETURNING aggregate_score, verdict`,
      [job.id, at]
    )

  const write = Effect.fnUntraced(function* (schema: string, entries: ReadonlyArray<ScoreEntry>) {
    const at = clock.currentTimeMillisUnsafe()
    const ids = [...new Set(entries.map(({ score }) => score.jobId).filter(isUuid))]
    const rows = yield* sql.unsafe<JobRow>(
      `SELECT id, tenant, organization_id, eval_suite_id, eval_suite_version, pipeline_run_id, status, expected_count,
        scored_count, score_count, aggregate_score, verdict
      FROM ${schema}.eval_jobs WHERE id = ANY ($1::text[]::uuid[]) ORDER BY id FOR UPDATE`,
      [array("text", ids)]
    )
    const jobs = new Map(rows.map((row) => [row.id, { ...row }]))
    const jobFor = ({ score, tenant }: ScoreEntry) => {
      const job = jobs.get(score.jobId.toLowerCase())
      return job === undefined || (tenant !== undefined && job.tenant !== tenant) ? undefined : job
    }

    const open = entries.filter((entry) => {
      const job = jobFor(entry)
      return job !== undefined && takesScores(job.status)
    })
    const known = new Set<ScoreEntry>()
    const inserted: Array<{ readonly entry: ScoreEntry; readonly job: JobRow }> = []
    if (open.length > 0) {
      const found = yield* sql.unsafe<{ n: number }>(
        `SELECT g.n::int AS n FROM unnest($1::text[]::uuid[], $2::text[]) WITH ORDINALITY AS g (job_id, test_case_id, n)
        JOIN ${schema}.eval_items i ON i.job_id = g.job_id AND i.test_case_id = g.test_case_id`,
        scoreParameters(open)
      )
      for (const { n } of found) known.add(open[n - 1]!)
      const given = open.filter((entry) => known.has(entry))
      const fresh = yield* sql.unsafe<InsertedRow>(
        `WITH g AS (
          SELECT * FROM unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::float8[], $5::text[], $6::text[], $7::text[],
            $8::text[]) WITH ORDINALITY
            AS g (job_id, test_case_id, scored_by, score, label, explanation, gen_ai_response_id, submitted_by, n)
        ), added AS (
          INSERT INTO ${schema}.eval_scores (job_id, test_case_id, scored_by, score, weight, label, explanation,
            gen_ai_response_id, submitted_by, created_at)
          SELECT g.job_id, g.test_case_id, g.scored_by, g.score, i.weight, g.label, g.explanation, g.gen_ai_response_id,
            g.submitted_by, $9::timestamptz
          FROM g JOIN ${schema}.eval_items i ON i.job_id = g.job_id AND i.test_case_id = g.test_case_id ORDER BY g.n
          ON CONFLICT (job_id, test_case_id, scored_by) DO NOTHING RETURNING job_id, test_case_id, scored_by
        ) SELECT a.job_id, min(g.n)::int AS n FROM added a
          JOIN g ON g.job_id = a.job_id AND g.test_case_id = a.test_case_id AND g.scored_by = a.scored_by
          GROUP BY a.job_id, a.test_case_id, a.scored_by ORDER BY n`,
        [
          ...scoreParameters(given),
          array(
            "text",
            given.map(({ score }) => score.scoredBy)
          ),
          array(
            "float8",
            given.map(({ score }) => score.score)
          ),
          array(
            "text",
            given.map(({ score }) => score.label)
          ),
          array(
            "text",
            given.map(({ score }) => score.explanation)
          ),
          array(
            "text",
            given.map(({ score }) => score.genAiResponseId)
          ),
          array(
            "text",
            given.map(({ score }) => score.actor)
          ),
          new Date(at)
        ]
      )
      for (const { job_id, n } of fresh) inserted.push({ entry: given[n - 1]!, job: jobs.get(job_id)! })
    }

    const finished = new Map<string, number>()
    const progressed = new Map<JobRow, { cases: number; scores: number }>()
    const decided: Array<JobRow> = []
    if (inserted.length > 0) {
      const done = yield* sql.unsafe<FinishedRow>(
        `UPDATE ${schema}.eval_items i SET available_at = ${neverAgain}
        FROM unnest($1::text[]::uuid[], $2::text[]) AS g (job_id, test_case_id)
        WHERE i.job_id = g.job_id AND i.test_case_id = g.test_case_id AND i.available_at < ${neverAgain}
        RETURNING i.job_id, i.lease_id`,
        scoreParameters(inserted.map(({ entry }) => entry))
      )
      for (const { job } of inserted) {
        const counts = progressed.get(job) ?? { cases: 0, scores: 0 }
        counts.scores += 1
        progressed.set(job, counts)
      }
      for (const { job_id, lease_id } of done) {
        progressed.get(jobs.get(job_id)!)!.cases += 1
        if (lease_id !== null) finished.set(lease_id, (finished.get(lease_id) ?? 0) + 1)
      }
      for (const [job, counts] of progressed) {
        job.scored_count += counts.cases
        job.score_count += counts.scores
        if (job.status === "created") {
          job.status = "running"
          yield* runs.running(job.tenant, job.pipeline_run_id)
        }
        yield* sql.unsafe(
          `UPDATE ${schema}.eval_jobs SET scored_count = $2, score_count = $3, status = $4 WHERE id = $1`,
          [job.id, job.scored_count, job.score_count, job.status]
        )
        if (job.status === "completed" || job.scored_count < job.expected_count) continue
        const [decision] = yield* decide(schema, job, new Date(at))
        if (decision === undefined) continue
        job.status = "completed"
        job.aggregate_score = decision.aggregate_score
        job.verdict = decision.verdict
        decided.push(job)
        yield* runs.decided(job.tenant, job.pipeline_run_id, {
          evalJobId: job.id,
          organizationId: job.organization_id,
          verdict: decision.verdict,
          aggregateScore: decision.aggregate_score,
          at
        })
      }
    }

    const results = inserted.map(({ entry, job }) => resultOf(entry.score, job.tenant, at))
    const entriesOf = (tenant: string): ReadonlyArray<ProvenanceEntry> => [
      ...inserted.flatMap(({ entry, job }, index) =>
        job.tenant === tenant
          ? [
              {
                action: evaluationEvent,
                actor: entry.score.actor,
                resourceType: "eval_job",
                resourceId: job.id,
                requestId: entry.score.requestId,
                payload: payloadOf(results[index]!),
                createdAt: at
              }
            ]
          : []
      ),
      ...decided.flatMap((job) =>
        job.tenant === tenant
          ? [
              {
                action: "eval_job.completed",
                actor: "gateway",
                resourceType: "eval_job",
                resourceId: job.id,
                ...(job.organization_id === "" ? {} : { organizationId: job.organization_id }),
                requestId: null,
                payload: {
                  aggregate_score: job.aggregate_score,
                  eval_job_id: job.id,
                  eval_suite_id: job.eval_suite_id,
                  eval_suite_version: job.eval_suite_version,
                  pipeline_run_id: job.pipeline_run_id,
                  score_count: job.score_count,
                  verdict: job.verdict
                },
                createdAt: at
              }
            ]
          : []
      )
    ]
    for (const tenant of new Set(inserted.map(({ job }) => job.tenant))) {
      yield* provenance.append(tenant, entriesOf(tenant))
    }

    const outcomes = entries.map((entry): ScoreOutcome => {
      const job = jobFor(entry)
      if (job === undefined) return Effect.fail(notFound("eval job"))
      if (!takesScores(job.status)) return Effect.fail(closed)
      return known.has(entry) ? Effect.succeed(progressOf(job)) : Effect.fail(notFound("test case"))
    })
    return { outcomes, results, finished } satisfies WrittenScores
  })

  return {
    /** One transaction for all entries. */
    write: (schema: string, entries: ReadonlyArray<ScoreEntry>) => sql.withTransaction(write(schema, entries))
  }
})
