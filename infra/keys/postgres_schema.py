"""The schema of the database that holds keys of logs: its tables and its role.

It may be the database of the logs, or another one, which is backed up apart from them.
"""

from __future__ import annotations

from typing import Any, Final

from mnemolog.infra.keys.key_file import WRAPPED_BYTES

SCHEMA_VERSION: Final = 1
SCHEMA: Final = "mnemolog_keys"
ROLE: Final = "mnemolog_keys"
"""It owns the tables: only their owner may rewrite them (`VACUUM FULL`), which wiping destroyed keys takes."""
READER: Final = "mnemolog_keys_reader"

_TABLES: Final = f"""
CREATE TABLE {SCHEMA}.schema_version (version int NOT NULL);
INSERT INTO {SCHEMA}.schema_version VALUES ({SCHEMA_VERSION});
CREATE TABLE {SCHEMA}.meta (
  log_id text COLLATE "C" PRIMARY KEY,
  format int NOT NULL,
  created_at bigint NOT NULL,
  secret bytea NOT NULL CHECK (length(secret) IN (32, {WRAPPED_BYTES})),
  last_change uuid NOT NULL DEFAULT gen_random_uuid(),
  wrapped_with text COLLATE "C"
);
CREATE TABLE {SCHEMA}.nodes (
  log_id text COLLATE "C" NOT NULL,
  stream text COLLATE "C" NOT NULL,
  series int NOT NULL,
  depth int NOT NULL,
  prefix bigint NOT NULL,
  material bytea NOT NULL CHECK (length(material) IN (32, {WRAPPED_BYTES})),
  CONSTRAINT nodes_place PRIMARY KEY (log_id, stream, series, depth, prefix)
);
CREATE TABLE {SCHEMA}.destroyed (
  log_id text COLLATE "C" NOT NULL,
  stream text COLLATE "C" NOT NULL,
  series int NOT NULL,
  first bigint NOT NULL,
  last bigint NOT NULL,
  request text COLLATE "C" NOT NULL,
  CONSTRAINT destroyed_place PRIMARY KEY (log_id, stream, series, first, last, request)
);
CREATE TABLE {SCHEMA}.requests (
  log_id text COLLATE "C" NOT NULL,
  number bigint GENERATED ALWAYS AS IDENTITY,
  request text COLLATE "C" NOT NULL,
  position bigint NOT NULL,
  recorded_at bigint NOT NULL,
  event bytea NOT NULL,
  CONSTRAINT requests_name PRIMARY KEY (log_id, request),
  CONSTRAINT requests_number UNIQUE (log_id, number)
);
"""


def script() -> str:
    """Return the statements that create the schema and the roles, for `prepare_database` and for administrators."""
    owned = "\n".join(
        f"ALTER TABLE {SCHEMA}.{table} OWNER TO {ROLE};"
        for table in ("schema_version", "meta", "nodes", "destroyed", "requests")
    )
    return f"""\
DO $$BEGIN CREATE ROLE {ROLE} NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END$$;
DO $$BEGIN CREATE ROLE {READER} NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END$$;
GRANT {ROLE} TO CURRENT_USER;
CREATE SCHEMA {SCHEMA};
{_TABLES.strip()}
ALTER SCHEMA {SCHEMA} OWNER TO {ROLE};
{owned}
GRANT USAGE ON SCHEMA {SCHEMA} TO PUBLIC;
GRANT SELECT ON {SCHEMA}.schema_version TO PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO {READER};
"""


def allow_wrapped(driver: Any) -> None:
    """Let tables of an earlier version hold wrapped keys, which are longer, and name the key that they need.

    This takes their owner's role.
    """
    for table, column in (("meta", "secret"), ("nodes", "material")):
        name = f"{table}_{column}_check"
        found = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %b AND conrelid = to_regclass(%b)"
        row = driver.execute(found, (name, f"{SCHEMA}.{table}")).fetchone()
        if row is None or str(WRAPPED_BYTES) not in row[0]:
            driver.execute(
                f"ALTER TABLE {SCHEMA}.{table} DROP CONSTRAINT IF EXISTS {name}, "
                f"ADD CONSTRAINT {name} CHECK (length({column}) IN (32, {WRAPPED_BYTES}))"
            )
    if driver.execute(f"SELECT to_jsonb(meta) ? 'wrapped_with' FROM {SCHEMA}.meta LIMIT 1").fetchone() == (False,):
        driver.execute(f'ALTER TABLE {SCHEMA}.meta ADD COLUMN wrapped_with text COLLATE "C"')
