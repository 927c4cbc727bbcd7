-- Locks: guardrail_logs is locked against writers while the trigger is made and its rows are summed.
-- The log in sums, so that statistics never read the log itself.
CREATE TABLE guardrail_usage (
  day date NOT NULL,
  guardrail_id text NOT NULL,
  organization_id text NOT NULL,
  status text NOT NULL,
  stage text NOT NULL,
  guardrail_name text NOT NULL,
  entries bigint NOT NULL,
  duration_ms double precision NOT NULL,
  PRIMARY KEY (day, guardrail_id, organization_id, status, stage)
)
-- next
LOCK TABLE guardrail_logs IN SHARE ROW EXCLUSIVE MODE
-- next
INSERT INTO guardrail_usage (day, guardrail_id, organization_id, status, stage, guardrail_name, entries, duration_ms)
SELECT (created_at AT TIME ZONE 'UTC')::date, guardrail_id, coalesce(organization_id, ''), status, stage,
  max(guardrail_name), count(*), sum(duration_ms)
FROM guardrail_logs GROUP BY 1, 2, 3, 4, 5
-- next
CREATE FUNCTION guardrail_usage_inserted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO guardrail_usage AS g
    (day, guardrail_id, organization_id, status, stage, guardrail_name, entries, duration_ms)
  SELECT (created_at AT TIME ZONE 'UTC')::date, guardrail_id, coalesce(organization_id, ''), status, stage,
    max(guardrail_name), count(*), sum(duration_ms)
  FROM inserted GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
  ON CONFLICT (day, guardrail_id, organization_id, status, stage) DO UPDATE SET
    guardrail_name = excluded.guardrail_name,
    entries = g.entries + excluded.entries,
    duration_ms = g.duration_ms + excluded.duration_ms;
  RETURN NULL;
END
$$
-- next
CREATE TRIGGER guardrail_usage_inserted AFTER INSERT ON guardrail_logs
  REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION guardrail_usage_inserted()
