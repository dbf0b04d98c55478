"""A memory of two sessions, and browsers at its console."""

import shutil
from contextlib import ExitStack

import pytest

from mnemolog import MemoryStore
from tests.console import opened_console
from tests.support import FakeClock, HashEncoder

LABEL = "<script>alert(1)</script><img src=x onerror=alert(1)> javascript:x {{ 7*7 }} '\"></div>"
HOSTILE = LABEL + " \u202egnp.exe \u200bseen\ufeff \U000e0041"


@pytest.fixture
def opened():
    """Open stores, each with a browser at its console, until the end of the test."""
    with ExitStack() as stack:
        yield lambda folder, **options: stack.enter_context(opened_console(folder, **options))


@pytest.fixture
def store(folder, clock):
    """An empty store, for what a console is to show."""
    with MemoryStore.open(folder, model=None, clock=clock, synchronous="NORMAL", background=False) as store:
        yield store


@pytest.fixture
def console(store, clock, opened):
    """A browser at the console of that store."""
    return opened(store.path, clock=clock)


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A memory of two sessions: one about a trip, one full of hostile text. And the time after it."""
    folder, clock = tmp_path_factory.mktemp("template") / "memory", FakeClock()
    with MemoryStore.open(folder, model=HashEncoder(), clock=clock, background=False) as store:
        trip = store.session("trip", scope="acme/alice", title="A trip to Porto", agent="guide")
        trip.set("city", "Porto")
        trip.set_task("Plan a trip")
        trip.record("user", "I drink tea, never coffee.", speaker="Alice")
        trip.record("assistant", "Tea it is.")
        store.recall("what does she drink?", receipt=True)
        trip.set("city", "Lisbon")
        trip.note("Rex is a beagle.")
        trip.record("user", "I drink coffee now, no tea any more.", speaker="Alice")
        bad = store.session("bad", scope="acme/bob", title=LABEL, agent=LABEL)
        bad.record("user", HOSTILE + " tea", speaker=LABEL, metadata={HOSTILE: HOSTILE})
        bad.set("note", HOSTILE)
        store.admin.catch_up_vectors()
    return folder, clock.now()


@pytest.fixture
def made(template, tmp_path, clock):
    """A copy of that memory."""
    clock.set(template[1])
    return shutil.copytree(template[0], tmp_path / "copy")


@pytest.fixture
def writer(made, clock, opened):
    """A browser at a console that may write."""
    return opened(made, write=True, model=HashEncoder(), clock=clock)


@pytest.fixture
def reader(writer):
    """A browser at the same console, started without `--write`."""
    return writer.at_console()
