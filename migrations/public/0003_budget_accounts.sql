-- Locks: creates only; nothing waits.
-- Amounts are in the account's own unit (nano-dollars, requests or tokens): one table serves every kind of limit.
CREATE TABLE ledger_accounts (
  account text NOT NULL,
  window_start timestamptz NOT NULL,
  spent bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (account, window_start)
)
-- next
CREATE TABLE ledger_leases (
  account text NOT NULL,
  window_start timestamptz NOT NULL,
  holder text NOT NULL,
  amount bigint NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (account, window_start, holder)
)
-- next
CREATE INDEX ledger_leases_by_holder ON ledger_leases (holder)
