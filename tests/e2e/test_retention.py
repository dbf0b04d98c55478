"""Old things go by themselves, what must be kept stays, and each decision is an event."""

import pytest

from mnemolog import MemoryStore
from mnemolog.domain import errors
from mnemolog.domain.values import Micros, to_datetime
from tests.support import FakeClock
from mnemolog.domain.position import Micros, to_datetime

DAY = 86_400_000_000


@pytest.fixture
def store(folder, clock):
    with MemoryStore.open(folder, model=None, clock=clock) as opened:
        yield opened


def chats(store, clock, *, days, scope="acme/ada", name="chat"):
    """Record a turn in a session of its own on each of these days; leave the clock at the last one."""
    begin = clock.now()
    for day in days:
        clock.set(begin + day * DAY)
        store.session(f"{name}-{day}", scope=scope).record("user", f"{name} of day {day}")


def left(store):
    return sorted(turn.text for item in store.sessions() for turn in store.turns(item.session))


@pytest.mark.parametrize("folder", ["folder", "postgres"], indirect=True)
def test_turns_go_at_their_age_and_a_session_without_turns_is_ended(store, clock):
    chats(store, clock, days=[0, 10, 20])
    store.admin.set_retention("acme", max_age="15d")
    tried = store.admin.apply_retention(dry_run=True)
    assert (tried.turns, tried.sessions_ended, len(left(store))) == (1, 1, 3)
    report = store.admin.apply_retention()
    assert (report.turns, report.sessions_ended, left(store)) == (1, 1, ["chat of day 10", "chat of day 20"])
    assert report.requests[0].certificate.reason == "retention: 15d"
    assert [item.ended_at is None for item in store.sessions()] == [False, True, True]
    assert (store.admin.apply_retention().turns, store.verify(contents=True).sound) == (0, True)


@pytest.mark.parametrize(("by", "gone"), [("said", 1), ("recorded", 0)])
def test_the_age_counts_from_the_saying_or_from_the_recording(store, clock, by, gone):
    store.session("s").record("user", "long ago", said_at=to_datetime(Micros(clock.now() - 30 * DAY)))
    store.admin.set_retention("", max_age="15d", by=by)
    assert store.admin.apply_retention().turns == gone


def test_the_nearest_maximum_and_the_longest_minimum_count(store, clock):
    chats(store, clock, days=[0], name="a", scope="acme/ada")
    chats(store, clock, days=[0], name="b", scope="acme/bob")
    store.admin.set_retention("acme", max_age="10d", min_age="5d")
    store.admin.set_retention("acme/bob", max_age="1d")
    clock.advance(seconds=2 * 86_400)
    assert store.admin.apply_retention().turns == 0
    clock.advance(seconds=4 * 86_400)
    store.admin.apply_retention()
    assert left(store) == ["a of day 0"]
    store.admin.set_retention("acme/bob", max_age=None)
    assert [rule.scope for rule in store.admin.retention().rules] == ["acme"]
    clock.advance(seconds=5 * 86_400)
    assert (store.admin.apply_retention().turns, left(store)) == (1, [])


def test_a_hold_above_or_below_stands_in_the_way_until_it_is_lifted(store, clock):
    chats(store, clock, days=[0, 1], scope="acme/ada")
    clock.advance(seconds=30 * 86_400)
    store.admin.set_retention("", max_age="7d")
    holds = [store.admin.hold(scope, reason="case 4711") for scope in ("acme/ada", "acme")]
    before = store.head().position
    assert (store.admin.apply_retention().held, len(left(store))) == (2, 2)
    position = store.turns("chat-0")[0].position
    for what in ({"scope": "acme"}, {"session": "chat-0"}, {"positions": position}):
        for dry_run in (True, False):
            with pytest.raises(errors.OnHold, match="case 4711") as refused:
                store.forget(**what, dry_run=dry_run)
            assert refused.value.holds == tuple(hold.position for hold in holds)
    store.admin.lift_hold(holds[1], reason="closed")
    with pytest.raises(errors.OnHold):
        store.forget(scope="acme")
    store.admin.lift_hold(holds[0].position, reason="closed")
    with pytest.raises(errors.InvalidInput, match="lifted"):
        store.admin.lift_hold(holds[0], reason="again")
    assert [len(store.admin.retention(as_of=at).holds) for at in (before, None)] == [2, 0]
    assert store.admin.apply_retention().turns == 2


