"""The public names, the error tree, the stored events: what users and old logs rely on.

The asyncio side of the library has what the blocking side has: every name, parameter, default and type. The table
of operations is whole where people and agents meet it: commands, tools, pages of the console. Each operation has a
command, a tool and a page, or there is a reason why not; options are named like parameters. Hints name calls that
exist, in the words of each interface.
"""

import ast
import inspect
import json
import os
import pickle
import pydoc
import re
import shlex
import subprocess
import sys
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import msgspec
import pytest
from pysqlite3 import dbapi2

import mnemolog
import mnemolog.eventsourcing
from mnemolog import AsyncMemoryStore, AsyncSession, MemoryStore, Session, SessionAt, import_log, restore_backup
from mnemolog.adapters.importers.import_files import import_files
from mnemolog.adapters.support.agent_tools import TOOLS
from mnemolog.adapters.support.agent_tools.tool import CALLS as TOOLS_OF_HINTS
from mnemolog.adapters.support.agent_tools.tool import Refusal
from mnemolog.aio.store import (
    AsyncAdminService,
    AsyncAuditService,
    AsyncModelService,
    AsyncQuarantine,
    AsyncSessionAt,
    AsyncTicket,
)
from mnemolog.audit.service import AuditService
from mnemolog.cli.app import every_command, loaded
from mnemolog.cli.hints import COMMANDS, as_commands, begin
from mnemolog.cli.hints import COMMANDS as COMMANDS_OF_HINTS
from mnemolog.domain import errors
from mnemolog.domain.errors import Hint, again, in_python, remedy, sentence, spelled, with_model
from mnemolog.domain.event import Event, RequestedEvent
from mnemolog.domain.events import EVENT_TYPES, ForeignEvent, Forgotten
from mnemolog.infra import sqlite
from mnemolog.infra.log import open as opening
from mnemolog.infra.log.event_codec import decode, encode
from mnemolog.infra.log.open import prepare_database
from mnemolog.infra.runtime import files
from mnemolog.models.service import ModelService
from mnemolog.operation_table import OPERATIONS, OWNERS
from mnemolog.operations.copies import copy_store, wrap_keys
from mnemolog.operations.service import AdminService
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.recall.prefetch import Ticket
from mnemolog.server.console.routes import ACTIONS, PAGES
from mnemolog.server.http.problems import as_requests
from mnemolog.server.http.routes import PREFIX, ROUTES
from tests.example_errors import EXAMPLES
from tests.unit.test_layers import SOURCES, nodes_of

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


class Why(StrEnum):
    """Why an operation has no command, no tool or no page."""

    AHEAD = "only a program that runs on can ask before it needs the answer"
    FEW = "a model has few tools, and chooses better for it"
    IN_LIST = "the list has it"
    LOOKS = "the console looks at what agents do"
    MISSING = "nothing speaks against it, and nobody has needed it"
    ON_THE_WAY = "whatever needs it does it on the way"
    OPERATOR = "whoever runs the store does it, from a command line"
    PERSON = "a person decides that, not a model"


