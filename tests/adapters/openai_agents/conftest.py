"""What the tests of the adapter share: sessions of the SDK and of mnemolog, created in the same way."""

from contextlib import closing

import pytest
from agents import set_tracing_disabled
from agents.memory import SQLiteSession

from mnemolog import MemoryStore
from mnemolog.adapters.openai_agents import MnemologSession

set_tracing_disabled(True)


class Theirs:
    """Sessions of the SDK in one file."""

    def __init__(self, folder):
        self._folder, self._made = folder, []
        folder.mkdir()

    def session(self, session_id="s", **how):
        self._made.append(SQLiteSession(session_id, self._folder / "sessions.db", **how))
        return self._made[-1]

    def reopen(self):
        for session in self._made:
            session.close()

    close = reopen


class Ours:
    """Sessions in one store."""

    def __init__(self, folder):
        self._folder = folder
        self.store = MemoryStore.open(folder, model=None)

    def session(self, session_id="s", **how):
        return MnemologSession(session_id, self.store, **how)

    def reopen(self):
        self.store.close()
        self.store = MemoryStore.open(self._folder, model=None)

    def close(self):
        self.store.close()


@pytest.fixture(params=[Theirs, Ours], ids=["SQLiteSession", "MnemologSession"])
def place(request, folder):
    """Where sessions are kept: theirs, or ours. What one does the other has to do."""
    with closing(request.param(folder)) as place:
        yield place


@pytest.fixture
def session(place):
    return place.session()


@pytest.fixture
def ours(folder):
    with closing(Ours(folder)) as place:
        yield place
