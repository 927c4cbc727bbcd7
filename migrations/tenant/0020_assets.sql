-- Locks: creates only; nothing waits.
-- The catalog: datasets, eval suites and pipeline definitions. The tenant is here too, because without tenants configured
-- one schema holds everybody's rows. Writers of one asset come one after the other, because each holds its row.
CREATE TABLE assets (
  id uuid PRIMARY KEY,
  tenant text NOT NULL,
  organization_id text NOT NULL DEFAULT '',
  kind text NOT NULL CHECK (kind IN ('dataset', 'eval_suite', 'pipeline_definition')),
  name text NOT NULL,
  version integer NOT NULL,
  -- The last ordinal given out in asset_items.
  items integer NOT NULL,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  UNIQUE (tenant, organization_id, kind, name)
)
-- next
CREATE INDEX assets_newest ON assets (tenant, kind, created_at DESC, id DESC)
-- next
-- One row a version, never changed. Items are kept apart, so `content` is there only where it differs from the version
-- before; `content_version` names the row that has it. `content_hash` is the lower-case hexadecimal SHA-256 of the
-- canonical JSON (RFC 8785) of the whole document, items included.
CREATE TABLE asset_versions (
  asset_id uuid NOT NULL REFERENCES assets,
  version integer NOT NULL,
  content_version integer NOT NULL,
  -- Canonical JSON, as it is hashed.
  content text,
  content_hash text NOT NULL,
  -- The items of this version: of a dataset all up to `last_item`, of a suite those of `item_list`.
  item_list integer NOT NULL,
  item_count integer NOT NULL,
  item_bytes bigint NOT NULL,
  last_item integer NOT NULL,
  snapshot_ids text[] NOT NULL,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (asset_id, version)
)
-- next
CREATE INDEX asset_versions_by_snapshot ON asset_versions USING gin (snapshot_ids) WHERE snapshot_ids <> '{}'
-- next
-- `item_list` is 0 for a dataset, whose items are only ever added, and the version for a suite, which brings its own.
CREATE TABLE asset_items (
  asset_id uuid NOT NULL,
  ordinal integer NOT NULL,
  item_list integer NOT NULL,
  item_id text COLLATE "C" NOT NULL,
  weight double precision NOT NULL,
  -- Canonical JSON.
  item text NOT NULL,
  PRIMARY KEY (asset_id, ordinal),
  UNIQUE (asset_id, item_list, item_id)
)
