"""Filters, pages and context_turns of a recall, each against a list comprehension over all turns.

Turns that hold a phrase, found by a scan: in the order of the log, complete, and never a forgotten one. What is
recalled as of an offset is what was recalled when the log ended there: random histories. Whoever asks, after every
step the answers are kept. At the end each is asked for again as of its offset, by the store that was there all the
time and by one that has nothing but the log.
"""

import inspect
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from mnemolog import InvalidInput, LimitExceeded, MemoryStore, NewTurn, UnknownSession, Weights
from mnemolog.projections.recall import phrases
from tests.support import FakeClock, HalfEncoder, HashEncoder, nothing_written

EVERYTHING = 1_000
START = datetime(2024, 1, 1, tzinfo=UTC)
VALUES = [None, True, False, 0, 1, 1.0, -1, 1.5, "", "1", "true", "long " * 40]
VALUES += [[], [1], [True], {"a": 1}, {"a": "1"}, {}]
ROLES = ("user", "assistant", "system", "tool")
SPEAKERS = (None, "Ada", "Bob", "Ada ")
SCOPES = ("acme", "acme/support", "acme/supporters", "acmeother", "")


def same(left, right):
    """Equality of JSON values: a number is a number, and no truth."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """A store with turns of every kind, and all of them."""
    folder = tmp_path_factory.mktemp("filters") / "memory"
    with MemoryStore.open(folder, model=HashEncoder(dimension=32), clock=FakeClock(), background=False) as store:
        for number, scope in enumerate(SCOPES):
            store.start_session(f"s{number}", scope=scope)
        turns = [
            store.record(
                f"s{n % len(SCOPES)}",
                ROLES[n % 3],
                f"word number{n}",
                speaker=SPEAKERS[n % 4],
                said_at=START + timedelta(days=n % 9) if n % 2 else None,
                metadata={"kind": VALUES[n % len(VALUES)]} | ({"even": True} if n % 2 == 0 else {}),
            )
            for n in range(90)
        ]
        yield store, turns


def positions(answer):
    return sorted(hit.position for hit in answer.hits)


TIMES = st.none() | st.integers(-1, 10).map(lambda day: START + timedelta(days=day))


@pytest.mark.filterwarnings("ignore::mnemolog.errors.ScopeWarning")
@settings(max_examples=60, deadline=None)
@given(
    scope=st.sampled_from([*SCOPES, "nowhere"]),
    session=st.none() | st.sampled_from(["s0", "s3"]),
    roles=st.lists(st.sampled_from(ROLES), max_size=2),
    speakers=st.lists(st.sampled_from(["Ada", "Bob", "Ada ", "Eve", "' OR 1=1 --"]), max_size=2),
    since=TIMES,
    until=TIMES,
    metadata=st.dictionaries(st.sampled_from(["kind", "even", "none"]), st.sampled_from(VALUES), max_size=2),
    mode=st.sampled_from(["hybrid", "vector", "text"]),
)
def test_a_filter_leaves_what_it_says_in_every_leg(spoken, mode, **asked):
    """Alone and together; a value is the JSON value it is, and no other that looks like it."""
    store, turns = spoken

    def left(turn):
        scope, metadata = asked["scope"], asked["metadata"]
        return (
            (scope in ("", turn.scope) or turn.scope.startswith(scope + "/"))
            and asked["session"] in (None, turn.session)
            and (not asked["roles"] or turn.role in asked["roles"])
            and (not asked["speakers"] or turn.speaker in asked["speakers"])
            and (asked["since"] is None or turn.said_at >= asked["since"])
            and (asked["until"] is None or turn.said_at < asked["until"])
            and all(key in turn.metadata and same(turn.metadata[key], value) for key, value in metadata.items())
        )

    answer = store.recall("word", k=EVERYTHING, mode=mode, **asked)
    assert positions(answer) == [turn.position for turn in turns if left(turn)]


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ({"roles": ["assistant"]}, "two"),
        ({"speakers": ["Ada"]}, "one four"),
        ({"speakers": ["Ada", "Bob"], "roles": ["user"]}, "one three four"),
        ({"until": "2021-01-01"}, "one"),
        ({"until": "2021-01-01", "by": "recorded"}, ""),
        ({"since": "2026-03-17", "until": "2026-03-18"}, "four"),
        ({"metadata": {"n": 1}}, "one"),
        ({"metadata": {"n": "1"}}, ""),
    ],
    ids=repr,
)
def test_recall_find_context_and_prefetch_take_the_same_filters(store, asked, left):
    """Of a session, within what it sees."""
    trip, other = store.start_session("trip", scope="acme/ada"), store.start_session("other", scope="acme/bob")
    turns = {
        "one": trip.record("user", "ferry one", speaker="Ada", said_at="2020-05-01", metadata={"n": 1}),
        "two": trip.record("assistant", "ferry two", said_at="2026-03-16"),
        "three": trip.record("user", "ferry three", speaker="Bob", said_at="2026-03-18"),
        "four": other.record("user", "ferry four", speaker="Ada", said_at="2026-03-17"),
    }
    found = [turns[name].position for name in left.split()]
    assert positions(store.recall("ferry", **asked)) == found
    assert [turn.position for turn in store.find("ferry", **asked)] == found
    assert sorted(store.context("ferry", min_relevance=0, **asked).positions) == found
    bobs = [n for n in found if n == turns["four"].position]
    assert positions(store.recall("ferry", scope="acme/bob", **asked)) == bobs
    for within in ({"scope": "acme/bob"}, {"session": "other"}):
        assert [*store.context("ferry", min_relevance=0, **within, **asked).positions] == bobs
    assert store.find("ferry", scope="acme/bob", **asked) == store.find("ferry", session="other", **asked)
    seen = [position for position in found if position != turns["four"].position]
    assert positions(trip.recall("ferry", **asked)) == seen
    assert sorted(trip.context("ferry", min_relevance=0, **asked).positions) == seen
    trip.prefetch("ferry", **asked)
    assert positions(trip.prefetch_result(wait_s=60).recall) == seen


def test_a_session_takes_the_same_filters_within_what_it_sees(store):
    """The store does so with `lineage`; without it a session is its own turns."""
    parent = store.start_session("parent", scope="acme")
    old = parent.record("user", "tea one", speaker="Ada", metadata={"n": 1})
    parent.record("user", "tea two", speaker="Bob")
    branch = parent.branch("branch")
    own = branch.record("user", "tea three", speaker="Ada", metadata={"n": 1})
    parent.record("user", "tea four", speaker="Ada", metadata={"n": 1})
    for asked in (
        {"speakers": ["Ada"]},
        {"metadata": {"n": 1}},
        {"speakers": ["Ada"], "scope": "acme"},
        {"speakers": ["Ada"], "weights": Weights(words=0)},
    ):
        assert positions(branch.recall("tea", **asked)) == [old.position, own.position]
        alone = branch.recall("tea", lineage=True, **asked)
        assert store.recall("tea", session="branch", lineage=True, **asked) == alone
        assert positions(store.recall("tea", session="branch", **asked)) == [own.position]
    assert positions(branch.recall("tea", roles=["tool"])) == []


WRONG = [
    {"query": ""},
    {"query": "  "},
    {"query": 7},
    {"query": None},
    {"k": 0},
    {"k": 1_001},
    {"k": True},
    {"k": "5"},
    {"mode": "both"},
    {"scope": "/a"},
    {"roles": "user"},
    {"roles": ["boss"]},
    {"speakers": "Ada"},
    {"speakers": [""]},
    {"speakers": ["a\nb"]},
    {"speakers": ["\ud800"]},
    {"speakers": [f"s{n}" for n in range(101)]},
    {"since": datetime(2024, 1, 1)},
    {"until": "soon"},
    {"metadata": {"n": float("nan")}},
    {"metadata": {"n": {1}}},
    {"metadata": {1: 1}},
    {"metadata": [("n", 1)]},
    {"metadata": {f"k{n}": n for n in range(101)}},
    {"context_turns": -1},
    {"context_turns": 21},
    {"context_turns": 1.0},
    {"as_of": -1},
    {"as_of": 99},
    {"as_of": True},
    {"as_of": "1"},
    {"min_position": 99},
    {"as_of": 1, "min_position": 2},
    {"lineage": True},
    {"after": ""},
    {"after": "no cursor"},
    {"after": "é"},
    {"after": 5},
]


def test_an_invalid_question_is_refused_and_nothing_is_written(store):
    """By the name of the argument. A query of 64 KiB is the longest."""
    store.start_session("s").record("user", "tea")
    with nothing_written(store):
        for wrong in WRONG:
            with pytest.raises(InvalidInput) as caught:
                store.recall(**{"query": "tea", "receipt": True} | wrong)
            assert caught.value.field.split(".")[0].rstrip("s") in {name.rstrip("s") for name in wrong}
    for method in (store.recall, store.find, store.context):
        with pytest.raises(UnknownSession):
            method("tea", session="nobody")
    assert store.recall("é" * (32 << 10), mode="text").hits == ()
    with pytest.raises(LimitExceeded):
        store.recall("é" * (32 << 10) + "x")


# Pages.


def pages(face, query, **asked):
    after, found = None, []
    while True:
        page = face.recall(query, after=after, **asked)
        found.append(page)
        if (after := page.next) is None:
            return found


@pytest.mark.parametrize("mode", ["hybrid", "vector", "text"])
@pytest.mark.parametrize("k", [1, 7, 120, EVERYTHING])
def test_pages_give_every_turn_once_whatever_is_recorded_meanwhile(store, mode, k, session):
    """Beyond the first hundred candidates of a leg too. What comes later is in no page of an order that was begun."""
    turns = [session.record("user", f"tea{' tea' * (n % 5)} number{n}") for n in range(230)]
    store.admin.catch_up_vectors()
    first = store.recall("tea number7", k=k, mode=mode)
    found, page = [hit.position for hit in first.hits], first
    while page.next is not None:
        session.record("user", "tea tea number7")
        page = store.recall("tea number7", k=k, mode=mode, after=page.next)
        assert (page.head, page.vectors_cover, page.model) == (first.head, first.vectors_cover, first.model)
        found += [hit.position for hit in page.hits]
        if len(found) > 20 and k == 1:
            break
    assert len(found) == len(set(found))
    assert k == 1 or sorted(found) == [turn.position for turn in turns]
    if k < 100:
        again, after = list[int](), None
        while len(again) < 20:
            page = store.recall("tea number7", k=k, mode=mode, as_of=first.head, after=after)
            again, after = [*again, *(hit.position for hit in page.hits)], page.next
        assert found[:20] == again[:20]


def test_pages_keep_to_the_vectors_of_the_first(store, session):
    """What has been embedded since plays no part; else turns would change places. Each page has a length of its own."""
    for n in range(230):
        session.record("user", f"tea{' tea' * (n % 5)} number{n}")
    first = store.recall("tea number7", k=7)
    assert first.vectors_cover < first.head
    store.admin.catch_up_vectors()
    second = store.recall("tea number7", k=9, after=first.next, context_turns=1)
    rest = store.recall("tea number7", k=EVERYTHING, after=second.next)
    assert rest.vectors_cover == first.vectors_cover
    assert len({hit.position for page in (first, second, rest) for hit in page.hits}) == 230
    assert ([len(page.hits) for page in (first, second, rest)], rest.next) == ([7, 9, 214], None)


def test_pages_of_a_session_continue_after_a_rewind(session):
    """As of the first page's head the session saw what was rewound since."""
    turns = [session.record("user", f"tea number{n}") for n in range(9)]
    first = session.recall("tea", k=4)
    session.rewind(turns=5)
    rest = session.recall("tea", k=9, after=first.next)
    assert sorted([*positions(first), *positions(rest)]) == [turn.position for turn in turns]
    assert len(session.recall("tea", k=9).hits) == 4


