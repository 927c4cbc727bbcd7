-- Locks: creates only; nothing waits.
-- What those bound to a budget tier have been charged in each of its windows: summed as it is charged, because a tier may
-- bind more keys than a list could add up.
CREATE TABLE budget_usage (
  tenant text NOT NULL,
  budget_id text NOT NULL,
  -- Unix milliseconds; 0 for a budget that never starts anew.
  window_start bigint NOT NULL,
  spent bigint NOT NULL,
  PRIMARY KEY (tenant, budget_id, window_start),
  FOREIGN KEY (tenant, budget_id) REFERENCES budgets ON DELETE CASCADE
) WITH (fillfactor = 50)
-- next
DROP FUNCTION soft_budgets_crossed(jsonb)
-- next
-- Counts charges to the budget tiers of their owners, and tells who has just spent past a soft budget. Items: a (account),
-- s (window start, Unix milliseconds), c (nano-dollars charged). To be called inside the transaction that has posted the
-- charges: the accounts' rows are locked, so each crossing is seen by one transaction only, whichever process posts.
CREATE FUNCTION budgets_charged(items jsonb)
RETURNS TABLE (owner text, owner_id text, tenant text, organization_id text, soft_budget text, spent bigint, window_start bigint)
LANGUAGE sql VOLATILE AS $$
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
  ), tiered AS (
    -- An account whose duration is another than its tier's is the owner's own budget.
    SELECT b.*, tier.budget_id AS tier_id, tier.soft_budget AS tier_soft FROM bound b
    LEFT JOIN public.budgets tier ON tier.tenant = b.tenant AND tier.budget_id = b.budget_id
      AND coalesce(tier.budget_duration, '') = b.duration
  ), counted AS (
    INSERT INTO public.budget_usage AS u (tenant, budget_id, window_start, spent)
    SELECT t.tenant, t.tier_id, t.window_start, sum(t.amount)::bigint FROM tiered t WHERE t.tier_id IS NOT NULL
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (tenant, budget_id, window_start) DO UPDATE SET spent = u.spent + excluded.spent
  ), soft AS (
    SELECT t.*, least(CASE WHEN t.duration = '' THEN t.own END, t.tier_soft) AS amount_soft FROM tiered t
  )
  SELECT s.owner, s.id, s.tenant, s.organization_id, s.amount_soft::text, s.spent, s.window_start FROM soft s
  WHERE s.spent >= s.amount_soft * 1000000000 AND s.spent - s.amount < s.amount_soft * 1000000000
$$
