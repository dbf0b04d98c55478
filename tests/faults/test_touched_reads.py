"""No read gives what a log says that was changed from outside; what does not need the event still answers.

P40: what is stored of a log is edited at random, past the library. No read answers otherwise without saying so.
"""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product

import pytest

from benchmarks.outside.stored_log import StoredInPostgres, StoredLog
from mnemolog import LogDamaged, MemoryStore
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.postgres.engine import prepare
from mnemolog.infra.log.reader import LogReader
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from tests.faults.edits import History
from tests.faults.simulation.running import SMALL
from tests.faults.simulation.world import VOCABULARY
from tests.faults.tamper import Tampering, copy_store
from tests.postgres import database_on
from tests.support import FakeClock, HashEncoder

FERRY, PORTO = "ferry", "Porto"
GIVEN = {
    "after": 0,
    "upto": 100,
    "limit": 100,
    "position": 3,
    "positions": [1, 3],
    "stream": "session/a",
    "streams": ["session/a"],
    "key": "k",
    "topic": "turn.recorded.v1",
    "topics": (),
    "prefix": "",
    "first": "session/a",
    "last": "session/b",
    "version": 2,
    "latest": 4,
    "batch_max": 100,
    "descending": False,
}
"""An argument for each parameter of the queries of a log."""
OPERATIONS = {
    "recall": lambda store: store.recall("ferry", mode="text"),
    "recall of another": lambda store: store.recall("castle", mode="text", k=1),
    "recall by meaning": lambda store: store.recall("the ferry", mode="vector", k=1),
    "context": lambda store: store.context("ferry", 200),
    "turns": lambda store: store.turns("a"),
    "turns of another": lambda store: store.turns("b"),
    "last turns": lambda store: store.session("a").turns(last=1),
    "as of": lambda store: store.session("a").at(4).turns(),
    "messages": lambda store: store.session("a").messages(),
    "find": lambda store: store.find("ferry"),
    "fact": lambda store: store.fact("user/city"),
    "facts": lambda store: store.facts(),
    "facts of others": lambda store: store.facts("user/food"),
    "fact history": lambda store: store.fact_history("user/city"),
    "sessions": lambda store: store.sessions(agent="guide"),
    "sessions of others": lambda store: store.sessions(agent="assistant"),
    "standing": lambda store: store.standing(),
    "events": lambda store: list(store.events()),
    "events before": lambda store: list(store.events(upto=2)),
    "replay": lambda store: store.replay(),
    "timeline": lambda store: list(store.audit.timeline()),
    "value": lambda store: store.session("a").get("pace"),
    "head": lambda store: store.head(),
    "position at": lambda store: store.position_at("2024-01-01T00:00:06Z"),
    "within a scope": lambda store: store.within("trips").recall("ferry", mode="text"),
}
EDITS = {
    "its content": "UPDATE events SET state = CAST(state || x'00' AS BLOB) WHERE position = ?",
    "its time": "UPDATE events SET recorded_at = recorded_at + 60000000 WHERE position = ?",
    "its digest": "UPDATE events SET digest = zeroblob(32) WHERE position = ?",
    "its stream": "UPDATE events SET stream = stream || '/x' WHERE position = ?",
    "gone": "DELETE FROM events WHERE position = ?",
}
MAY_BE_ANY = {("gone", PORTO), *product(["its stream"], (FERRY, PORTO, "guide"))}
"""Edits after which no version is left out by which to tell the stream that lacks an event."""
EVENTS = {FERRY: 3, PORTO: 8, "guide": 1}
"""A word that only one event has, and its position."""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    with MemoryStore.open(
        tmp_path_factory.mktemp("told") / "memory", model=HashEncoder(), clock=FakeClock(), encrypt=False
    ) as store:
        store.start_session("a", scope="trips", agent="guide")
        store.record("a", "user", "Always write in short sentences.")
        store.record("a", "user", "We take the ferry at nine.", key="k")
        store.record("a", "assistant", "It is on the river.")
        store.start_session("b", scope="work")
        store.record("b", "user", "The castle is closed.")
        store.assert_fact("user/food", "bread")
        store.assert_fact("user/city", "Porto")
        store.record("a", "user", "And the museum as well.")
        store.session("a").set("pace", "slow")
        store.record("b", "user", "The garden opens in May.")
        store.recall("ferry", min_position=store.head().position)
        yield store


def copied(told, folder, *, projections=True):
    """A copy of the store, with projections that have read all of it."""
    copy_store(told.parts.log, folder)
    if projections:
        with MemoryStore.open(folder, model=HashEncoder()) as store:
            store.recall("ferry", min_position=store.head().position)
    return folder


def edit(folder, edits):
    tampering = Tampering(folder / LOG_FILE)
    for statement, position in edits:
        tampering.execute(statement, (position,))
    tampering.put_triggers_back()
    tampering.connection.close()


@pytest.mark.promise("P6")
@pytest.mark.parametrize("word", EVENTS)
@pytest.mark.parametrize("how", EDITS)
def test_what_needs_a_touched_event_is_refused_and_nothing_else(told, tmp_path, how, word):
    """With projections that have read the event as it was, so that every answer could be given without the log."""
    folder = copied(told, tmp_path / "memory")
    needs = {name for name, ask in OPERATIONS.items() if word in repr(ask(told))}
    edit(folder, [(EDITS[how], EVENTS[word])])
    refused, positions = set(), set()
    with MemoryStore.open(folder, model=HashEncoder()) as store:
        for name, ask in OPERATIONS.items():
            try:
                ask(store)
            except LogDamaged as error:
                refused.add(name)
                positions.add(error.position)
    assert needs
    assert refused >= needs
    assert EVENTS[word] in positions
    others = {name for name in OPERATIONS if "other" in name}
    if (how, word) not in MAY_BE_ANY:
        assert refused.isdisjoint(others - needs)


