"""The log in PostgreSQL: the queries, the appends and the errors of `LogEngine`.

Creates the schema of a database, and finds or creates a log in it.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from psycopg.pq import TransactionStatus

from mnemolog.domain import errors
from mnemolog.domain.head import Head
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.values import Clock, Micros
from mnemolog.infra import sqlite
from mnemolog.infra.keys import postgres_keys
from mnemolog.infra.log.engine import (
    LOG_FORMAT,
    PLAIN_FORMAT,
    LogConnection,
    LogEngine,
    LogIdentity,
    StagedRow,
    altered_triggers,
    moved,
)
from mnemolog.infra.log.postgres import schema
from mnemolog.infra.log.postgres.address import (
    LogAddress,
    answers_alone,
    known_identity,
    note_address,
    require_url,
    without_password,
)
from mnemolog.infra.log.postgres.heads import LogHeads
from mnemolog.infra.log.postgres.nodes import PostgresNodes
from mnemolog.infra.log.reader import PAGE_BYTES, SPARSE, LogReader
from mnemolog.infra.log.seen_head import SeenHead, noted_head
from mnemolog.infra.log.sqlite.engine import write_copy
from mnemolog.infra.postgres import Driver, Settings, error_of, is_lost
from mnemolog.infra.runtime.files import is_writable, make_folder
from mnemolog.infra.sqlite import Synchronous

POLL_INTERVAL_S: Final = 10.0
"""How often followers look for commits themselves: a precaution, since `infra.log.postgres.heads` watches."""
LOCKED_APPENDS: Final = 32
"""After another process appended, so many appends take the lock first: comparing would often fail again."""
LOST_TRIES: Final = 3
"""How often a query is repeated on another connection. A server that stops ends one after another, idle ones too."""
COPIED_TOGETHER: Final = 500
"""Rows that a copy of the log fetches together."""

# The digest at a position that was seen before comes with every later head, without another round trip.
_DIGEST_THERE: Final = f"(SELECT e.digest FROM {schema.SCHEMA}.events e WHERE e.log = h.log AND e.position = %b)"
_HEAD_ROW: Final = f"SELECT position, digest, log_id, {_DIGEST_THERE} FROM {schema.SCHEMA}.head h WHERE log = %b"
_SELECT_HEAD: Final = (
    f"SELECT position, digest, CASE WHEN position > %b THEN {_DIGEST_THERE} END "
    f"FROM {schema.SCHEMA}.events h WHERE log = %b AND position > 0 ORDER BY position DESC LIMIT 1"
)
_WITHIN_PAGE: Final = (
    "SELECT * FROM (SELECT page.*, sum(octet_length(state)) OVER (ROWS UNBOUNDED PRECEDING) - octet_length(state) "
    f"AS before FROM ({{}}) page) counted WHERE before < {PAGE_BYTES} ORDER BY position"
)
_SIZE: Final = (
    f"SELECT pg_total_relation_size('{schema.SCHEMA}.events') + pg_total_relation_size('{schema.SCHEMA}.head')"
)

# The condition on the head row makes the append: it matches only while the head is the one that was staged after.
_SWAP: Final = (
    f"WITH h AS (UPDATE {schema.SCHEMA}.head SET position = %b, digest = %b "
    "WHERE log = %b AND position = %b AND digest = %b RETURNING log) "
    f"INSERT INTO {schema.SCHEMA}.events (log, position, stream, version, topic, state, recorded_at, digest, key) "
)
_APPEND_ONE: Final = _SWAP + "SELECT log, %b, %b, %b, %b, %b, %b, %b, %b::text FROM h"
_APPEND_ALL: Final = _SWAP + (
    "SELECT h.log, u.* FROM h, unnest(%b::bigint[], %b::text[], %b::bigint[], %b::text[], %b::bytea[], "
    "%b::bigint[], %b::bytea[], %b::text[]) AS u"
)

_SET_BACK: Final = (
    f"UPDATE {schema.SCHEMA}.head h SET position = e.position, digest = e.digest FROM (SELECT position, digest "
    f"FROM {schema.SCHEMA}.events WHERE log = %b AND position > 0 ORDER BY position DESC LIMIT 1) e WHERE h.log = %b"
)
_SET_MOVED_TO: Final = f"UPDATE {schema.SCHEMA}.head SET moved_to = %b WHERE log = %b AND position = %b"


@cache
def _translated(query: str) -> str:
    """Return a query as `LogReader` writes it in PostgreSQL's words: of one log, with binary parameters."""
    query = query.replace(f" {SPARSE}", "").replace("?", "%b")
    query = query.replace(
        "FROM events AS before WHERE", f"FROM {schema.SCHEMA}.events AS before WHERE before.log = events.log AND"
    )
    return query.replace("FROM events WHERE", f"FROM {schema.SCHEMA}.events WHERE log = %b AND")


