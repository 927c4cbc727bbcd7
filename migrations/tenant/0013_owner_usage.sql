-- Locks: daily_usage is locked against writers while the triggers are made and its rows are summed.
-- Spend since ever per user, team, organization and end user, so that lists never sum days. An end user's is kept per
-- organization of the calling key, because a customer of one organization shows nothing of another's.
CREATE TABLE owner_usage (
  owner text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  organization_id text COLLATE "C" NOT NULL,
  requests bigint NOT NULL,
  spend numeric(24, 9) NOT NULL,
  PRIMARY KEY (owner, id, organization_id)
) WITH (fillfactor = 70)
-- next
LOCK TABLE daily_usage IN SHARE ROW EXCLUSIVE MODE
-- next
INSERT INTO owner_usage (owner, id, organization_id, requests, spend)
SELECT o.owner, o.id, o.organization_id, sum(d.requests), sum(d.spend)
FROM daily_usage d CROSS JOIN LATERAL (VALUES
  ('user', d.user_id, ''), ('team', d.team_id, ''), ('organization', d.organization_id, ''),
  ('customer', d.end_user_id, d.organization_id)
) AS o (owner, id, organization_id)
WHERE o.id <> '' GROUP BY o.owner, o.id, o.organization_id
-- next
-- Rows are locked in the order of their key; writers of one tenant come one after the other in any case, because each holds
-- the head of the provenance chain.
CREATE FUNCTION owner_usage_inserted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO owner_usage AS u (owner, id, organization_id, requests, spend)
  SELECT o.owner, o.id, o.organization_id, sum(d.requests), sum(d.spend)
  FROM inserted d CROSS JOIN LATERAL (VALUES
    ('user', d.user_id, ''), ('team', d.team_id, ''), ('organization', d.organization_id, ''),
    ('customer', d.end_user_id, d.organization_id)
  ) AS o (owner, id, organization_id)
  WHERE o.id <> '' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
  ON CONFLICT (owner, id, organization_id) DO UPDATE SET
    requests = u.requests + excluded.requests,
    spend = u.spend + excluded.spend;
  RETURN NULL;
END
$$
-- next
CREATE FUNCTION owner_usage_updated() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO owner_usage AS u (owner, id, organization_id, requests, spend)
  SELECT o.owner, o.id, o.organization_id, sum(d.requests), sum(d.spend)
  FROM (
    SELECT user_id, team_id, organization_id, end_user_id, requests, spend FROM updated
    UNION ALL
    SELECT user_id, team_id, organization_id, end_user_id, -requests, -spend FROM replaced
  ) AS d CROSS JOIN LATERAL (VALUES
    ('user', d.user_id, ''), ('team', d.team_id, ''), ('organization', d.organization_id, ''),
    ('customer', d.end_user_id, d.organization_id)
  ) AS o (owner, id, organization_id)
  WHERE o.id <> '' GROUP BY 1, 2, 3 HAVING sum(d.requests) <> 0 OR sum(d.spend) <> 0 ORDER BY 1, 2, 3
  ON CONFLICT (owner, id, organization_id) DO UPDATE SET
    requests = u.requests + excluded.requests,
    spend = u.spend + excluded.spend;
  RETURN NULL;
END
$$
-- next
CREATE TRIGGER owner_usage_inserted AFTER INSERT ON daily_usage
  REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION owner_usage_inserted()
-- next
CREATE TRIGGER owner_usage_updated AFTER UPDATE ON daily_usage
  REFERENCING OLD TABLE AS replaced NEW TABLE AS updated
  FOR EACH STATEMENT EXECUTE FUNCTION owner_usage_updated()
