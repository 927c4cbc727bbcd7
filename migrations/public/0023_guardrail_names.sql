-- Locks: writes to guardrails wait while the index is built; the table holds hundreds of rows at most.
CREATE UNIQUE INDEX guardrails_by_name ON guardrails (tenant, coalesce(organization_id, ''), guardrail_name)
