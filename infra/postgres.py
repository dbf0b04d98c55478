"""Connect to a PostgreSQL server with one set of settings, and give its errors mnemolog's meaning."""

import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8BinaryDumper

from mnemolog.domain import errors
from mnemolog.domain.values import as_invalid_input
from mnemolog.infra.sqlite import Synchronous

Driver = psycopg.Connection[Any]

IDLE_IN_TRANSACTION_S: Final = 10.0
"""How long a writer that stopped inside the locked way may hold up the others. The server then ends its session."""
POOL_SIZE: Final = 4
"""Connections for reading that stay open."""
POOL_MAX: Final = 16
"""The most connections for reading of one process: PostgreSQL allows 100 in all unless it is configured otherwise."""

RECONNECT_S: Final = 5.0
"""How long calls wait for a server that is away, counted from the first that misses it: a restart is no error."""
RETRY_S: Final = 0.1

# The URL may set others. TCP does not report that the other machine is gone: 30 + 3 * 10 seconds until we know.
_CONNECTING: Final = {
    "application_name": "mnemolog",
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}

_SYNCHRONOUS_COMMIT: Final[dict[Synchronous, str]] = {"FULL": "on", "NORMAL": "off"}


class Settings:
    """How to connect: the URL, and what is set on every connection whatever the server's defaults are."""

    def __init__(
        self, url: str, *, synchronous: Synchronous = "FULL", busy_timeout_s: float = 30.0, read_only: bool = False
    ) -> None:
        self.url, self.busy_timeout_s = url, busy_timeout_s
        self._parameters: dict[str, Any] = {**_CONNECTING, **conninfo_to_dict(url), "client_encoding": "UTF8"}
        # READ COMMITTED: elsewhere, waiting for the head row ends in an error after every append of another process.
        self._settings = {
            "search_path": "pg_catalog",
            "default_transaction_isolation": "read committed",
            "default_transaction_read_only": "on" if read_only else "off",
            "synchronous_commit": _SYNCHRONOUS_COMMIT[synchronous],
            "lock_timeout": str(round(busy_timeout_s * 1_000)),
            "idle_in_transaction_session_timeout": str(round(IDLE_IN_TRANSACTION_S * 1_000)),
        }
        self._missed_at: float | None = None
        """When the server was first missed; None if it answered since."""

    def connect(self) -> Driver:
        """Return a new connection, in autocommit mode. Raises the driver's errors, `StoreError` for some poolers."""
        try:
            driver = psycopg.connect(**self._parameters, autocommit=True)
        except OSError as error:  # No descriptor is free to wait for the server with.
            raise psycopg.OperationalError(str(error)) from error
        try:
            driver.adapters.register_dumper(int, Int8BinaryDumper)
            calls = ", ".join(["set_config(%b, %b, false)"] * len(self._settings))
            words = [word for setting in self._settings.items() for word in setting]
            found = driver.execute(f"SELECT pg_backend_pid(), {calls}", words, binary=True).fetchone()
            if found is not None and found[0] != driver.info.backend_pid:
                self._require_session(driver, found[0])
        except BaseException:
            driver.close()
            raise
        self._missed_at = None
        return driver

    def _require_session(self, driver: Driver, backend: int) -> None:
        """Raise `StoreError` if a pooler gives a connection another session for every transaction.

        What is set for a session is then lost, or is another client's: appends might not be durable. Seen by what a
        second connection is given while the first one is idle, or the first one while that is busy.
        """
        query = "SELECT pg_backend_pid()"
        with psycopg.connect(**self._parameters) as other:
            if other.execute(query).fetchone() == (backend,) or driver.execute(query).fetchone() != (backend,):
                why = "the connection goes through a pooler that shares sessions by transaction"
                raise errors.StoreError(why).saying(
                    hint="connect to PostgreSQL itself, or to a pooler in session mode (`pool_mode = session`)"
                )

    def connect_again(self, check: Callable[[Driver], object] | None = None) -> Driver:
        """Return a new connection to a server that answered before. Raises the driver's errors, and those of `check`.

        While the server is away, this waits until `RECONNECT_S` after it was first missed. Later calls fail at once.
        """
        while True:
            try:
                driver = self.connect()
                try:
                    if check is not None:
                        check(driver)
                except BaseException:
                    driver.close()
                    raise
                return driver
            except psycopg.OperationalError:
                now = time.monotonic()
                if self._missed_at is None:
                    self._missed_at = now
                if now >= self._missed_at + RECONNECT_S:
                    raise
            time.sleep(RETRY_S)

    def stop_waiting(self) -> None:
        """Let calls fail at once until the server answers: it is known to be away."""
        self._missed_at = -RECONNECT_S

    def pool(self, connect: Callable[[], Driver]) -> sa.Pool:
        """Return a pool of connections that `connect` makes.

        One that the server has closed is replaced when it is checked out.
        """
        pool = sa.QueuePool(
            connect,  # type: ignore[arg-type]
            pool_size=POOL_SIZE,
            max_overflow=POOL_MAX - POOL_SIZE,
            timeout=self.busy_timeout_s,
            reset_on_return=None,
        )
        sa.event.listen(pool, "checkout", _require_open)
        return pool


def _require_open(driver: Driver, *_: object) -> None:
    if is_lost(driver):
        raise sa.exc.InvalidatePoolError("the server closed the connection")


def is_lost(driver: Driver) -> bool:
    """Whether a connection that waits for no answer was closed: by this process, or by the server meanwhile.

    Costs a system call and no round trip. The server says nothing unasked but that it closes the connection.
    """
    if driver.closed:
        return True
    polled = select.poll()
    polled.register(driver.fileno(), select.POLLIN)
    if polled.poll(0):
        driver.close()
    return driver.closed


def error_of(error: BaseException, path: Path, *, busy_timeout_s: float) -> errors.MnemologError:
    """Return mnemolog's error for an error of the driver. `path` is the file that names the database."""
    if isinstance(error, UnicodeEncodeError | OverflowError):
        return as_invalid_input(error)
    said = str(error).strip().partition("\n")[0]
    match getattr(error, "sqlstate", None):
        case "55P03":  # lock_not_available
            return errors.LogBusy(waited_s=busy_timeout_s)
        case "53100":  # disk_full
            return errors.StorageFull(path)
        case "42501" | "25006":  # insufficient_privilege, read_only_sql_transaction
            return errors.StoreNotWritable(path, said).saying(
                f"the database that {path} names refuses this: {said}",
                hint="use a user whose roles allow it (docs/postgres.md, Roles), on a server that is not a standby",
            )
        case "54000":  # program_limit_exceeded
            return errors.InvalidInput("stream", f"its name and the key are too long together: {said}")
        case "XX001" | "XX002":  # data_corrupted, index_corrupted
            return errors.LogDamaged(said)
    if "append-only" in said:
        return errors.AppendOnly(said)
    if "NUL" in said and isinstance(error, psycopg.DataError):
        return errors.InvalidInput("stream or key", "contains a NUL character, which PostgreSQL cannot store as text")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | sa.exc.TimeoutError):
        return errors.LogUnreachable(f"PostgreSQL does not answer: {said}")
    return errors.StoreError(f"PostgreSQL: {said}")
