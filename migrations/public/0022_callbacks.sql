-- Locks: creates only; nothing waits.
CREATE TABLE callbacks (
  id uuid PRIMARY KEY,
  tenant text NOT NULL DEFAULT '',
  organization_id text NOT NULL DEFAULT '',
  -- Registered by an administrator of the whole instance in the public scope: hears of every tenant.
  whole_instance boolean NOT NULL,
  url text NOT NULL,
  -- Empty: every event.
  events text[] NOT NULL,
  sealed bytea NOT NULL,
  encryption_key_id text NOT NULL,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL
)
-- next
CREATE INDEX callbacks_by_scope ON callbacks (tenant, organization_id)
-- next
-- One row an event and callback that it is still owed to. No foreign key: a callback that goes away at the same moment
-- must not fail the transaction that the event belongs to. A claim moves next_attempt_at past the lease, so the delivery
-- of a process that died comes up again by itself.
CREATE TABLE callback_deliveries (
  callback_id uuid NOT NULL,
  event_id uuid NOT NULL,
  body text NOT NULL,
  attempts smallint NOT NULL DEFAULT 0,
  next_attempt_at timestamptz NOT NULL,
  lease uuid,
  last_error text,
  failed_at timestamptz,
  PRIMARY KEY (callback_id, event_id)
)
-- next
CREATE INDEX callback_deliveries_due ON callback_deliveries (callback_id, next_attempt_at) WHERE failed_at IS NULL
-- next
CREATE INDEX callback_deliveries_failed ON callback_deliveries (failed_at) WHERE failed_at IS NOT NULL
