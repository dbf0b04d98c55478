"""A SQLite file that may be deleted at any time, and its one rule: position and data in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.domain.limits import as_invalid_input
from mnemolog.infra.runtime.os_errors import mapped_to_projection_errors
from mnemolog.projections.sql.file_checksum import break_seal, seal

_FULL: Final = 13  # SQLITE_FULL
FAULTS_MAX: Final = 10
"""Faults in the structure of a file that SQLite is asked for."""


class ProjectionDatabase(NamedTuple):
    """An engine with the path it works on, whose errors speak of a projection."""

    engine: sa.Engine
    path: Path
    sealed: bool = False
    """Whether it is sealed while nobody has it open (`mnemolog.projections.sql.file_checksum`)."""

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Give a connection for reads; they see one state of the database."""
        with self._mapped(), self.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute("BEGIN")
            try:
                yield connection
            finally:
                driver.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Give a connection that holds the write lock, committed at the end, rolled back on an error."""
        with self._mapped(), self.engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                self._unseal()
                yield connection
            except BaseException:
                connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql("COMMIT")

    def scrub(self) -> bool:
        """Overwrite what the file still holds of rows that were deleted, in the write-ahead log as well.

        False where another connection does not let that happen: then it is to be done again.
        """
        with self._mapped(), self.engine.connect() as connection:
            self._unseal()
            # `secure_delete` alone leaves copies of rows that SQLite has moved from page to page.
            connection.exec_driver_sql("VACUUM")
            self._unseal()  # It takes its own lock: somebody who closed the store just before may have sealed it.
            return not connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]

    def close(self) -> None:
        """Let go of the file, sealed if it is to be and nobody else writes it."""
        if self.sealed:
            with suppress(OSError, sa.exc.SQLAlchemyError), self.engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA busy_timeout=0")
                seal(connection, self.path)
        self.engine.dispose()

    @property
    def _driver_error(self) -> type[Exception]:
        """What the driver raises where it is asked without SQLAlchemy (`fetch`)."""
        raised: type[Exception] = self.engine.dialect.loaded_dbapi.Error
        return raised

    def _unseal(self) -> None:
        if self.sealed:
            with mapped_to_projection_errors(self.path.parent):
                break_seal(self.path)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except (UnicodeEncodeError, OverflowError) as error:
            raise as_invalid_input(error) from error
        except (sa.exc.SQLAlchemyError, self._driver_error) as error:
            cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
            code = getattr(cause, "sqlite_errorcode", None)
            if code is not None and code & 0xFF == _FULL:
                raise errors.StorageFull(self.path) from error
            raise errors.ProjectionUnreadable(self.path, str(cause)) from error
        except UnicodeDecodeError as error:  # The driver's, of a message that quotes a damaged schema.
            raise errors.ProjectionUnreadable(self.path, str(error)) from error


def faults_of(connection: sa.Connection) -> list[str]:
    """Return what SQLite finds wrong with pages, free pages and indexes of a file. Reads all of it.

    Rows can be read and right while their index is damaged: who writes next meets it.
    """
    rows = connection.exec_driver_sql(f"PRAGMA integrity_check({FAULTS_MAX})")
    return [f"SQLite: {message}" for (message,) in rows if message != "ok"]


def fetch(connection: sa.Connection, statement: str, *parameters: Any) -> list[Any]:
    """Return the rows of a query, as tuples. By the driver: a recall asks twenty, most of them for a row or two."""
    driver: Any = connection.connection.driver_connection
    rows: list[Any] = driver.execute(statement, parameters).fetchall()
    return rows


def listed(values: Sequence[Any]) -> str:
    """Return values as one parameter for `json_each`: SQLite has a limit on parameters, a page has not."""
    return msgspec.json.encode(values).decode()