class PostgresReader(LogReader):
    """Implements `LogReader` on a driver connection. `log` is the number of the log in its database."""

    __slots__ = ("_again", "_cursor", "driver", "log")

    select_stored = (
        "SELECT position, convert_to(stream, 'UTF8'), version, convert_to(topic, 'UTF8'), state, "
        "convert_to(key, 'UTF8'), recorded_at, digest FROM events WHERE"
    )

    def __init__(self, driver: Driver, log: int, genesis: bytes, *, again: Callable[[], Driver] | None = None) -> None:
        """`again` connects again where a query lost the connection. None inside a transaction, which is lost too."""
        self.log = log
        self._again = again
        self.genesis = genesis
        self.use(driver)

    def use(self, driver: Driver) -> None:
        """Read through another connection from now on."""
        self.driver, self._cursor = driver, driver.cursor(binary=True)

    def head_row(self, seen: int = 0, *, lock: bool = False) -> Any:
        """Return position, digest and log id of the head row, None if there is none. `lock` takes the log's lock.

        Then follows the digest at the position `seen`.
        """
        return self._sent(_HEAD_ROW + " FOR UPDATE" * lock, (seen, self.log)).fetchone()

    def head(self, seen: int = 0) -> tuple[int, Any, Any] | None:
        """See `LogReader`. Reads the last event: `last_given` reads the head row, and `verify` compares them."""
        found: tuple[int, Any, Any] | None = self._sent(_SELECT_HEAD, (seen, seen, self.log)).fetchone()
        return found

    def last_given(self) -> int:
        """See `LogReader`."""
        found = self.head_row()
        return 0 if found is None else int(found[0])

    def first_stream_with(self, key: str, streams: Sequence[str]) -> str | None:
        """See `LogReader`."""
        found: str | None = self._value(
            "SELECT stream FROM events WHERE stream = ANY(?::text[]) AND key = ? ORDER BY position LIMIT 1",
            (list(streams), key),
        )
        return found

    def staged_rows(self, *, after: int, upto: int) -> list[StagedRow]:
        """Return a page of rows, as they are inserted."""
        return self._all(
            "SELECT position, stream, version, topic, state, recorded_at, digest, key FROM events "
            f"WHERE position > ? AND position <= ? ORDER BY position LIMIT {COPIED_TOGETHER}",
            (after, upto),
        )

    def _run(self, query: str, parameters: tuple[Any, ...]) -> psycopg.Cursor[Any]:
        return self._sent(_translated(query), (self.log, *parameters))

    def _page(self, query: str, parameters: tuple[Any, ...]) -> list[Any]:
        return [row[:-1] for row in self._run(_WITHIN_PAGE.format(query), parameters)]

    def _sent(self, query: str, parameters: tuple[Any, ...]) -> psycopg.Cursor[Any]:
        for _ in range(LOST_TRIES):
            try:
                return self._cursor.execute(query, parameters)
            except psycopg.OperationalError:
                if self._again is None or not self.driver.closed:
                    raise
            self.use(self._again())
        return self._cursor.execute(query, parameters)


