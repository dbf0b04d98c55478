"""Tables that adapters follow the log with."""

from contextlib import contextmanager

import sqlalchemy as sa
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.adapters.support.graph_checkpoints import Threads, Typed
from mnemolog.adapters.support.items import Items
from mnemolog.adapters.support.store_access import clock_of, encoder_of, log_of, open_tables
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.forgetting.service import STEPS
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.sql.database import fetch
from mnemolog.projections.sql.projection import SqlProjection, empty

FILE = "said.db"


class Said(SqlProjection):
    """What was said, by position."""

    name = "said/1"
    metadata = sa.MetaData()
    taken = 0

    def take(self, connection, events):
        for recorded in events:
            if isinstance(recorded.event, TurnRecorded):
                self.taken += 1
                connection.exec_driver_sql("INSERT INTO said VALUES (?, ?)", (recorded.position, recorded.event.text))

    def erase(self, connection, erased, *, upto):
        """Nothing is forgotten here."""

    def texts(self):
        with self.database.reading() as connection:
            return [row[0] for row in fetch(connection, "SELECT text FROM said ORDER BY position")]


sa.Table("said", Said.metadata, sa.Column("position", sa.Integer, primary_key=True), sa.Column("text", sa.Text))


def test_tables_follow_the_log_and_take_each_event_once(store):
    """Also in another process' stead."""
    session = store.start_session("s")
    session.record("user", "tea")
    one, two = open_tables(store, FILE, Said), open_tables(store, FILE, Said)
    assert one.catch_up() == store.head().position
    session.record("user", "cake")
    two.catch_up()
    one.catch_up()
    assert one.texts() == two.texts() == ["tea", "cake"]
    assert (one.taken, two.taken, one.position()) == (1, 1, 3)
    one.database.close()
    two.database.close()


def test_a_rebuild_puts_what_does_not_belong_there_out(store):
    """The log alone says what is in them."""
    store.start_session("s").record("user", "tea")
    tables = open_tables(store, FILE, Said)
    tables.catch_up()
    with tables.database.writing() as connection:
        connection.exec_driver_sql("INSERT INTO said VALUES (99, 'planted')")
    assert tables.texts() == ["tea", "planted"]
    assert tables.rebuild() == 2
    assert tables.texts() == ["tea"]
    tables.database.close()


def test_tables_that_are_emptied_meanwhile_are_refilled_before_they_are_read(store, monkeypatch):
    """While they catch up, and between that and the read. What was read before would leave out what comes before it."""
    session = store.start_session("s")
    for number in range(40):
        session.record("user", f"turn {number}")
    tables, other = open_tables(store, FILE, Said), open_tables(store, FILE, Said)
    tables.batch_max = 2
    real, left = tables.database.writing, [1, 2, 5]

    @contextmanager
    def writing():
        with real() as connection:
            yield connection
        left[:] = [times - 1 for times in left]
        if 0 in left:
            empty(other.database)

    monkeypatch.setattr(tables.database, "writing", writing)
    with tables.current() as connection:
        assert len(fetch(connection, "SELECT text FROM said")) == 40
    assert left == [-7, -6, -3], "the last time, the tables had been filled"
    tables.database.close()
    other.database.close()


def test_what_is_forgotten_elsewhere_leaves_the_tables_of_adapters_as_they_are(store):
    """At each step, for who reads them without a look at the log."""
    turn = store.session("s").record("user", "a turn")
    items, threads = Items(store), Threads(store)
    value = Typed("text", b"value")
    how = {"parent": None, "checkpoint": value, "metadata": value, "channels": {}, "changed": []}
    threads.checkpoint("t", "", "0001", **how)
    with items.batch() as batch:
        batch.put(("a",), "b", {"n": 1})
    assert threads.find("t", "", None) is not None

    def rows():
        found = []
        for database, table in ((items.tables.database, "items"), (threads._index.database, "checkpoints")):
            with database.reading() as connection:
                found.append(connection.exec_driver_sql(f"SELECT * FROM {table}").all())
        return found

    with items.batch():
        before, seen = rows(), []
    store.parts.forgetting.reached = lambda _: seen.append(rows())
    assert store.forget(positions=[turn.position]).complete
    assert seen == [before] * len(STEPS)
    assert [len(found) for found in before] == [1, 1]
    items.close()
    threads.close()


def test_tables_of_another_log_or_version_are_not_used(store, tmp_path):
    """Those of another log are set aside, those of another version made anew in place."""
    store.start_session("s").record("user", "tea")
    tables = open_tables(store, FILE, Said)
    tables.catch_up()
    tables.database.close()

    class Newer(Said):
        name = "said/2"

    newer = open_tables(store, FILE, Newer)
    assert (newer.position(), newer.texts()) == (0, [])
    newer.catch_up()
    newer.database.close()
    with MemoryStore.open(tmp_path / "other", model=None) as other:
        (other.path / "projections").mkdir(exist_ok=True)
        with dbapi2.connect(store.path / "projections" / FILE) as source:
            source.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        source.close()
        (other.path / "projections" / FILE).write_bytes((store.path / "projections" / FILE).read_bytes())
        theirs = open_tables(other, FILE, Newer)
        assert (theirs.position(), theirs.texts()) == (0, [])
        assert [item.state for item in Quarantine(StoreLayout(other.path).quarantine).items()] == ["other-log"]
        theirs.database.close()


def test_an_adapter_gets_the_log_the_clock_and_the_model_of_a_store(store, clock, encoder, tmp_path):
    """Those that the store itself goes by."""
    assert log_of(store).head().position == store.head().position
    assert clock_of(store) is clock
    made = encoder_of(store)
    assert made is not None
    assert made.fingerprint == store.parts.projections.vectors().fingerprint
    with MemoryStore.open(tmp_path / "none", model=None) as bare:
        assert encoder_of(bare) is None
