"""The pages that keep a memory well: health, jobs, the audit, forgetting, tokens.

The queue of proposals, and the rules of retention: each form of them, and who decided.
"""

import re
import threading

import pytest

from mnemolog import acting_as
from mnemolog.aio.wrappers import run_in
from mnemolog.server.console import history_page, jobs
from mnemolog.types import AssertFact, EndStanding, Forget, RetractFact
from tests.console import opened_console
from tests.e2e.console.conftest import HOSTILE
from tests.support import WAIT_S

pytestmark = pytest.mark.local


# Health


def test_health_says_in_words_that_nothing_is_wrong(reader):
    """And how far everything has read. A full check runs in the background, also without `--write`."""
    page = reader.json("/health")
    assert page["healthy"]
    assert page["says"][0].startswith("Nothing is wrong")
    assert {part["state"] for part in page["parts"]} <= {"current", "behind", "present", "missing"}
    assert all(part["good"] for part in page["parts"])
    job = reader.follow(reader.submit("/health/check", {}))
    assert (job["state"], job["kind"], job["result"]["deep"]) == ("done", "DoctorReport", True)
    assert "Nothing is wrong" in reader.get(f"/jobs/{job['id']}").text


def test_a_finding_says_what_mending_would_do_and_is_mended_only_with_write(writer, reader, made):
    """A leftover of a dead process: the page names it, the form removes it, a read-only console does not."""
    leftover = made / "projections" / "vectors" / ".segment.999999999.0123abcd"
    leftover.mkdir(parents=True)
    page = writer.json("/health")
    (found,) = [item for item in page["report"]["findings"] if item["fixable"] and item["what"] == "leftover"]
    assert "removes it" in found["action"]
    assert "What mending would do" in writer.get("/health").text
    assert "Mend what can be mended" not in reader.get("/health").text
    assert reader.submit("/health/fix", {}).status_code == 403
    assert leftover.exists()
    report = writer.follow(writer.submit("/health/fix", {}))["result"]
    assert [item["outcome"] for item in report["findings"] if item["what"] == "leftover"] == ["removed"]
    assert not leftover.exists()


def test_health_names_the_model_that_answers(reader):
    (model,) = reader.json("/health")["models"]
    assert (model["name"], model["vectors"]) == ("hash-words", 4)
    assert "hash-words" in reader.get("/health").text


# Jobs


def test_long_work_shows_its_progress_and_no_page_waits_for_it(reader, monkeypatch):
    """The page refreshes, or has a link. As many jobs run as the store has threads for long work."""
    monkeypatch.setattr(jobs, "QUICK_S", 0.01)
    gate, verified = threading.Event(), reader.store.verify

    async def verify(**options):
        await run_in("background", reader.store, lambda _: gate.wait(WAIT_S))
        return await verified(**options)

    monkeypatch.setattr(reader.store, "verify", verify)
    started, second = (reader.submit("/audit/verify", {}) for _ in range(2))
    path = started.headers["location"]
    assert reader.json(path)["state"] == "running"
    html = reader.get(path).text
    assert f'hx-get="{path}" hx-trigger="every 1s"' in html
    assert f'<a href="{path}">Look again</a>' in html
    paths = ("/recall?q=tea", "/diff?from=0", "/forgetting?sessions=trip", "/recall/receipts/6", "/audit", "/health")
    assert [reader.get(path).status_code for path in (*paths, "/context?q=tea")] == [200] * 7
    gate.set()
    for job in (started, second):
        assert reader.follow(job)["result"]["sound"]
    assert "hx-get" not in reader.get(path).text


def test_a_job_that_fails_is_shown_on_its_page_and_logged_at_once(reader, monkeypatch, caplog):
    """An unexpected error is logged by its class and place, without its message. Only so many jobs run at once."""

    async def fail(**_):
        raise KeyError(HOSTILE)

    monkeypatch.setattr(reader.store, "verify", fail)
    job = reader.follow(reader.submit("/audit/verify", {}))
    assert (job["state"], job["error"]) == ("failed", "the server failed")
    assert job["hint"] == "report it as a bug, with what the server logged"
    (logged,) = [record for record in caplog.records if record.name.startswith("mnemolog.console")]
    assert (logged.event, logged.facts["job"], logged.facts["error"]) == ("console.job_failed", job["id"], "KeyError")
    assert logged.facts["file"] == __file__
    assert HOSTILE not in caplog.text
    monkeypatch.setattr(jobs, "RUNNING_MAX", 0)
    assert reader.submit("/audit/verify", {}).status_code == 503


