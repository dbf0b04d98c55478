"""Turns that hold a phrase, found by a scan: in the order of the log, complete, and never a forgotten one."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog import InvalidInput, MemoryStore, NewTurn
from mnemolog.projections.recall import phrases


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