REACHED = {
    # operation: commands, tools, pages (with POST: what their forms do)
    "sessions": ("sessions", "session_list", "/sessions"),
    "start_session": (Why.ON_THE_WAY, Why.ON_THE_WAY, Why.LOOKS),
    "find_session": (Why.ON_THE_WAY, Why.ON_THE_WAY, Why.ON_THE_WAY),
    "session": ("record", "remember", Why.LOOKS),
    "end_session": (Why.MISSING, "session_end", Why.LOOKS),
    "record": ("record", "remember", Why.LOOKS),
    "record_many": ("import", "remember", Why.LOOKS),
    "turns": (Why.IN_LIST, Why.FEW, "/session"),
    "assert_fact": ("assert", "remember", "POST /facts/correct"),
    "retract_fact": ("retract", Why.PERSON, "POST /facts/correct"),
    "retract_facts": ("retract", Why.PERSON, Why.LOOKS),
    "facts": ("facts", "facts", "/facts"),
    "fact": (Why.IN_LIST, Why.IN_LIST, Why.IN_LIST),
    "fact_history": ("facts", Why.FEW, "/facts"),
    "scopes": ("scopes", Why.FEW, "/"),
    "agents": ("agents", Why.FEW, "/"),
    "current": ("current", "session_current", Why.MISSING),
    "switch": ("switch", "switch", Why.LOOKS),
    "preview_switch": ("switch", Why.FEW, Why.LOOKS),
    "recall": ("recall", "recall", "/recall"),
    "context": ("context", "context", "/context"),
    "standing": ("standing", Why.FEW, Why.MISSING),
    "end_standing": ("standing", Why.PERSON, "POST /context/end"),
    "find": ("find", Why.FEW, "/sessions"),
    "head": ("head", Why.ON_THE_WAY, "/audit"),
    "position_at": (Why.ON_THE_WAY, Why.ON_THE_WAY, Why.ON_THE_WAY),
    "events": ("export", Why.FEW, "/audit"),
    "replay": ("replay", Why.FEW, Why.ON_THE_WAY),
    "status": ("status", "status", "/, /health"),
    "verify": ("verify", Why.OPERATOR, "POST /audit/verify"),
    "forget": ("forget", Why.PERSON, "/forgetting, POST /forgetting"),
    "distrust": ("distrust", Why.PERSON, "POST /distrust"),
    "trust_again": ("distrust", Why.PERSON, "POST /distrust/end"),
    "distrusts": ("distrusted", Why.FEW, "/session"),
    "propose": ("propose", "propose_fact", Why.LOOKS),
    "proposals": ("proposals", Why.PERSON, "/proposals"),
    "approve": ("approve", Why.PERSON, "POST /proposals/approve"),
    "decline": ("decline", Why.PERSON, "POST /proposals/decline"),
    "backup": ("backup", Why.OPERATOR, Why.OPERATOR),
    "rebuild": ("rebuild", Why.OPERATOR, Why.OPERATOR),
    "session.at": (
        "show, memory get, memory list, task, notes, checkpoint list",
        "working_memory",
        "/session",
    ),
    "session.turns": ("show", Why.FEW, "/session"),
    "session.assert_fact": (Why.MISSING, "remember", Why.LOOKS),
    "session.recall": ("recall", "recall", "/recall"),
    "session.context": ("context", "context", "/context"),
    "session.prefetch": (Why.AHEAD, Why.AHEAD, Why.AHEAD),
    "session.prefetch_result": (Why.AHEAD, Why.AHEAD, Why.AHEAD),
    "session.rewind": ("rewind", "switch", Why.LOOKS),
    "session.branch": ("branch", "session_branch", Why.LOOKS),
    "session.lineage": ("show", "session_current", "/session, /lineage"),
    "session.keys": ("memory list", Why.IN_LIST, Why.IN_LIST),
    "session.all": ("memory list", "working_memory", "/session"),
    "session.clear": (Why.MISSING, Why.FEW, Why.LOOKS),
    "session.get": ("memory get", Why.IN_LIST, Why.IN_LIST),
    "session.set": ("memory set", "memory_set, working_memory", Why.LOOKS),
    "session.delete": ("memory delete", "working_memory", Why.LOOKS),
    "session.task": ("task", "working_memory", "/session"),
    "session.set_task": ("task", "working_memory", Why.LOOKS),
    "session.update_task": ("task", "task_update", Why.LOOKS),
    "session.notes": ("notes", "working_memory", "/session"),
    "session.note": ("notes", "working_memory", Why.LOOKS),
    "session.clear_notes": ("notes", "notes_clear", Why.LOOKS),
    "session.checkpoints": ("checkpoint list", "checkpoint_list", "/session, /lineage"),
    "session.checkpoint": ("checkpoint create", "checkpoint_create", Why.LOOKS),
    "session.delete_checkpoint": ("checkpoint delete", Why.PERSON, Why.LOOKS),
    "session.restore": ("checkpoint restore", "checkpoint_restore", Why.LOOKS),
    "audit.timeline": ("replay", "timeline", "/audit, /live"),
    "audit.event": ("show", Why.FEW, "/event/{position}"),
    "audit.diff": ("diff", Why.FEW, "/diff"),
    "audit.scan_secrets": ("scan-secrets", Why.OPERATOR, Why.OPERATOR),
    "audit.export": ("export", Why.OPERATOR, "/audit"),
    "audit.subject": ("subject", Why.OPERATOR, "/audit"),
    "audit.receipts": (
        "audit",
        Why.OPERATOR,
        "/recall/receipts, /recall/receipts/{position}, /review, /review/{job}, POST /review",
    ),
    "audit.effects": ("effects", Why.FEW, "/recall/receipts"),
    "audit.judge": ("judge", Why.PERSON, "POST /recall/judge"),
    "audit.judgements": (Why.MISSING, Why.OPERATOR, Why.MISSING),
    "audit.forgotten": ("forgotten", Why.OPERATOR, "/forgetting/{request}"),
    "audit.erasures": ("forgotten", Why.OPERATOR, "/forgetting"),
    "audit.pending_erasures": ("forgotten", Why.OPERATOR, "/forgetting"),
    "models.list": ("model list", Why.OPERATOR, "/health"),
    "models.load": (Why.ON_THE_WAY, Why.ON_THE_WAY, Why.ON_THE_WAY),
    "models.activate": ("model activate", Why.OPERATOR, Why.OPERATOR),
    "models.drop": ("model drop", Why.OPERATOR, Why.OPERATOR),
    "admin.doctor": ("doctor", Why.OPERATOR, "/health, POST /health/check, POST /health/fix"),
    "admin.catch_up_views": (Why.ON_THE_WAY, Why.ON_THE_WAY, Why.ON_THE_WAY),
    "admin.catch_up_vectors": ("project", Why.OPERATOR, Why.OPERATOR),
    "admin.language": ("language", Why.OPERATOR, Why.OPERATOR),
    "admin.set_language": ("language", Why.OPERATOR, Why.OPERATOR),
    "admin.redaction": ("redaction", Why.OPERATOR, Why.OPERATOR),
    "admin.set_redaction": ("redaction", Why.OPERATOR, Why.OPERATOR),
    "admin.retention": ("retention", Why.OPERATOR, "/retention"),
    "admin.set_retention": ("set-retention", Why.OPERATOR, "POST /retention"),
    "admin.hold": ("hold", Why.OPERATOR, "POST /retention/hold"),
    "admin.lift_hold": ("lift-hold", Why.OPERATOR, "POST /retention/lift"),
    "admin.apply_retention": ("retention", Why.OPERATOR, "POST /retention/preview"),
    "admin.nodes": ("nodes", Why.OPERATOR, "/health"),
    "admin.remove_node": ("nodes", Why.OPERATOR, Why.OPERATOR),
    "admin.create_token": ("token create", Why.OPERATOR, "POST /tokens"),
    "admin.tokens": ("token list", Why.OPERATOR, "/tokens"),
    "admin.rotate_token": ("token rotate", Why.OPERATOR, Why.OPERATOR),
    "admin.revoke_token": ("token revoke", Why.OPERATOR, "POST /tokens/revoke"),
    "admin.reapply_erasures": ("restore", Why.OPERATOR, Why.OPERATOR),
    "admin.quarantine.items": ("quarantine list", Why.OPERATOR, "/health"),
    "admin.quarantine.status": ("status", Why.OPERATOR, "/health"),
    "admin.quarantine.purge": ("quarantine purge", Why.OPERATOR, Why.OPERATOR),
}
"""What has each operation, or why nothing does."""

