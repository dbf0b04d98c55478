"""The keys of a log in PostgreSQL: the schema, the queries and the transactions of `KeysEngine`.

The tables and the role may be in the database of the logs, or in another one, which is backed up apart from them.
"""

import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from mnemolog.domain import errors
from mnemolog.infra import sqlite
from mnemolog.infra.keys import sqlite_keys
from mnemolog.infra.keys.key_tree import Node
from mnemolog.infra.keys.keyring import WRAPPED_BYTES, KeyErasure, StoredKeys
from mnemolog.infra.postgres import Driver, Settings, error_of, is_lost

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


WIPE_LOCK_S: Final = 1.0
"""How long rewriting the nodes may wait for its lock at a time: all other reads of keys wait too."""
WIPE_PAUSE_S: Final = 0.05
COPIED_TOGETHER: Final = 2_000
"""Rows that a copy of the keys fetches together."""

_OF_STREAM: Final = "WHERE log_id = %b AND stream = %b"
_SELECT_IDENTITY: Final = (  # The last one as JSON, because an earlier version made the table without this column.
    f"SELECT format, secret, to_jsonb(meta) ->> 'wrapped_with' FROM {SCHEMA}.meta WHERE log_id = %b"
)
_SELECT_CHANGE: Final = f"SELECT last_change, secret FROM {SCHEMA}.meta WHERE log_id = %b"
_SELECT_STORED: Final = (
    f"SELECT series, depth::bigint, prefix, material FROM {SCHEMA}.nodes {_OF_STREAM} "
    f"UNION ALL SELECT series, first, last, NULL FROM {SCHEMA}.destroyed {_OF_STREAM}"
)
_HAS_REQUEST: Final = f"SELECT 1 FROM {SCHEMA}.requests WHERE log_id = %b AND request = %b"
_SELECT_SERIES: Final = (
    f"SELECT stream, series FROM {SCHEMA}.nodes WHERE log_id = %b "
    f"UNION SELECT stream, series FROM {SCHEMA}.destroyed WHERE log_id = %b ORDER BY 1, 2"
)
_INSERT_IDENTITY: Final = f"INSERT INTO {SCHEMA}.meta (log_id, format, created_at, secret) VALUES (%b, %b, %b, %b)"
_SET_LOCK_TIMEOUT: Final = "SELECT set_config('lock_timeout', %b, false)"
_COPIED: Final = {
    sqlite_keys.META: f"SELECT 1, log_id, format, created_at, secret FROM {SCHEMA}.meta WHERE log_id = %s",
    sqlite_keys.NODES: f"SELECT stream, series, depth, prefix, material FROM {SCHEMA}.nodes WHERE log_id = %s",
    sqlite_keys.DESTROYED: f"SELECT stream, series, first, last, request FROM {SCHEMA}.destroyed WHERE log_id = %s",
    sqlite_keys.REQUESTS: f"SELECT number, request, position, recorded_at, event FROM {SCHEMA}.requests "
    "WHERE log_id = %s ORDER BY number",
}
_FILLED: Final = {
    "SELECT stream, series, depth, prefix, material FROM nodes": (
        f"INSERT INTO {SCHEMA}.nodes (log_id, stream, series, depth, prefix, material) VALUES (%b, %b, %b, %b, %b, %b)"
    ),
    "SELECT stream, series, first, last, request FROM destroyed": (
        f"INSERT INTO {SCHEMA}.destroyed (log_id, stream, series, first, last, request) VALUES (%b, %b, %b, %b, %b, %b)"
    ),
    "SELECT request, position, recorded_at, event FROM requests ORDER BY number": (
        f"INSERT INTO {SCHEMA}.requests (log_id, request, position, recorded_at, event) VALUES (%b, %b, %b, %b, %b)"
    ),
}

_MISSING: Final = ("3F000", "42P01")  # invalid_schema_name, undefined_table


