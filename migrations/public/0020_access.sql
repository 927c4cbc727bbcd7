-- Locks: creates only; nothing waits.
CREATE TABLE groups (
  id uuid PRIMARY KEY,
  tenant text NOT NULL DEFAULT '',
  name text NOT NULL,
  catalog text NOT NULL,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  UNIQUE (tenant, name)
)
-- next
CREATE TABLE catalog_roles (
  id uuid PRIMARY KEY,
  group_id uuid NOT NULL UNIQUE REFERENCES groups ON DELETE CASCADE,
  tenant text NOT NULL,
  catalog text NOT NULL,
  name text NOT NULL,
  UNIQUE (tenant, catalog, name)
)
-- next
CREATE TABLE group_members (
  group_id uuid NOT NULL REFERENCES groups ON DELETE CASCADE,
  principal_id text NOT NULL,
  added_by text NOT NULL,
  added_at timestamptz NOT NULL,
  PRIMARY KEY (group_id, principal_id)
)
-- next
CREATE INDEX group_members_by_principal ON group_members (principal_id)
-- next
-- The empty object_id stands for every object of the type, the empty tenant for the group's own.
CREATE TABLE catalog_role_grants (
  role_id uuid NOT NULL REFERENCES catalog_roles ON DELETE CASCADE,
  privilege text NOT NULL,
  object_type text NOT NULL,
  object_id text NOT NULL,
  tenant text NOT NULL,
  granted_by text NOT NULL,
  granted_at timestamptz NOT NULL,
  PRIMARY KEY (role_id, object_type, object_id, privilege, tenant)
)
