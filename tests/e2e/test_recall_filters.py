"""Filters, pages and context_turns of a recall, each against a list comprehension over all turns."""

import inspect
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemolog import InvalidInput, LimitExceeded, MemoryStore, UnknownSession, Weights
from tests.support import FakeClock, HashEncoder, nothing_written

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
def test_pages_give_every_turn_once_whatever_is_recorded_meanwhile(store, mode, k):
    """Beyond the first hundred candidates of a leg too. What comes later is in no page of an order that was begun."""
    session = store.start_session("s")
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


def test_pages_keep_to_the_vectors_of_the_first(store):
    """What has been embedded since plays no part; else turns would change places. Each page has a length of its own."""
    session = store.start_session("s")
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


def test_pages_of_a_session_continue_after_a_rewind(store):
    """As of the first page's head the session saw what was rewound since."""
    session = store.start_session("s")
    turns = [session.record("user", f"tea number{n}") for n in range(9)]
    first = session.recall("tea", k=4)
    session.rewind(turns=5)
    rest = session.recall("tea", k=9, after=first.next)
    assert sorted([*positions(first), *positions(rest)]) == [turn.position for turn in turns]
    assert len(session.recall("tea", k=9).hits) == 4


def test_a_cursor_of_another_question_is_refused(store, tmp_path):
    """Of another query, filter, session, mode, offset or store, or changed by hand."""
    session = store.start_session("s")
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


def test_a_page_is_refused_if_the_first_one_cannot_be_reproduced(store, monkeypatch):
    """The hits that were handed out are part of the cursor: an order that changed is said, not gone on with."""
    session = store.start_session("s")
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
