-- Locks: creates only; nothing waits.
CREATE TABLE guardrails (
  id uuid PRIMARY KEY,
  tenant text NOT NULL DEFAULT '',
  organization_id text,
  guardrail_name text NOT NULL,
  guardrail_type text NOT NULL,
  mode text NOT NULL CHECK (mode IN ('log', 'block')),
  config jsonb NOT NULL DEFAULT '{}',
  gateway_params jsonb NOT NULL DEFAULT '{}',
  guardrail_info jsonb NOT NULL DEFAULT '{}',
  enabled boolean NOT NULL DEFAULT true,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
)
-- next
CREATE INDEX guardrails_by_scope ON guardrails (tenant, organization_id)
-- next
CREATE FUNCTION guardrails_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('guardrails', '');
  RETURN NULL;
END
$$
-- next
CREATE TRIGGER guardrails_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON guardrails
  FOR EACH STATEMENT EXECUTE FUNCTION guardrails_changed()
