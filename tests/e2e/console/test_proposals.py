"""The queue of proposals, and the rules of retention: each form of them, and who decided."""

import pytest

from mnemolog import acting_as
from mnemolog.types import AssertFact, EndStanding, Forget, RetractFact
from tests.console import opened_console

pytestmark = pytest.mark.local


@pytest.fixture
def waiting(store):
    """Proposals of an agent in Ada's scope, and one of Ada's own in another. Returns their positions by name."""
    said = store.session("call", scope="acme/ada").record("user", "Always answer in metric. I live in Lisbon now.")
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
        own = store.propose(AssertFact("pet", "Rex"), scope="acme/bob", why="<b>it barks</b>").position
    return {**found, "own": own, "said": said.position}


@pytest.fixture
def writer(console):
    """A browser of Ada, who may read and approve, at a console that may write."""
    return console.as_caller("read", "approve")


def states(browser):
    """By position, the state of each proposal and who decided."""
    items = browser.json("/proposals?state=all")["proposals"]
    return {item["position"]: (item["state"], item["decided_by"]) for item in items}


def approve(browser, *positions, **fields):
    """The status of an approval, and the page or the address that answers it."""
    answer = browser.submit("/proposals/approve", {"positions": positions, **fields})
    return answer.status_code, answer.headers.get("location", "") + answer.text


def test_each_proposal_is_shown_with_what_is_so_now_and_then_and_the_menu_counts_them(waiting, writer):
    """Who proposed it, why, and the turns that it rests on; of what would be forgotten how much, as the past had it."""
    items = {item["position"]: (item["now"], item["then"]) for item in writer.json("/proposals")["proposals"]}
    assert [items[waiting[name]] for name in ("city", "retract", "standing")] == [
        ("Porto", "Lisbon"), ("Porto", None), (["Always answer in metric"], []),
    ]  # fmt: skip
    page = writer.get("/proposals").text
    marks = "<bdi>agent</bdi>", "&lt;b&gt;it barks&lt;/b&gt;", "turns said: <strong>1", "6 open"
    for shown in (f'href="/event/{waiting["said"]}"', *marks):
        assert shown in page, shown
    assert "5 open" in writer.as_caller("read", scope="acme/ada").get("/").text
    assert "/proposals/approve" not in writer.get(f"/proposals?at={waiting['city']}").text
    assert len(writer.json(f"/proposals?at={waiting['city']}")["proposals"]) == 1


def test_a_fact_is_changed_and_approved_and_others_are_declined(waiting, store, writer):
    """What was not changed is approved as it was proposed. A no needs a reason. The history says who decided."""
    assert approve(writer, waiting["city"], key="city", value="Lisboa", valid_from="2026-03")[0] == 303
    fact = store.fact_history("city", scope="acme/ada")[-1]
    assert (fact.value, fact.valid_from.month, fact.actor, fact.proposed_by) == ("Lisboa", 3, "ada", "agent")
    status, page = approve(writer, waiting["zip"], key="zip", value="4000-", valid_from="")
    assert (status, "not JSON" in page) == (400, True)
    assert approve(writer, waiting["zip"], key="zip", value="1000", valid_from="")[0] == 303
    assert store.fact("zip", scope="acme/ada").value == 1000
    two = [waiting["own"], waiting["standing"]]
    for fields, status in (
        ({"positions": two}, 400),
        ({"reason": "no"}, 400),
        ({"positions": two, "reason": "a guess"}, 303),
    ):
        assert writer.submit("/proposals/decline", fields).status_code == status
    assert [states(writer)[waiting[name]] for name in ("city", "zip", "own")] == [
        ("approved", "ada"), ("approved", "ada"), ("declined", "ada"),
    ]  # fmt: skip
    history = writer.get("/proposals?state=all").text + writer.get("/facts?key=city&of=acme/ada").text
    for said in "by <bdi>ada</bdi>", "a guess", "proposed by <bdi>agent</bdi>", "approved by <bdi>ada</bdi>":
        assert said in history, said


def test_several_are_approved_together_or_none_and_what_is_superseded_stays_open(waiting, store, writer):
    """The page names the newer value; an approval of it is refused, whatever else was ticked. Forgetting is done."""
    newer = store.assert_fact("city", "Faro", scope="acme/ada")
    hold = store.admin.hold("acme", reason="case")
    for said in "Superseded", "cannot be carried out":
        assert said in writer.get("/proposals").text
        assert said not in writer.get(f"/proposals?at={waiting['own']}").text
    status, page = approve(writer, waiting["zip"], waiting["city"])
    assert (status, f"another value at position {newer.position}" in page) == (409, True)
    assert set(states(writer).values()) == {("open", "")}
    store.admin.lift_hold(hold, reason="closed")
    done = approve(writer, waiting["forget"], waiting["own"])
    assert done == (303, f"/proposals?decided={waiting['forget']}%2C{waiting['own']}")
    assert (store.turns("call"), store.fact("pet", scope="acme/bob").value) == ([], "Rex")


def test_who_may_not_approve_has_no_form_and_what_lies_outside_is_as_if_it_never_was(waiting, store, clock, console):
    """Nor does a console without `--write`. With four eyes no one approves what they proposed; they may decline it."""
    for reader in console.as_caller("read"), console.as_caller("read", "record", "propose", "forget", "admin"), console:
        assert "/proposals/decline" not in reader.get("/proposals").text
        assert approve(reader, waiting["zip"])[0] == 403
        assert reader.submit("/proposals/decline", {"positions": waiting["zip"], "reason": "no"}).status_code == 403
    with opened_console(store.path, clock=clock, four_eyes=True) as console:
        bound, both = console.as_caller("read", "approve", scope="acme/ada"), console.as_caller("read", "approve")
        assert waiting["own"] not in states(bound)
        for outside in waiting["own"], 999:
            status, page = approve(bound, waiting["zip"], outside)
            assert (status, f"{outside} is no proposal" in page) == (400, True)
        assert both.get("/proposals").text.count("another person approves it") == 1
        status, page = approve(both, waiting["own"])
        assert (status, "is your own" in page) == (400, True)
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
    assert "A hold keeps 1 turn" in admin.get(admin.submit("/retention/preview", {}).headers["location"]).text
    assert admin.submit("/retention/lift", {"hold": held.position, "reason": ""}).status_code == 400
    for browser, status in ((console.as_caller("read", "record", "approve"), 403), (console, 403), (admin, 303)):
        assert ("/retention/lift" in browser.get("/retention").text) == (status == 303)
        assert browser.submit("/retention/lift", {"hold": held.position, "reason": "closed"}).status_code == status
    assert admin.follow(admin.submit("/retention/preview", {}))["result"]["turns"] == len(store.turns("call")) == 1
    said = [(item["what"], item["actor"]) for item in admin.json("/retention")["decisions"]]
    assert (said[0], len(said)) == ((f"hold of position {held.position} lifted: closed", "ada"), 3)
    assert "case &lt;4711&gt;" in admin.get(f"/retention?at={held.position}").text
    assert admin.as_caller("read", "admin", scope="acme").get("/retention").status_code == 403
