"""The schema of the database that holds logs: its tables, its triggers, its roles.

One database holds any number of logs, each with one row in `head` and with a digest chain of its own.
"""

from typing import Any, Final

from mnemolog.infra.log.reader import NOT_A_TURN

SCHEMA_VERSION: Final = 1
SCHEMA: Final = "mnemolog"
OWNER: Final = "mnemolog_owner"
WRITER: Final = "mnemolog_writer"
READER: Final = "mnemolog_reader"

# A head row is updated at every append: half of each page stays free for the new versions of its rows.
_TABLES: Final = f"""
CREATE TABLE {SCHEMA}.schema_version (version int NOT NULL);
INSERT INTO {SCHEMA}.schema_version VALUES ({SCHEMA_VERSION});
CREATE TABLE {SCHEMA}.head (
  log int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE,
  log_id text COLLATE "C" NOT NULL UNIQUE,
  format int NOT NULL,
  created_at bigint NOT NULL,
  position bigint NOT NULL DEFAULT 0,
  digest bytea NOT NULL CHECK (length(digest) = 32),
  moved_to text COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE TABLE {SCHEMA}.events (
  log int NOT NULL,
  position bigint NOT NULL,
  version bigint NOT NULL,
  recorded_at bigint NOT NULL,
  stream text COLLATE "C" NOT NULL,
  topic text COLLATE "C" NOT NULL,
  state bytea NOT NULL,
  key text COLLATE "C",
  digest bytea NOT NULL CHECK (length(digest) = 32),
  CONSTRAINT events_position PRIMARY KEY (log, position),
  CONSTRAINT events_version UNIQUE (log, stream, version)
);
ALTER TABLE {SCHEMA}.events ALTER COLUMN state SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX events_key ON {SCHEMA}.events (log, stream, key) WHERE key IS NOT NULL;
CREATE INDEX events_sparse ON {SCHEMA}.events (log, stream, version) WHERE {NOT_A_TURN};
CREATE TABLE {SCHEMA}.nodes (
  log int NOT NULL,
  node text COLLATE "C" NOT NULL,
  label text COLLATE "C" NOT NULL,
  noted_by name COLLATE "C" NOT NULL DEFAULT current_user,
  opened_at bigint NOT NULL,
  seen_at bigint NOT NULL,
  position bigint NOT NULL,
  purged bigint NOT NULL,
  PRIMARY KEY (log, node)
) WITH (fillfactor = 50);
"""

REFUSE_CHANGE: Final = "BEGIN RAISE EXCEPTION 'append-only: % on % refused', TG_OP, TG_TABLE_NAME; END"
"""The body of the function that the triggers call."""

APPEND_ONLY_TRIGGERS: Final = {
    f"{table}_refuse_{verb.split()[0].lower()}": (
        f"CREATE TRIGGER {table}_refuse_{verb.split()[0].lower()} BEFORE {verb} ON {SCHEMA}.{table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {SCHEMA}.refuse_change()"
    )
    for table, verb in (
        *(("events", verb) for verb in ("UPDATE", "DELETE", "TRUNCATE")),
        *(("head", verb) for verb in ("UPDATE OF log, name, log_id, format, created_at", "DELETE", "TRUNCATE")),
    )
}
"""By name, as PostgreSQL prints them."""

_SELECT_TRIGGERS: Final = f"""
SELECT t.tgname::text, CASE WHEN t.tgenabled IN ('O', 'A') AND p.prosrc = '{REFUSE_CHANGE.replace("'", "''")}'
  THEN pg_get_triggerdef(t.oid) ELSE 'disabled or altered' END
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
WHERE c.relnamespace = '{SCHEMA}'::regnamespace AND NOT t.tgisinternal
UNION ALL SELECT rulename::text, 'a rule' FROM pg_rules WHERE schemaname = '{SCHEMA}'
"""

INDEXES: Final = frozenset({"events_position", "events_version", "events_key", "events_sparse"})
_SELECT_INDEXES: Final = f"""
SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = '{SCHEMA}.events'::regclass AND i.indisvalid
"""


# A reader must not confirm for others that they have purged what was forgotten.
_OWN_ROW: Final = f"""
ALTER TABLE {SCHEMA}.nodes ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen_by_all ON {SCHEMA}.nodes FOR SELECT USING (true);
CREATE POLICY changed_by_writers ON {SCHEMA}.nodes TO {WRITER} USING (true);
CREATE POLICY added_by_readers ON {SCHEMA}.nodes FOR INSERT TO {READER} WITH CHECK (noted_by = current_user);
CREATE POLICY changed_by_readers ON {SCHEMA}.nodes FOR UPDATE TO {READER} USING (noted_by = current_user);
"""


def _role(name: str) -> str:
    return (
        f"DO $$BEGIN CREATE ROLE {name} NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END$$;"
    )


def script() -> str:
    """Return the statements that create the schema and the roles, for `prepare_database` and for administrators."""
    triggers = "\n".join(f"{statement};" for statement in APPEND_ONLY_TRIGGERS.values())
    owned = "\n".join(
        f"ALTER TABLE {SCHEMA}.{table} OWNER TO {OWNER};" for table in ("schema_version", "head", "events", "nodes")
    )
    return f"""\
{_role(OWNER)}
{_role(WRITER)}
{_role(READER)}
GRANT {OWNER} TO CURRENT_USER;
CREATE SCHEMA {SCHEMA};
{_TABLES.strip()}
CREATE FUNCTION {SCHEMA}.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $${REFUSE_CHANGE}$$;
{triggers}
ALTER SCHEMA {SCHEMA} OWNER TO {OWNER};
ALTER FUNCTION {SCHEMA}.refuse_change() OWNER TO {OWNER};
{owned}
GRANT USAGE ON SCHEMA {SCHEMA} TO {WRITER}, {READER};
GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO {WRITER}, {READER};
GRANT INSERT ON {SCHEMA}.events, {SCHEMA}.head TO {WRITER};
GRANT UPDATE (position, digest) ON {SCHEMA}.head TO {WRITER};
GRANT INSERT, UPDATE ON {SCHEMA}.nodes TO {WRITER}, {READER};
GRANT DELETE ON {SCHEMA}.nodes TO {WRITER};
{_OWN_ROW.strip()}
"""


def triggers_of(driver: Any) -> dict[str, str]:
    """Return the triggers and rules on the tables of logs, each with its definition."""
    return dict(driver.execute(_SELECT_TRIGGERS).fetchall())


def missing_indexes(driver: Any) -> list[str]:
    """Return the names of indexes that are missing or invalid: a reader without them may miss events."""
    return sorted(INDEXES - {name for (name,) in driver.execute(_SELECT_INDEXES).fetchall()})
