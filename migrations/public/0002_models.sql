-- Locks: creates only; nothing waits.
CREATE TABLE models (
  id uuid PRIMARY KEY,
  model_name text NOT NULL,
  gateway_params jsonb NOT NULL DEFAULT '{}',
  model_info jsonb NOT NULL DEFAULT '{}',
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
)
-- next
CREATE INDEX models_by_name ON models (model_name)
-- next
CREATE TABLE credentials (
  id uuid PRIMARY KEY,
  credential_name text UNIQUE,
  sealed bytea NOT NULL,
  encryption_key_id text NOT NULL,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
)
