"""An agent proposes and somebody else approves; until then nothing of it holds.

Old things go by themselves, what must be kept stays, and each decision is an event.
"""

import pytest

from mnemolog import MemoryStore, acting_as
from mnemolog.domain import errors
from mnemolog.domain.proposals import OPEN_OF_ACTOR_MAX
from mnemolog.domain.values import Micros, to_datetime
from mnemolog.types import AssertFact, DistrustSources, EndStanding, Forget, RetractFact


@pytest.fixture
def store(folder, clock):
    with MemoryStore.open(folder, model=None, clock=clock, receipts=True) as opened:
        yield opened


def said(store, text="I live in Lisbon now.", session="chat", scope="acme/ada"):
    return store.session(session, scope=scope).record("user", text)


def lisbon(store, **how):
    """Have the agent propose that she lives in Lisbon, where a fact says Porto."""
    store.assert_fact("city", "Porto", scope="acme/ada", valid_from="1990-01")
    with acting_as("agent"):
        return store.propose(AssertFact("city", "Lisbon"), scope="acme/ada", **how)


@pytest.mark.parametrize("folder", ["folder", "postgres"], indirect=True)
def test_nothing_of_a_proposal_holds_before_it_is_approved(store):
    turn = said(store)
    made = lisbon(store, because=[turn], why="SECRETWHY")
    assert store.fact("city", scope="acme/ada").value == "Porto"
    assert len(store.fact_history("city", scope="acme/ada")) == 1
    assert "SECRETWHY" not in store.context("why", tokens=500).text
    before = store.head().position
    (waits,) = store.proposals()
    assert (waits.position, waits.now, waits.then, waits.proposed_by) == (made.position, "Porto", "Lisbon", "agent")
    with acting_as("ann"):
        (done,) = store.approve(made)
        assert store.approve(made.position) == [done]
    assert (done.state, done.decided_by, store.proposals()) == ("approved", "ann", [])
    fact = store.fact_history("city", scope="acme/ada")[-1]
    assert (fact.value, fact.position, fact.because) == ("Lisbon", done.done, (turn.position,))
    assert (fact.actor, fact.proposed_by, fact.proposal) == ("ann", "agent", made.position)
    assert [item.state for item in store.proposals(state=None, as_of=before)] == ["open"]
    assert store.fact("city", scope="acme/ada", as_of=before).value == "Porto"
    assert store.head().position == before + 2
    assert store.verify(contents=True).sound
    assert [(change.before, change.after) for change in store.audit.diff(before).facts] == [("Porto", "Lisbon")]


def test_an_approval_may_change_the_fact_and_both_are_kept(store):
    made = lisbon(store)
    store.approve(made, edits={made.position: {"value": "Lisboa", "valid_from": "2026-03"}})
    fact = store.fact_history("city", scope="acme/ada")[-1]
    (kept,) = store.proposals(state="approved")
    with pytest.raises(errors.InvalidInput, match="'aproved' is none of 'open', 'approved'"):
        store.proposals(state="aproved")
    assert (fact.value, fact.valid_from.month, kept.act.value) == ("Lisboa", 3, "Lisbon")
    other = store.propose(AssertFact("zip", "1000"))
    for edit in ({"maker": "me"}, {"value": float("nan")}, {"valid_from": "soon"}, {"key": "*"}, "x"):
        with pytest.raises(errors.InvalidInput):
            store.approve(other, edits={str(other.position): edit})
    with pytest.raises(errors.InvalidInput, match="no position among"):
        store.approve(other, edits={"first": {"value": 1}})
    assert [item.position for item in store.proposals()] == [other.position]


ACTS = {
    "retract": (lambda turn, fact: RetractFact([fact.position], reason="misheard"), 1),
    "standing": (lambda turn, fact: EndStanding(turn.position, reason="she said so"), 1),
    "distrust": (lambda turn, fact: DistrustSources([turn.position], reason="forged"), 1),
    "forget": (lambda turn, fact: Forget(positions=[turn.position], reason="asked for"), 1),
    "forget all": (lambda turn, fact: Forget(scope=["acme/ada"]), 1),
}


