-- Locks: creates only; nothing waits.
-- Budgets, in nano-dollars: one row an account and window. Windows are Unix milliseconds; a lifetime's start is 0 and its
-- end NULL. A window that only a late charge made known has no end either; the sweep goes by its start then.
CREATE TABLE ledger_accounts (
  account text COLLATE "C" NOT NULL,
  window_start bigint NOT NULL,
  window_end bigint,
  spent bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (account, window_start)
) WITH (fillfactor = 70)
-- next
CREATE INDEX ledger_accounts_by_end ON ledger_accounts (window_end) WHERE window_end IS NOT NULL
-- next
-- One row a running process. `name` is the same in its next life, `life` is not. `since`: in touch without a break.
-- `stopped`: ended in order, and answers no recall; its last calls' shares count until they expire.
CREATE TABLE ledger_holders (
  life text PRIMARY KEY,
  name text NOT NULL,
  since timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  stopped boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50)
-- next
-- What a holder may still spend of an account. Counts while its holder is alive.
CREATE TABLE ledger_leases (
  account text COLLATE "C" NOT NULL,
  window_start bigint NOT NULL,
  life text COLLATE "C" NOT NULL,
  amount bigint NOT NULL,
  PRIMARY KEY (account, window_start, life)
) WITH (fillfactor = 70)
-- next
CREATE INDEX ledger_leases_by_life ON ledger_leases (life)
-- next
-- Request and token limits: the current window of each account. `used` holds what was handed out, used or not.
CREATE TABLE ledger_rates (
  account text COLLATE "C" PRIMARY KEY,
  window_start bigint NOT NULL,
  window_end bigint NOT NULL,
  used bigint NOT NULL
) WITH (fillfactor = 50)
-- next
CREATE INDEX ledger_rates_by_end ON ledger_rates (window_end)
-- next
-- Grants and takes back shares. Items: n (number), a (account), budget, s, e (window), l (limit), give (returned units),
-- held (the window they were granted in), closing (delete the lease), low, need (of the smallest waiting call, of all),
-- extra (welcome beyond the need), initial (spent so far, for a row that does not exist yet).
-- Every writer locks in the order account, lease, next account; so nobody waits in a circle.
CREATE FUNCTION ledger_lease(own_life text, ttl_ms double precision, at_ms bigint, items jsonb)
RETURNS TABLE (item integer, outcome text, granted bigint, counted bigint, elsewhere bigint, began bigint, ends bigint, others integer)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  i record;
  ttl interval := ttl_ms * interval '1 millisecond';
  alive_since timestamptz;
  alive boolean;
  own bigint;
  available bigint;
