"""An agent proposes and somebody else approves; until then nothing of it holds."""

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