# The audit


def test_the_history_is_verified_with_progress_and_against_a_head_that_was_noted(reader):
    """In the background, also without `--write`, for the caller who started it. A wrong head is a finding."""
    page, head = reader.json("/audit"), reader.run(reader.store.head())
    assert page["head"] == {"position": head.position, "digest": head.digest}
    assert page["witnesses"]
    assert all(item["agrees"] for item in page["witnesses"])
    assert reader.json("/audit?at=4")["head"]["position"] == 4
    job = reader.follow(reader.submit("/audit/verify", {"expect_head": str(head), "contents": "yes"}))
    assert job["result"]["sound"]
    assert job["done"] == job["total"] == head.position
    assert "The history is sound" in reader.get(f"/jobs/{job['id']}").text
    assert reader.as_caller("read", "admin").get(f"/jobs/{job['id']}").status_code == 404
    wrong = reader.follow(reader.submit("/audit/verify", {"expect_head": f"{head.position}:{'0' * 64}"}))
    assert not wrong["result"]["sound"]
    assert "The history is not sound" in reader.get(f"/jobs/{wrong['id']}").text


def test_the_timeline_is_filtered_and_comes_in_pages_of_a_hundred(store, console):
    """Newest first: by kind, session, scope and actor."""
    for name in ("a", "b"):
        session = store.session(name, scope=f"acme/{name}")
        with acting_as(f"token {name}"):
            for number in range(120):
                session.record("user", f"turn {number}")
        session.set("last", name)
    pages, before = [], ""
    while before is not None:
        page = console.json(f"/audit?before={before}")
        pages.append([event["position"] for event in page["events"]])
        before = page["earlier"]
    assert [len(page) for page in pages] == [100, 100, 44]
    assert [position for page in pages for position in page] == list(range(244, 0, -1))
    first = console.json("/audit?session=a&topic=turn.recorded.v1")
    assert [event["what"] for event in first["events"]] == [f"user: turn {number}" for number in range(119, 19, -1)]
    rest = console.json(f"/audit?session=a&topic=turn.recorded.v1&before={first['earlier']}")
    assert len(rest["events"]) == 20
    assert {event["session"] for event in console.json("/audit?scope=acme/b")["events"]} == {"b"}
    assert {event["actor"] for event in console.json("/audit?actor=token%20a")["events"]} == {"token a"}
    values = console.json("/audit?topic=value.set.v1")["events"]
    assert [event["what"] for event in values] == ['value last = "b"', 'value last = "a"']


def test_a_page_of_the_timeline_looks_through_a_bounded_part_of_the_log(reader, monkeypatch):
    """A filter that leaves little says how far it looked, and the next page continues there."""
    monkeypatch.setattr(history_page, "LOOKED_MAX", 4)
    page = reader.json("/audit?actor=nobody")
    assert (page["events"], page["looked_to"], page["looked_from"], page["earlier"]) == ([], 12, 8, 9)
    assert reader.json(f"/audit?actor=nobody&before={page['earlier']}")["looked_to"] == 8
    monkeypatch.setattr(history_page, "LOOKED_MAX", 5_000)
    assert reader.json("/audit?actor=nobody")["earlier"] is None


# Forgetting


def events_of(browser, what):
    return str(browser.json(f"/forgetting?{what}")["preview"]["report"]["events"])