def test_a_cursor_of_another_question_is_refused(store, tmp_path, session):
    """Of another query, filter, session, mode, offset or store, or changed by hand."""
    for n in range(9):
        session.record("user", f"tea number{n}")
    cursor = store.recall("tea", k=2).next
    for other in (
        {"query": "teas"},
        {"mode": "text"},
        {"roles": ["user"]},
        {"metadata": {"n": 1}},
        {"min_relevance": 0.2},
        {"as_of": 3},
        {"min_position": 3},
        {"after": cursor[:-6] + "AAAAAA"},
    ):
        with pytest.raises(InvalidInput):
            store.recall(**{"query": "tea", "after": cursor} | other)
    with pytest.raises(InvalidInput, match="another question"):
        session.recall("tea", after=cursor)
    with MemoryStore.open(tmp_path / "other", model=None) as other_store, pytest.raises(InvalidInput, match="log"):
        other_store.recall("tea", after=cursor)
    assert len(store.recall("tea", after=cursor).hits) == 5


def test_a_page_is_refused_if_the_first_one_cannot_be_reproduced(store, monkeypatch, session):
    """The hits that were handed out are part of the cursor: an order that changed is said, not gone on with."""
    for n in range(9):
        session.record("user", f"tea number{n}")
    cursor = store.recall("tea", k=2, mode="text").next
    monkeypatch.setattr("mnemolog.projections.recall.candidates.terms_of", lambda *_: ["number8"])
    with pytest.raises(InvalidInput, match="cannot be reproduced"):
        store.recall("tea", k=2, mode="text", after=cursor)


