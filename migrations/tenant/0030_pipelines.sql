-- Locks: creates only; nothing waits.
-- JSON that comes from outside is text and not jsonb, which cannot hold every string. The definition is here too: a run is
-- worked on as it was started, whatever becomes of the catalog.
CREATE TABLE pipeline_runs (
  id uuid PRIMARY KEY,
  tenant text NOT NULL,
  organization_id text NOT NULL DEFAULT '',
  definition_id uuid NOT NULL,
  definition_version integer NOT NULL,
  workflow_type text NOT NULL,
  engine_workflow_id text NOT NULL,
  engine_namespace text NOT NULL,
  status text NOT NULL CHECK (status IN ('accepted', 'running', 'awaiting_review', 'completed', 'failed', 'cancelled',
    'terminated')),
  definition text NOT NULL,
  inputs text NOT NULL,
  outputs text,
  error text,
  principal text NOT NULL,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  finished_at timestamptz
)
-- next
CREATE INDEX pipeline_runs_newest ON pipeline_runs (tenant, created_at DESC, id DESC)
-- next
CREATE INDEX pipeline_runs_by_status ON pipeline_runs (tenant, status, created_at DESC, id DESC)
-- next
CREATE INDEX pipeline_runs_by_definition ON pipeline_runs (tenant, definition_id, created_at DESC, id DESC)
-- next
-- Append-only, gapless per run: the history is what a run resumes from.
CREATE TABLE pipeline_run_events (
  run_id uuid NOT NULL,
  sequence integer NOT NULL,
  at timestamptz NOT NULL,
  event text NOT NULL,
  PRIMARY KEY (run_id, sequence)
)
-- next
CREATE TABLE pipeline_reviews (
  run_id uuid NOT NULL,
  step_id text NOT NULL,
  title text NOT NULL,
  details text NOT NULL,
  reviewer_role text NOT NULL,
  requested_at timestamptz NOT NULL,
  deadline timestamptz NOT NULL,
  decided_at timestamptz,
  PRIMARY KEY (run_id, step_id)
)
