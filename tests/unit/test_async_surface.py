"""The asyncio side of the library has what the blocking side has: every name, parameter, default and type."""

import inspect
import re
from types import SimpleNamespace

import pytest

from mnemolog import (
    AsyncMemoryStore,
    AsyncSession,
    MemoryStore,
    Session,
    SessionAt,
)
from mnemolog.aio.store import (
    AsyncAdminService,
    AsyncAuditService,
    AsyncModelService,
    AsyncQuarantine,
    AsyncSessionAt,
    AsyncTicket,
)
from mnemolog.audit.service import AuditService
from mnemolog.models.service import ModelService
from mnemolog.operations.service import AdminService
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.recall.prefetch import Ticket

SIDES = {
    MemoryStore: AsyncMemoryStore,
    Session: AsyncSession,
    SessionAt: AsyncSessionAt,
    Ticket: AsyncTicket,
    Quarantine: AsyncQuarantine,
    AuditService: AsyncAuditService,
    ModelService: AsyncModelService,
    AdminService: AsyncAdminService,
}
ATTRIBUTES = {
    MemoryStore: {"path"},
    Session: {"id", "title", "agent", "scope"},
    SessionAt: {"id", "position"},
    Ticket: {"stamp", "request", "outcome"},
    Quarantine: {"folder"},
}
"""What is set at construction, and so is no member of the class."""
NOT_FOR_USERS = {Ticket: {"give_up", "settle", "taken", "when_done", "forked", "ended"}}
"""Called by the prefetcher and by `AsyncTicket`."""
AT_ONCE = {"within"}
"""Makes a part of the store from what is in memory: no file and no lock is waited for."""
ITERATES = {"events", "timeline"}
AS_ASYNC = {"Session": "AsyncSession", "SessionAt": "AsyncSessionAt", "Ticket": "AsyncTicket"}
AS_ASYNC |= {"Quarantine": "AsyncQuarantine", "Iterator": "AsyncIterator"}


def members(side):
    return {name: value for name, value in inspect.getmembers(side) if not name.startswith("_")}


def as_async(annotation):
    return re.sub(r"\b\w+\b", lambda word: AS_ASYNC.get(word[0], word[0]), str(annotation))


CALLS = [
    (side, name)
    for side in SIDES
    for name, value in sorted(members(side).items())
    if callable(value) and name not in {"open", *NOT_FOR_USERS.get(side, set())}
]


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.__name__)
def test_both_sides_have_the_same_names(side):
    """What is added to one is missing on the other until a line names its worker pool."""
    expected = members(side).keys() - NOT_FOR_USERS.get(side, set()) | ATTRIBUTES.get(side, set())
    assert expected == members(SIDES[side]).keys()
    assert hasattr(side, "__enter__") == hasattr(SIDES[side], "__aenter__")
    assert hasattr(side, "__exit__") == hasattr(SIDES[side], "__aexit__")
    assert not hasattr(SIDES[side], "__enter__")


@pytest.mark.parametrize("name", ["audit", "models", "admin"])
async def test_both_sides_hold_the_same_services(name, tmp_path):
    """`store.audit.diff(...)` on one side, `await store.audit.diff(...)` on the other."""
    with MemoryStore.open(tmp_path, model=None) as store:
        async with AsyncMemoryStore.open(tmp_path, model=None) as other:
            assert SIDES[type(getattr(store, name))] is type(getattr(other, name))


def test_an_attribute_is_that_of_the_blocking_object_and_cannot_be_set():
    session = AsyncSession(SimpleNamespace(title="Trip"), AtOnce())
    with pytest.raises(AttributeError, match="title"):
        session.title = "another"
    assert session.title == "Trip"


def shape(signature):
    return [(p.name, p.kind, p.default, as_async(p.annotation)) for p in signature.parameters.values()]


def test_both_sides_take_and_give_the_same():
    """A handle is one of the same side. No method of the asyncio side blocks, however quick it seems; each has help."""
    for side, name in CALLS:
        method = getattr(SIDES[side], name)
        blocking, waiting = inspect.signature(getattr(side, name)), inspect.signature(method)
        assert shape(waiting) == shape(blocking), (side, name)
        assert as_async(waiting.return_annotation) == as_async(blocking.return_annotation), (side, name)
        assert inspect.isasyncgenfunction(method) is (name in ITERATES), (side, name)
        assert inspect.iscoroutinefunction(method) is (name not in ITERATES | AT_ONCE), (side, name)
        assert inspect.getdoc(method), (side, name)
        assert (method.__name__, method.__qualname__.startswith("Async")) == (name, True)


OWN = {Session: {"prefetch_result"}, Ticket: {"wait", "cancel"}, MemoryStore: {"close", "within"}}
"""What the asyncio side does in a way of its own."""


class AtOnce:
    """Pools that run each call in the event loop."""

    async def read(self, work):
        return work()

    write = recall = background = read


@pytest.mark.parametrize(("side", "name"), [(side, name) for side, name in CALLS if name not in OWN.get(side, ())])
async def test_a_call_passes_all_that_it_is_given_on_and_returns_what_comes_back(side, name):
    """Of the same method of the blocking object; a handle that comes back is wrapped."""
    given = {item: object() for item in list(inspect.signature(getattr(side, name)).parameters)[1:]}
    came, back = {}, object()

    def blocking(self, **arguments):
        came.update(arguments)
        return iter([back]) if name in ITERATES else back

    wrapper = object.__new__(SIDES[side])
    wrapper._of, wrapper._pools = type("Blocking", (), {name: blocking})(), AtOnce()

    called = getattr(wrapper, name)(**given)
    (found,) = [item async for item in called] if name in ITERATES else [await called]
    assert back in (found, getattr(found, "_of", None))
    given.pop("progress", None), came.pop("progress", None)
    assert came == given


def test_open_takes_what_open_takes():
    """It is no coroutine itself: it gives what can be awaited or entered."""
    assert inspect.signature(AsyncMemoryStore.open) == inspect.signature(MemoryStore.open)
