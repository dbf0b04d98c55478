"""The queue of proposals: what waits is looked at, changed, approved and declined, and the history says by whom."""

import pytest

from mnemolog import acting_as
from mnemolog.types import AssertFact, EndStanding, Forget, RetractFact
from tests.console import opened_console

pytestmark = pytest.mark.local


@pytest.fixture
def waiting(store):
    """Proposals of an agent in Ada's scope, and one of Ada's own in another. Returns their positions by name."""
    call = store.session("call", scope="acme/ada")
    said = call.record("user", "Always answer in metric. I live in Lisbon now.")
    old = store.assert_fact("city", "Porto", scope="acme/ada", valid_from="1990-01")
    acts = {
        "city": AssertFact("city", "Lisbon"),
        "zip": AssertFact("zip", 1000),
        "retract": RetractFact([old.position], reason="misheard"),
        "standing": EndStanding(said.position, "she said so"),
        "forget": Forget(session=["call"], reason="asked for"),
    }
    with acting_as("agent"):
        found = {name: store.propose(act, scope="acme/ada", because=[said]).position for name, act in acts.items()}
    with acting_as("ada"):
        found["own"] = store.propose(AssertFact("pet", "Rex"), scope="acme/bob", why="<b>it barks</b>").position
    return found


@pytest.fixture
def writer(console):
    """A browser of Ada, who may read and approve, at a console that may write."""
    return console.as_caller("read", "approve")


def states(browser):
    """By position, the state of each proposal and who decided."""
    items = browser.json("/proposals?state=all")["proposals"]
    return {item["position"]: (item["state"], item["decided_by"]) for item in items}


def test_each_proposal_is_shown_with_what_is_so_now_and_then_and_the_menu_counts_them(waiting, store, writer):
    """Who proposed it, why, and the turns that it rests on; of what would be forgotten how much, as the past had it."""
    items = {item["position"]: item for item in writer.json("/proposals")["proposals"]}
    changes = {name: (items[at]["now"], items[at]["then"]) for name, at in waiting.items()}
    assert changes["city"] == ("Porto", "Lisbon")
    assert changes["retract"] == ("Porto", None)
    assert changes["standing"] == (["Always answer in metric"], [])
    page = writer.get("/proposals").text
    said = items[waiting["city"]]["because"][0]
    for shown in (
        f'href="/event/{said}"',
        "<bdi>agent</bdi>",
        "&lt;b&gt;it barks&lt;/b&gt;",
        "turns said: <strong>1",
        "6 open",
    ):
        assert shown in page, shown
    assert "5 open" in writer.as_caller("read", scope="acme/ada").get("/").text
    assert len(writer.json(f"/proposals?at={waiting['city']}")["proposals"]) == 1
    assert "/proposals/approve" not in writer.get(f"/proposals?at={waiting['city']}").text


def test_a_fact_is_changed_and_approved_and_others_are_declined(waiting, store, writer):
    """What was not changed is approved as it was proposed. A no needs a reason. The history says who decided."""
    form = {"positions": waiting["city"], "key": "city", "value": "Lisboa", "valid_from": "2026-03"}
    done = writer.submit("/proposals/approve?scope=acme", form)
    assert done.headers["location"] == f"/proposals?scope=acme&decided={waiting['city']}"
    fact = store.fact_history("city", scope="acme/ada")[-1]
    assert (fact.value, fact.valid_from.month, fact.actor, fact.proposed_by) == ("Lisboa", 3, "ada", "agent")
    wrong = {"positions": waiting["zip"], "key": "zip", "value": "4000-", "valid_from": ""}
    refused = writer.submit("/proposals/approve", wrong)
    assert (refused.status_code, "not JSON" in refused.text) == (400, True)
    writer.submit("/proposals/approve", wrong | {"value": "1000"})
    assert store.fact("zip", scope="acme/ada").value == 1000
    for fields in ({"positions": waiting["own"]}, {"reason": "a guess"}):
        assert writer.submit("/proposals/decline", fields).status_code == 400
    several = {"positions": [waiting["own"], waiting["standing"]], "reason": "a guess"}
    assert writer.submit("/proposals/decline", several).status_code == 303
    found = states(writer)
    assert {found[waiting[name]] for name in ("city", "zip")} == {("approved", "ada")}
    assert {found[waiting[name]] for name in ("own", "standing")} == {("declined", "ada")}
    history = writer.get("/proposals?state=all").text + writer.get("/facts?key=city&of=acme/ada").text
    for said in "by <bdi>ada</bdi>", "a guess", "proposed by <bdi>agent</bdi>", "approved by <bdi>ada</bdi>":
        assert said in history, said