# Neighbours.


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 20), st.integers(0, 3))
def test_neighbours_are_the_turns_around_a_hit_in_its_session(spoken, count, number):
    """Whatever the filters leave: what was said around it is no hit."""
    store, turns = spoken
    for hit in store.recall("word number40", k=9, context_turns=count, roles=["user"], session=f"s{number}").hits:
        own = [turn for turn in turns if turn.session == hit.session]
        place = next(n for n, turn in enumerate(own) if turn.position == hit.position)
        assert list(hit.before) == own[max(0, place - count) : place]
        assert list(hit.after) == own[place + 1 : place + 1 + count]


def test_neighbours_of_a_branch_are_what_it_sees(store):
    """Across the branch point, without what the parent said later and without what was rewound."""
    parent = store.start_session("parent")
    one, two = (parent.record("user", text) for text in ("tea one", "tea two"))
    branch = parent.branch("branch")
    parent.record("user", "not seen")
    three, _ = (branch.record("user", text) for text in ("three", "rewound"))
    branch.rewind(turns=1)
    four = branch.record("user", "four")
    (hit,) = branch.recall("two", mode="text", context_turns=5).hits
    assert [turn.position for turn in hit.before] == [one.position]
    assert [turn.position for turn in hit.after] == [three.position, four.position]
    (hit,) = branch.recall("two", mode="text", context_turns=5, as_of=three.position).hits
    assert [turn.position for turn in hit.after] == [three.position]
    (hit,) = store.recall("two", mode="text", context_turns=5).hits
    assert [turn.text for turn in hit.after] == ["not seen"]
    assert two.position == hit.position