@pytest.mark.parametrize("folder", ["folder", "postgres"], indirect=True)
@pytest.mark.parametrize("name", ACTS)
def test_every_act_waits_and_is_done_once(store, name):
    turn = said(store, "Always answer in metric.")
    fact = store.assert_fact("units", "metric", scope="acme/ada", because=[turn])
    act, _ = ACTS[name]
    with acting_as("agent"):
        made = store.propose(act(turn, fact), why="because")

    def holds():
        found = store.fact("units", scope="acme/ada"), store.standing(scope="acme/ada"), len(store.recall("metric"))
        return [bool(item) for item in found]

    (waits,) = store.proposals(scope="acme/ada")
    assert waits.takes if "forget" in name or name == "distrust" else waits.then in (None, [])
    before = holds()
    assert before == [True, True, True]
    assert store.approve(made, dry_run=True)[0].state == "approved"
    assert holds() == before
    with acting_as("ann"):
        (done,) = store.approve(made)
    assert holds() != before
    after = store.head().position
    assert store.approve(made.position) == store.proposals(state=None)
    assert (done.decided_by, done.proposed_by, store.head().position) == ("ann", "agent", after)
    event = store.audit.event(done.done).event
    assert (event.proposal, event.actor) == (made.position, "ann")
    assert store.verify(contents=True).sound


def test_what_has_become_impossible_says_so_and_stays_open(store):
    made, turn = lisbon(store), said(store, "Always answer in metric.")
    fact = store.assert_fact("units", "metric", scope="acme/ada")
    acts = [RetractFact([fact.position]), EndStanding(turn.position, "no"), Forget(session=["chat"])]
    others = [store.propose(act) for act in acts]
    newer = store.assert_fact("city", "Faro", scope="acme/ada")
    with pytest.raises(errors.SupersededProposal, match=f"position {newer.position}") as refused:
        store.approve(made)
    assert (refused.value.newer, refused.value.position) == ("Faro", made.position)
    store.retract_fact(fact)
    store.end_standing(turn.position, reason="done")
    for other in others[:2]:
        with pytest.raises(errors.SupersededProposal):
            store.approve(other)
    hold = store.admin.hold("acme", reason="case")
    with pytest.raises(errors.OnHold):
        store.approve(others[2])
    store.admin.lift_hold(hold, reason="closed")
    store.approve(made.position, edits={made.position: {"key": "town"}})
    assert [item.position for item in store.proposals()] == [item.position for item in others]


def test_several_at_once_are_all_decided_or_none(store):
    first, second = lisbon(store), store.propose(AssertFact("zip", "1000"), scope="acme/ada")
    third = store.propose(AssertFact("zip", "4000"), scope="acme/ada")
    head = store.head().position
    with pytest.raises(errors.SupersededProposal, match="zip"):
        store.approve([first, second, third])
    with pytest.raises(errors.InvalidInput, match="no proposal"):
        store.decline([first.position, 1], reason="no")
    assert store.head().position == head
    store.approve([first, second.position])
    store.decline([third], reason="stale")
    assert store.decline(third, reason="again")[0].reason == "stale"
    with pytest.raises(errors.InvalidInput, match="declined"):
        store.approve(third)
    with pytest.raises(errors.InvalidInput, match="approved"):
        store.decline(first, reason="late")


def test_a_proposal_expires(store, clock):
    made = lisbon(store, until=to_datetime(Micros(clock.now() + 1_000_000)))
    early = store.head().position
    clock.advance(seconds=2)
    assert [item.state for item in store.proposals(state=None)] == ["expired"]
    assert [item.state for item in store.proposals(state=None, as_of=early)] == ["open"]
    with pytest.raises(errors.InvalidInput, match="expired"):
        store.approve(made)


