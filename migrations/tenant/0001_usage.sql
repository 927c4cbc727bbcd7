-- Locks: creates only; nothing waits.
-- One row a finished call. The primary key holds the day's timestamp too, because a partitioned table's must; a replayed
-- journal line carries the same timestamp, so a call is still recorded once. Each month's partition is made ahead by the
-- gateway; the default one catches what comes before its partition.
CREATE TABLE spend_logs (
  call_id uuid NOT NULL,
  recorded_at timestamptz NOT NULL,
  request_id text NOT NULL,
  started_at timestamptz NOT NULL,
  key_id uuid,
  user_id text,
  team_id text,
  organization_id text,
  end_user_id text,
  operation text NOT NULL,
  model text NOT NULL,
  provider text,
  upstream_model text,
  deployment_id text,
  status text NOT NULL,
  http_status smallint NOT NULL,
  error_code text,
  stream boolean NOT NULL,
  input_tokens integer NOT NULL,
  cache_read_tokens integer NOT NULL,
  cache_write_tokens integer NOT NULL,
  output_tokens integer NOT NULL,
  reasoning_tokens integer NOT NULL,
  audio_input_tokens integer NOT NULL,
  audio_output_tokens integer NOT NULL,
  images integer NOT NULL,
  seconds double precision NOT NULL,
  estimated boolean NOT NULL,
  priced boolean NOT NULL,
  spend numeric(24, 9) NOT NULL,
  duration_ms integer NOT NULL,
  first_byte_ms integer,
  PRIMARY KEY (call_id, recorded_at)
) PARTITION BY RANGE (recorded_at)
-- next
CREATE INDEX spend_logs_by_key ON spend_logs (key_id, started_at DESC)
-- next
-- Rows come in the order of time, so a few pages of summaries find a period.
CREATE INDEX spend_logs_by_time ON spend_logs USING brin (recorded_at)
-- next
CREATE TABLE spend_logs_other PARTITION OF spend_logs DEFAULT
-- next
CREATE TABLE daily_usage (
  day date NOT NULL,
  -- The nil UUID stands for the master key, the empty text for an owner that is not there.
  key_id uuid NOT NULL,
  user_id text NOT NULL,
  team_id text NOT NULL,
  organization_id text NOT NULL,
  end_user_id text NOT NULL,
  model text NOT NULL,
  requests bigint NOT NULL,
  prompt_tokens bigint NOT NULL,
  completion_tokens bigint NOT NULL,
  spend numeric(24, 9) NOT NULL,
  PRIMARY KEY (day, key_id, model, user_id, team_id, organization_id, end_user_id)
)
-- next
CREATE INDEX daily_usage_by_key ON daily_usage (key_id, day)
-- next
CREATE INDEX daily_usage_by_organization ON daily_usage (organization_id, day)
-- next
CREATE TABLE key_usage (
  key_id uuid PRIMARY KEY,
  requests bigint NOT NULL,
  prompt_tokens bigint NOT NULL,
  completion_tokens bigint NOT NULL,
  spend numeric(24, 9) NOT NULL
)
-- next
CREATE TABLE guardrail_logs (
  id uuid NOT NULL,
  created_at timestamptz NOT NULL,
  request_id text NOT NULL,
  call_id uuid NOT NULL,
  guardrail_id text NOT NULL,
  guardrail_name text NOT NULL,
  organization_id text,
  status text NOT NULL,
  stage text NOT NULL DEFAULT 'pre',
  duration_ms double precision NOT NULL,
  confidence double precision,
  original_content text,
  modified_content text,
  -- Read backwards for the newest entries.
  PRIMARY KEY (created_at, id)
) PARTITION BY RANGE (created_at)
-- next
CREATE TABLE guardrail_logs_other PARTITION OF guardrail_logs DEFAULT
-- next
CREATE INDEX guardrail_logs_by_guardrail ON guardrail_logs (guardrail_id, created_at DESC, id DESC)
