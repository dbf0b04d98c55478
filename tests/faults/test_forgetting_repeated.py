"""A request to forget that waits, is interrupted, or is undone by older keys is carried out until it is done."""

import shutil
from contextlib import closing

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.domain.events import ForgetCompleted
from mnemolog.forgetting import service
from mnemolog.forgetting import service as purging
from mnemolog.forgetting.service import Forgetting
from tests.support import wait_until

pytestmark = [pytest.mark.promise("P15"), pytest.mark.local, pytest.mark.log_file]


@pytest.fixture
def told(folder):
    """The folder of a store with two sessions, closed."""
    with MemoryStore.open(folder, model=None) as store:
        for name in ("ann", "bob"):
            store.session(name).record("user", f"the quokka of {name} sleeps")
    return folder


def reopened(folder):
    return MemoryStore.open(folder, model=None, background=False, busy_timeout_s=0.2)


def readable(store):
    """The sessions whose turn can be read in the log."""
    events = str([item.event for item in store.events()])
    return [name for name in ("ann", "bob") if f"the quokka of {name} sleeps" in events]


def reader(path):
    """A connection that has begun to read a database."""
    reading = dbapi2.connect(path, isolation_level=None)
    reading.execute("BEGIN")
    reading.execute("SELECT count(*) FROM nodes").fetchone()
    return closing(reading)


def put_back(kept, folder):
    """Put an older copy of the keys in the place of those of a closed store."""
    for part in ("-wal", "-shm"):
        (folder / f"keys.db{part}").unlink(missing_ok=True)
    shutil.copy(kept, folder / "keys.db")


def test_each_of_the_requests_that_one_event_completes_is_repeated_for_older_keys(told, tmp_path, monkeypatch):
    """Keys that know of the first of them are too old for the second."""
    monkeypatch.setattr(service, "retry_delay_s", lambda _: 0.0)
    with reader(told / "keys.db"), reopened(told) as store:
        assert store.forget(session="ann").pending
    shutil.copy(told / "keys.db", tmp_path / "older.db")
    with reader(told / "keys.db") as reading, reopened(told) as store:
        assert store.forget(session="bob").pending
        assert len(store.status().forgetting.pending) == 2
        reading.close()
        wait_until(lambda: store.recall("x") is not None and not store.status().forgetting.pending, what="the wipe")
        done = [item.event.requests for item in store.events() if isinstance(item.event, ForgetCompleted)]
        assert [len(requests) for requests in done] == [2]
    put_back(tmp_path / "older.db", told)
    with reopened(told) as store:
        assert readable(store) == []
        assert store.status().forgetting.pending == ()


def test_what_is_repeated_for_older_keys_counts_as_pending_until_it_is_completed_again(told, tmp_path, monkeypatch):
    """Also where the process ends in between: the next one goes on from there."""
    shutil.copy(told / "keys.db", tmp_path / "older.db")
    with reopened(told) as store:
        request = store.forget(session="ann").request
    put_back(tmp_path / "older.db", told)

    def ends(step):
        if step == "recorded":
            raise OSError("the process ends here")

    monkeypatch.setattr(Forgetting, "reached", staticmethod(ends))
    with reopened(told) as store:
        assert readable(store) == ["bob"]
        assert store.status().forgetting.pending == (request,)
        assert [item.complete for item in store.audit.pending_erasures()] == [False]
    monkeypatch.undo()
    with reopened(told) as store:
        assert store.status().forgetting.pending == ()
        (*_, last) = (item.event for item in store.events())
        assert isinstance(last, ForgetCompleted)
        assert last.requests == [request]


def test_what_another_process_forgets_is_left_to_it_for_a_while(told, monkeypatch):
    """Answers would wait for both. After that time it is carried on."""
    real, tries = purging.alone, []

    def alone(*given, **how):
        tries.append(given)
        return real(*given, **how)

    with reader(told / "keys.db") as reading, reopened(told) as store, reopened(told) as other:
        assert store.forget(session="ann").pending
        monkeypatch.setattr(purging, "alone", alone)
        assert (other.recall("quokka", mode="text").hits[0].session, tries) == ("bob", [])
        reading.close()
        other.parts.forgetting._retry_at = 0.0
        wait_until(lambda: other.recall("x") is not None and not other.status().forgetting.pending, what="the wipe")
        assert tries
