-- Locks: creates only; nothing waits.
-- The head row serialises writers, so that sequence numbers have no gaps.
CREATE TABLE provenance_head (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  sequence_number bigint NOT NULL,
  payload_hash text NOT NULL
)
-- next
INSERT INTO provenance_head (sequence_number, payload_hash) VALUES (0, '')
-- next
CREATE TABLE provenance_entries (
  sequence_number bigint PRIMARY KEY,
  id uuid NOT NULL UNIQUE,
  action text NOT NULL,
  actor text NOT NULL,
  resource_type text NOT NULL DEFAULT '',
  resource_id text NOT NULL DEFAULT '',
  request_id text,
  payload jsonb NOT NULL,
  payload_hash text NOT NULL,
  created_at timestamptz NOT NULL
)
-- next
CREATE INDEX provenance_entries_by_action ON provenance_entries (action text_pattern_ops, sequence_number DESC)
-- next
CREATE INDEX provenance_entries_by_actor ON provenance_entries (actor, sequence_number DESC)
-- next
CREATE INDEX provenance_entries_by_resource ON provenance_entries (resource_type, resource_id, sequence_number DESC)
-- next
CREATE INDEX provenance_entries_by_request ON provenance_entries (request_id) WHERE request_id IS NOT NULL
