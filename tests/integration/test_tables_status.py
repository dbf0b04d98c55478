"""What `status` and `doctor` say of the tables that frameworks read."""

from contextlib import closing

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.adapters.support.items import Items
from mnemolog.projections.sql.item_tables import FILE


@pytest.fixture
def folder_with_items(folder):
    """A store that has an item, and is closed."""
    with MemoryStore.open(folder, model=None) as store, closing(Items(store)) as items:
        with items.batch() as batch:
            batch.put(("a",), "k", {"n": 1})
        with items.batch() as batch:
            assert batch.get(("a",), "k").value == {"n": 1}
    return folder


def execute(path, statement):
    with closing(dbapi2.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


def test_tables_are_listed_where_there_are_any(folder_with_items):
    """In step, and behind when something was recorded that they have not read."""
    with MemoryStore.open(folder_with_items, model=None) as store:
        (found,) = store.status().tables
        assert (found.name, found.state, found.position, found.behind_events) == (FILE, "current", 1, 0)
        store.start_session("s")
        (found,) = store.status().tables
        assert (found.state, found.behind_events) == ("behind", store.head().position - 1)
        assert [item for item in store.admin.doctor().findings if item.what == "tables"] == []


@pytest.mark.parametrize(
    ("statement", "state", "severity"),
    [
        ("UPDATE tracking SET log_id = 'another'", "other-log", "problem"),
        ("UPDATE tracking SET position = 99", "ahead", "log"),
        ("UPDATE tracking SET digest = x'00'", "diverged", "log"),
        (None, "damaged", "problem"),
    ],
)
def test_unusable_tables_are_found_and_quarantined(folder_with_items, statement, state, severity):
    """And made anew by who asks next: nothing is lost."""
    path = folder_with_items / "projections" / FILE
    if statement is None:
        path.write_bytes(b"no database " * 1_000)
    else:
        execute(path, statement)
    with MemoryStore.open(folder_with_items, model=None) as store:
        assert store.status().tables[0].state == state
        (found,) = (item for item in store.admin.doctor().findings if item.what == "tables")
        assert (found.state, found.severity, found.where) == (state, severity, f"projections/{FILE}")
        (fixed,) = (item for item in store.admin.doctor(fix=True).findings if item.what == "tables")
        assert fixed.fixed
        assert store.status().tables == ()
        with closing(Items(store)) as items, items.batch() as batch:
            assert batch.get(("a",), "k").value == {"n": 1}
        assert store.status().tables[0].state == "current"
