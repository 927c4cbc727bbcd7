-- Locks: creates only; nothing waits.
-- The empty organization_id stands for rows of the tenant itself.
CREATE TABLE tags (
  id uuid PRIMARY KEY,
  tenant text NOT NULL DEFAULT '',
  organization_id text NOT NULL DEFAULT '',
  name text NOT NULL,
  color text NOT NULL DEFAULT '',
  description text NOT NULL DEFAULT '',
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  UNIQUE (tenant, organization_id, name)
)
-- next
CREATE TABLE configuration (
  tenant text NOT NULL,
  organization_id text NOT NULL,
  name text NOT NULL,
  value jsonb NOT NULL,
  updated_by text NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (tenant, organization_id, name)
)
