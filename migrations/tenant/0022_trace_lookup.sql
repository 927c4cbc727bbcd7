-- Locks: provenance_entries is locked against writers while the indexes are built.
-- A session is what one request id did, wherever in the chain its entries stand.
CREATE INDEX provenance_entries_by_request ON provenance_entries (request_id, sequence_number)
  WHERE request_id IS NOT NULL
-- next
-- An entry's id is a UUIDv7 of its created_at, and entries come in the order of time: a few pages of summaries find one.
CREATE INDEX provenance_entries_by_time ON provenance_entries USING brin (created_at) WITH (autosummarize = on)
