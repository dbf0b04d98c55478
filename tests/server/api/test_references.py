"""What lies outside of a caller's scopes does not show through what refers to it, in no answer of any interface.

Two stores differ in this: what others recorded refers to turns, sessions and facts of Ann, or it does not; and what
Ann has refers to one or to another event of theirs. Every answer to Ann is the same, byte by byte.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import get_args, get_origin, get_type_hints

import msgspec
import pytest

from mnemolog import MemoryStore, MnemologError, acting_as
from mnemolog.adapters.support.agent_tools import Memory
from mnemolog.adapters.support.agent_tools.catalogue import TOOLS
from mnemolog.adapters.support.store_access import with_pools
from mnemolog.domain.event import Ordinal, references_of
from mnemolog.domain.events import EVENT_TYPES
from mnemolog.domain.tokens import VERBS
from mnemolog.operation_table import OPERATIONS
from mnemolog.server.console.routes import PAGES
from tests.console import opened_console
from tests.counted_work import Work
from tests.server.api.test_isolation import Tenants, requests, shown
from tests.support import FakeClock

ANN, BOB = "acme/ann", "acme/bob"
TRIP = f"{ANN}/trip"
SAID = datetime(2026, 3, 1, tzinfo=UTC)
ASKED = {"session": TRIP, "query": "ferry", "scope": ANN}
RANDOM = re.compile(r'\b[0-9a-f]{12,64}\b|"done":\w+')
MOMENTS = {
    *("position", "head", "as_of", "vectors_cover", "covers", "after", "upto", "purged", "activated_at"),
    *("started_position", "last_position", "branched_at", "receipt", "assertions", "retracted", "forgotten"),
    *("distrusted", "undone", "questions", "dimension", "retain_every_n_turns"),
}
"""Fields that say where something itself is, since when or as of when it is."""
INSIDE = {
    "CameAfter.turns",
    "Proposal.now_at",
    "FactRetracted.fact",
    "SourceTrusted.distrust",
    "ThreadCheckpointed.parent",
}
"""What these refer to is in the same stream, in the same thread, or left out where it is made."""
REFUSED = {"Judgement", "RecallJudged"}
"""No store for scopes shows these."""


def structs_in(hint, found):
    """Add the structs of a type hint to those that were found, and those in their fields."""
    for part in get_args(hint):
        structs_in(part, found)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in found:
        found.add(hint)
        for of_field in get_type_hints(hint, include_extras=True).values():
            structs_in(of_field, found)


def planted(store, *, refers):
    """Record what Ann said, and then what others did. Return the positions of Ann's turns."""
    own, theirs = store.session(TRIP, scope=ANN, agent="ann"), store.session(f"{BOB}/trip", scope=BOB)
    ferry = own.record("user", "The ferry leaves at nine.")
    own.record("assistant", "Shall I book the ferry?")
    pins = [theirs.record("user", f"My PIN is 471{number}.", said_at=SAID) for number in (1, 2)]
    other = store.session(f"{BOB}/work", scope=BOB)
    own.assert_fact("user/pin", "known", because=[pins[refers]], valid_from=SAID)
    store.session(f"{ANN}/child", scope=ANN, parent=(theirs if refers else other).id)
    own.checkpoint("packed")
    own.set("city", "Porto")
    # From here on only others record.
    turn = ferry if refers else pins[0]
    store.assert_fact("ferry/time", "nine", scope=BOB, because=[turn])
    store.assert_fact("ferry/time", "ten", scope=BOB)
    with acting_as("bobs-agent"):
        store.recall("ferry PIN", k=5, scope="" if refers else BOB, receipt=True, mode="text")
        receipt = store.context("ferry PIN", scope="" if refers else BOB, receipt=True, mode="text").receipt
    store.audit.judge(receipt, good=[turn.position])
    store.switch(f"{BOB}/branch", reason="branch", session=own.id if refers else theirs.id, scope=BOB, agent="bob")
    store.session(f"{BOB}/child", scope=BOB, parent=own.id if refers else theirs.id)
    scope = ANN if refers else BOB  # What inherits from outside is outside, whatever its scope is.
    store.switch(f"{scope}/inherits", reason="branch", session=theirs.id, scope=scope, agent="bob")
    store.distrust(session=f"{BOB}/branch", reason="a forged page")
    store.distrust(positions=[pin.position for pin in pins], reason="a forged page")
    return ferry.position


class Twin(Tenants):
    """One of the two stores, and a server that Ann's token is sent to."""

    def __init__(self, folder, *, refers):
        self.refers = refers
        super().__init__(folder, own=[ANN], foreign=[], verbs=VERBS, ghost="")

    def fill(self, own, foreign, ghost):
        planted(self.store, refers=self.refers)