def test_options_are_parameters_as_python_has_them(store):
    """The number of hits may be given by position. An unknown or missing one is refused by the name of the method."""
    session = store.start_session("trip")
    for number in range(4):
        session.record("user", f"tea {number}")
    assert len(store.recall("tea", 2).hits) == len(session.recall("tea", 2).hits) == 2
    for name, how in {"recall": {}, "find": {}, "context": {}, "preview_switch": {"reason": "new"}}.items():
        unexpected = rf"^MemoryStore\.{name}\(\) got an unexpected keyword argument 'limits'$"
        with pytest.raises(TypeError, match=unexpected):
            getattr(store, name)("tea", limits=2, **how)
    for name in ("switch", "preview_switch"):
        with pytest.raises(TypeError, match=rf"^MemoryStore\.{name}\(\) missing .* argument: 'reason'$"):
            getattr(store, name)("trip")


def test_the_defaults_that_a_signature_shows_are_those_of_a_call(store):
    """A recall that passes all of them answers like one that passes none."""
    session = store.start_session("trip")
    for text in ("tea with milk", "milk", "tea"):
        session.record("user", text, speaker="Ada", metadata={"n": 1})
    for method in (store.recall, session.recall):
        shown = {name: item.default for name, item in inspect.signature(method).parameters.items() if name != "query"}
        assert method("tea", **shown) == method("tea")


@pytest.fixture
def trip(store):
    """A session that speaks of ferries."""
    trip = store.start_session("trip", scope="acme/alice")
    trip.record("user", "Could we take the ferry at nine?", speaker="Alice")
    trip.record("assistant", "The FERRY leaves at ten.")
    trip.record("user", "Then a train.", speaker="Alice")
    return trip


def texts(turns):
    return [turn.text for turn in turns]


def test_the_turns_that_hold_a_phrase_are_listed_in_order_of_time(store, trip):
    """With their positions; case does not count."""
    found = store.find("the ferry")
    assert [turn.position for turn in found] == [2, 3]
    assert store.find("erry leav") == [found[1]], "within words: a recall looks for whole words and their stems"
    assert store.find("no such thing") == []
    with pytest.raises(InvalidInput, match="text: empty"):
        store.find("")


