"""The pages that keep a memory well: health, jobs, the audit, forgetting, tokens."""

import re
import threading

import pytest

from mnemolog import acting_as
from mnemolog.aio.wrappers import run_in
from mnemolog.server.console import history_page, jobs
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