@pytest.mark.promise("P6")
@pytest.mark.parametrize("how", EDITS)
def test_projections_are_not_built_over_a_touched_event(told, tmp_path, how):
    """Without projections every answer would have to be built from the log."""
    folder = copied(told, tmp_path / "memory", projections=False)
    edit(folder, [(EDITS[how], EVENTS[FERRY])])
    with MemoryStore.open(folder, model=None) as store:
        for ask in (lambda: store.recall("castle"), lambda: store.rebuild("views"), store.replay, store.sessions):
            with pytest.raises(LogDamaged, match=f"position {EVENTS[FERRY]}:"):
                ask()


@pytest.mark.promise("P6")
@pytest.mark.parametrize("how", ["its content", "its time", "its digest"])
def test_no_query_of_the_log_gives_a_touched_event(told, tmp_path, how):
    """All methods of the reader and of the log are called: a new one is held to it as well."""
    folder = copied(told, tmp_path / "memory", projections=False)
    edit(folder, [(EDITS[how], EVENTS[FERRY])])
    gave = set()
    with MemoryStore.open(folder, model=None) as store, store.parts.log.reading() as reads:
        for owner, kind in ((reads, LogReader), (store.parts.log, EventLog)):
            for name, method in inspect.getmembers(kind, inspect.isfunction):
                parameters = inspect.signature(method).parameters.values()
                taken = {item.name for item in parameters if item.default is item.empty} - {"self"}
                if name.startswith("_") or not taken or not taken <= GIVEN.keys():
                    continue
                gave.add(name)
                try:
                    answer = getattr(owner, name)(**{key: GIVEN[key] for key in taken})
                    given = repr(list(answer) if isinstance(answer, Iterator) else answer)
                except LogDamaged:
                    continue
                assert name in RAW or FERRY not in given, name
    assert {"events", "event_at", "read", "read_at", "not_turns", "turns_backward", "versions", "selected"} <= gave


COLUMNS = "stream, topic, state, recorded_at, digest"
COPY = f"INSERT INTO events (position, version, {COLUMNS}) SELECT ?, 99, {COLUMNS} FROM events WHERE position = 10"
GONE = "DELETE FROM events WHERE position = ?", 10
LACKING = {
    "the newest of a stream is gone": ("value", [GONE]),
    "it is gone, and the positions close up": (
        "value",
        [
            GONE,
            ("UPDATE events SET position = position - 1 WHERE position > ?", 10),
            ("UPDATE sqlite_sequence SET seq = ? WHERE name = 'events'", 10),
        ],
    ),
    "the first of a stream is another": (
        "turns of another",
        [("UPDATE events SET topic = 'turn.recorded.v1' WHERE position = ?", 5)],
    ),
    "one is before the first": ("value", [(COPY, -1)]),
    "one is behind the last": ("head", [(COPY, 12)]),
    "a text is none": ("value", [("UPDATE events SET topic = CAST(x'ff' AS TEXT) WHERE position = ?", 10)]),
    "a time is another": ("position at", [("UPDATE events SET recorded_at = 0 WHERE position = ?", 8)]),
}


@pytest.mark.promise("P6")
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("how", LACKING)
def test_an_answer_from_what_is_not_found_is_refused(told, tmp_path, how, is_open):
    """Nothing that is read shows that it is touched: what shows it is at another place of the log."""
    folder, (name, edits) = copied(told, tmp_path / "memory"), LACKING[how]
    with ExitStack() as opened:
        if is_open:
            OPERATIONS[name](store := opened.enter_context(MemoryStore.open(folder, model=None)))
        edit(folder, edits)
        if not is_open:
            store = opened.enter_context(MemoryStore.open(folder, model=None))
        with pytest.raises(LogDamaged):
            OPERATIONS[name](store)


RAW = {"stored", "stored_rows", "newest"}
"""What `verify`, exports and copies follow digest by digest themselves."""


EDITS_OF_EACH = 250
"""How often a history is edited before the next one is made."""


@pytest.fixture(params=["folder", "postgres"])
def log(request, tmp_path):
    """A place for one log after the other: in a folder, or in a database of its own."""
    folder = tmp_path / "log" / "memory"
    if request.param == "folder":
        yield StoredLog(folder)
        return
    with database_on(request.getfixturevalue("postgres_url")) as url:
        prepare(url)
        yield StoredInPostgres(folder, url)


@pytest.mark.timeout(36_000)
@pytest.mark.promise("P40", "edits of each kind of store")
@pytest.mark.parametrize("encrypt", [True, False], ids=["encrypted", "plain"])
def test_no_read_answers_otherwise_after_an_edit_unless_it_says_so(
    log, encrypt, tmp_path, monkeypatch, rng, seed, tries
):
    """Columns, rows, their order, the counter, the tail, rows of other stores; with projections, and without."""
    for setting in SMALL:
        monkeypatch.setattr(*setting)
    with MemoryStore.open(tmp_path / "foreign", model=None, encrypt=encrypt) as store:
        said = [{"role": "user", "text": f"{word} elsewhere"} for word in VOCABULARY]
        store.session("last", scope="acme").record_many(said)
    foreign = StoredLog(tmp_path / "foreign").rows()
    for number in range(tries):
        if number % EDITS_OF_EACH == 0:
            history = History(log, f"{seed}/{number}", encrypt=encrypt)
        assert (found := history.edited(rng, foreign)) is None, found
