-- Locks: creates only; nothing waits.
-- The runs that are not over: who works on each, until when, and when it wants to be woken. A finished run leaves. No data
-- of a tenant is here. `epoch` counts the owners: what an owner writes is written only while the epoch is still its own.
CREATE TABLE workflow_executions (
  run_id uuid PRIMARY KEY,
  tenant text NOT NULL,
  events integer NOT NULL DEFAULT 0,
  wake_at timestamptz NOT NULL,
  cancel_requested boolean NOT NULL DEFAULT false,
  epoch integer NOT NULL DEFAULT 0,
  owner text,
  lease_until timestamptz
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)
-- next
CREATE INDEX workflow_executions_due ON workflow_executions (wake_at) WHERE owner IS NULL
-- next
CREATE INDEX workflow_executions_owned ON workflow_executions (owner) WHERE owner IS NOT NULL
