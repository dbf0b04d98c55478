"""Create the schema of a database, and find or create a log in it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import psycopg

from mnemolog.domain import chain, errors
from mnemolog.domain.head import Head
from mnemolog.domain.hints import Hint, remedy
from mnemolog.domain.position import Clock, Micros
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.keys import postgres_keys, postgres_schema
from mnemolog.infra.log.engine import LOG_FORMAT, PLAIN_FORMAT, LogIdentity
from mnemolog.infra.log.postgres import schema
from mnemolog.infra.log.postgres.address import (
    LogAddress,
    answers_alone,
    known_identity,
    note_address,
    require_url,
    without_password,
)
from mnemolog.infra.log.postgres.engine import PostgresEngine
from mnemolog.infra.log.seen_head import SeenHead, noted_head
from mnemolog.infra.postgres import Settings, error_of
from mnemolog.infra.runtime.files import is_writable, make_folder
from mnemolog.infra.sqlite import Synchronous

_SELECT_LOG = f"SELECT h.log, h.log_id, h.format, h.created_at FROM {schema.SCHEMA}.head h WHERE h.name = %b"
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
    return _prepare(keys or url, postgres_schema) or made


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
        found = _find_or_create(settings, address, path, clock, create, encrypt, identity, read_only, noted)
    except errors.LogUnreachable:
        known = known_identity(path.parent)
        if known is None or not answers_alone(path.parent) or not StoreLayout(path.parent).views.exists():
            raise
        settings.stop_waiting()
        again = partial(_found_again, address, known, path)
        seen = SeenHead(path.parent, known.log_id, writable=is_writable(path.parent), may_lose=may_lose)
        return known, PostgresEngine(settings, log=again, identity=known, path=path, seen=seen)
    identity, keeps_projections = found.identity, not read_only or is_writable(path.parent)
    if identity.log_format > LOG_FORMAT:
        raise errors.FormatTooNew(path, found=identity.log_format, supported=LOG_FORMAT)
    if keeps_projections:
        note_address(path.parent, address, identity)
    seen = SeenHead(path.parent, identity.log_id, writable=keeps_projections, may_lose=may_lose)
    if noted is not None and noted.log_id not in (None, identity.log_id):
        seen.lost = f"the database holds log {identity.log_id} under this name; this node has seen log {noted.log_id}"
    return identity, PostgresEngine(settings, log=found.log, identity=identity, path=path, seen=seen)


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
    if found is None or found.identity != identity:
        raise errors.StoreReplaced(path, f"its database has no log {address.log!r} with the identity {identity.log_id}")
    return found.log


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
) -> _Found:
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
                    why = f"the database has this log already, under the name {named[0]!r}"
                    raise errors.BackupRefused(path.parent, why)
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
        named=f"{postgres_schema.SCHEMA} in {without_password(url)}",
        busy_timeout_s=busy_timeout_s,
        read_only=read_only,
    )


def script(*, apart: bool) -> str:
    """Return the SQL that `prepare` runs. `apart`: the keys are in another database."""
    where = "-- In the other database, for the keys:\n" if apart else ""
    return f"{schema.script()}{where}{postgres_schema.script()}"


def _no_schema(url: str, what: str) -> errors.StoreError:
    url = without_password(url)
    hint = Hint(remedy("prepare_database", url), " does it once, as a user who may create schemas and roles")
    return errors.StoreError(f"{url} is not prepared for {what}").saying(hint=hint)


class _Found(NamedTuple):
    log: int
    """Its number in the database."""
    identity: LogIdentity


def _find(driver: Any, name: str) -> _Found | None:
    """Return a log by its name."""
    row = driver.execute(_SELECT_LOG, (name,), binary=True).fetchone()
    if row is None:
        return None
    return _Found(row[0], LogIdentity(row[1], row[2], Micros(row[3])))


def _create(driver: Any, name: str, made: LogIdentity) -> _Found | None:
    """Create a log, unless another process was quicker. Return the existing one."""
    driver.execute(_INSERT_LOG, (name, *made, chain.genesis(**made._asdict())))
    return _find(driver, name)


def _create_with_keys(
    driver: Any, address: LogAddress, path: Path, now: Micros, busy_timeout_s: float
) -> _Found | None:
    """Create an encrypted log: the keys first, durably. A log without its keys could never be read."""
    url = address.keys or address.url
    with _connected(Settings(url, busy_timeout_s=busy_timeout_s), path) as keys:
        try:
            if _version_of(keys, postgres_schema) is None:
                raise _no_schema(url, "keys")
            made = LogIdentity(postgres_keys.create(keys, created_at=now), LOG_FORMAT, now)
        except psycopg.errors.InsufficientPrivilege as error:
            why = f"{str(error).strip()}; to create an encrypted log, this user needs the role {postgres_schema.ROLE}"
            raise errors.StoreNotWritable(path, why) from error
        found = _create(driver, address.log, made)
        if found is not None and found.identity.log_id != made.log_id:
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
