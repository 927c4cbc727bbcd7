-- Locks: creates only; nothing waits.
-- What one owner binds its calls to: its own limits and those of its budget tier.
CREATE FUNCTION owner_limits(
  owner text, id text, max_budget numeric, soft_budget numeric, rpm_limit integer, tpm_limit integer, models text[],
  tier budgets
) RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object(
    'owner', $1, 'id', $2, 'max_budget', $3::text, 'soft_budget', $4::text, 'rpm_limit', $5, 'tpm_limit', $6,
    'models', to_jsonb($7),
    'tier', CASE WHEN ($8).budget_id IS NULL THEN NULL ELSE jsonb_build_object(
      'max_budget', ($8).max_budget::text, 'soft_budget', ($8).soft_budget::text,
      'budget_duration', ($8).budget_duration, 'rpm_limit', ($8).rpm_limit, 'tpm_limit', ($8).tpm_limit
    ) END
  )
$$
-- next
-- Everything beyond its own row that binds an API key, for `CROSS JOIN LATERAL public.policy_chain(…)`. The organization
-- is the key's or else its team's. `refused`: the team is blocked, or somebody on the chain was deleted. Owners of another
-- tenant, and ids that name nobody, bind nothing. `owners` has one element an owner, null where there is none.
CREATE FUNCTION policy_chain(tenant text, key_id text, user_id text, team_id text, organization_id text, budget_id text)
RETURNS TABLE (refused boolean, chain_organization_id text, owners jsonb) LANGUAGE sql STABLE AS $$
  SELECT
    u.deleted_at IS NOT NULL OR t.deleted_at IS NOT NULL OR o.deleted_at IS NOT NULL OR coalesce(t.blocked, false),
    coalesce($5, t.organization_id),
    jsonb_build_array(
      CASE WHEN kb.budget_id IS NOT NULL THEN public.owner_limits('key', $2, NULL, NULL, NULL, NULL, '{}', kb) END,
      CASE WHEN u.id IS NOT NULL THEN public.owner_limits(
        'user', u.id, u.max_budget, u.soft_budget, u.rpm_limit, u.tpm_limit, u.models, ub) END,
      CASE WHEN t.id IS NOT NULL THEN public.owner_limits(
        'team', t.id, t.max_budget, t.soft_budget, t.rpm_limit, t.tpm_limit, t.models, tb) END,
      CASE WHEN o.id IS NOT NULL THEN public.owner_limits(
        'organization', o.id, o.max_budget, o.soft_budget, o.rpm_limit, o.tpm_limit, o.models, ob) END
    )
  FROM (SELECT) AS one
  LEFT JOIN public.budgets kb ON kb.tenant = $1 AND kb.budget_id = $6
  LEFT JOIN public.users u ON u.id = $3 AND u.tenant = $1
  LEFT JOIN public.budgets ub ON ub.tenant = u.tenant AND ub.budget_id = u.budget_id
  LEFT JOIN public.teams t ON t.id = $4 AND t.tenant = $1
  LEFT JOIN public.budgets tb ON tb.tenant = t.tenant AND tb.budget_id = t.budget_id
  LEFT JOIN public.organizations o ON o.id = coalesce($5, t.organization_id) AND o.tenant = $1
  LEFT JOIN public.budgets ob ON ob.tenant = o.tenant AND ob.budget_id = o.budget_id
$$
-- next
-- Who has just spent past a soft budget. Items: a (account), s (window start, Unix milliseconds), c (nano-dollars charged).
-- To be asked inside the transaction that has posted the charges: the accounts' rows are locked, so each crossing is seen
-- by one transaction only, whichever process posts.
CREATE FUNCTION soft_budgets_crossed(items jsonb)
RETURNS TABLE (owner text, owner_id text, tenant text, organization_id text, soft_budget text, spent bigint, window_start bigint)
LANGUAGE sql STABLE AS $$
  WITH charged AS (
    SELECT x.a AS account, x.s AS window_start, sum(x.c)::bigint AS amount
    FROM jsonb_to_recordset($1) AS x(a text, s bigint, c bigint) WHERE x.a LIKE 'budget:%' GROUP BY x.a, x.s
  ), accounts AS (
    SELECT split_part(c.account, ':', 2) AS owner, split_part(split_part(c.account, ':', 3), '@', 1) AS id,
      split_part(c.account, '@', 2) AS duration, c.window_start, c.amount, a.spent
    FROM charged c JOIN public.ledger_accounts a ON a.account = c.account AND a.window_start = c.window_start
  ), bound AS (
    SELECT a.*, o.tenant, o.id AS organization_id, o.soft_budget AS own, o.budget_id
      FROM accounts a JOIN public.organizations o ON a.owner = 'organization' AND o.id = a.id
    UNION ALL SELECT a.*, t.tenant, t.organization_id, t.soft_budget, t.budget_id
      FROM accounts a JOIN public.teams t ON a.owner = 'team' AND t.id = a.id
    UNION ALL SELECT a.*, u.tenant, NULL, u.soft_budget, u.budget_id
      FROM accounts a JOIN public.users u ON a.owner = 'user' AND u.id = a.id
    UNION ALL SELECT a.*, c.tenant, c.organization_id, c.soft_budget, c.budget_id
      FROM accounts a JOIN public.customers c ON a.owner = 'customer' AND c.id = a.id
    UNION ALL SELECT a.*, k.tenant, k.organization_id, NULL, k.budget_id
      FROM accounts a JOIN public.api_keys k ON k.id = CASE a.owner WHEN 'key' THEN a.id::uuid END
  ), soft AS (
    SELECT b.*, least(CASE WHEN b.duration = '' THEN b.own END,
      CASE WHEN b.duration = coalesce(tier.budget_duration, '') THEN tier.soft_budget END) AS amount_soft
    FROM bound b LEFT JOIN public.budgets tier ON tier.tenant = b.tenant AND tier.budget_id = b.budget_id
  )
  SELECT s.owner, s.id, s.tenant, s.organization_id, s.amount_soft::text, s.spent, s.window_start FROM soft s
  WHERE s.spent >= s.amount_soft * 1000000000 AND s.spent - s.amount < s.amount_soft * 1000000000
$$