class PostgresKeys:
    """Implements `KeysEngine` on one connection to the database at `url`, which is made again where it was closed.

    Messages name the database by `named`; `path` is the file that names it.
    """

    def __init__(
        self,
        url: str,
        *,
        log_id: str,
        path: Path,
        named: str,
        busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S,
        read_only: bool = False,
    ) -> None:
        self.log_id = log_id
        self._path = path
        self._named = named
        self._url = url
        self._busy_timeout_s = busy_timeout_s
        self._read_only = read_only
        # Keys are durable before anything is encrypted with them, whatever the log is opened with.
        self._settings = Settings(url, synchronous="FULL", busy_timeout_s=busy_timeout_s, read_only=read_only)
        self._driver: Driver | None = None
        self._cursor: Any = None
        self._secret, self._is_writing = b"", False
        self._closed = False

    def missing(self, why: str) -> errors.KeysMissing:
        """See `KeysEngine`."""
        return errors.KeysMissing(self._path, why).saying(
            f"{self._named} does not have the keys of this log: {why}",
            hint=f"nothing counts as forgotten; grant the role {ROLE} to this user, name the database that has the "
            f"keys as `keys` in {self._path}, or restore the backup of that database",
        )

    def is_there(self) -> bool:
        """See `KeysEngine`."""
        try:
            return bool(self.secret())
        except errors.KeysMissing:
            return False

    def secret(self) -> bytes:
        """See `KeysEngine`."""
        with self._reading():
            return self._secret

    def wrapped_with(self) -> str | None:
        """See `KeysEngine`."""
        with self._reading() as cursor:
            found: str | None = cursor.execute(_SELECT_IDENTITY, (self.log_id,)).fetchone()[2]
            return found

    def last_change(self) -> object:
        """See `KeysEngine`."""
        with self._reading() as cursor:
            row = cursor.execute(_SELECT_CHANGE, (self.log_id,)).fetchone()
        if row is None:
            raise self.missing("they are gone")
        return row[0]

    def stored(self, stream: str) -> StoredKeys:
        """See `KeysEngine`. One statement, so one snapshot."""
        found = StoredKeys([], [])
        with self._reading() as cursor:
            rows = cursor.execute(_SELECT_STORED, (self.log_id, stream) * 2).fetchall()
        for series, first, second, material in rows:
            if material is None:
                found.destroyed.append((series, first, second))
            else:
                found.nodes.append((series, Node(first, second, material)))
        return found

    @contextmanager
    def writing(self) -> Iterator[None]:
        """See `KeysEngine`. The row of the log in `meta` is the lock."""
        with self._reading():
            pass  # Connected now. From here on, missing rights are those to write.
        with self._mapped_errors():
            driver: Any = self._driver
            driver.execute("BEGIN")
            try:
                row = self._cursor.execute(f"{_SELECT_CHANGE} FOR UPDATE", (self.log_id,)).fetchone()
                if row is None:
                    raise self.missing("they are gone")
                self._secret, self._is_writing = row[1], True
                yield
                driver.execute("COMMIT")
            except BaseException:
                if driver.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                    with suppress(psycopg.Error):
                        driver.execute("ROLLBACK")
                if driver.info.transaction_status is not TransactionStatus.IDLE:
                    driver.close()
                raise
            finally:
                self._is_writing = False

    def insert(self, stream: str, series: int, nodes: Sequence[Node]) -> None:
        """See `KeysEngine`."""
        if nodes:
            columns = map(list, zip(*nodes, strict=True))
            self._cursor.execute(
                f"INSERT INTO {SCHEMA}.nodes (log_id, stream, series, depth, prefix, material) "
                "SELECT %b, %b, %b, * FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[])",
                (self.log_id, stream, series, *columns),
            )

    def delete(self, stream: str, series: int, places: Collection[tuple[int, int]]) -> None:
        """See `KeysEngine`."""
        if places:
            columns = map(list, zip(*places, strict=True))
            self._cursor.execute(
                f"DELETE FROM {SCHEMA}.nodes {_OF_STREAM} AND series = %b "
                "AND (depth, prefix) IN (SELECT * FROM unnest(%b::bigint[], %b::bigint[]))",
                (self.log_id, stream, series, *columns),
            )

    def note_destroyed(self, stream: str, series: int, ranges: Sequence[tuple[int, int]], request: str) -> None:
        """See `KeysEngine`."""
        columns = map(list, zip(*ranges, strict=True))
        self._cursor.execute(
            f"INSERT INTO {SCHEMA}.destroyed (log_id, stream, series, request, first, last) "
            "SELECT %b, %b, %b, %b, * FROM unnest(%b::bigint[], %b::bigint[]) ON CONFLICT DO NOTHING",
            (self.log_id, stream, series, request, *columns),
        )

    def note_request(self, erasure: KeyErasure) -> None:
        """See `KeysEngine`."""
        self._cursor.execute(
            f"INSERT INTO {SCHEMA}.requests (log_id, request, position, recorded_at, event) "
            "VALUES (%b, %b, %b, %b, %b) ON CONFLICT (log_id, request) DO UPDATE SET position = excluded.position",
            (self.log_id, *erasure),
        )

    def rewrite(self, change: Callable[[bytes], bytes], *, wrapped_with: str | None) -> None:
        """See `KeysEngine`."""
        allow_wrapped(self._cursor)
        number = sqlite_keys.WRAPPED_FORMAT if wrapped_with else sqlite_keys.CLEAR_FORMAT
        self._cursor.execute(
            f"UPDATE {SCHEMA}.meta SET format = %b, secret = %b, wrapped_with = %b WHERE log_id = %b",
            (number, change(self._secret), wrapped_with, self.log_id),
        )
        with self._cursor.connection.cursor("nodes") as nodes:
            nodes.execute(
                f"SELECT stream, series, depth, prefix, material FROM {SCHEMA}.nodes WHERE log_id = %b",
                (self.log_id,),
                binary=True,
            )
            for page in _pages(nodes):
                changed = [(change(material), self.log_id, *place) for *place, material in page]
                self._cursor.executemany(
                    f"UPDATE {SCHEMA}.nodes SET material = %b {_OF_STREAM} "
                    "AND series = %b AND depth = %b AND prefix = %b",
                    changed,
                )

    def note_change(self) -> None:
        """See `KeysEngine`."""
        self._cursor.execute(
            f"UPDATE {SCHEMA}.meta SET last_change = gen_random_uuid() WHERE log_id = %b", (self.log_id,)
        )

    def requests(self, *, last: bool = False) -> list[KeyErasure]:
        """See `KeysEngine`."""
        query = (
            f"SELECT request, position, recorded_at, event FROM {SCHEMA}.requests WHERE log_id = %b ORDER BY number"
            + " DESC LIMIT 1" * last
        )
        with self._reading() as cursor:
            return [KeyErasure(*row) for row in cursor.execute(query, (self.log_id,)).fetchall()]

    def has_request(self, request: str) -> bool:
        """See `KeysEngine`."""
        with self._reading() as cursor:
            return cursor.execute(_HAS_REQUEST, (self.log_id, request)).fetchone() is not None

    def series(self) -> list[tuple[str, int]]:
        """See `KeysEngine`. PostgreSQL checks pages itself, where its checksums are on."""
        with self._reading() as cursor:
            return [tuple(row) for row in cursor.execute(_SELECT_SERIES, (self.log_id, self.log_id)).fetchall()]

    def wipe(self) -> bool:
        """See `KeysEngine`. What PostgreSQL still has elsewhere is in docs/keys.md.

        Deleting a row and `VACUUM` leave its bytes in the page. `VACUUM FULL` writes a new file, but also the rows that
        an older snapshot may still see, and says how many those are.
        """
        end = time.monotonic() + self._busy_timeout_s
        while (left := self._rewrite()) and time.monotonic() < end:
            time.sleep(WIPE_PAUSE_S)
        return not left

    def copy_to(self, target: Path) -> None:
        """See `KeysEngine`."""
        with self._reading() as cursor, cursor.connection.transaction():
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            number, _, key = cursor.execute(_SELECT_IDENTITY, (self.log_id,)).fetchone()
            tables = {table: self._pages(query) for table, query in _COPIED.items()}
            with sqlite.mapped_errors(target):
                sqlite_keys.write_copy(target, tables, wrapped=number == sqlite_keys.WRAPPED_FORMAT, wrapped_with=key)

    def replace(self, copy: Path) -> None:
        """See `KeysEngine`. What was there and is not in the file is wiped."""
        with self._mapped_errors(), closing(sqlite.connect_read_only(copy)) as file, self._settings.connect() as driver:
            (row,) = sqlite_keys.rows(
                file, "SELECT log_id, format, created_at, secret FROM keys_meta", types=(str, int, int, bytes)
            )
            if row[0] != self.log_id:
                raise self.missing(f"{copy} has those of log {row[0]}")
            with driver.transaction():
                if row[1] == sqlite_keys.WRAPPED_FORMAT:
                    allow_wrapped(driver)
                driver.execute(
                    f"{_INSERT_IDENTITY} ON CONFLICT (log_id) DO UPDATE "
                    "SET format = excluded.format, secret = excluded.secret, last_change = gen_random_uuid()",
                    row,
                )
                if row[1] == sqlite_keys.WRAPPED_FORMAT:
                    driver.execute(
                        f"UPDATE {SCHEMA}.meta SET wrapped_with = %b WHERE log_id = %b",
                        (sqlite_keys.wrapped_with(file), self.log_id),
                    )
                deleted = [
                    driver.execute(f"DELETE FROM {SCHEMA}.{table} WHERE log_id = %b", (self.log_id,)).rowcount
                    for table in ("nodes", "destroyed", "requests")
                ]
                with driver.cursor() as cursor:
                    for query, insert in _FILLED.items():
                        for page in _pages(file.execute(query)):
                            cursor.executemany(insert, [(self.log_id, *row) for row in page])
        if any(deleted):
            self.wipe()

    def another(self, *, busy_timeout_s: float | None = None) -> "PostgresKeys":
        """See `KeysEngine`."""
        return PostgresKeys(
            self._url,
            log_id=self.log_id,
            path=self._path,
            named=self._named,
            busy_timeout_s=self._busy_timeout_s if busy_timeout_s is None else busy_timeout_s,
            read_only=self._read_only,
        )

    def close(self) -> None:
        """See `KeysEngine`."""
        self._closed = True
        if self._driver is not None:
            self._driver.close()

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        """Give a cursor. Where this user may not read the keys, or they have no table, they are missing."""
        try:
            with self._mapped_errors():
                if self._closed:
                    raise errors.StoreClosed
                if self._driver is None or (not self._is_writing and is_lost(self._driver)):
                    self._connect()
                yield self._cursor
        except errors.StoreNotWritable as error:
            if getattr(error.__cause__, "sqlstate", None) != "42501":
                raise
            raise self.missing(f"this user needs the role {ROLE} ({_said(error)})") from error

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, UnicodeEncodeError, OverflowError) as error:
            if getattr(error, "sqlstate", None) in _MISSING:
                raise self.missing(f"it was not prepared for keys ({_said(error)})") from error
            meaning = error_of(error, self._path, busy_timeout_s=self._busy_timeout_s)
            if isinstance(meaning, errors.LogBusy):
                meaning = errors.LogBusy(waited_s=meaning.waited_s, what=sqlite_keys.LOCKED)
            raise meaning from error

    def _connect(self) -> None:
        driver, newest = self._settings.connect_again(), sqlite_keys.WRAPPED_FORMAT
        try:
            cursor = driver.cursor(binary=True)
            row = cursor.execute(_SELECT_IDENTITY, (self.log_id,)).fetchone()
            if row is None:
                raise self.missing(f"it has none of log {self.log_id}")
            if row[0] > newest:
                raise self.missing(f"they have format {row[0]}; this mnemolog reads formats up to {newest}")
        except BaseException:
            driver.close()
            raise
        self._driver = driver
        self._cursor = cursor
        self._secret = row[1]

    def _rewrite(self) -> int:
        """Write the nodes into a new file. Return how many deleted ones are in it, -1 where it was not written."""
        said: list[tuple[str, str | None]] = []

        def hear(notice: psycopg.errors.Diagnostic) -> None:
            said.append((str(notice.message_primary), notice.message_detail))

        with self._reading():
            pass  # Connected now.
        with self._mapped_errors():
            driver: Any = self._driver
            driver.add_notice_handler(hear)
            try:
                driver.execute(_SET_LOCK_TIMEOUT, (str(round(WIPE_LOCK_S * 1_000)),))
                driver.execute(f"VACUUM (FULL, VERBOSE) {SCHEMA}.nodes")
            except psycopg.errors.LockNotAvailable:
                return -1
            finally:
                driver.remove_notice_handler(hear)
                with suppress(psycopg.Error):
                    driver.execute(_SET_LOCK_TIMEOUT, (str(round(self._busy_timeout_s * 1_000)),))
        # "1 dead row versions cannot be removed yet.\nCPU: ...", in the language of the server.
        counts = [found for _, detail in said if (found := re.search(r"\d+", detail or "")) is not None]
        if not counts:
            raise errors.StoreNotWritable(self._path, "; ".join(primary for primary, _ in said))
        return int(counts[-1].group())

    def _pages(self, query: str) -> Iterator[list[Any]]:
        assert self._driver is not None
        with self._driver.cursor("keys") as rows:
            rows.execute(query, (self.log_id,), binary=True)
            yield from _pages(rows)


def _pages(rows: Any) -> Iterator[list[Any]]:
    while page := rows.fetchmany(COPIED_TOGETHER):
        yield page


def create(driver: Any, *, created_at: int) -> str:
    """Create the keys of a new log, durably, and return the id that the log must get. Raises the driver's errors."""
    row = (secrets.token_hex(16), sqlite_keys.CLEAR_FORMAT, created_at, secrets.token_bytes(sqlite_keys.SECRET_BYTES))
    driver.execute(_INSERT_IDENTITY, row)
    return row[0]


def discard(driver: Any, log_id: str) -> None:
    """Delete keys that were made for a log which was not created after all. Raises the driver's errors."""
    driver.execute(
        f"DELETE FROM {SCHEMA}.meta WHERE log_id = %b AND NOT EXISTS "
        f"(SELECT 1 FROM {SCHEMA}.nodes n WHERE n.log_id = meta.log_id)",
        (log_id,),
    )


def _said(error: BaseException) -> str:
    return str(error.__cause__ or error).strip().partition("\n")[0]