def test_several_are_approved_together_or_none_and_what_is_superseded_stays_open(waiting, store, writer):
    """The page names the newer value; an approval of it is refused, whatever else was ticked. Forgetting is done."""
    newer = store.assert_fact("city", "Faro", scope="acme/ada")
    assert "Superseded" in writer.get("/proposals").text
    refused = writer.submit("/proposals/approve", {"positions": [waiting["zip"], waiting["city"]]})
    assert refused.status_code == 409
    assert f"another value at position {newer.position}" in refused.text
    assert set(states(writer).values()) == {("open", "")}
    store.admin.hold("acme", reason="case")
    assert "cannot be carried out" in writer.get("/proposals").text
    store.admin.lift_hold(store.admin.retention().holds[0], reason="closed")
    assert writer.submit("/proposals/approve", {"positions": [waiting["forget"], waiting["own"]]}).status_code == 303
    assert not store.turns("call")
    assert store.fact("pet", scope="acme/bob").value == "Rex"


@pytest.mark.parametrize("verbs", [["read"], ["read", "record", "propose", "forget", "admin"]])
def test_who_may_not_approve_has_no_form_and_is_refused(waiting, console, verbs):
    reader = console.as_caller(*verbs)
    page = reader.get("/proposals").text
    assert "the right <code>approve</code>" in page
    assert "/proposals/decline" not in page
    for path in ("approve", "decline"):
        assert reader.submit(f"/proposals/{path}", {"positions": waiting["zip"], "reason": "no"}).status_code == 403
    assert console.submit("/proposals/approve", {"positions": waiting["zip"]}).status_code == 403, "without --write"
    assert set(states(reader).values()) == {("open", "")}


def test_a_bound_person_decides_in_their_scope_and_with_four_eyes_nobody_their_own(waiting, store, clock):
    """What lies outside is neither shown nor decided, nor told apart from what never was."""
    with opened_console(store.path, clock=clock, four_eyes=True) as console:
        bound = console.as_caller("read", "approve", scope="acme/ada")
        assert waiting["own"] not in states(bound)
        for outside in (waiting["own"], 999):
            refused = bound.submit("/proposals/approve", {"positions": [waiting["zip"], outside]})
            assert (refused.status_code, f"{outside} is no proposal" in refused.text) == (400, True)
        both = console.as_caller("read", "approve")
        page = both.get("/proposals").text
        assert page.count("another person approves it") == 1
        refused = both.submit("/proposals/approve", {"positions": waiting["own"]})
        assert (refused.status_code, "is your own" in refused.text) == (400, True)
        assert both.submit("/proposals/decline", {"positions": waiting["own"], "reason": "mine"}).status_code == 303


def test_ages_and_holds_are_set_and_lifted_and_a_run_is_previewed(waiting, store, clock, console):
    """By who may admin. The history names who did it, also once a hold is lifted; as of then it was there."""
    admin = console.as_caller("read", "admin", "forget")
    ages = {"scope": "acme", "max_age": "180d", "min_age": "30d", "keep_facts": "yes"}
    for path, fields in (("", ages), ("/hold", {"scope": "acme/ada", "reason": "case <4711>"})):
        assert admin.submit(f"/retention{path}", fields).headers["location"] == "/retention"
    (rule,), (held,) = store.admin.retention().rules, store.admin.retention().holds
    assert (rule.max_age, rule.min_age, rule.by, rule.keep_facts, held.actor) == ("180d", "30d", "said", True, "ada")
    clock.advance(seconds=200 * 86_400)
    previewed = admin.submit("/retention/preview", {})
    assert "A hold keeps 1 turn" in admin.get(previewed.headers["location"]).text
    assert admin.submit("/retention/lift", {"hold": held.position, "reason": ""}).status_code == 400
    for browser, form in ((console.as_caller("read", "record", "approve"), False), (console, False), (admin, True)):
        assert ("/retention/lift" in browser.get("/retention").text) == form
        assert browser.submit("/retention/lift", {"hold": held.position, "reason": "closed"}).status_code == (
            303 if form else 403
        )
    assert admin.follow(admin.submit("/retention/preview", {}))["result"]["turns"] == 1
    assert store.turns("call"), "a preview forgets nothing"
    said = [(item["what"], item["actor"]) for item in admin.json("/retention")["decisions"]]
    assert (said[0], len(said)) == ((f"hold of position {held.position} lifted: closed", "ada"), 3)
    assert "case &lt;4711&gt;" in admin.get(f"/retention?at={held.position}").text
    assert admin.as_caller("read", "admin", scope="acme").get("/retention").status_code == 403
