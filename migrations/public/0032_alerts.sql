-- Locks: creates only; nothing waits.
-- What callbacks were told of that no transaction belongs to, so that of several processes which notice it one tells it.
-- `subject`: for `budget` the account, its window and amount; for `health` the deployment; for `unpriced` the model.
CREATE TABLE alerts_told (
  kind text NOT NULL,
  subject text COLLATE "C" NOT NULL,
  -- Of a deployment: what was told last.
  state text NOT NULL,
  told_at timestamptz NOT NULL,
  -- Null: never forgotten.
  expires_at timestamptz,
  PRIMARY KEY (kind, subject)
)
-- next
CREATE INDEX alerts_told_by_end ON alerts_told (expires_at) WHERE expires_at IS NOT NULL