async def test_every_operation_answers_as_if_nothing_outside_referred_to_what_is_inside(tmp_path):
    """Each request of the API, about Ann's sessions, and about every position of the log."""
    async with Twin(tmp_path / "one", refers=True) as one, Twin(tmp_path / "two", refers=False) as two:
        asked = [
            ("GET", path, {})
            for position in range(1, one.store.head().position + 1)
            for path in (f"/turns/{position}/effects", f"/events/{position}")
        ]
        for name in (TRIP, f"{ANN}/child", f"{BOB}/branch"):
            asked += [tuple(request) for _, *request in requests(name, scope=ANN, agent="ann", position=3)]
        asked = [request for request in asked if "/prefetch" not in request[1]]
        answered = 0
        for method, path, given in asked:
            answers = [shown(await twin.ask((method, path, given, given))).decode() for twin in (one, two)]
            told = [RANDOM.sub("", answer) for answer in answers]
            assert told[0] == told[1], (method, path, given)
            answered += told[0].startswith("200")
        assert answered > 60


def test_no_page_and_no_tool_shows_what_refers_from_outside(tmp_path):
    """Pages of the console as data, and the tools that agents have."""
    found = []
    for refers in (True, False):
        shows = []
        with opened_console(tmp_path / str(refers), clock=FakeClock()) as browser:
            planted(with_pools(browser.store)[0], refers=refers)
            ann = browser.as_caller(*VERBS, scope=ANN)
            for page in PAGES:
                answer = ann.get(f"{page.path}?id={TRIP}&session={TRIP}&position=2&q=ferry", Accept="application/json")
                shows.append((page.path, answer.status_code, RANDOM.sub("", answer.text)))
            memory = Memory(browser.store.within(ANN), agent="ann")
            for tool in TOOLS.values():
                given = {name: value for name, value in ASKED.items() if name in tool.input_schema["properties"]}
                answer = repr(browser.run(tool.ask(memory, given))) if tool.effect == "reads" else ""
                shows.append((tool.name, RANDOM.sub("", answer)))
        found.append(shows)
    assert sum(len(one) == 3 and one[1] == 200 for one in found[0]) > 8
    assert found[0] == found[1]


ABOUT_ONE = {
    "effects": lambda store, place: store.audit.effects(place.position),
    "turns": lambda store, place: store.turns(place.session),
    "session": lambda store, place: store.find_session(place.session),
    "recall": lambda store, place: store.recall("ferry", session=place.session, mode="text"),
    "end": lambda store, place: store.end_session(place.session),
    "fact": lambda store, place: store.assert_fact("k", 1, because=[place.position]),
    "distrust": lambda store, place: store.distrust(session=place.session, reason="forged"),
    "forget": lambda store, place: store.forget(session=place.session),
}


@pytest.mark.parametrize("call", ABOUT_ONE)
def test_what_is_outside_takes_as_many_questions_to_the_database_as_what_never_was(tmp_path, call):
    """So the time of a refusal does not tell whether others have it."""
    asked, refusals = [], []
    with MemoryStore.open(tmp_path / "memory", model=None, background=False) as store:
        planted(store, refers=True)
        theirs = store.turns(f"{BOB}/trip")[0]
        never = SimpleNamespace(position=store.head().position + 1, session=f"{BOB}/none")
        bound = store.within(ANN)
        for place in (theirs, never, theirs, never):  # From the second on it is known where sessions are.
            questions = Questions()
            with questions.counting(), suppress(MnemologError):
                refusals.append(repr(ABOUT_ONE[call](bound, place)))
            asked.append(questions.done)
    assert asked[2] == asked[3] > 0
    assert set(refusals) <= {"None"}


class Questions(Work):
    """Counts statements that are executed."""

    def _called(self, frame, event, argument):
        self.done += event == "c_call" and argument.__name__.startswith("execute")


def test_what_a_field_refers_to_is_said_by_its_type():
    """A new field of an event or a result with a position or a session fails until its type says what it refers to."""
    kinds, undecided = set(EVENT_TYPES.values()), []
    for operation in OPERATIONS:
        structs_in(get_type_hints(operation.method)["return"], kinds)
    for kind in kinds:
        hints = get_type_hints(kind, include_extras=True)
        for name in kind.__struct_fields__:
            field = f"{kind.__name__}.{name}"
            may_refer = "Position" in str(hints[name]) or hints[name] in (Ordinal, list[Ordinal]) or name == "parent"
            is_decided = name in MOMENTS or field in INSIDE or kind.__name__ in REFUSED
            if may_refer and not is_decided and references_of(kind).get(name) is None:
                undecided.append(field)
    assert not undecided, " ".join(sorted(undecided))


def test_what_yields_items_reads_them_through_the_events_that_are_visible():
    """Those are looked up in batches; a new method that yields fails here until it does so, too."""
    yields = {item.name for item in OPERATIONS if get_origin(get_type_hints(item.method)["return"]) is Iterator}
    assert yields == {"events", "audit.timeline"}