class PostgresConnection(LogConnection):
    """Implements `LogConnection`. It is made again where the server has closed it."""

    def __init__(self, settings: Settings, *, log: int, identity: LogIdentity, path: Path) -> None:
        self._settings = settings
        self._log = log
        self._log_id = identity.log_id
        self._path = path
        self.driver = settings.connect_again()
        self.reads = PostgresReader(self.driver, log, identity.genesis)
        self._cursor = self.driver.cursor(binary=True)
        self._head: tuple[int, bytes | bytearray] = (0, b"")
        self._last: StagedRow | None = None
        """The last row that the open transaction has inserted."""
        self._locked_appends = 0

    finds_used_keys = True

    @property
    def is_contended(self) -> bool:  # type: ignore[override]
        """See `LogConnection`."""
        return self._locked_appends > 0

    def append(self, rows: Sequence[StagedRow], *, head: int, head_digest: bytes) -> bool:
        """See `LogConnection`. One statement moves the head row, if it is the one given, and inserts the rows."""
        if is_lost(self.driver):
            return False
        try:
            appended = self._swap(rows, head, head_digest)
        except psycopg.errors.UniqueViolation:  # Who repeats one call often repeats more: look each up for a while.
            self._locked_appends = LOCKED_APPENDS
            return False
        except psycopg.OperationalError:
            if not self.driver.closed:
                raise
            return self._has_survived(rows[-1])
        if not appended:
            self._locked_appends = LOCKED_APPENDS
        return appended

    def lock(self, seen: int) -> tuple[int, bytes | None, int, bytes | None]:
        """See `LogConnection`. Takes the head row."""
        if self._status is not TransactionStatus.INTRANS:
            if is_lost(self.driver):
                self._connect()
            self.driver.execute("BEGIN")
        found = self.reads.head_row(seen, lock=True)
        if found is None or found[2] != self._log_id:
            raise errors.StoreReplaced(self._path, f"its database holds log {found and found[2]}, not {self._log_id}")
        position, digest, _, digest_there = found
        self._head, self._last = (position, digest), None
        self._locked_appends = max(0, self._locked_appends - 1)
        return position, digest if position else None, position, digest_there

    def insert(self, rows: Sequence[StagedRow]) -> None:
        """See `LogConnection`."""
        if not rows:
            return
        if not self._swap(rows, *self._head):
            raise errors.LogDamaged("the head row was changed by a writer that did not lock it")
        self._head, self._last = (rows[-1][0], rows[-1][6]), rows[-1]

    def commit(self) -> None:
        """See `LogConnection`."""
        try:
            self.driver.execute("COMMIT")
        except psycopg.OperationalError:
            if self._last is None or not (self.driver.closed and self._has_survived(self._last)):
                raise

    def roll_back(self) -> None:
        """See `LogConnection`."""
        if self._status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            with suppress(psycopg.Error):
                self.driver.execute("ROLLBACK")
        if self._status is not TransactionStatus.IDLE:
            self.driver.close()

    def has_committed(self, row: StagedRow) -> bool:
        """See `LogConnection`."""
        match self._status:
            case TransactionStatus.IDLE:
                return bool(self.reads.digest_at(row[0]) == row[6])
            case TransactionStatus.INTRANS | TransactionStatus.INERROR:
                return False
        self.driver.close()
        return self._has_survived(row)

    def close(self) -> None:
        """See `LogConnection`."""
        self.driver.close()

    @property
    def _status(self) -> TransactionStatus:
        return self.driver.info.transaction_status

    def _connect(self) -> None:
        self.driver.close()
        self.driver = self._settings.connect_again()
        self.reads.use(self.driver)
        self._cursor = self.driver.cursor(binary=True)

    def _swap(self, rows: Sequence[StagedRow], head: int, head_digest: bytes | bytearray) -> bool:
        last = rows[-1]
        swapped = (last[0], last[6], self._log, head, head_digest)
        if len(rows) == 1:
            cursor = self._cursor.execute(_APPEND_ONE, (*swapped, *last), prepare=True)
        else:
            cursor = self._cursor.execute(_APPEND_ALL, (*swapped, *map(list, zip(*rows, strict=True))), prepare=True)
        return cursor.rowcount == len(rows)

    def _has_survived(self, row: StagedRow) -> bool:
        """Whether an append whose connection was lost is committed. If it is not, the log is locked from now on.

        The server may still be running it. It holds the head row then, so the lock waits for it. The caller appends
        under this lock, which moves the head: an append that arrives even later does nothing.
        """
        try:
            self._connect()
            self.lock(0)
            survived = bool(self.reads.digest_at(row[0]) == row[6])
        except psycopg.Error as error:
            raise errors.LogUnreachable(
                "the connection to PostgreSQL was lost during an append, and PostgreSQL cannot be asked what became of "
                "it: whether the events were written is unknown"
            ) from error
        if survived:
            self.roll_back()
        return survived