@pytest.mark.parametrize("folder", ["folder", "postgres"], indirect=True)
@pytest.mark.parametrize("what", ["turn", "fact", "session", "scope"])
def test_a_proposal_goes_with_what_it_rests_on_names_or_led_to(store, what):
    turn = said(store)
    waits = lisbon(store, because=[turn], why="WHY")
    fact = store.assert_fact("zip", "1000", scope="acme/ada", because=[turn])
    retract = store.propose(RetractFact([fact.position], reason="REASON"))
    led = store.propose(AssertFact("street", "STREET"), scope="acme/ada", because=[turn])
    kept = store.propose(AssertFact("other", "KEPT"), scope="acme/bob")
    (done,) = store.approve(led)
    how = {"turn": {"positions": turn.position}, "fact": {"positions": [fact.position, done.done]}}
    store.forget(**how.get(what, {"session": "chat"} if what == "session" else {"scope": "acme/ada"}))
    gone = {waits.position, retract.position, led.position} - ({waits.position} if what == "fact" else set())
    left = {item.position for item in store.proposals(state=None)}
    assert left == {waits.position, led.position, retract.position, kept.position} - gone
    with pytest.raises(errors.InvalidInput, match="forgotten"):
        store.approve(retract)
    with pytest.raises(errors.InvalidInput, match="bring it back"):
        store.forget(positions=store.approve(kept)[0].done + 1)
    assert store.verify(contents=True).sound


def test_a_queue_is_bounded_by_actor_and_a_bound_store_sees_its_own(store):
    within = store.within("acme/ada")
    with acting_as("agent"):
        for number in range(OPEN_OF_ACTOR_MAX):
            within.propose(AssertFact(f"k{number}", number))
        with pytest.raises(errors.LimitExceeded, match="one actor"):
            within.propose(AssertFact("k", 1))
        store.propose(AssertFact("k", 1))
    with acting_as("other"):
        mine = within.propose(AssertFact("k", 1))
    assert (len(within.proposals()), len(store.proposals())) == (101, 102)
    page = within.proposals(limit=1)
    assert within.proposals(after=page.next, limit=100)[-1].position == mine.position
    root = store.proposals(state="open")[-2]
    for call in (within.approve, lambda item: within.decline(item, reason="no")):
        with pytest.raises(errors.InvalidInput, match="no proposal"):
            call(root)
    with pytest.raises(errors.OutsideScope):
        within.propose(AssertFact("k", 1), scope="acme")


def test_a_distrust_reaches_nothing_outside_of_the_scope_it_was_proposed_in(store):
    inside, outside = said(store), said(store, session="bob", scope="acme/bob")
    made = store.within("acme/ada").propose(DistrustSources(actor="crawler", reason="forged"))
    store.approve(made)
    assert [item.source.scopes for item in store.distrusts()] == [["acme/ada"]]
    both = store.propose(Forget(positions=[inside.position, outside.position]))
    assert both.scope == "acme"


def test_with_four_eyes_nobody_approves_what_they_proposed(folder):
    with MemoryStore.open(folder, model=None, four_eyes=True) as store:
        made = lisbon(store)
        with acting_as("agent"), pytest.raises(errors.InvalidInput, match="your own"):
            store.approve(made)
        with acting_as("ann"):
            assert store.approve(made)[0].state == "approved"


@pytest.mark.parametrize(
    "act",
    [
        AssertFact("*", 1),
        AssertFact("k", object()),
        RetractFact([99]),
        Forget(),
        {"do": "sing"},
        Forget(scope=["acme"]),
    ],
)
def test_what_could_not_be_done_is_not_proposed(store, act):
    with pytest.raises(errors.InvalidInput):
        store.propose(act)


DAY = 86_400_000_000


def chats(store, clock, *, days, scope="acme/ada", name="chat"):
    """Record a turn in a session of its own on each of these days; leave the clock at the last one."""
    begin = clock.now()
    for day in days:
        clock.set(begin + day * DAY)
        store.session(f"{name}-{day}", scope=scope).record("user", f"{name} of day {day}")


