"""What a store takes on disk: no text twice in a projection, and write-ahead logs that shrink again."""

import pytest

from mnemolog import MemoryStore
from mnemolog.infra import sqlite
from mnemolog.projections.sql.opening import open_engine

pytestmark = pytest.mark.local

PHRASE = "The Marmalade, Kettles & Xylophones of Zürich"
"""In no form that is stored of its words: they are in lower case and have no endings."""


def occurrences(folder):
    """How often the phrase lies in each file of a store that has it anywhere."""
    files = {path.name: path.read_bytes().count(PHRASE.encode()) for path in folder.rglob("*") if path.is_file()}
    return {name: count for name, count in files.items() if count}


@pytest.mark.log_file
@pytest.mark.parametrize("encrypt", [True, False])
def test_a_text_lies_on_disk_once_in_the_log_and_once_in_the_views(folder, encoder, encrypt):
    """Encrypted, the log has no readable copy. Caches, segments and the text index hold none."""
    with MemoryStore.open(folder, model=encoder, encrypt=encrypt, background=False) as store:
        session = store.session("trip")
        for n in range(20):
            session.record("user", f"{PHRASE}, number {n}")
        store.admin.catch_up_vectors()
        assert store.recall("marmalade").hits
        store.status()
    assert occurrences(folder) == {"views.db": 20} | ({} if encrypt else {"log.db": 20})


def test_the_write_ahead_log_of_a_large_transaction_does_not_stay(tmp_path):
    """A rebuild of the views is one transaction: its write-ahead log is as large as they are, until the next write."""
    engine = open_engine(tmp_path / "projections" / "views.db")
    wal = tmp_path / "projections" / "views.db-wal"
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE filled (content BLOB)")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        for _ in range(20):
            connection.exec_driver_sql("INSERT INTO filled VALUES (randomblob(1000000))")
        connection.exec_driver_sql("COMMIT")
        assert wal.stat().st_size > 3 * sqlite.WAL_SIZE_LIMIT_BYTES
        connection.exec_driver_sql("INSERT INTO filled VALUES (x'00')")
        assert wal.stat().st_size <= sqlite.WAL_SIZE_LIMIT_BYTES
    engine.dispose()