class PostgresEngine(LogEngine):
    """Implements `LogEngine` on one log of a database. `path` is the file that names the database and the log.

    `log` is the number of the log, or finds it by the first connection, where there was none when this was made.
    """

    poll_interval_s = POLL_INTERVAL_S
    driver_errors = (psycopg.Error, sa.exc.SQLAlchemyError)

    def __init__(
        self,
        settings: Settings,
        *,
        log: int | Callable[[Driver], int],
        identity: LogIdentity,
        path: Path,
        seen: SeenHead,
    ) -> None:
        self._settings = settings
        self.log = log
        self._identity = identity
        self._path = path
        self.seen = seen
        self._genesis = identity.genesis
        self.busy_timeout_s = settings.busy_timeout_s
        self.pool = settings.pool(self._connect)
        self._closed = False
        self.nodes = PostgresNodes(self._number, self._driver)
        self._heads = self.commits = LogHeads(settings, self._number)

    @contextmanager
    def reading(self) -> Iterator[PostgresReader]:
        """See `LogEngine`."""
        with self._connected() as (driver, again):
            yield PostgresReader(driver, self._number(driver), self._genesis, again=again)

    @contextmanager
    def _driver(self) -> Iterator[Driver]:
        """Give a connection of the pool. Raises only errors of mnemolog."""
        with self._connected() as (driver, _):
            yield driver

    @contextmanager
    def _connected(self) -> Iterator[tuple[Driver, Callable[[], Driver]]]:
        """Give a connection of the pool, and what replaces it by another one. Raises only errors of mnemolog."""
        try:
            connection = self.pool.connect()

            def again() -> Driver:
                nonlocal connection
                connection.invalidate()
                connection = self.pool.connect()
                return connection.driver_connection  # type: ignore[return-value]

            try:
                yield connection.driver_connection, again  # type: ignore[misc]
            finally:
                connection.close()
                if self._closed:  # While this was in use.
                    self.pool.dispose()
        except (psycopg.Error, sa.exc.SQLAlchemyError, UnicodeEncodeError, OverflowError) as error:
            raise self.seen.meet(self.error_of(error)) from error
        except errors.LogDamaged as error:
            self.seen.meet(error)
            raise

    def connect(self) -> PostgresConnection:
        """See `LogEngine`."""
        with self._driver() as driver:
            log, place = self._number(driver), self._moved_to(driver)
        if place:
            raise moved(
                self._path.parent,
                place,
                undo=f"`UPDATE {schema.SCHEMA}.head SET moved_to = '' WHERE log = {log}` in its database",
            )
        connection = PostgresConnection(self._settings, log=log, identity=self._identity, path=self._path)
        changed = altered_triggers(schema.triggers_of(connection.driver), schema.APPEND_ONLY_TRIGGERS)
        if changed:
            connection.close()
            raise errors.LogWriteFailed(f"the log's triggers are missing or altered: {changed}")
        return connection

    def _number(self, driver: Any) -> int:
        if not isinstance(self.log, int):
            self.log = self.log(driver)
        return self.log

    def is_conflict(self, error: BaseException) -> bool:
        """See `LogEngine`."""
        return isinstance(error, psycopg.errors.UniqueViolation)

    def is_lost(self, error: BaseException) -> bool:
        """See `LogEngine`. Errors that the server reports have a code; those of its shutdown begin with 57P."""
        state = getattr(error, "sqlstate", None)
        return isinstance(error, psycopg.OperationalError) and (state is None or state.startswith(("57P", "08")))

    def error_of(self, error: BaseException) -> errors.MnemologError:
        """See `LogEngine`."""
        return error_of(error, self._path, busy_timeout_s=self.busy_timeout_s)

    def moved_to(self) -> str:
        """See `LogEngine`."""
        with self._driver() as driver:
            return self._moved_to(driver)

    def _moved_to(self, driver: Driver) -> str:
        found = driver.execute(
            f"SELECT moved_to FROM {schema.SCHEMA}.head WHERE log = %b", (self._number(driver),)
        ).fetchone()
        if found is None:
            raise errors.StoreReplaced(self._path, "its database has no such log any more")
        return str(found[0])

    def set_moved_to(self, place: str, *, head: int) -> bool:
        """See `LogEngine`. An append that is under way holds the head row, and moves it."""
        with self._driver() as driver:
            return bool(driver.execute(_SET_MOVED_TO, (place, self._number(driver), head)).rowcount)

    def set_back(self) -> None:
        """See `LogEngine`."""
        with self._driver() as driver:
            driver.execute(_SET_BACK, (self._number(driver),) * 2)

    def missing_triggers(self) -> list[str]:
        """See `LogEngine`."""
        with self.reading() as reads:
            return altered_triggers(schema.triggers_of(reads.driver), schema.APPEND_ONLY_TRIGGERS)

    def contradictions(self) -> list[str]:
        """See `LogEngine`."""
        with self.reading() as reads:
            found = [f"{name} is missing or invalid" for name in schema.missing_indexes(reads.driver)]
            early = reads.driver.execute(
                f"SELECT position FROM {schema.SCHEMA}.events WHERE log = %b AND position < 1", (reads.log,)
            ).fetchall()
        return [*found, *(f"an event is at position {position}, before the first" for (position,) in early)]

    def size_bytes(self) -> int:
        """Return the size of all logs in the database: PostgreSQL does not count them one by one."""
        with self._driver() as driver:
            return int(driver.execute(_SIZE).fetchone()[0])  # type: ignore[index]

    def copy_to(self, target: Path, *, moved: Callable[[int], None]) -> None:
        """See `LogEngine`. The copy is a file as `mnemolog.infra.log.sqlite` has it, with the same digests."""
        try:
            write_copy(target, self._identity, self._rows(moved))
        except sqlite.driver_errors() as error:
            raise sqlite.map_error(error, target) from error

    def _rows(self, moved: Callable[[int], None]) -> Iterator[list[StagedRow]]:
        """Yield the rows up to the present head, page by page: what is appended meanwhile comes after them."""
        with self.reading() as reads:
            after, upto = 0, reads.last_given()
        while after < upto:
            with self.reading() as reads:
                rows = reads.staged_rows(after=after, upto=upto)
            if not rows:
                return
            yield rows
            moved(sum(len(row[4]) for row in rows))
            after = rows[-1][0]

    def close(self) -> None:
        """See `LogEngine`."""
        self._heads.close()
        self._closed = True
        self.pool.dispose()
        self.seen.close()

    def _connect(self) -> Driver:
        """Return a new connection for reads. It may lead to another server, so that the log is compared first."""
        return self._settings.connect_again(
            lambda driver: PostgresReader(driver, self._number(driver), self._genesis).head()
        )