def test_a_preview_names_what_would_become_unreadable_line_by_line(reader):
    """Sessions with titles, turns, the task, values and notes; single events too. Nothing is written."""
    page = reader.json("/forgetting?sessions=trip&positions=12")
    (trip,) = page["preview"]["sessions"]
    assert (trip["title"], trip["turns"]) == ("A trip to Porto", 3)
    lines = [(line["kind"], line["who"], line["text"]) for line in trip["lines"]]
    for line in (
        ("turn", "Alice", "I drink tea, never coffee."),
        ("task", "", "Plan a trip"),
        ("value", "city", "'Lisbon'"),
        ("note", "", "Rex is a beagle."),
    ):
        assert line in lines
    (event,) = page["preview"]["events"]
    assert event["position"] == 12
    assert page["preview"]["report"]["request"] is None
    html = reader.get("/forgetting?sessions=trip&scopes=acme").text
    assert html.index("Confirm it") < html.index("<summary><h2>Line by line") < html.index("I drink tea, never coffee.")
    assert re.findall(r'name="scopes" value="(.*?)" list="scopes"', html) == ["acme", "", ""]
    assert 'value="acme/bob"' not in reader.as_caller("read", scope="acme/alice").get("/forgetting").text
    assert reader.json("/audit?topic=forget.requested.v1")["events"] == []
    assert reader.get("/forgetting?sessions=nobody").status_code == 404


def test_questions_that_may_quote_it_are_ticked_at_first(writer):
    """And are listed. Without the tick they stay, and the page says so."""
    asked = writer.run(writer.store.recall("what does Alice drink", roles=["tool"], receipt=True)).receipt
    page = writer.json("/forgetting?sessions=trip")
    (line,) = [item for item in page["preview"]["report"]["asked"] if item["position"] == asked]
    assert (line["stays"], line["query"]) == (False, "what does Alice drink")
    assert 'value="forget" checked' in writer.get("/forgetting?sessions=trip").text
    unticked = "sessions=trip&questions=keep"
    assert all(item["stays"] for item in writer.json(f"/forgetting?{unticked}")["preview"]["report"]["asked"])
    assert 'value="forget" checked' not in writer.get(f"/forgetting?{unticked}").text
    fields = {"sessions": "trip", "questions": "keep", "events": events_of(writer, unticked), "confirm": "trip"}
    writer.follow(writer.submit("/forgetting", fields))
    assert writer.json(f"/forgetting?{unticked}")["preview"]["report"]["questions_left"] >= 1


@pytest.mark.parametrize("typed", ["trip ", "number"])
def test_forgetting_is_confirmed_in_writing_and_answered_with_a_certificate(writer, typed):
    """The name or the number of events; the certificate has what, when, by whom, and the heads before and after."""
    forgets = writer.as_caller("read", "forget")
    count, before = events_of(forgets, "sessions=trip"), writer.run(writer.store.head())
    fields = {"sessions": "trip", "reason": "she asked", "events": count}
    sent = forgets.submit("/forgetting", {**fields, "confirm": count if typed == "number" else typed})
    page = forgets.follow(sent)
    erasure, after = page["erasure"], writer.run(writer.store.head())
    assert (str(erasure["events"]), erasure["reason"], erasure["actor"]) == (count, "she asked", "ada")
    assert page["certificate"]["before"] == {"position": before.position, "digest": before.digest}
    assert page["certificate"]["after"] == {"position": after.position, "digest": after.digest}
    assert page["certificate"]["statements"]["waiting_for"] == []
    assert page["completed_at"] is not None
    assert page["counts"]["turns said"] == 3
    html = writer.get(f"/forgetting/{erasure['request']}").text
    assert before.digest in html
    assert "nobody can read their content any more" in html
    assert writer.json("/forgetting")["erasures"] == [erasure]
    assert "I drink tea" not in writer.get("/recall?q=drink+tea").text
    assert writer.json("/audit")["actors"] == {"ada": 5}
    assert len(writer.json("/audit?actor=ada")["events"]) == 5


def test_forgetting_without_confirmation_or_right_forgets_nothing(writer, reader):
    """A wrong word, a number that has changed since, no `--write`, no right to forget."""
    count, head = events_of(writer, "sessions=trip"), writer.run(writer.store.head())
    fields = {"sessions": "trip", "events": count, "confirm": "trip"}
    for typed in ("", "Trip", "0", "acme"):
        refused = writer.submit("/forgetting", {**fields, "confirm": typed})
        assert refused.status_code == 400, typed
        assert "Nothing was forgotten" in refused.text
    records = writer.as_caller("read", "record")
    for browser in (reader, records):
        assert browser.submit("/forgetting", fields).status_code == 403
    assert "mnemolog serve DIR --write" in reader.get("/forgetting?sessions=trip").text
    assert "needs a token with the right <code>forget</code>" in records.get("/forgetting?sessions=trip").text
    assert writer.run(writer.store.head()) == head
    writer.run(writer.store.record("trip", "user", "one more"))
    assert writer.submit("/forgetting", fields).status_code == 409
    assert writer.json("/audit?topic=forget.requested.v1")["events"] == []


