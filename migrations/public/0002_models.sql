-- Locks: creates only; nothing waits.
-- `sealed` holds the secret values of gateway_params, encrypted; gateway_params holds their masks.
CREATE TABLE models (
  id uuid PRIMARY KEY,
  model_name text NOT NULL,
  gateway_params jsonb NOT NULL DEFAULT '{}',
  sealed bytea,
  encryption_key_id text,
  model_info jsonb NOT NULL DEFAULT '{}',
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  CHECK ((sealed IS NULL) = (encryption_key_id IS NULL))
)
-- next
CREATE INDEX models_by_name ON models (model_name)
-- next
-- One row: when the registry was first filled, so that removed models do not come back at the next start.
CREATE TABLE model_registry (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  seeded_at timestamptz
)
-- next
INSERT INTO model_registry DEFAULT VALUES
-- next
-- `sealed` is the whole of credential_info, encrypted.
CREATE TABLE credentials (
  id uuid PRIMARY KEY,
  credential_name text UNIQUE,
  sealed bytea NOT NULL,
  encryption_key_id text NOT NULL,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
)
