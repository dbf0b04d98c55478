"""mnemolog: an event-sourced memory store for AI agents.

from mnemolog import MemoryStore

with MemoryStore.open("memory/") as store:
    session = store.start_session("trip", agent="assistant", scope="acme/support/alice")
    session.record("user", "I moved to Lisbon in March.", key="t1")
    store.recall("where does she live?", scope="acme/support").hits[0].text
"""

from lazy_loader import attach_stub as _attach_stub

# Each name brings its module along when it is first asked for (ADR 20): `__init__.pyi` says which.
__getattr__, __dir__, __all__ = _attach_stub(__name__, __file__)