def test_a_bound_caller_learns_of_a_hold_outside_only_that_there_is_one(store, clock):
    chats(store, clock, days=[0], scope="acme/ada")
    store.admin.hold("acme", reason="secret case")
    with pytest.raises(errors.OnHold) as refused:
        store.within("acme/ada").forget(session="chat-0")
    assert ("secret" in str(refused.value), refused.value.holds) == (False, ())
    with pytest.raises(errors.OutsideScope):
        store.within("acme").admin.hold("acme", reason="no")


def test_what_rests_on_a_turn_and_is_held_keeps_the_turn_and_others_go(store, clock):
    chats(store, clock, days=[0, 1, 2], scope="acme/ada")
    store.assert_fact("city", "Porto", scope="other", because=[store.turns("chat-1")[0]])
    store.admin.hold("other", reason="audit")
    store.admin.set_retention("acme", max_age="1d")
    clock.advance(seconds=9 * 86_400)
    report = store.admin.apply_retention()
    assert (report.turns, report.held, left(store)) == (2, 1, ["chat of day 1"])


@pytest.mark.parametrize("keep", [True, False])
def test_facts_that_hold_stay_where_the_rule_says_so(store, clock, keep):
    turn = store.session("s", scope="acme").record("user", "I live in Porto, before in Rome.")
    for city in ("Rome", "Porto"):
        store.assert_fact("city", city, scope="acme", because=[turn])
        clock.advance(seconds=1 * 86_400)
    store.admin.set_retention("acme", max_age="1d", keep_facts=keep)
    clock.advance(seconds=9 * 86_400)
    (request,) = store.admin.apply_retention().requests
    fact = store.fact("city", scope="acme")
    assert (fact and fact.value, request.facts_kept) == (("Porto", 1) if keep else (None, 0))
    assert len(store.fact_history("city", scope="acme")) == keep
    assert request.certificate.facts_kept == keep


def test_what_is_younger_than_its_minimum_age_goes_with_a_reason_only(store, clock):
    chats(store, clock, days=[0], scope="acme")
    store.admin.set_retention("", max_age=None, min_age="180d")
    with pytest.raises(errors.InvalidInput, match=r"kept until .* its minimum age"):
        store.forget(scope="acme")
    certificate = store.forget(scope="acme", despite_minimum="she asked for it").certificate
    assert certificate.despite_minimum == "she asked for it"
    clock.advance(seconds=200 * 86_400)
    chats(store, clock, days=[0], name="late", scope="acme")
    clock.advance(seconds=200 * 86_400)
    assert store.forget(scope="acme").certificate.despite_minimum == ""


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"max_age": "soon"}, "max_age.*not a duration"),
        ({"max_age": "1d", "min_age": "2d"}, "more than the maximum"),
        ({"max_age": "1d", "by": "read"}, "by"),
        ({"max_age": None, "min_age": "soon"}, "min_age.*not a duration"),
        ({"max_age": "0d"}, "a minute at least"),
        ({"max_age": 5}, "not a duration"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused(store, wrong, why):
    with pytest.raises(errors.InvalidInput, match=why):
        store.admin.set_retention("acme", **wrong)


def test_an_age_is_stored_in_one_form_and_may_end_after_the_calendar(store):
    """What a person writes is read again from the log."""
    store.session("s", scope="acme").record("user", "x")
    store.admin.set_retention("acme", max_age=None, min_age=" 999999 W")
    assert store.admin.retention().rules[0].min_age == "999999w"
    with pytest.raises(errors.InvalidInput, match="9999-12-31"):
        store.forget(scope="acme")
    assert store.verify(contents=True).sound