_INSERT_LOG = (
    f"INSERT INTO {schema.SCHEMA}.head (name, log_id, format, created_at, digest) VALUES (%b, %b, %b, %b, %b) "
    "ON CONFLICT DO NOTHING"
)
_SELECT_NAME = f"SELECT name FROM {schema.SCHEMA}.head WHERE log_id = %b"


def prepare(url: str, keys: str | None = None) -> bool:
    """Create the schemas and the roles of a database of logs, and of the one with their keys if that is another.

    Return False, and change nothing, if they are there already. Raises `LogUnreachable`, `StoreNotWritable` for a user
    who may not create them, `FormatTooNew`.
    """
    if keys is not None:
        require_url("keys", keys)
    made = _prepare(url, schema)
    return _prepare(keys or url, postgres_keys) or made


def _prepare(url: str, wanted: ModuleType) -> bool:
    database = Path(f"schema {wanted.SCHEMA}")
    with _connected(Settings(url), database) as driver:
        (encoding,) = driver.execute("SHOW server_encoding").fetchone()
        if encoding != "UTF8":
            raise errors.StoreError(f"the database has the encoding {encoding}, and a log needs UTF8")
        with driver.transaction():
            driver.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (wanted.SCHEMA,))  # Two may do it at once.
            if (found := _version_of(driver, wanted)) is None:
                driver.execute(wanted.script(), prepare=False)
        _require_version(found, database, wanted)
    return found is None


