-- Locks: writes to pipeline_runs wait while the index is built; reads do not.
-- What the purge of finished runs goes by (GATEWAY_RUN_RETENTION).
CREATE INDEX pipeline_runs_finished ON pipeline_runs (finished_at) WHERE finished_at IS NOT NULL