# Tokens


def make_token(writer, **fields):
    """Make a token with a form, and return its secret."""
    page = writer.submit("/tokens", {"actor": "ann", "verb": "read", **fields})
    assert page.status_code == 200, page.text
    return re.search(r'<pre class="secret"[^>]*>([^<]+)</pre>', page.text)[1]


def states(browser):
    return [item["state"] for item in browser.json("/tokens")["tokens"]]


def test_a_token_is_made_shown_once_and_revoked(writer):
    """Its secret is on the page that answers the form, and on no other one. An invalid form is an error page."""
    for fields in ({"actor": ""}, {"verb": "everything"}, {"days": "-1"}, {"scopes": "/x"}):
        assert writer.submit("/tokens", {"actor": "ann", "verb": "read", **fields}).status_code == 400, fields
    assert states(writer) == []
    secret = make_token(writer, scopes="acme\nnorthwind", days="30")
    (item,) = writer.json("/tokens")["tokens"]
    token = item["token"]
    assert (token["actor"], token["verbs"], token["scopes"]) == ("ann", ["read"], ["acme", "northwind"])
    assert (item["state"], token["expires_at"] is None) == ("valid", False)
    assert secret not in writer.get("/tokens").text
    assert secret not in writer.get("/live").text
    revoked = writer.submit("/tokens/revoke", {"id": token["id"]})
    assert (revoked.status_code, revoked.headers["location"]) == (303, "/tokens")
    assert states(writer) == ["revoked"]


def test_tokens_are_made_and_revoked_only_where_the_console_may_write(writer, reader):
    """Without `--write` there is no form, and a request without one is refused with the way to allow it."""
    make_token(writer)
    (item,) = writer.json("/tokens")["tokens"]
    fields = {"actor": "eve", "verb": "admin", "id": item["token"]["id"]}
    for path in ("/tokens", "/tokens/revoke"):
        refused = reader.submit(path, fields)
        assert refused.status_code == 403
        assert "--write" in refused.text
    assert states(writer) == ["valid"]
    page = reader.get("/tokens").text
    assert 'action="/tokens" method="post"' not in page
    assert 'action="/tokens/revoke"' not in page
    assert "--write" in page


# Distrust


def test_a_turn_says_who_was_shown_it_and_why_it_is_distrusted_and_is_trusted_again(writer, reader):
    """The counts lead to the receipts. The form is only where the console may write, for who may forget."""
    store = writer.store
    writer.run(store.recall("what does she drink?", mode="text", receipt=True))
    writer.run(store.context("what does she drink?", mode="text", receipt=True))
    url = "/session?id=trip"
    (turn,) = [item for item in writer.json(url)["turns"] if "never coffee" in item["turn"]["text"]]
    position = turn["turn"]["position"]
    assert (turn["shown"], turn["distrust"]) == ({"recalls": 2, "contexts": 1}, None)
    assert f'href="/recall/receipts?turn={position}">Shown by 2 recalls and 1 context<' in writer.get(url).text
    assert len(writer.json(f"/recall/receipts?turn={position}")["receipts"]) == 3
    made = writer.run(store.distrust(positions=position, reason="a <forged> page"))
    page = writer.get(url).text
    assert "Distrusted at" in page
    assert "a &lt;forged&gt; page" in page
    fields = {"distrust": made.position, "next": f"{url}&turn={position}"}
    assert 'action="/distrust/end"' in page
    assert 'action="/distrust/end"' not in reader.get(url).text
    assert reader.submit("/distrust/end", fields).status_code == 403
    assert writer.as_caller("read").submit("/distrust/end", fields).status_code == 403
    ended = writer.submit("/distrust/end", fields)
    assert (ended.status_code, ended.headers["location"]) == (303, fields["next"])
    assert "Distrusted at" not in writer.get(url).text


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
def decider(console):
    """A browser of Ada, who may read and approve, at a console that may write."""
    return console.as_caller("read", "approve")