BESIDE = {
    "init": (MemoryStore.open, prepare_database),
    "import": (import_files, import_log),
    "copy": (copy_store,),
    "restore": (restore_backup,),
    "keys": (wrap_keys,),
    "head": (AuditService.append_head,),
    "model add": (ModelService.add,),
}
"""What commands call that is no operation: it opens the store, or takes files of this machine."""

ELSE = {
    "serve": "serves all operations",
    "mcp": "serves the tools",
    "watch": "records what other programs write",
    "hermes install": "writes the settings of another program",
    "reads": "reads a file of the server",
    "/jobs/{job}": "the progress of what a form began",
}
"""Commands and pages that belong to no operation, and what they are."""

RENAMED = [
    # commands and tools (with brackets), option, parameter, and why where that is not plain
    ("recall, context, find", "role", "roles", "given once for each"),
    ("recall, context, find", "speaker", "speakers", "given once for each"),
    ("recall, context, find", "meta", "metadata", "one field of it"),
    ("import", "files", "paths", ""),
    ("import", "field", "fields", "given once for each"),
    ("show, memory get, memory list, task, notes, checkpoint list", "at", "when", ""),
    ("working_memory()", "as_of", "when", "as with the other tools"),
    ("switch", "from", "session", "beside --to"),
    ("forget", "position", "positions", "given once for each"),
    ("forget", "keep_questions", "questions", "the opposite is the default"),
    ("copy", "without_keys", "with_keys", "the opposite is the default"),
    ("init", "plain", "encrypt", "the opposite is the default"),
    ("facts", "history", "key", ""),
    ("retract", "position", "fact", ""),
    ("distrust", "undo", "distrust", ""),
    ("standing", "end", "statement", ""),
    ("lift-hold", "position", "hold", ""),
    ("task", "set", "description", ""),
    ("working_memory()", "task", "description", ""),
    ("notes", "add", "text", ""),
    ("working_memory()", "note", "text", ""),
    ("working_memory()", "delete", "key", "several"),
    ("working_memory()", "values", "value", "several"),
    ("replay, export", "from", "after", "the first position, not the one before it"),
    ("export", "to", "upto", "as of replay"),
    ("diff", "limit", "turns_max", "as of lists"),
    ("head", "append", "file", ""),
    ("judge", "good_turn", "good", "by its position, not its rank"),
    ("nodes", "remove", "node", ""),
    ("token create", "verb", "verbs", "given once for each"),
    ("token create", "scope", "scopes", "given once for each"),
    ("token create", "expires", "expires_in", "an age such as 30d"),
]
"""Options and arguments that are not called like the parameter that they are."""

