-- Locks: creates only; nothing waits.
CREATE TABLE eval_jobs (
  id uuid PRIMARY KEY,
  tenant text NOT NULL,
  organization_id text NOT NULL DEFAULT '',
  eval_suite_id uuid NOT NULL,
  eval_suite_version integer NOT NULL,
  model_asset_id text,
  model_version text,
  judge_model_version text,
  -- What each snapshot id meant when the job was made: [{"snapshot_id", "asset_id", "version", "content_hash"}].
  dataset_snapshots jsonb NOT NULL,
  reproducibility_seed bigint,
  pass_threshold double precision NOT NULL,
  pipeline_run_id text NOT NULL,
  status text NOT NULL CHECK (status IN ('created', 'running', 'completed', 'failed', 'cancelled')),
  expected_count integer NOT NULL,
  scored_count integer NOT NULL DEFAULT 0,
  score_count integer NOT NULL DEFAULT 0,
  aggregate_score double precision,
  verdict text CHECK (verdict IN ('pass', 'fail')),
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  completed_at timestamptz,
  CHECK ((verdict IS NOT NULL) = (status = 'completed'))
)
-- next
CREATE INDEX eval_jobs_newest ON eval_jobs (tenant, created_at DESC, id DESC)
-- next
CREATE INDEX eval_jobs_open ON eval_jobs (id) WHERE status IN ('created', 'running')
-- next
-- The work of each job, narrow because every lease writes its row anew: what is to be done stands in asset_items.
-- `available_at` in Unix milliseconds: 0 for an item that nobody has, the end of its lease for one that somebody has, the
-- highest bigint for one that is scored.
CREATE TABLE eval_items (
  job_id uuid NOT NULL,
  test_case_id text COLLATE "C" NOT NULL,
  position integer NOT NULL,
  weight double precision NOT NULL,
  asset_id uuid NOT NULL,
  ordinal integer NOT NULL,
  available_at bigint NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  lease_id uuid,
  worker_id text,
  PRIMARY KEY (job_id, test_case_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05)
-- next
CREATE INDEX eval_items_queue ON eval_items (job_id, available_at, position)
-- next
CREATE TABLE eval_scores (
  job_id uuid NOT NULL,
  test_case_id text COLLATE "C" NOT NULL,
  scored_by text COLLATE "C" NOT NULL,
  score double precision NOT NULL CHECK (score >= 0 AND score <= 1),
  weight double precision NOT NULL,
  label text,
  explanation text,
  gen_ai_response_id text,
  submitted_by text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (job_id, test_case_id, scored_by)
)
-- next
-- The runs of jobs that no workflow engine drives: workers pull, scores decide.
CREATE TABLE eval_runs (
  id uuid PRIMARY KEY,
  job_id uuid NOT NULL,
  status text NOT NULL CHECK (status IN ('accepted', 'running', 'completed', 'failed', 'cancelled')),
  started_at timestamptz NOT NULL,
  ended_at timestamptz
)
