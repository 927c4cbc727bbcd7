-- Locks: creates; adding the nullable column to api_keys takes its lock for an instant, the index on it is built empty.
-- Ids are text, because keys, administrator tokens and usage rows name people in text. Organizations, teams and users are
-- never deleted for good: what names a deleted one is refused, not set free.
CREATE TABLE budgets (
  tenant text NOT NULL DEFAULT '',
  budget_id text NOT NULL,
  organization_id text,
  name text NOT NULL DEFAULT '',
  max_budget numeric(24, 9) CHECK (max_budget >= 0),
  soft_budget numeric(24, 9) CHECK (soft_budget >= 0),
  budget_duration text,
  rpm_limit integer CHECK (rpm_limit >= 0),
  tpm_limit integer CHECK (tpm_limit >= 0),
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (tenant, budget_id)
)
-- next
CREATE INDEX budgets_newest ON budgets (created_at DESC, budget_id DESC)
-- next
-- `limits` holds the fields that were given: one that is absent leaves an organization's as it is, null lifts it.
CREATE TABLE plan_tiers (
  external_id text PRIMARY KEY,
  slug text,
  limits jsonb NOT NULL DEFAULT '{}',
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL
)
-- next
CREATE TABLE organizations (
  id text PRIMARY KEY,
  tenant text NOT NULL DEFAULT '',
  organization_alias text NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  max_budget numeric(24, 9) CHECK (max_budget >= 0),
  soft_budget numeric(24, 9) CHECK (soft_budget >= 0),
  rpm_limit integer CHECK (rpm_limit >= 0),
  tpm_limit integer CHECK (tpm_limit >= 0),
  models text[] NOT NULL DEFAULT '{}',
  budget_id text,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  deleted_at timestamptz,
  FOREIGN KEY (tenant, budget_id) REFERENCES budgets
)
-- next
CREATE INDEX organizations_newest ON organizations (created_at DESC, id DESC) WHERE deleted_at IS NULL
-- next
CREATE INDEX organizations_by_budget ON organizations (tenant, budget_id) WHERE budget_id IS NOT NULL
-- next
CREATE TABLE teams (
  id text PRIMARY KEY,
  tenant text NOT NULL DEFAULT '',
  team_alias text NOT NULL,
  organization_id text REFERENCES organizations,
  blocked boolean NOT NULL DEFAULT false,
  max_budget numeric(24, 9) CHECK (max_budget >= 0),
  soft_budget numeric(24, 9) CHECK (soft_budget >= 0),
  rpm_limit integer CHECK (rpm_limit >= 0),
  tpm_limit integer CHECK (tpm_limit >= 0),
  models text[] NOT NULL DEFAULT '{}',
  budget_id text,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  deleted_at timestamptz,
  FOREIGN KEY (tenant, budget_id) REFERENCES budgets
)
-- next
CREATE INDEX teams_newest ON teams (created_at DESC, id DESC) WHERE deleted_at IS NULL
-- next
CREATE INDEX teams_by_organization ON teams (organization_id, created_at DESC, id DESC) WHERE deleted_at IS NULL
-- next
CREATE INDEX teams_by_budget ON teams (tenant, budget_id) WHERE budget_id IS NOT NULL
-- next
CREATE TABLE users (
  id text PRIMARY KEY,
  tenant text NOT NULL DEFAULT '',
  user_email text,
  user_role text NOT NULL,
  name text NOT NULL,
  max_budget numeric(24, 9) CHECK (max_budget >= 0),
  soft_budget numeric(24, 9) CHECK (soft_budget >= 0),
  rpm_limit integer CHECK (rpm_limit >= 0),
  tpm_limit integer CHECK (tpm_limit >= 0),
  models text[] NOT NULL DEFAULT '{}',
  budget_id text,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  deleted_at timestamptz,
  FOREIGN KEY (tenant, budget_id) REFERENCES budgets
)
-- next
CREATE UNIQUE INDEX users_by_email ON users (tenant, lower(user_email)) WHERE user_email IS NOT NULL AND deleted_at IS NULL
-- next
CREATE INDEX users_newest ON users (created_at DESC, id DESC) WHERE deleted_at IS NULL
-- next
CREATE INDEX users_by_tenant ON users (tenant, created_at DESC, id DESC) WHERE deleted_at IS NULL
-- next
CREATE INDEX users_by_role ON users (user_role, created_at DESC, id DESC) WHERE deleted_at IS NULL
-- next
CREATE INDEX users_by_budget ON users (tenant, budget_id) WHERE budget_id IS NOT NULL
-- next
CREATE TABLE team_members (
  team_id text NOT NULL REFERENCES teams,
  user_id text NOT NULL REFERENCES users,
  role text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (team_id, user_id)
)
-- next
CREATE INDEX team_members_by_user ON team_members (user_id, created_at, team_id)
-- next
CREATE TABLE organization_members (
  organization_id text NOT NULL REFERENCES organizations,
  user_id text NOT NULL REFERENCES users,
  role text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (organization_id, user_id)
)
-- next
CREATE INDEX organization_members_by_user ON organization_members (user_id, created_at, organization_id)
-- next
-- The end users whom a call names in `user`. One row a scope: the tenant's own (organization_id NULL) and an organization's
-- may both bind the same end user.
CREATE TABLE customers (
  id text PRIMARY KEY,
  tenant text NOT NULL DEFAULT '',
  organization_id text REFERENCES organizations,
  end_user_id text NOT NULL,
  end_user_name text,
  blocked boolean NOT NULL DEFAULT false,
  max_budget numeric(24, 9) CHECK (max_budget >= 0),
  soft_budget numeric(24, 9) CHECK (soft_budget >= 0),
  rpm_limit integer CHECK (rpm_limit >= 0),
  tpm_limit integer CHECK (tpm_limit >= 0),
  models text[] NOT NULL DEFAULT '{}',
  budget_id text,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  FOREIGN KEY (tenant, budget_id) REFERENCES budgets
)
-- next
CREATE UNIQUE INDEX customers_by_end_user ON customers (tenant, end_user_id, coalesce(organization_id, ''))
-- next
CREATE INDEX customers_newest ON customers (created_at DESC, id DESC)
-- next
CREATE INDEX customers_by_tenant ON customers (tenant, created_at DESC, id DESC)
-- next
CREATE INDEX customers_by_organization ON customers (organization_id, created_at DESC, id DESC)
-- next
CREATE INDEX customers_by_budget ON customers (tenant, budget_id) WHERE budget_id IS NOT NULL
-- next
ALTER TABLE api_keys ADD COLUMN budget_id text,
  ADD CONSTRAINT api_keys_budget FOREIGN KEY (tenant, budget_id) REFERENCES budgets
-- next
CREATE INDEX api_keys_by_budget ON api_keys (tenant, budget_id) WHERE budget_id IS NOT NULL