BEGIN
  SELECT h.since INTO alive_since FROM public.ledger_holders h
    WHERE h.life = own_life AND h.expires_at > clock_timestamp();
  alive := FOUND;
  SELECT count(*) INTO others FROM public.ledger_holders h 
    WHERE h.life <> own_life AND NOT h.stopped AND h.expires_at > clock_timestamp();
  FOR i IN
    SELECT * FROM jsonb_to_recordset(items) AS x(n integer, a text, budget boolean, s bigint, e bigint, l bigint,
      give bigint, held bigint, closing boolean, low bigint, need bigint, extra bigint, initial bigint)
    ORDER BY a COLLATE "C", s
  LOOP
    item := i.n; outcome := 'done'; granted := 0; counted := 0; elsewhere := 0; began := i.s; ends := i.e;
    IF i.budget THEN
      IF NOT alive THEN
        outcome := 'lapsed';
        RETURN NEXT;
        CONTINUE;
      END IF;
      SELECT t.spent INTO counted FROM public.ledger_accounts t
        WHERE t.account = i.a AND t.window_start = i.s FOR UPDATE;
      IF NOT FOUND THEN
        -- An account that was watched in the window before has nothing to catch up on.
        IF i.initial IS NULL AND NOT EXISTS (
          SELECT FROM public.ledger_accounts t WHERE t.account = i.a AND t.window_end = i.s
        ) THEN
          outcome := 'missing'; counted := 0;
          RETURN NEXT;
          CONTINUE;
        END IF;
        INSERT INTO public.ledger_accounts (account, window_start, window_end, spent)
          VALUES (i.a, i.s, i.e, coalesce(i.initial, 0)) ON CONFLICT DO NOTHING;
        SELECT t.spent INTO counted FROM public.ledger_accounts t
          WHERE t.account = i.a AND t.window_start = i.s FOR UPDATE;
      END IF;
      SELECT t.amount INTO own FROM public.ledger_leases t
        WHERE t.account = i.a AND t.window_start = i.s AND t.life = own_life FOR UPDATE;
      own := CASE WHEN i.closing THEN 0 ELSE greatest(0, coalesce(own, 0) - i.give) END;
      -- A holder that fell silent while this one could not reach the database either is given time to come back.
      SELECT coalesce(sum(t.amount), 0)::bigint INTO elsewhere
        FROM public.ledger_leases t JOIN public.ledger_holders h ON h.life = t.life
        WHERE t.account = i.a AND t.window_start = i.s AND t.life <> own_life
          AND (h.expires_at > clock_timestamp() OR alive_since > clock_timestamp() - ttl);
      available := i.l - counted - elsewhere - own;
      granted := CASE
        WHEN available <= 0 OR available < i.low THEN 0
        WHEN available <= i.need THEN available
        ELSE i.need + least(i.extra, (available - i.need) / 8) END;
      IF own + granted = 0 AND i.closing THEN
        DELETE FROM public.ledger_leases t WHERE t.account = i.a AND t.window_start = i.s AND t.life = own_life;
      ELSIF granted > 0 OR i.give <> 0 OR i.closing THEN
        INSERT INTO public.ledger_leases AS t (account, window_start, life, amount)
          VALUES (i.a, i.s, own_life, own + granted)
          ON CONFLICT (account, window_start, life) DO UPDATE SET amount = excluded.amount;
      END IF;
    ELSE
      IF i.need > 0 THEN
        INSERT INTO public.ledger_rates (account, window_start, window_end, used)
          VALUES (i.a, i.s, i.e, 0) ON CONFLICT DO NOTHING;
      END IF;
      SELECT t.window_start, t.window_end, t.used INTO began, ends, counted FROM public.ledger_rates t
        WHERE t.account = i.a FOR UPDATE;
      -- A window begins with its first use, so not with a look.
      IF NOT FOUND OR (ends <= at_ms AND i.need = 0) THEN
        outcome := 'over'; counted := 0; began := NULL; ends := NULL;
        RETURN NEXT;
        CONTINUE;
      END IF;
      IF ends <= at_ms THEN
        began := i.s; ends := i.e; counted := 0;
      END IF;
      IF i.give <> 0 AND i.held = began THEN
        counted := greatest(0, counted - i.give);
      END IF;
      available := i.l - counted;
      granted := CASE
        WHEN available <= 0 OR available < i.low THEN 0
        WHEN available <= i.need THEN available
        ELSE i.need + least(i.extra, (available - i.need) / 8) END;
      counted := counted + granted;
      IF granted > 0 OR i.give <> 0 THEN
        UPDATE public.ledger_rates t SET window_start = began, window_end = ends, used = counted WHERE t.account = i.a;
      END IF;
    END IF;
    IF granted = 0 AND i.need > 0 THEN
      outcome := 'refused';
    END IF;
    RETURN NEXT;
  END LOOP;
END
$$
-- next
-- Charges settled calls: n (number), a (account), s (window), c (nano-dollars). Returns what each took off the lease.
CREATE FUNCTION ledger_post(own_life text, items jsonb) RETURNS TABLE (item integer, deducted bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  i record;
BEGIN
  FOR i IN
    SELECT * FROM jsonb_to_recordset(items) AS x(n integer, a text, s bigint, c bigint) ORDER BY a COLLATE "C", s
  LOOP
    INSERT INTO public.ledger_accounts AS t (account, window_start, spent) VALUES (i.a, i.s, i.c)
      ON CONFLICT (account, window_start) DO UPDATE SET spent = t.spent + excluded.spent;
    SELECT least(t.amount, i.c) INTO deducted FROM public.ledger_leases t
      WHERE t.account = i.a AND t.window_start = i.s AND t.life = own_life FOR UPDATE;
    item := i.n; deducted := coalesce(deducted, 0);
    IF deducted > 0 THEN
      UPDATE public.ledger_leases t SET amount = t.amount - deducted
        WHERE t.account = i.a AND t.window_start = i.s AND t.life = own_life;
    END IF;
    RETURN NEXT;
  END LOOP;
END
$$
-- next
-- Cuts a holder's leases down to what it names: a (account), s (window), k (units to keep). The rest are deleted.
CREATE FUNCTION ledger_keep(own_life text, items jsonb)
RETURNS TABLE (kept_account text, kept_start bigint, kept_amount bigint)
LANGUAGE plpgsql AS $$
DECLARE
  i record;
BEGIN
  FOR i IN
    SELECT t.account, t.window_start, least(t.amount, coalesce(x.k, 0)) AS amount
      FROM public.ledger_leases t
      LEFT JOIN jsonb_to_recordset(items) AS x(a text, s bigint, k bigint)
        ON x.a COLLATE "C" = t.account AND x.s = t.window_start
      WHERE t.life = own_life ORDER BY t.account, t.window_start FOR UPDATE OF t
  LOOP
    IF i.amount > 0 THEN
      UPDATE public.ledger_leases t SET amount = least(t.amount, i.amount)
        WHERE t.account = i.account AND t.window_start = i.window_start AND t.life = own_life
        RETURNING t.account, t.window_start, t.amount INTO kept_account, kept_start, kept_amount;
      RETURN NEXT;
    ELSE
      DELETE FROM public.ledger_leases t
        WHERE t.account = i.account AND t.window_start = i.window_start AND t.life = own_life;
    END IF;
  END LOOP;
END
$$