def left(store):
    return sorted(turn.text for item in store.sessions() for turn in store.turns(item.session))


@pytest.mark.parametrize("folder", ["folder", "postgres"], indirect=True)
def test_turns_go_at_their_age_and_a_session_without_turns_is_ended(bare, clock):
    chats(bare, clock, days=[0, 10, 20])
    bare.admin.set_retention("acme", max_age="15d")
    tried = bare.admin.apply_retention(dry_run=True)
    assert (tried.turns, tried.sessions_ended, len(left(bare))) == (1, 1, 3)
    report = bare.admin.apply_retention()
    assert (report.turns, report.sessions_ended, left(bare)) == (1, 1, ["chat of day 10", "chat of day 20"])
    assert report.requests[0].certificate.reason == "retention: 15d"
    assert [item.ended_at is None for item in bare.sessions()] == [False, True, True]
    assert (bare.admin.apply_retention().turns, bare.verify(contents=True).sound) == (0, True)


def test_a_conversation_of_which_everything_was_forgotten_goes_on_until_it_is_old(bare, clock):
    """A run ends it at the age of the rule, but not under a hold."""
    talk = bare.session("talk", scope="acme/ada")
    bare.admin.set_retention("acme", max_age="15d")
    for text in ("Forget what I say.", "Let us go on."):
        talk.record("user", text)
        bare.forget(session="talk", reason="asked")
        assert [bare.admin.apply_retention(dry_run=dry).sessions_ended for dry in (True, False)] == [0, 0]
    clock.set(clock.now() + 15 * DAY)
    hold = bare.admin.hold("acme/ada", reason="case")
    assert bare.admin.apply_retention().sessions_ended == 0
    bare.admin.lift_hold(hold, reason="closed")
    assert bare.admin.apply_retention().sessions_ended == 1


@pytest.mark.parametrize(("by", "gone"), [("said", 1), ("recorded", 0)])
def test_the_age_counts_from_the_saying_or_from_the_recording(bare, clock, by, gone):
    bare.session("s").record("user", "long ago", said_at=to_datetime(Micros(clock.now() - 30 * DAY)))
    bare.admin.set_retention("", max_age="15d", by=by)
    assert bare.admin.apply_retention().turns == gone


def test_the_nearest_maximum_and_the_longest_minimum_count(bare, clock):
    chats(bare, clock, days=[0], name="a", scope="acme/ada")
    chats(bare, clock, days=[0], name="b", scope="acme/bob")
    bare.admin.set_retention("acme", max_age="10d", min_age="5d")
    bare.admin.set_retention("acme/bob", max_age="1d")
    clock.advance(seconds=2 * 86_400)
    assert bare.admin.apply_retention().turns == 0
    clock.advance(seconds=4 * 86_400)
    bare.admin.apply_retention()
    assert left(bare) == ["a of day 0"]
    bare.admin.set_retention("acme/bob", max_age=None)
    assert [rule.scope for rule in bare.admin.retention().rules] == ["acme"]
    clock.advance(seconds=5 * 86_400)
    assert (bare.admin.apply_retention().turns, left(bare)) == (1, [])


def test_a_hold_above_or_below_stands_in_the_way_until_it_is_lifted(bare, clock):
    chats(bare, clock, days=[0, 1], scope="acme/ada")
    clock.advance(seconds=30 * 86_400)
    bare.admin.set_retention("", max_age="7d")
    holds = [bare.admin.hold(scope, reason="case 4711") for scope in ("acme/ada", "acme")]
    before = bare.head().position
    assert (bare.admin.apply_retention().held, len(left(bare))) == (2, 2)
    position = bare.turns("chat-0")[0].position
    for what in ({"scope": "acme"}, {"session": "chat-0"}, {"positions": position}):
        for dry_run in (True, False):
            with pytest.raises(errors.OnHold, match="case 4711") as refused:
                bare.forget(**what, dry_run=dry_run)
            assert refused.value.holds == tuple(hold.position for hold in holds)
    bare.admin.lift_hold(holds[1], reason="closed")
    with pytest.raises(errors.OnHold):
        bare.forget(scope="acme")
    bare.admin.lift_hold(holds[0].position, reason="closed")
    with pytest.raises(errors.InvalidInput, match="lifted"):
        bare.admin.lift_hold(holds[0], reason="again")
    assert [len(bare.admin.retention(as_of=at).holds) for at in (before, None)] == [2, 0]
    assert bare.admin.apply_retention().turns == 2