OTHER_DEFAULTS = [
    ("record, remember()", "role", "most of what is recorded by hand is said by the user"),
    ("find", "limit", "a few screens"),
    ("session_current()", "agent", "the agent of the server"),
    ("timeline()", "after", "without it, the newest"),
    ("show", "session", "a flag beside the argument: a number is the id of one"),
    ("model drop", "model", "an option beside the argument: the model of the store"),
    ("init", "plain", "the opposite"),
    ("forget", "keep_questions", "the opposite"),
    ("copy", "without_keys", "the opposite"),
    ("replay, export", "from", "the first position, not the one before it"),
    ("export", "file", "standard output"),
    ("token create", "expires", "the same age in words"),
    ("token rotate", "revoke_old_after", "the same age in words"),
]
"""Options and arguments whose default is not that of the parameter."""

OWN_TOOLS = [
    ("init", "print_sql", "changes nothing"),
    ("record", "start", "calls `session` first"),
    ("import", "dry_run", "calls another function"),
    ("import", "vectors", "calls `catch_up_vectors` afterwards"),
    ("backup", "after_backup", "a program to run afterwards"),
    ("recall", "explain", "how it prints"),
    ("effects", "csv", "how it prints"),
    ("subject", "output", "a file to write"),
    ("switch", "dry_run", "calls `preview_switch`"),
    ("forget", "certificate", "a file to write"),
    ("forgotten", "erasures", "which list"),
    ("forgotten", "pending", "which list"),
    ("assert, memory set", "text", "how it reads the value"),
    ("notes", "clear", "calls `clear_notes`"),
    ("retention", "list", "calls `retention`"),
    ("set-retention", "recorded", "one of the two values of `by`"),
    ("replay, proposals", "jsonl", "how it prints"),
    ("approve, decline", "batch", "more positions, and edits"),
    ("propose_fact()", "key", "of the act"),
    ("propose_fact()", "value", "of the act"),
    ("propose_fact()", "valid_from", "of the act"),
    ("doctor", "dry_run", "the opposite of --fix"),
    ("doctor", "actor", "who acts, in each event"),
    ("keys", "wrap", "without it, a dry run"),
    ("session_list(), timeline()", "limit", "a model reads no endless list"),
    ("session_list()", "before", "the next page of it"),
]
"""Options that are no parameter, and what they are."""

EVERYWHERE = {"store", "model", "json", "full", "yes", "help"}
"""Options and arguments that mean the same in all commands: which store, how to print, and that it is meant."""

OF_SESSIONS = {operation.method for operation in OPERATIONS if operation.of_session}
THERE = {
    "command": {*every_command()},
    "tool": {*TOOLS},
    "page": {page.path for page in PAGES} | {f"POST {action.path}" for action in ACTIONS},
}


def operations_of(interface):
    """Return what a command, tool or page does: by its name the operations."""
    found = {}
    for operation in OPERATIONS:
        cell = REACHED[operation.name][list(THERE).index(interface)]
        for name in () if isinstance(cell, Why) else cell.split(", "):
            found.setdefault(name, []).append(operation)
    return found


