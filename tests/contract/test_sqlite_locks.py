"""What we rely on in SQLite's locks where a file is read past it: seals, a byte of a header."""

import subprocess
import sys

from mnemolog.infra import sqlite

OPEN_AND_CLOSE = """
import sys
from pysqlite3 import dbapi2
connection = dbapi2.connect(sys.argv[1], isolation_level=None)
connection.execute("INSERT INTO t VALUES (2)")
connection.close()
"""


def test_whose_locks_on_the_file_are_gone_is_still_known_to_have_it_open(tmp_path):
    """A process loses them when it closes any descriptor of it ("How To Corrupt An SQLite Database File", 2.2).

    Another one that closes the database would be the last, then, and delete the write-ahead log that is written here.
    """
    path = tmp_path / "some.db"
    engine = sqlite.create_engine(path, synchronous="NORMAL", create=True)
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a)")
        path.open("rb").close()
        subprocess.run([sys.executable, "-c", OPEN_AND_CLOSE, path], check=True)
        assert path.with_name("some.db-wal").stat().st_size
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
        subprocess.run([sys.executable, "-c", OPEN_AND_CLOSE, path], check=True)
        assert connection.exec_driver_sql("SELECT a FROM t").all() == [(2,), (1,), (2,)]
    engine.dispose()
    assert not path.with_name("some.db-wal").exists()