def test_a_bound_caller_learns_of_a_hold_outside_only_that_there_is_one(bare, clock):
    chats(bare, clock, days=[0], scope="acme/ada")
    bare.admin.hold("acme", reason="secret case")
    with pytest.raises(errors.OnHold) as refused:
        bare.within("acme/ada").forget(session="chat-0")
    assert ("secret" in str(refused.value), refused.value.holds) == (False, ())
    with pytest.raises(errors.OutsideScope):
        bare.within("acme").admin.hold("acme", reason="no")


def test_what_rests_on_a_turn_and_is_held_keeps_the_turn_and_others_go(bare, clock):
    chats(bare, clock, days=[0, 1, 2], scope="acme/ada")
    bare.assert_fact("city", "Porto", scope="other", because=[bare.turns("chat-1")[0]])
    bare.admin.hold("other", reason="audit")
    bare.admin.set_retention("acme", max_age="1d")
    clock.advance(seconds=9 * 86_400)
    report = bare.admin.apply_retention()
    assert (report.turns, report.held, left(bare)) == (2, 1, ["chat of day 1"])


@pytest.mark.parametrize("keep", [True, False])
def test_facts_that_hold_stay_where_the_rule_says_so(bare, clock, keep):
    turn = bare.session("s", scope="acme").record("user", "I live in Porto, before in Rome.")
    for city in ("Rome", "Porto"):
        bare.assert_fact("city", city, scope="acme", because=[turn])
        clock.advance(seconds=1 * 86_400)
    bare.admin.set_retention("acme", max_age="1d", keep_facts=keep)
    clock.advance(seconds=9 * 86_400)
    (request,) = bare.admin.apply_retention().requests
    fact = bare.fact("city", scope="acme")
    assert (fact and fact.value, request.facts_kept) == (("Porto", 1) if keep else (None, 0))
    assert len(bare.fact_history("city", scope="acme")) == keep
    assert request.certificate.facts_kept == keep


def test_what_is_younger_than_its_minimum_age_goes_with_a_reason_only(bare, clock):
    chats(bare, clock, days=[0], scope="acme")
    bare.admin.set_retention("", max_age=None, min_age="180d")
    with pytest.raises(errors.InvalidInput, match=r"kept until .* its minimum age"):
        bare.forget(scope="acme")
    certificate = bare.forget(scope="acme", despite_minimum="she asked for it").certificate
    assert certificate.despite_minimum == "she asked for it"
    clock.advance(seconds=200 * 86_400)
    chats(bare, clock, days=[0], name="late", scope="acme")
    clock.advance(seconds=200 * 86_400)
    assert bare.forget(scope="acme").certificate.despite_minimum == ""


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
def test_a_rule_that_cannot_be_followed_is_refused(bare, wrong, why):
    with pytest.raises(errors.InvalidInput, match=why):
        bare.admin.set_retention("acme", **wrong)


def test_an_age_is_stored_in_one_form_and_may_end_after_the_calendar(bare):
    """What a person writes is read again from the log."""
    bare.session("s", scope="acme").record("user", "x")
    bare.admin.set_retention("acme", max_age=None, min_age=" 999999 W")
    assert bare.admin.retention().rules[0].min_age == "999999w"
    with pytest.raises(errors.InvalidInput, match="9999-12-31"):
        bare.forget(scope="acme")
    assert bare.verify(contents=True).sound