@pytest.mark.parametrize(
    ("said", "phrases", "other"),
    [
        ('It costs "5.00" (*) [sic] 里斯本 🎂', ('"5.00" (*)', "[sic]", "斯", "🎂", "(*)", "5.0"), "5x00"),
        ("ΟΔΟΣ Straße ÇA İstanbul", ("οδος", "οδοσ", "STRAßE", "ça", "istanbul", "STRA"), "ca"),
    ],
    ids=["no syntax", "any case"],
)
def test_a_phrase_is_no_syntax_and_has_any_case_in_any_script(store, trip, said, phrases, other):
    """Letters that have several small forms are the same too, and an accent is not left out."""
    trip.record("user", said)
    for phrase in phrases:
        assert len(store.find(phrase)) == 1, phrase
    assert store.find(other) == []


def test_each_page_starts_where_the_last_one_ended(store, monkeypatch):
    """However many turns are read at once."""
    monkeypatch.setattr(phrases, "POSITIONS_PER_READ", 7)
    session = store.start_session("s")
    for number in range(50):
        session.record("user", f"tea {number}" if number % 3 else f"coffee {number}")
    pages, after = [], 0
    while page := store.find("tea", after=after, limit=4):
        assert len(page) <= 4
        pages, after = [*pages, *page], page[-1].position
    assert pages == store.find("tea")
    assert len(pages) == 33
    assert all(one.position < two.position for one, two in pairwise(pages))
    assert store.find("tea", after=pages[9].recorded_at) == pages[10:]


def test_hidden_turns_are_found_only_when_asked_for(store, trip):
    """A branch made before a rewind keeps what it shares. Forgotten turns are never found, not even as hidden ones."""
    branch = trip.branch()
    branch.record("user", "A ferry in the branch.")
    trip.rewind(turns=2)
    assert texts(store.find("ferry")) == ["Could we take the ferry at nine?", "A ferry in the branch."]
    assert len(store.find("ferry", hidden=True)) == 3
    (turn,) = store.find("leaves", hidden=True)
    store.forget(positions=[turn.position])
    assert store.find("leaves") == store.find("leaves", hidden=True) == []
    store.forget(session=[trip.id, branch.id])
    assert store.find("e", hidden=True) == []


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A store to which each example adds a session."""
    with MemoryStore.open(tmp_path_factory.mktemp("find") / "memory", model=None, background=False) as store:
        yield store


@given(st.lists(st.text("ab里 \n.", min_size=1, max_size=8), min_size=1, max_size=8), st.text("ab里 \n.", min_size=1))
def test_a_phrase_is_found_exactly_where_the_text_holds_it(shared, said, phrase):
    """For any texts, of one letter or many."""
    if phrase.isspace() or "".join(said).isspace():
        return
    session = shared.start_session()
    spoken = [NewTurn(session=session.id, role="user", text=text) for text in said if not text.isspace()]
    shared.record_many(spoken)
    found = shared.find(phrase, session=session.id)
    assert texts(found) == [turn.text for turn in spoken if phrase in turn.text]
    assert shared.find(phrase.upper(), session=session.id) == found


def test_the_command_line_finds_a_phrase_and_prints_positions(folder, run):
    """What is far into a turn is shown from shortly before the phrase on; a further page is offered."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("s")
        session.record("user", "The ferry leaves.")
        session.record("user", "word " * 400 + "needle " + "word " * 400)
        session.record("user", "Another ferry.", speaker="Bob")
    found = run("find", folder, "ferry").exited()
    assert [line.split()[0] for line in found.stdout.splitlines()] == ["@2", "@4", "2"]
    assert "Bob: Another ferry." in found.stdout
    assert "…" in run("find", folder, "needle").stdout
    assert "needle" in run("find", folder, "needle").stdout
    assert len(run("find", folder, "needle").stdout) < 400
    assert "--after 2" in run("find", folder, "ferry", "--limit", "1").stderr
    assert [turn["position"] for turn in run("find", folder, "FERRY", "--json").json] == [2, 4]


SESSIONS_MAX = 5
WHICH = st.integers(0, 1_000)
WORDS = ("tea", "teas", "ferry", "dog", "moved", "the", "snake_case", "日本語", "lisbon!")
FILL = [f"word{n}" for n in range(30)]
TEXTS = st.lists(st.sampled_from([*WORDS, *FILL]), min_size=1, max_size=12).map(" ".join)
QUERIES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


