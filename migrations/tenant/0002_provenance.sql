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
-- payload_hash is the lower-case hexadecimal SHA-256 of the payload's canonical JSON (RFC 8785) followed by the previous
-- entry's payload_hash (nothing for the first). Partitioned by number, because the chain grows with every model call.
CREATE TABLE provenance_entries (
  sequence_number bigint PRIMARY KEY,
  id uuid NOT NULL,
  action text NOT NULL,
  actor text NOT NULL,
  resource_type text NOT NULL DEFAULT '',
  resource_id text NOT NULL DEFAULT '',
  request_id text,
  payload jsonb NOT NULL,
  payload_hash text NOT NULL,
  created_at timestamptz NOT NULL
) PARTITION BY RANGE (sequence_number)
-- next
CREATE TABLE provenance_entries_other PARTITION OF provenance_entries DEFAULT
-- next
-- Model calls are found through spend_logs; the indexes are for what people did, so queries of the audit trail say
-- resource_type <> 'model_call', and the entry of a call costs one index and not four.
CREATE INDEX provenance_entries_by_action ON provenance_entries (action text_pattern_ops, sequence_number DESC)
  WHERE resource_type <> 'model_call'
-- next
CREATE INDEX provenance_entries_by_actor ON provenance_entries (actor, sequence_number DESC)
  WHERE resource_type <> 'model_call'
-- next
CREATE INDEX provenance_entries_by_resource ON provenance_entries (resource_type, resource_id, sequence_number DESC)
  WHERE resource_type <> 'model_call'
