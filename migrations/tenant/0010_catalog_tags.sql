-- Locks: creates only; nothing waits.
-- A target is any JSON object; its SHA-256 over the canonical form tells targets apart. The tenant is here too, because
-- without tenants configured one schema holds everybody's rows.
CREATE TABLE catalog_tags (
  tenant text NOT NULL,
  organization_id text NOT NULL DEFAULT '',
  ns text NOT NULL,
  key text NOT NULL,
  target_hash bytea NOT NULL,
  target jsonb NOT NULL,
  value text NOT NULL,
  updated_by text NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (tenant, organization_id, target_hash, ns, key)
)