def called(interface):
    """Return the methods and functions that a command, tool or page calls, by its name."""
    found = {name: [*methods] for name, methods in (BESIDE if interface == "command" else {}).items()}
    for name, operations in operations_of(interface).items():
        found.setdefault(name, []).extend(operation.method for operation in operations)
    return found


def test_every_operation_has_a_command_a_tool_and_a_page_or_a_reason():
    """A new one fails here until somebody has decided on its command, its tool and its page."""
    assert list(REACHED) == [operation.name for operation in OPERATIONS]
    assert {cell for row in REACHED.values() for cell in row if isinstance(cell, Why)} == set(Why)


@pytest.mark.parametrize("interface", THERE)
def test_what_has_an_operation_exists_and_everything_that_exists_has_one(interface):
    """What belongs to none says what it is."""
    assert called(interface).keys() | (ELSE.keys() & THERE[interface]) == THERE[interface]
    assert not called(interface).keys() & ELSE.keys()
    assert ELSE.keys() <= set().union(*THERE.values())


def test_a_tool_reads_if_its_operations_do():
    """One with another effect records in each of them, unless it can be called only to read."""
    for name, operations in operations_of("tool").items():
        reads = {operation.verb == "read" for operation in operations}
        expected = {True} if TOOLS[name].effect == "reads" else {False, True} if TOOLS[name].reads_too else {False}
        assert reads == expected, name


def test_a_page_asks_for_the_right_that_its_operation_needs():
    """A form does nothing that its reader could not do otherwise; what needs more is left out of a page."""
    verbs = {name: {item.verb for item in found} for name, found in operations_of("page").items()}
    for action in ACTIONS:
        assert verbs[f"POST {action.path}"] == {action.verb}, action.path
    for page in PAGES:
        assert page.verb in verbs.get(page.path, {"read"}), page.path


def options_of(command):
    """Return the options and arguments of a command as they are typed, with their defaults."""
    group, _, name = command.partition(" ")
    found = {}
    for item in (loaded(group).commands[name] if name else loaded(group)).params:
        typed = next((option[2:] for option in item.opts if option.startswith("--")), item.name)
        found[typed.replace("-", "_")] = item.type_cast_value(None, item.default)
    return found


def plain(default):
    """Return a default; None for all that says that nothing is given."""
    nothing = (inspect.Parameter.empty, msgspec.NODEFAULT, msgspec.UNSET, "", (), [], {})
    return None if default in nothing else default


def each(rows):
    """Return the rows of a list by command or tool, and option."""
    return {(name, option): rest for names, option, *rest in rows for name in names.split(", ")}


def test_an_option_has_the_name_and_the_default_of_the_parameter():
    """Of a command, or of a tool for agents. What differs is in a list, and a list has nothing else."""
    offered = {name: (options_of(name), methods) for name, methods in called("command").items()}
    for name, methods in called("tool").items():
        fields = msgspec.structs.fields(TOOLS[name].arguments)
        offered[f"{name}()"] = {field.name: field.default for field in fields}, methods
    renamed, own, other_defaults = each(RENAMED), set(), set()
    for name, (options, methods) in offered.items():
        found = {"session": [None]} if OF_SESSIONS & {*methods} else {}
        for method in methods:
            for item in inspect.signature(method).parameters.values():
                found.setdefault(item.name, []).append(plain(item.default))
        parameters = found
        for option, default in options.items():
            parameter = renamed.get((name, option), [option])[0]
            if parameter in parameters:
                if plain(default) not in parameters[parameter]:
                    other_defaults.add((name, option))
            elif option not in EVERYWHERE:
                own.add((name, option))
    assert own == set(each(OWN_TOOLS))
    assert other_defaults == set(each(OTHER_DEFAULTS))
    assert renamed.keys() <= {(name, option) for name, (options, _) in offered.items() for option in options}


def test_a_hint_names_the_command_and_the_tool_of_the_operation():
    """Of each call that a hint of the library has."""
    for hinted, interface in ((COMMANDS_OF_HINTS, "command"), (TOOLS_OF_HINTS, "tool")):
        for call, template in hinted.items():
            name = next(name for name in THERE[interface] if f"{template} ".startswith(f"{name} "))
            assert call.rpartition(".")[2] in {method.__name__ for method in called(interface)[name]}, call


