-- Locks: creates only; nothing waits.
CREATE TABLE api_keys (
  id uuid PRIMARY KEY,
  tenant text NOT NULL DEFAULT '',
  token_hash bytea NOT NULL UNIQUE,
  token_hint text NOT NULL,
  key_name text,
  key_alias text,
  user_id text,
  team_id text,
  organization_id text,
  max_budget numeric(24, 9) CHECK (max_budget >= 0),
  models text[] NOT NULL DEFAULT '{}',
  rpm_limit integer CHECK (rpm_limit >= 0),
  tpm_limit integer CHECK (tpm_limit >= 0),
  expires timestamptz,
  metadata jsonb NOT NULL DEFAULT '{}',
  blocked boolean NOT NULL DEFAULT false,
  discarded_at timestamptz,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
)
-- next
CREATE INDEX api_keys_newest ON api_keys (created_at DESC, id DESC) WHERE discarded_at IS NULL
-- next
CREATE INDEX api_keys_by_tenant ON api_keys (tenant, created_at DESC, id DESC) WHERE discarded_at IS NULL
-- next
CREATE INDEX api_keys_by_user ON api_keys (user_id, created_at DESC) WHERE user_id IS NOT NULL
-- next
CREATE INDEX api_keys_by_team ON api_keys (team_id, created_at DESC) WHERE team_id IS NOT NULL
-- next
CREATE INDEX api_keys_by_organization ON api_keys (organization_id, created_at DESC) WHERE organization_id IS NOT NULL
-- next
CREATE INDEX api_keys_by_alias ON api_keys (key_alias) WHERE key_alias IS NOT NULL AND discarded_at IS NULL