def open_log(
    address: LogAddress,
    path: Path,
    *,
    clock: Clock,
    create: bool,
    encrypt: bool | None,
    identity: LogIdentity | None,
    synchronous: Synchronous,
    busy_timeout_s: float,
    read_only: bool,
) -> tuple[LogIdentity, PostgresEngine]:
    """Open the log at `address`, created together with its keys where there is none and `create` is set.

    `path` is the file that notes the address: it is written once the log exists. Options and errors are those of
    `mnemolog.infra.log.open`, and `LogUnreachable` for a log that this folder has no views of. Views may be read while
    PostgreSQL is away: the log is then found by the first call that reaches it.
    """
    settings = Settings(address.url, synchronous=synchronous, busy_timeout_s=busy_timeout_s, read_only=read_only)
    noted, may_lose = noted_head(path.parent), synchronous == "NORMAL"
    try:
        log, identity = _find_or_create(settings, address, path, clock, create, encrypt, identity, read_only, noted)
    except errors.LogUnreachable:
        known = known_identity(path.parent)
        if known is None or not answers_alone(path.parent) or not StoreLayout(path.parent).views.exists():
            raise
        settings.stop_waiting()
        again = partial(_found_again, address, known, path)
        seen = SeenHead(path.parent, known.log_id, writable=is_writable(path.parent), may_lose=may_lose)
        return known, PostgresEngine(settings, log=again, identity=known, path=path, seen=seen)
    keeps_projections = not read_only or is_writable(path.parent)
    if identity.log_format > LOG_FORMAT:
        raise errors.FormatTooNew(path, found=identity.log_format, supported=LOG_FORMAT)
    if keeps_projections:
        note_address(path.parent, address, identity)
    seen = SeenHead(path.parent, identity.log_id, writable=keeps_projections, may_lose=may_lose)
    if noted is not None and noted.log_id not in (None, identity.log_id):
        seen.lost = f"the database holds log {identity.log_id} under this name; this node has seen log {noted.log_id}"
    return identity, PostgresEngine(settings, log=log, identity=identity, path=path, seen=seen)


def _no_log(address: LogAddress, path: Path, noted: Head | None) -> errors.StoreError:
    """Return the error for a log that is not in the database. One that this node has seen is never created anew."""
    why = f"there is no log {address.log!r} in {without_password(address.url)}"
    if noted is not None:
        return errors.HistoryLost(path.parent, f"{why}; this node has seen position {noted.position} of it").saying(
            hint="nothing was changed; bring back the database that has it, or use another local folder"
        )
    return errors.StoreNotFound(path.parent).saying(why)


def _found_again(address: LogAddress, identity: LogIdentity, path: Path, driver: Any) -> int:
    """Return the number of a log that could not be asked for when it was opened. Raises `StoreReplaced`."""
    found = None if _version_of(driver, schema) is None else _find(driver, address.log)
    if found is None or found[1] != identity:
        raise errors.StoreReplaced(path, f"its database has no log {address.log!r} with the identity {identity.log_id}")
    return found[0]


def _find_or_create(
    settings: Settings,
    address: LogAddress,
    path: Path,
    clock: Clock,
    create: bool,
    encrypt: bool | None,
    identity: LogIdentity | None,
    read_only: bool,
    noted: Head | None,
) -> tuple[int, LogIdentity]:
    """Return the log at an address. One of which this node has `noted` a head is not created."""
    keeps_projections = not (read_only and path.parent.exists() and not is_writable(path.parent))
    with _connected(settings, path) as driver:
        version = _version_of(driver, schema)
        if version is None:
            raise _no_schema(address.url, "logs")
        _require_version(version, path, schema)
        found = _find(driver, address.log)
        if found is None and (noted is not None or not create):
            raise _no_log(address, path, noted)
        if keeps_projections:
            make_folder(path.parent)
        if found is None:
            if identity is None and encrypt is not False:
                found = _create_with_keys(driver, address, path, clock.now(), settings.busy_timeout_s)
            else:
                made = identity or LogIdentity(secrets.token_hex(16), PLAIN_FORMAT, clock.now())
                found = _create(driver, address.log, made)
                if found is None and (named := driver.execute(_SELECT_NAME, (made.log_id,)).fetchone()) is not None:
                    raise errors.BackupRefused(
                        path.parent, f"the database has this log already, under the name {named[0]!r}"
                    )
    if found is None:
        raise errors.StoreNotWritable(path, "the log was not created")
    return found