def states_of(browser):
    """By position, the state of each proposal and who decided."""
    items = browser.json("/proposals?state=all")["proposals"]
    return {item["position"]: (item["state"], item["decided_by"]) for item in items}


def approve(browser, *positions, **fields):
    """The status of an approval, and the page or the address that answers it."""
    answer = browser.submit("/proposals/approve", {"positions": positions, **fields})
    return answer.status_code, answer.headers.get("location", "") + answer.text


def test_each_proposal_is_shown_with_what_is_so_now_and_then_and_the_menu_counts_them(waiting, decider):
    """Who proposed it, why, and the turns that it rests on; of what would be forgotten how much, as the past had it."""
    items = {item["position"]: (item["now"], item["then"]) for item in decider.json("/proposals")["proposals"]}
    assert [items[waiting[name]] for name in ("city", "retract", "standing")] == [
        ("Porto", "Lisbon"), ("Porto", None), (["Always answer in metric"], []),
    ]  # fmt: skip
    page = decider.get("/proposals").text
    marks = "<bdi>agent</bdi>", "&lt;b&gt;it barks&lt;/b&gt;", "turns said: <strong>1", "6 open"
    for shown in (f'href="/event/{waiting["said"]}"', *marks):
        assert shown in page, shown
    assert "5 open" in decider.as_caller("read", scope="acme/ada").get("/").text
    assert "/proposals/approve" not in decider.get(f"/proposals?at={waiting['city']}").text
    assert len(decider.json(f"/proposals?at={waiting['city']}")["proposals"]) == 1


def test_a_fact_is_changed_and_approved_and_others_are_declined(waiting, store, decider):
    """What was not changed is approved as it was proposed. A no needs a reason. The history says who decided."""
    assert approve(decider, waiting["city"], key="city", value="Lisboa", valid_from="2026-03")[0] == 303
    fact = store.fact_history("city", scope="acme/ada")[-1]
    assert (fact.value, fact.valid_from.month, fact.actor, fact.proposed_by) == ("Lisboa", 3, "ada", "agent")
    status, page = approve(decider, waiting["zip"], key="zip", value="4000-", valid_from="")
    assert (status, "not JSON" in page) == (400, True)
    assert approve(decider, waiting["zip"], key="zip", value="1000", valid_from="")[0] == 303
    assert store.fact("zip", scope="acme/ada").value == 1000
    two = [waiting["own"], waiting["standing"]]
    for fields, status in (
        ({"positions": two}, 400),
        ({"reason": "no"}, 400),
        ({"positions": two, "reason": "a guess"}, 303),
    ):
        assert decider.submit("/proposals/decline", fields).status_code == status
    assert [states_of(decider)[waiting[name]] for name in ("city", "zip", "own")] == [
        ("approved", "ada"), ("approved", "ada"), ("declined", "ada"),
    ]  # fmt: skip
    history = decider.get("/proposals?state=all").text + decider.get("/facts?key=city&of=acme/ada").text
    for said in "by <bdi>ada</bdi>", "a guess", "proposed by <bdi>agent</bdi>", "approved by <bdi>ada</bdi>":
        assert said in history, said


def test_several_are_approved_together_or_none_and_what_is_superseded_stays_open(waiting, store, decider):
    """The page names the newer value; an approval of it is refused, whatever else was ticked. Forgetting is done."""
    newer = store.assert_fact("city", "Faro", scope="acme/ada")
    hold = store.admin.hold("acme", reason="case")
    for said in "Superseded", "cannot be carried out":
        assert said in decider.get("/proposals").text
        assert said not in decider.get(f"/proposals?at={waiting['own']}").text
    status, page = approve(decider, waiting["zip"], waiting["city"])
    assert (status, f"another value at position {newer.position}" in page) == (409, True)
    assert set(states_of(decider).values()) == {("open", "")}
    store.admin.lift_hold(hold, reason="closed")
    done = approve(decider, waiting["forget"], waiting["own"])
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
        assert waiting["own"] not in states_of(bound)
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
