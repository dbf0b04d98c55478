"""The public names, the error tree, the stored events: what users and old logs rely on.

The asyncio side of the library has what the blocking side has: every name, parameter, default and type.
"""

import ast
import inspect
import json
import os
import pydoc
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import msgspec
import pytest
from pysqlite3 import dbapi2

import mnemolog
import mnemolog.eventsourcing
from mnemolog import AsyncMemoryStore, AsyncSession, MemoryStore, Session, SessionAt
from mnemolog.aio.store import (
    AsyncAdminService,
    AsyncAuditService,
    AsyncModelService,
    AsyncQuarantine,
    AsyncSessionAt,
    AsyncTicket,
)
from mnemolog.audit.service import AuditService
from mnemolog.domain import errors
from mnemolog.domain.event import Event, RequestedEvent
from mnemolog.domain.events import EVENT_TYPES, ForeignEvent, Forgotten
from mnemolog.infra import sqlite
from mnemolog.infra.log.event_codec import decode, encode
from mnemolog.infra.runtime import files
from mnemolog.models.service import ModelService
from mnemolog.operations.service import AdminService
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.recall.prefetch import Ticket
from tests.example_errors import EXAMPLES

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "events.json").read_text())
CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.MnemologError)]


def test_the_public_surface_is_exactly_what_we_promise():
    """Nothing leaks, nothing is missing."""
    assert all(hasattr(mnemolog, name) for name in mnemolog.__all__), "each is there when it is asked for"
    public = {n for n, v in vars(mnemolog).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert public == set(mnemolog.__all__) - {"errors"}
    assert len(mnemolog.__all__) <= 50, "what the first day needs; the rest is imported from its package"


def test_the_page_of_the_scope_lists_the_public_names():
    """Those of the release, each once."""
    page = (Path(__file__).parents[2] / "docs" / "scope.md").read_text()
    _, table = page.split("## Public names")
    rows = re.findall(r"^\| \w+ \| (`.+`) \|$", table.partition("\n## ")[0], re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(mnemolog.__all__)


@pytest.mark.parametrize(
    ("stub", "homes"),
    [
        ("__init__", mnemolog._HOMES),
        ("types", mnemolog.types._HOMES),
        ("errors", dict.fromkeys(mnemolog.errors.__all__, "domain.errors")),
    ],
)
def test_type_checkers_see_the_names_that_are_imported(stub, homes):
    """The stub and the table of the module name the same homes."""
    tree = ast.parse((Path(__file__).parents[2] / "api" / f"{stub}.pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert homes == {alias.name: node.module for node in imports for alias in node.names if node.module}


PUBLIC = (mnemolog, mnemolog.errors, mnemolog.types, mnemolog.eventsourcing)
PRIVATE = re.compile(r"\bmnemolog\.(?!errors\b|types\b|eventsourcing\b|[A-Z])\w+(?:\.(?!service\b|telemetry\b)\w+)+")


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_a_public_name_shows_no_private_path(module):
    """Neither in help, signatures and type hints, nor in its own name, by which a pickle finds it."""
    for name, value in inspect.getmembers(module):
        text = pydoc.render_doc(value, renderer=pydoc.plaintext) + repr(value)
        assert PRIVATE.findall(text) == [], name
        if inspect.isclass(value):
            assert getattr(import_module(value.__module__), value.__name__) is value
            get_type_hints(value)


def test_an_error_is_named_as_it_is_imported_wherever_it_comes_from():
    """In tracebacks of a process that only loads the domain, and in `-W`, which is read before all else."""
    code = "from mnemolog.domain import errors; raise errors.InvalidInput('a', 'b')"
    filters = ["-W", "error::mnemolog.errors.ScopeWarning", "-W", "error::mnemolog.errors.ModelWarning"]
    known = os.environ | {"PYTHONPATH": str(Path(mnemolog.__file__).parents[1])}
    ran = subprocess.run([sys.executable, *filters, "-c", code], env=known, capture_output=True, text=True, check=False)
    assert ran.stderr.splitlines()[-1] == "mnemolog.errors.InvalidInput: a: b"
    assert "Invalid -W" not in ran.stderr


def test_every_error_is_drawn_documented_and_public():
    """A user sees at the top of the module which except clause to write."""
    for error in CLASSES:
        assert re.search(rf"\b{error.__name__}\b", errors.__doc__ or "")
        assert error.__doc__, error
        assert getattr(mnemolog.errors, error.__name__) is error
        children = [other for other in CLASSES if error in other.__bases__]
        assert children or any(example.hint for example in EXAMPLES if type(example) is error), error


DRIVER_ERRORS = [
    v for v in vars(dbapi2).values() if inspect.isclass(v) and issubclass(v, dbapi2.Error) and v is not dbapi2.Error
]


CLASS_OF = {
    errors.LogBusy: (5, 261),
    errors.StoreNotWritable: (8, 14),
    errors.StorageFull: (13,),
    errors.LogWriteFailed: (10, 1034),
    errors.LogDamaged: (11, 26),
    errors.AppendOnly: (23,),
}


def test_every_error_of_the_driver_becomes_a_mnemolog_error(tmp_path):
    """No SQLite exception crosses the public edge raw. Codes that callers act on have a class, extended ones too."""

    def mapped(kind, code):
        error = kind("something")
        error.sqlite_errorcode = code
        return sqlite.map_error(error, tmp_path)

    for kind in DRIVER_ERRORS:
        assert all(isinstance(mapped(kind, code), errors.MnemologError) for code in range(1, 29)), kind
    for expected, codes in CLASS_OF.items():
        assert {type(mapped(dbapi2.OperationalError, code)) for code in codes} == {expected}


@pytest.mark.parametrize(("free", "said"), [(0, True), (32_000, True), (1 << 30, False), (None, False)])
def test_an_io_error_where_no_room_is_left_says_so(tmp_path, monkeypatch, free, said):
    """SQLite names none where its shared memory file finds no room. It stays the error that ends all writing."""

    def disk_usage(folder):
        assert folder == tmp_path
        if free is None:
            raise PermissionError
        return SimpleNamespace(free=free)

    monkeypatch.setattr(files.shutil, "disk_usage", disk_usage)
    error = dbapi2.OperationalError("disk I/O error")
    error.sqlite_errorcode = 10
    meant = sqlite.map_error(error, tmp_path / "log.db")
    assert type(meant) is errors.LogWriteFailed
    assert ("free some space" in str(meant)) is said


@pytest.mark.parametrize("sample", GOLDEN, ids=lambda sample: sample["topic"])
def test_stored_bytes_of_every_topic_still_mean_the_same(sample):
    """Bytes written by 0.1.0 decode to what was recorded then, and are what we would write now."""
    event = decode(sample["topic"], bytes.fromhex(sample["state"]), position=1)
    found = {name: json.loads(msgspec.json.encode(getattr(event, name))) for name in event.__struct_fields__}
    assert found == {"redacted": None} | sample["fields"]
    assert encode(event).hex() == sample["state"]


def test_every_topic_has_a_golden_sample_and_a_chosen_name():
    """A new event cannot be added without its stored bytes."""
    assert {sample["topic"] for sample in GOLDEN} == set(EVENT_TYPES)
    assert all(re.fullmatch(r"[a-z]+\.[a-z_]+\.v\d+", topic) for topic in EVENT_TYPES)
    kinds = {*Event.__subclasses__(), *RequestedEvent.__subclasses__()} - {RequestedEvent, ForeignEvent, Forgotten}
    assert {kind for kind in kinds if kind not in EVENT_TYPES.values()} == set()


def test_fields_of_a_newer_writer_are_passed_over_and_missing_ones_get_defaults():
    """What the rules of evolution rest on."""
    state = msgspec.msgpack.encode({"role": "user", "text": "hi", "mood": "bright"})
    event = decode("turn.recorded.v1", state, position=1)
    assert (event.text, event.speaker, event.metadata) == ("hi", None, {})


def test_an_unknown_topic_names_its_position():
    """Skipping it would make every projection wrong for ever."""
    with pytest.raises(errors.UndecodableEvent) as caught:
        decode("turn.sung.v1", b"\x80", position=7)
    assert (caught.value.position, caught.value.topic) == (7, "turn.sung.v1")


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
