-- Locks: daily_usage is locked against writers while the triggers are made and its rows are summed.
-- Usage per UTC day and organization: what billing and the usage of organizations read, so that neither depends on the
-- number of keys. A day that was exported is closed for good; what arrives for it later counts on the first open day.
CREATE TABLE organization_usage (
  day date NOT NULL,
  organization_id text COLLATE "C" NOT NULL,
  requests bigint NOT NULL,
  prompt_tokens bigint NOT NULL,
  completion_tokens bigint NOT NULL,
  spend numeric(24, 9) NOT NULL,
  PRIMARY KEY (day, organization_id)
)
-- next
-- Usage without an organization is looked for by itself.
CREATE INDEX organization_usage_unnamed ON organization_usage (day) WHERE organization_id = ''
-- next
CREATE TABLE usage_days (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  closed_through date NOT NULL
)
-- next
INSERT INTO usage_days (closed_through) VALUES ('0001-01-01')
-- next
LOCK TABLE daily_usage IN SHARE ROW EXCLUSIVE MODE
-- next
INSERT INTO organization_usage (day, organization_id, requests, prompt_tokens, completion_tokens, spend)
SELECT day, organization_id, sum(requests), sum(prompt_tokens), sum(completion_tokens), sum(spend)
FROM daily_usage GROUP BY day, organization_id
-- next
-- The shared lock holds off the closing of a day until this transaction's rows are committed.
CREATE FUNCTION usage_days_open() RETURNS date LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE open_day date;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(hashtext('sluice usage days'), hashtext(current_schema()));
  SELECT closed_through + 1 INTO open_day FROM usage_days;
  RETURN open_day;
END
$$
-- next
CREATE FUNCTION organization_usage_inserted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE open_day date := usage_days_open();
BEGIN
  INSERT INTO organization_usage AS o (day, organization_id, requests, prompt_tokens, completion_tokens, spend)
  SELECT greatest(day, open_day), organization_id, sum(requests), sum(prompt_tokens), sum(completion_tokens), sum(spend)
  FROM inserted GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (day, organization_id) DO UPDATE SET
    requests = o.requests + excluded.requests,
    prompt_tokens = o.prompt_tokens + excluded.prompt_tokens,
    completion_tokens = o.completion_tokens + excluded.completion_tokens,
    spend = o.spend + excluded.spend;
  RETURN NULL;
END
$$
-- next
CREATE FUNCTION organization_usage_updated() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE open_day date := usage_days_open();
BEGIN
  INSERT INTO organization_usage AS o (day, organization_id, requests, prompt_tokens, completion_tokens, spend)
  SELECT greatest(day, open_day), organization_id, sum(requests), sum(prompt_tokens), sum(completion_tokens), sum(spend)
  FROM (
    SELECT day, organization_id, requests, prompt_tokens, completion_tokens, spend FROM updated
    UNION ALL
    SELECT day, organization_id, -requests, -prompt_tokens, -completion_tokens, -spend FROM replaced
  ) AS change GROUP BY 1, 2 HAVING sum(requests) <> 0 OR sum(spend) <> 0 ORDER BY 1, 2
  ON CONFLICT (day, organization_id) DO UPDATE SET
    requests = o.requests + excluded.requests,
    prompt_tokens = o.prompt_tokens + excluded.prompt_tokens,
    completion_tokens = o.completion_tokens + excluded.completion_tokens,
    spend = o.spend + excluded.spend;
  RETURN NULL;
END
$$
-- next
CREATE TRIGGER organization_usage_inserted AFTER INSERT ON daily_usage
  REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION organization_usage_inserted()
-- next
CREATE TRIGGER organization_usage_updated AFTER UPDATE ON daily_usage
  REFERENCING OLD TABLE AS replaced NEW TABLE AS updated
  FOR EACH STATEMENT EXECUTE FUNCTION organization_usage_updated()