def keys_of(
    address: LogAddress, path: Path, *, log_id: str, busy_timeout_s: float, read_only: bool
) -> postgres_keys.PostgresKeys:
    """Return the keys of the log at `address`. `path` is the file that notes the address."""
    url = address.keys or address.url
    return postgres_keys.PostgresKeys(
        url,
        log_id=log_id,
        path=path,
        named=f"{postgres_keys.SCHEMA} in {without_password(url)}",
        busy_timeout_s=busy_timeout_s,
        read_only=read_only,
    )


def script(*, apart: bool) -> str:
    """Return the SQL that `prepare` runs. `apart`: the keys are in another database."""
    where = "-- In the other database, for the keys:\n" if apart else ""
    return f"{schema.script()}{where}{postgres_keys.script()}"


def _no_schema(url: str, what: str) -> errors.StoreError:
    url = without_password(url)
    return errors.StoreError(f"{url} is not prepared for {what}").saying(
        hint=errors.Hint(
            errors.remedy("prepare_database", url), " does it once, as a user who may create schemas and roles"
        )
    )


def _find(driver: Any, name: str) -> tuple[int, LogIdentity] | None:
    """Return the number of a log in the database and its identity, by its name."""
    row = driver.execute(
        f"SELECT h.log, h.log_id, h.format, h.created_at FROM {schema.SCHEMA}.head h WHERE h.name = %b",
        (name,),
        binary=True,
    ).fetchone()
    return None if row is None else (row[0], LogIdentity(row[1], row[2], Micros(row[3])))


def _create(driver: Any, name: str, made: LogIdentity) -> tuple[int, LogIdentity] | None:
    """Create a log, unless another process was quicker. Return the existing one."""
    driver.execute(_INSERT_LOG, (name, *made, made.genesis))
    return _find(driver, name)


def _create_with_keys(
    driver: Any, address: LogAddress, path: Path, now: Micros, busy_timeout_s: float
) -> tuple[int, LogIdentity] | None:
    """Create an encrypted log: the keys first, durably. A log without its keys could never be read."""
    url = address.keys or address.url
    with _connected(Settings(url, busy_timeout_s=busy_timeout_s), path) as keys:
        try:
            if _version_of(keys, postgres_keys) is None:
                raise _no_schema(url, "keys")
            made = LogIdentity(postgres_keys.create(keys, created_at=now), LOG_FORMAT, now)
        except psycopg.errors.InsufficientPrivilege as error:
            raise errors.StoreNotWritable(
                path, f"{str(error).strip()}; to create an encrypted log, this user needs the role {postgres_keys.ROLE}"
            ) from error
        found = _create(driver, address.log, made)
        if found is not None and found[1].log_id != made.log_id:
            postgres_keys.discard(keys, made.log_id)
    return found


def _version_of(driver: Any, wanted: ModuleType) -> int | None:
    """Return the version of a schema behind a driver connection, None if it is not there."""
    if driver.execute("SELECT to_regclass(%b)", (f"{wanted.SCHEMA}.schema_version",)).fetchone()[0] is None:
        return None
    found = driver.execute(f"SELECT version FROM {wanted.SCHEMA}.schema_version").fetchone()
    return None if found is None else int(found[0])


def _require_version(found: int | None, path: Path, wanted: ModuleType) -> None:
    if found is not None and found > wanted.SCHEMA_VERSION:
        raise errors.FormatTooNew(path, found=found, supported=wanted.SCHEMA_VERSION)


@contextmanager
def _connected(settings: Settings, path: Path) -> Iterator[Any]:
    try:
        with closing(settings.connect()) as driver:
            yield driver
    except psycopg.Error as error:
        raise error_of(error, path, busy_timeout_s=settings.busy_timeout_s) from error