CALLED = {
    ast.literal_eval(node.args[0])
    for path in SOURCES
    for node in nodes_of(path)
    if isinstance(node, ast.Call)
    and ast.unparse(node.func) in ("remedy", "errors.remedy")
    and isinstance(node.args[0], ast.Constant)
}
OWNERS_OF = {name.removesuffix("."): [owner] for owner, name in OWNERS.items()} | {
    "": [MemoryStore, Session, mnemolog, opening],
    "MemoryStore": [MemoryStore],
    "admin.quarantine()": [Quarantine],
}
HINTS = [example.hint for example in EXAMPLES if isinstance(example.hint, Hint)]


def test_every_call_in_a_hint_is_a_call_of_the_library_and_has_a_command():
    """A renamed method or command cannot leave a hint behind."""
    assert COMMANDS.keys() == CALLED
    for call in CALLED:
        owner, _, name = call.rpartition(".")
        assert any(callable(getattr(known, name, None)) for known in OWNERS_OF[owner]), call


@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_every_command_of_a_hint_is_one_that_can_be_run(hint):
    """Its arguments and options are those of the command."""
    begin(["recall", "memory", "dog"])
    for line in re.findall("`(mnemolog .*?)`", as_commands(hint)):
        _, name, *arguments = shlex.split(line)
        loaded(name).make_context(f"mnemolog {name}", arguments)


@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_every_request_of_a_hint_has_a_route(hint):
    """Its path is one of the API."""
    for method, path in re.findall(rf"`(GET|POST|PUT|PATCH|DELETE) {PREFIX}(\S+)`", as_requests(hint)):
        patterns = {operation.http: [] for operation in ROUTES}
        for operation in ROUTES:
            patterns[operation.http].append(re.sub(r"{\w+}", "[^/]+", operation.path))
        assert any(re.fullmatch(pattern, path) for pattern in patterns[method]), path


WORDS = {
    "the library": (str, "`session('a b').delete_checkpoint('x')`, then `rebuild('vectors', skip_bad=True)`"),
    "the command line": (
        as_commands,
        "`mnemolog checkpoint delete 'my memory' 'a b' x`, then "
        "`mnemolog rebuild 'my memory' vectors --skip-bad --model mini`",
    ),
    "the API": (
        as_requests,
        "`DELETE /v1/sessions/a%20b/checkpoints/x`, then `POST /v1/rebuild` with "
        '{"projection": "vectors", "skip_bad": true}',
    ),
}


@pytest.mark.parametrize("interface", WORDS)
def test_a_hint_is_spelled_in_the_words_of_each_interface(interface):
    """With the values that are known, quoted as they have to be."""
    spell, expected = WORDS[interface]
    context = loaded("status").make_context("mnemolog status", ["my memory"])
    begin(["status", "my memory"]).context = context
    rebuild = remedy("rebuild", "vectors", with_model="MODEL", skip_bad=True)
    hint = with_model(Hint(remedy("delete_checkpoint", "x", of="a b"), ", then ", rebuild), "mini")
    assert spell(hint) == expected


def test_a_command_line_is_repeated_with_other_options():
    """An option that was given is replaced."""
    arguments = ["recall", "memory", "dog", "--model", "all-MiniLM-L6-v2"]
    begin(arguments).context = loaded("recall").make_context("mnemolog recall", arguments[1:])
    assert as_commands(Hint(again(model=None))) == "`mnemolog recall memory dog --model none`"
    assert (
        as_commands(Hint(again()))
        == "run the same command again: `mnemolog recall memory dog --model all-MiniLM-L6-v2`"
    )


def test_a_hint_for_an_agent_names_a_tool_or_what_its_user_can_call():
    """Its tools are fewer than the calls of the library."""
    hints = [Refusal.of(example).hint for example in EXAMPLES]
    named = {name for hint in hints for name in re.findall("`([a-z_]+)`", hint)}
    assert {"session_list", "remember", "switch", "working_memory"} <= named & TOOLS.keys()
    assert not [hint for hint in hints if re.search(r"`[^`]*\)`(?!, which the user can call)", hint)]


def test_a_hint_is_a_text_that_keeps_its_calls():
    """Joined with others, made a sentence of, or sent to another process."""
    hint = sentence(Hint("look: ", Hint(remedy("status"), " tells")))
    assert hint == "Look: `status()` tells."
    copied = pickle.loads(pickle.dumps(hint))
    assert copied == hint
    assert spelled(copied, lambda _: "X") == "Look: X tells."
    assert in_python(again()) == "call again"
