-- Locks: api_keys is locked against writers while the triggers are made, its rows are counted and the index is built.
-- How many live keys there are per tenant and organization, so that a list's total does not count a million rows.
CREATE TABLE api_key_counts (
  tenant text NOT NULL,
  organization_id text NOT NULL,
  live bigint NOT NULL,
  PRIMARY KEY (tenant, organization_id)
)
-- next
LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE
-- next
INSERT INTO api_key_counts (tenant, organization_id, live)
SELECT tenant, coalesce(organization_id, ''), count(*) FROM api_keys WHERE discarded_at IS NULL
GROUP BY tenant, coalesce(organization_id, '')
-- next
CREATE FUNCTION api_keys_inserted() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO api_key_counts AS c (tenant, organization_id, live)
  SELECT tenant, coalesce(organization_id, ''), count(*) FROM inserted WHERE discarded_at IS NULL
  GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (tenant, organization_id) DO UPDATE SET live = c.live + excluded.live;
  RETURN NULL;
END
$$
-- next
CREATE FUNCTION api_keys_changed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO api_key_counts AS c (tenant, organization_id, live)
  SELECT tenant, organization_id, sum(change) FROM (
    SELECT tenant, coalesce(organization_id, '') AS organization_id, 1 AS change FROM after WHERE discarded_at IS NULL
    UNION ALL
    SELECT tenant, coalesce(organization_id, ''), -1 FROM before WHERE discarded_at IS NULL
  ) AS changes GROUP BY 1, 2 HAVING sum(change) <> 0 ORDER BY 1, 2
  ON CONFLICT (tenant, organization_id) DO UPDATE SET live = c.live + excluded.live;
  RETURN NULL;
END
$$
-- next
CREATE FUNCTION api_keys_removed() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO api_key_counts AS c (tenant, organization_id, live)
  SELECT tenant, coalesce(organization_id, ''), -count(*) FROM removed WHERE discarded_at IS NULL
  GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (tenant, organization_id) DO UPDATE SET live = c.live + excluded.live;
  RETURN NULL;
END
$$
-- next
CREATE TRIGGER api_keys_inserted AFTER INSERT ON api_keys
  REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION api_keys_inserted()
-- next
CREATE TRIGGER api_keys_changed AFTER UPDATE ON api_keys
  REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION api_keys_changed()
-- next
CREATE TRIGGER api_keys_removed AFTER DELETE ON api_keys
  REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION api_keys_removed()
-- next
-- Searching for a part of a name reads an index where the database has pg_trgm, and every row where it has not.
DO $$
BEGIN
  CREATE EXTENSION IF NOT EXISTS pg_trgm;
  CREATE INDEX api_keys_search ON api_keys USING gin ((
    coalesce(key_name, '') || E'\n' || coalesce(key_alias, '') || E'\n' || coalesce(user_id, '') || E'\n' || id::text
  ) gin_trgm_ops) WHERE discarded_at IS NULL;
EXCEPTION WHEN insufficient_privilege OR undefined_file OR feature_not_supported OR undefined_object THEN
  RAISE NOTICE 'pg_trgm cannot be had here: key searches read every row';
END
$$
