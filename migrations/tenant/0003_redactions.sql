-- Locks: creates only; nothing waits.
-- One row a redaction token. The nil UUID stands for the master key. Values are encrypted; the token, the tenant and the
-- key are authenticated with them. The tenant is here too, because without tenants configured one schema holds everybody's
-- rows.
CREATE TABLE redactions (
  tenant text NOT NULL,
  key_id uuid NOT NULL,
  token text NOT NULL,
  sealed bytea NOT NULL,
  encryption_key_id text NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (key_id, token, tenant)
)
-- next
CREATE INDEX redactions_by_expiry ON redactions (expires_at)
