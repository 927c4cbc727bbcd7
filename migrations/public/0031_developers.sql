-- Locks: creates; writes to api_keys wait while the index on it is built.
-- Sessions of developers. Only the SHA-256 of a token is stored.
CREATE TABLE developer_sessions (
  id uuid PRIMARY KEY,
  token_hash bytea NOT NULL UNIQUE,
  user_id text NOT NULL REFERENCES users,
  created_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  revoked_at timestamptz
)
-- next
CREATE INDEX developer_sessions_by_user ON developer_sessions (user_id) WHERE revoked_at IS NULL
-- next
CREATE INDEX developer_sessions_by_expiry ON developer_sessions (expires_at)
-- next
-- Answers to requests with an Idempotency-Key. `sealed` is the answer, encrypted, because it holds a plaintext key;
-- `request_hash` tells another body under the same key.
CREATE TABLE developer_idempotency (
  tenant text NOT NULL,
  user_id text NOT NULL,
  key_hash bytea NOT NULL,
  request_hash bytea NOT NULL,
  sealed bytea NOT NULL,
  encryption_key_id text NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (user_id, key_hash, tenant)
)
-- next
CREATE INDEX developer_idempotency_by_expiry ON developer_idempotency (expires_at)
-- next
-- The live keys of one owner, newest first: what a developer lists, and what the limit and the grant are counted over.
CREATE INDEX api_keys_live_by_user ON api_keys (user_id, created_at DESC, id DESC)
  WHERE discarded_at IS NULL AND user_id IS NOT NULL
