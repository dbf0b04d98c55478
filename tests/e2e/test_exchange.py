"""The exchange around a hit: the question and the reply."""

import pytest

from mnemolog import MemoryStore
from mnemolog.projections.recall.hits import EXCHANGE_TURNS_MAX, REACH


@pytest.fixture
def encoder():
    """No model: turns are found by their words alone."""
    return


def say(session, *said):
    """Record (role, text) in order."""
    return [session.record(role, text) for role, text in said]


def exchange_of(recaller, query, **how):
    """The texts of the exchange of the only hit."""
    (hit,) = recaller.recall(query, exchange=True, **how)
    return [turn.text for turn in hit.exchange]


def test_a_hit_offers_the_reply_after_a_users_turn_and_the_question_before_a_reply(store):
    """Up to the next turn of the user, and all since the reply before. Tools and the system are passed over."""
    say(
        store.session("trip"),
        ("user", "When does the bus leave?"),
        ("assistant", "At eight."),
        ("user", "I am in Porto."),
        ("user", "And the ferry?"),
        ("assistant", "I look it up."),
        ("tool", "timetable: 9:00"),
        ("system", "Be brief."),
        ("assistant", "At nine."),
    )
    assert exchange_of(store, "bus") == ["At eight."]
    assert exchange_of(store, "eight") == ["When does the bus leave?"]
    assert exchange_of(store, "ferry") == ["I look it up.", "At nine."]
    assert exchange_of(store, "nine") == ["I am in Porto.", "And the ferry?"]
    assert exchange_of(store, "timetable") == []


def test_an_exchange_takes_a_user_and_an_assistant_and_roles_are_a_filter_of_hits(store):
    """Among friends there is none. With hits of the user only, it still shows the reply."""
    say(store.session("chat"), ("user", "The train is late."), ("user", "Oh no!"))
    assert exchange_of(store, "train") == []
    assert store.recall("train")[0].exchange == ()
    say(store.session("trip"), ("user", "When does the ferry leave?"), ("assistant", "The ferry leaves at nine."))
    assert exchange_of(store, "ferry", roles=("user",)) == ["The ferry leaves at nine."]
    assert exchange_of(store, "ferry", roles=("assistant",)) == ["When does the ferry leave?"]


def test_an_exchange_holds_no_turn_that_the_session_has_hidden(store):
    """Unless hidden turns are asked for."""
    trip = store.session("trip")
    say(trip, ("user", "When does the ferry leave?"), ("assistant", "At ten."))
    trip.rewind(turns=1)
    trip.record("assistant", "At nine.")
    assert exchange_of(trip, "ferry") == exchange_of(store, "ferry") == ["At nine."]
    assert exchange_of(trip, "ferry", hidden=True) == ["At ten.", "At nine."]
    assert exchange_of(store, "ten") == []


def test_an_exchange_reaches_across_a_branch_point_and_not_into_another_branch(store):
    """It is what the session sees."""
    parent = store.session("parent")
    parent.record("user", "When does the ferry leave?")
    branch = parent.branch("branch")
    branch.record("assistant", "At nine.")
    parent.record("assistant", "At ten.")
    assert exchange_of(branch, "ferry") == ["At nine."]
    assert exchange_of(store, "ferry") == ["At ten."]
    assert exchange_of(store, "nine") == ["When does the ferry leave?"]


def test_an_exchange_as_of_a_position_holds_no_later_turn(store):
    """The past does not know the reply."""
    asked, first, _ = say(
        store.session("trip"),
        ("user", "When does the ferry leave?"),
        ("assistant", "At nine."),
        ("assistant", "Or ten."),
    )
    assert exchange_of(store, "ferry", as_of=asked.position) == []
    assert exchange_of(store, "ferry", as_of=first.position) == ["At nine."]


def test_an_exchange_holds_no_turn_outside_of_the_scope(folder):
    """A session may inherit from one that is outside."""
    with MemoryStore.open(folder, model=None) as opened:
        parent = opened.session("parent", scope="acme/ada")
        parent.record("user", "When does the ferry leave?")
        branch = opened.switch("branch", session=parent.id, reason="branch", agent="a", scope="acme/bob")
        branch.record("assistant", "The ship goes at nine.")
        assert exchange_of(opened, "ship") == ["When does the ferry leave?"]
        assert exchange_of(opened, "ship", scope="acme/bob") == []
    with MemoryStore.open(folder, model=None, scope="acme/bob") as bound:
        assert exchange_of(bound, "ship") == []


def test_an_exchange_is_short_and_near(store):
    """Of a long reply the last turns, and nothing that is far away."""
    trip = store.session("trip")
    trip.record("user", "When does the ferry leave?")
    for number in range(REACH // 2):
        say(trip, ("assistant", f"step {number}"), ("tool", "done"))
    texts = exchange_of(store, "ferry")
    assert texts == [f"step {number}" for number in range(REACH // 2)][-EXCHANGE_TURNS_MAX:]
    trip.record("user", "And the train?")
    for _ in range(REACH):
        trip.record("tool", "done")
    trip.record("assistant", "At ten.")
    assert exchange_of(store, "train") == []


def test_pages_and_sessions_have_exchanges_too(store):
    """A later page may ask for them, whatever the first one did."""
    trip = store.session("trip")
    say(trip, ("user", "The ferry?"), ("assistant", "At nine."), ("user", "That ferry?"), ("assistant", "At ten."))
    first = trip.recall("ferry", k=1)
    (hit,) = trip.recall("ferry", k=1, after=first.next, exchange=True)
    assert len(hit.exchange) == 1


def test_the_command_line_shows_the_exchange_around_the_hit(store, folder, run):
    """Once, also with `--context-turns`; JSON has it."""
    say(store.session("trip"), ("user", "When does the ferry leave?"), ("assistant", "At nine."))
    command = ("recall", folder, "ferry", "--model", "none", "--exchange")
    shown = run(*command).stdout
    assert shown.index("When does the ferry leave?") < shown.index("assistant: At nine.")
    assert run(*command, "--context-turns", "1").stdout.count("At nine.") == 1
    (hit,) = run(*command, "--json").json["hits"]
    assert [turn["text"] for turn in hit["exchange"]] == ["At nine."]