class Histories(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.base = Path(tempfile.mkdtemp())
        self.clock = FakeClock()
        self.encoders = [HalfEncoder(0, dimension=32), HalfEncoder(1, dimension=32)]
        self.store = self.open("memory")
        self.sessions, self.checkpoints, self.kept = [], [], []
        self.query = "tea"

    def open(self, name):
        first, second = self.encoders
        return MemoryStore.open(
            self.base / name,
            model=first,
            models=[second],
            clock=self.clock,
            synchronous="NORMAL",
            background=False,
        )

    def pick(self, which):
        return self.store.session(self.sessions[which % len(self.sessions)])

    @initialize()
    def first(self):
        self.start(0)

    @precondition(lambda self: len(self.sessions) < SESSIONS_MAX)
    @rule(which=WHICH)
    def start(self, which):
        name = f"s{len(self.sessions)}"
        self.store.start_session(name, scope=("acme", "acme/a", "other")[which % 3])
        self.sessions.append(name)

    @rule(which=WHICH, texts=st.lists(TEXTS, min_size=1, max_size=10), speaker=st.sampled_from([None, "Ada", "Tea"]))
    def record(self, which, texts, speaker):
        for text in texts:
            self.pick(which).record("user", text, speaker=speaker)

    @rule(which=WHICH, turns=st.integers(1, 4))
    def rewind(self, which, turns):
        self.pick(which).rewind(turns=turns)

    @rule(which=WHICH)
    def checkpoint(self, which):
        session = self.pick(which)
        self.checkpoints.append((session.id, session.checkpoint(f"c{len(self.checkpoints)}").id))

    @precondition(lambda self: self.checkpoints)
    @rule(which=WHICH)
    def restore(self, which):
        name, checkpoint = self.checkpoints[which % len(self.checkpoints)]
        self.store.session(name).restore(checkpoint)

    @precondition(lambda self: len(self.sessions) < SESSIONS_MAX)
    @rule(which=WHICH)
    def branch(self, which):
        name = f"s{len(self.sessions)}"
        self.pick(which).branch(name)
        self.sessions.append(name)

    @rule(which=WHICH)
    def switch(self, which):
        self.store.switch(self.sessions[which % len(self.sessions)], reason="resume")

    @rule(which=st.integers(0, 1))
    def change_the_model(self, which):
        self.store.models.add(self.encoders[which])
        self.store.models.activate(self.encoders[which])

    @rule(query=QUERIES)
    def ask_something_else(self, query):
        self.query = query

    @rule(mode=st.sampled_from(["hybrid", "vector", "text"]), k=st.sampled_from([2, EVERYTHING]))
    def ask(self, mode, k):
        for asked in self.asked():
            options = {"k": k, "mode": mode, "context_turns": 2}
            answer = self.answer(self.store, asked, options)
            assert answer.vectors_cover in (None, answer.head)
            assert len({hit.position for hit in answer.hits}) == len(answer.hits)
            self.kept.append((self.query, asked, options, answer))

    def asked(self):
        yield from ({}, {"scope": "acme"}, {"speakers": ["Ada"]})
        for name in self.sessions:
            yield from ({"of": name}, {"of": name, "hidden": True}, {"session": name})

    def answer(self, store, asked, options, query=None):
        asked = dict(asked)
        face = store.session(asked.pop("of")) if "of" in asked else store
        return face.recall(self.query if query is None else query, **asked, **options)

    def check(self, store):
        for query, asked, options, then in self.kept:
            now = self.answer(store, asked, options | {"as_of": then.head}, query)
            assert now.as_of == then.head
            for field in ("hits", "head", "vectors_cover", "legs", "unavailable_legs", "model"):
                assert getattr(now, field) == getattr(then, field), (query, asked, options, then.head, field)

    def teardown(self):
        try:
            self.check(self.store)
            self.store.close()
            shutil.rmtree(self.base / "memory" / "projections", ignore_errors=True)
            self.store = self.open("memory")
            self.check(self.store)
        finally:
            self.store.close()
            shutil.rmtree(self.base)


QUICK = settings(max_examples=10, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))
Histories.TestCase.settings = QUICK
TestHistories = Histories.TestCase
