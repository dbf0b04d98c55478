"""The console pages that ask, compare, check and forget: in HTML and JSON, as of any moment."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware

from mnemolog import AsyncMemoryStore, MemoryStore, acting_as
from mnemolog.domain.events import EVENT_TYPES
from mnemolog.domain.position import Position
from mnemolog.domain.scope import parse_scope
from mnemolog.server.console import diff_page, event_search, event_words, jobs
from mnemolog.server.console.all_pages import console_routes
from mnemolog.server.http.access import Caller
from mnemolog.server.http.authentication import Authentication, Callers
from tests.console import Browser, close_all, console_app
from tests.support import WAIT_S, HashEncoder

pytestmark = pytest.mark.local

LABEL = "<script>alert(1)</script><img src=x onerror=alert(1)> {{ 7*7 }} '\"></div>"
HOSTILE = LABEL + " \u202egnp.exe"
PAGES = (
    *("/recall", "/recall?q=tea", "/recall?q=tea&then=5", "/recall?q=tea&mode=vector"),
    *("/recall/receipts", "/context", "/context?q=tea", "/context?q=tea&session=trip&tokens=50", "/diff?from=0"),
    *("/health", "/audit", "/audit?topic=value.set.v1", "/forgetting", "/forgetting?sessions=trip%0Abad"),
    "/forgetting?scopes=acme&positions=3",
)


@pytest.fixture(autouse=True)
def all_closed():
    """A test that fails leaves no event loop behind."""
    yield
    close_all()


@pytest.fixture
def made(folder, clock):
    """A memory of two sessions: one about a trip, one full of hostile text."""
    with MemoryStore.open(folder, model=HashEncoder(), clock=clock, background=False) as store:
        trip = store.session("trip", scope="acme/alice", title="A trip to Porto", agent="guide")
        trip.set("city", "Porto")
        trip.set_task("Plan a trip")
        trip.record("user", "I drink tea, never coffee.", speaker="Alice")
        trip.record("assistant", "Tea it is.")
        store.recall("what does she drink?", receipt=True)
        trip.set("city", "Lisbon")
        trip.note("Rex is a beagle.")
        trip.record("user", "I drink coffee now, no tea any more.", speaker="Alice")
        bad = store.session("bad", scope="acme/bob", title=LABEL, agent=LABEL)
        bad.record("user", HOSTILE + " tea", speaker=LABEL, metadata={HOSTILE: HOSTILE})
        bad.set("note", HOSTILE)
        store.admin.catch_up_vectors()
    return folder


@pytest.fixture
def store(made, clock):
    async def opened():
        return await AsyncMemoryStore.open(made, model=HashEncoder(), clock=clock, background=False)

    store = asyncio.run(opened())
    yield store
    asyncio.run(store.close())


@pytest.fixture
def browser(store):
    return Browser(console_app(store, write=True))


@pytest.mark.parametrize("url", PAGES)
def test_a_page_answers_in_html_and_in_json(browser, url):
    """The same address, for people and for programs."""
    page = browser.get(url)
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert isinstance(browser.json(url), dict)


@pytest.mark.parametrize("url", PAGES)
def test_a_page_shows_stored_text_and_never_runs_it(browser, url):
    """Markup, overrides of direction and templates in any stored text."""
    text = browser.get(url).text
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "\u202e" not in text
    assert " style=" not in text
    assert " onclick=" not in text


@pytest.mark.parametrize("url", [url for url in PAGES if "then=" not in url])
def test_a_page_can_show_an_earlier_moment(browser, url):
    """`?at=` takes a position."""
    page = browser.get(f"{url}{'&' if '?' in url else '?'}at=7")
    assert page.status_code == 200
    assert "position 7" in page.text


@pytest.fixture
def reader(store):
    """The same console, started without `--write`."""
    return Browser(console_app(store))


def as_caller(store, *, verbs=("read",), scope="", write=True):
    """The console as a token of these rights, bound to a scope, sees it."""
    caller = Caller(
        actor="ada",
        verbs=frozenset(verbs),
        scopes=(scope,) if scope else (),
        store=store.within(scope) if scope else store,
    )

    return Browser(console_app(store, write=write, caller=caller))


# The recall debugger


def test_the_recall_debugger_says_in_words_why_the_first_turn_is_the_first(browser):
    """What speaks for it, how likely it is, and what puts it before the second."""
    page = browser.json("/recall?q=what+tea+does+Alice+drink")
    first, likely, *rest = page["why_first"]
    assert first.startswith("The first turn answers best because it holds words of the question")
    likelihood = f"{page['hits'][0]['hit']['relevance']:.0%}"
    assert likely == f"Taken together, it has to do with the question with a likelihood of {likelihood}."
    assert "second turn" in rest[0]
    html = browser.get("/recall?q=what+tea+does+Alice+drink").text
    assert "The first turn answers best because it holds words of the question" in html


def test_hits_show_the_parts_of_their_score_as_bars(browser):
    """The longest bar is the largest part; where every turn starts has none."""
    page = browser.json("/recall?q=tea+coffee")
    parts = [part for hit in page["hits"] for part in hit["parts"]]
    assert max(part["share"] for part in parts) == 1
    assert {part["share"] for part in parts if part["name"] == "base"} == {0}
    for hit in page["hits"]:
        assert hit["score"] == pytest.approx(sum(part["value"] for part in hit["parts"]))
    drawn = browser.get("/recall?q=tea+coffee").text.count('<svg class="part-bar')
    assert drawn == sum(part["share"] > 0 for part in parts)


def test_words_of_the_question_are_marked_whatever_their_ending(browser):
    """In the passage of each hit, whose text is complete all the same."""
    page = browser.json("/recall?q=drinking+teas")
    marked = {piece["text"] for hit in page["hits"] for piece in hit["passage"] if piece["matches"]}
    assert marked >= {"drink", "tea"}
    for hit in page["hits"]:
        assert "".join(piece["text"] for piece in hit["passage"]) == hit["hit"]["passage"]["text"]
    assert "<mark>drink</mark>" in browser.get("/recall?q=drinking+teas").text


def test_the_recall_debugger_says_which_search_answered_or_why_not(browser, made, clock):
    """A mode that asks for one of them, and a store without a model."""
    assert [leg["answered"] for leg in browser.json("/recall?q=tea")["legs"]] == [True, True]
    assert [leg["answered"] for leg in browser.json("/recall?q=tea&mode=vector")["legs"]] == [False, True]

    async def opened():
        return await AsyncMemoryStore.open(made, model=None, clock=clock, background=False)

    words = asyncio.run(opened())
    text = Browser(console_app(words))
    assert text.json("/recall?q=tea")["legs"][1]["says"] == "Meaning: no: only words were searched."
    assert "did not answer" in text.get("/recall?q=tea").text
    assert text.get("/recall?q=tea&mode=vector").status_code == 409
    asyncio.run(words.close())


def test_the_answer_of_another_day_is_shown_side_by_side(browser):
    """What was not said yet, what came and went, and what moved."""
    compared = browser.json("/recall?q=what+does+she+drink%3F&then=5")["compared"]
    assert compared["there_head"] == 5
    later = {item["position"] for item in compared["here"] if item["change"] == "not yet"}
    assert later
    assert all(position > 5 for position in later)
    assert all(item["position"] <= 5 for item in compared["there"])
    assert f"{len(later)} turn" in compared["says"][0]
    assert "not said yet" in browser.get("/recall?q=what+does+she+drink%3F&then=5").text


def test_a_recall_of_the_console_uses_all_filters_and_leaves_no_receipt(browser):
    """Scope, session, lineage, roles, speakers, times, mode and relevance; the log stays as it was."""
    head = browser.json("/diff")["after"]
    asked = "/recall?q=tea&scope=acme&session=trip&lineage=yes&role=user&speaker=Alice&since=2020-01-01"
    page = browser.json(f"{asked}&until=2030-01-01&by=recorded&min_relevance=0.01&k=1")
    assert [hit["hit"]["speaker"] for hit in page["hits"]] == ["Alice"]
    assert browser.json("/diff")["after"] == head
    assert browser.get("/recall?q=tea&mode=magic").status_code == 400
    assert browser.get("/recall?q=tea&session=nobody").status_code == 404


def test_a_recorded_recall_is_repeated_then_and_now(browser):
    """The verdict in words, the turns of then, and those that today's answer has instead."""
    (listed,) = browser.json("/recall/receipts")["receipts"]
    assert (listed["query"], listed["hits"]) == ("what does she drink?", 2)
    path = f"/recall/receipts/{listed['position']}"
    page = browser.json(path)
    assert page["says"] == [
        "Asked again as of then, the memory gives the same answer.",
        "Asked today, the memory answers otherwise.",
    ]
    assert page["came"]
    assert [turn["forgotten"] for turn in page["then"]] == [False, False]
    again = browser.json(f"/recall?q=what+does+she+drink%3F&at={page['again']['at']}")
    assert [hit["hit"]["position"] for hit in again["hits"]][:2] == [turn["position"] for turn in page["then"]]
    assert "Asked today, the memory answers otherwise." in browser.get(path).text
    assert browser.get("/recall/receipts/3").status_code == 400
    assert browser.json(f"/recall/receipts?at={listed['position'] - 1}")["receipts"] == []


# The difference of two moments


def test_the_difference_of_two_moments_shows_turns_values_task_and_notes(browser):
    """Between positions or times, whichever is given first."""
    page = browser.json("/diff?from=6&to=9")
    (trip,) = page["sessions"]
    assert trip["values"] == [{"key": "city", "change": "changed", "before": "Porto", "after": "Lisbon"}]
    assert [note["text"] for note in trip["notes_added"]] == ["Rex is a beagle."]
    assert [turn["text"] for turn in trip["turns"]] == ["I drink coffee now, no tea any more."]
    assert browser.json("/diff?from=9&to=6")["swapped"]
    assert browser.json("/diff?from=0&to=2020-01-01")["says"][0].startswith("Nothing happened")
    assert browser.json("/diff?at=3")["after"] == 3
    assert "Lisbon" in browser.get("/diff?from=6&to=9").text
    assert [session["session"] for session in browser.json("/diff?from=0&scope=acme/bob")["sessions"]] == ["bad"]
    assert browser.get("/diff?from=99999").status_code == 400


def test_moments_that_are_far_apart_are_compared_without_reading_every_turn(folder, clock, monkeypatch):
    """Turns are counted; what sessions held is compared, a page of sessions at a time."""
    monkeypatch.setattr(diff_page, "FAR_EVENTS", 50)
    with MemoryStore.open(folder, model=None, clock=clock, background=False) as store:
        for number in range(103):
            session = store.session(f"s{number}", scope=f"acme/{number % 2}")
            session.set("number", number)
            session.record("user", "hello")
        store.admin.create_token("ann", verbs=["read"])
        head = store.head().position
        far = diff_page.compare(store, Position(0), head)
        assert (far.turns_left_out, far.sessions_in_all, len(far.sessions), far.pages) == (103, 103, 100, 2)
        assert far.kinds["values set"] == 103
        usual = store.audit.diff(0, head)
        assert far.kinds == event_words.in_words(usual.topics)
        assert [item.values for item in far.sessions] == [item.values for item in usual.sessions][:100]
        assert diff_page.compare(store, Position(0), head, scope=parse_scope("acme/1")).sessions_in_all == 51
        bound = store.within("acme/0")
        assert diff_page.compare(bound, Position(0), head).sessions_in_all == 52


def test_every_type_of_event_has_words_to_choose_it_by():
    """Audit and Live can show who made tokens, and what graphs wrote."""
    assert set(event_words.KINDS) == set(EVENT_TYPES)
    assert len(set(event_words.KINDS.values())) == len(EVENT_TYPES)


# The context preview


def test_the_context_preview_shows_each_block_with_its_tokens_and_what_was_left_out(browser, store):
    """As the prompt gets it: the text is that of a context of the library."""
    page = browser.json("/context?q=what+does+she+drink%3F&session=trip&tokens=120&min_relevance=0.3")
    assert [block["kind"] for block in page["context"]["blocks"]][:3] == ["task", "value", "note"]
    assert page["context"]["tokens"] <= 120
    html = browser.get("/context?q=what+does+she+drink%3F&session=trip&tokens=120&min_relevance=0.3").text
    assert [html.index(words) for words in ("the task", "a value", "a note")] == sorted(
        html.index(words) for words in ("the task", "a value", "a note")
    )
    assert "Plan a trip" in html
    reasons = {
        "no-room": "It did not fit into the budget.",
        "below-min-relevance": "It has too little to do with the question.",
        "repetition": "A later turn says the same.",
    }
    assert page["left_out"]
    for item in page["left_out"]:
        assert reasons[item["item"]["why"]] in html
    none = browser.json("/context?q=what+does+she+drink%3F&tokens=0")
    assert none["says"][0].startswith("The prompt would get nothing")
    assert browser.json("/context?q=tea&session=trip&at=4")["context"]["head"] == 4
    assert browser.json("/context?q=tea")["context"]["receipt"] is None


# Health


def test_health_says_in_words_that_nothing_is_wrong(browser):
    """And how far everything has read."""
    page = browser.json("/health")
    assert page["healthy"]
    assert page["says"][0].startswith("Nothing is wrong")
    assert {part["state"] for part in page["parts"]} <= {"current", "behind", "present", "missing"}


def test_a_finding_says_what_mending_would_do_and_is_mended_only_with_write(browser, reader, made):
    """A leftover of a dead process: the page names it, the form removes it, a read-only console does not."""
    leftover = made / "projections" / "vectors" / ".segment.999999999.0123abcd"
    leftover.mkdir(parents=True)
    page = browser.json("/health")
    (found,) = [item for item in page["report"]["findings"] if item["fixable"] and item["what"] == "leftover"]
    assert "removes it" in found["action"]
    assert "What mending would do" in browser.get("/health").text
    assert "Mend what can be mended" not in reader.get("/health").text
    assert reader.submit("/health/fix", {}).status_code == 403
    assert leftover.exists()
    report = browser.follow(browser.submit("/health/fix", {}))["result"]
    assert [item["outcome"] for item in report["findings"] if item["what"] == "leftover"] == ["removed"]
    assert not leftover.exists()


def test_a_full_check_runs_in_the_background_and_changes_nothing(reader):
    """It is allowed without `--write`."""
    job = reader.follow(reader.submit("/health/check", {}))
    assert (job["state"], job["kind"], job["result"]["deep"]) == ("done", "DoctorReport", True)
    assert "Nothing is wrong" in reader.get(f"/jobs/{job['id']}").text


def test_the_model_is_changed_and_changed_back_after_a_look_at_what_that_takes(made, clock):
    """What has to be embedded is said before; going back embeds nothing."""
    own, other = HashEncoder(), HashEncoder(fingerprint="b" * 64)
    other.name = "other-words"

    async def opened():
        return await AsyncMemoryStore.open(made, model=own, models=[other], clock=clock, background=False)

    store = asyncio.run(opened())
    browser = Browser(console_app(store, write=True))
    page = browser.json("/health?model=other-words")
    assert (page["chosen"]["turns_to_embed"], page["chosen"]["model"]["activated_at"]) == (4, None)
    assert "Up to 4 turns are embedded first" in browser.get("/health?model=other-words").text
    job = browser.follow(browser.submit("/health/model", {"model": "other-words"}))
    assert (job["result"]["model"], job["result"]["encoded_texts"]) == ("other-words", 4)
    assert other.texts_encoded == 4
    rows = {row["model"]["name"]: row["model"] for row in browser.json("/health")["models"]}
    assert rows["other-words"]["active"]
    browser.follow(browser.submit("/health/model", {"model": rows["hash-words"]["fingerprint"] or "hash-words"}))
    rows = {row["model"]["name"]: row["model"] for row in browser.json("/health")["models"]}
    assert (rows["hash-words"]["active"], rows["other-words"]["activated_at"] is not None) == (True, True)
    encoded = other.texts_encoded
    browser.follow(browser.submit("/health/model", {"model": rows["other-words"]["fingerprint"]}))
    assert other.texts_encoded == encoded
    assert browser.get("/health?model=../../etc").status_code == 400
    asyncio.run(store.close())


class Gated(HashEncoder):
    """A model that waits before its first batch until it is let go."""

    name = "gated"

    def __init__(self):
        super().__init__(fingerprint="c" * 64)
        self.gate = threading.Event()

    def encode(self, texts):
        assert self.gate.wait(WAIT_S)
        return super().encode(texts)


def test_long_work_shows_its_progress_and_recalls_are_answered_meanwhile(made, clock, monkeypatch):
    """The page asks again by itself, or by a link. Until then the old model answers, and no page waits for a job."""
    monkeypatch.setattr(jobs, "QUICK_S", 0.01)
    own, gated = HashEncoder(), Gated()

    async def opened():
        return await AsyncMemoryStore.open(made, model=own, models=[gated], clock=clock, background=False)

    store = asyncio.run(opened())
    browser = Browser(console_app(store, write=True))
    started = browser.submit("/health/model", {"model": "gated"})
    path = started.headers["location"]
    assert browser.json(path)["state"] == "running"
    html = browser.get(path).text
    assert f'hx-get="{path}" hx-trigger="every 1s"' in html
    assert f'<a href="{path}">Look again</a>' in html
    second = browser.submit("/health/model", {"model": "gated"})
    assert browser.json("/recall?q=tea")["legs"][1]["answered"]
    for page in (
        "/diff?from=0",
        "/forgetting?sessions=trip",
        "/recall/receipts/6",
        "/audit",
        "/context?q=tea",
        "/health",
    ):
        assert browser.get(page).status_code == 200
    gated.gate.set()
    done = browser.follow(started)
    assert (done["state"], done["result"]["model"]) == ("done", "gated")
    assert browser.follow(second)["state"] in ("done", "failed")
    assert "hx-get" not in browser.get(path).text
    asyncio.run(store.close())


def test_a_job_that_fails_says_so_on_its_page_and_in_the_log_at_once(browser, store, monkeypatch, caplog):
    """A fault of ours is logged by its class and place, for whoever reads the page; what it says is not shown."""

    async def fail(**_):
        raise KeyError(HOSTILE)

    monkeypatch.setattr(store, "verify", fail)
    job = browser.follow(browser.submit("/audit/verify", {}))
    assert (job["state"], job["error"]) == ("failed", "the server failed")
    assert job["hint"] == "report it as a bug, with what the server logged"
    (logged,) = [record for record in caplog.records if record.name.startswith("mnemolog.console")]
    assert (logged.event, logged.facts["job"], logged.facts["error"]) == ("console.job_failed", job["id"], "KeyError")
    assert logged.facts["file"] == __file__
    assert HOSTILE not in caplog.text


def test_only_so_many_jobs_run_at_once(made, clock, monkeypatch):
    """The next one is refused until one has ended."""
    monkeypatch.setattr(jobs, "RUNNING_MAX", 0)

    async def opened():
        return await AsyncMemoryStore.open(made, model=None, clock=clock, background=False)

    store = asyncio.run(opened())
    browser = Browser(console_app(store))
    assert browser.submit("/audit/verify", {}).status_code == 503
    asyncio.run(store.close())


# Forgetting


def test_a_preview_names_what_would_become_unreadable_line_by_line(browser):
    """Sessions with titles, turns, the task, values and notes; single events too. Nothing is written."""
    page = browser.json("/forgetting?sessions=trip&positions=12")
    (trip,) = page["preview"]["sessions"]
    assert (trip["title"], trip["turns"]) == ("A trip to Porto", 3)
    lines = [(line["kind"], line["who"], line["text"]) for line in trip["lines"]]
    assert ("turn", "Alice", "I drink tea, never coffee.") in lines
    assert ("task", "", "Plan a trip") in lines
    assert ("value", "city", "'Lisbon'") in lines
    assert ("note", "", "Rex is a beagle.") in lines
    (event,) = page["preview"]["events"]
    assert event["position"] == 12
    assert page["preview"]["report"]["request"] is None
    html = browser.get("/forgetting?sessions=trip").text
    assert "I drink tea, never coffee." in html
    assert browser.json("/audit?topic=forget.requested.v1")["events"] == []
    assert browser.get("/forgetting?sessions=nobody").status_code == 404


def events_of(browser, what):
    return str(browser.json(f"/forgetting?{what}")["preview"]["report"]["events"])


@pytest.mark.parametrize("typed", ["name", "number"])
def test_forgetting_is_confirmed_in_writing_and_answered_with_a_certificate(browser, store, typed):
    """The name or the number of events; the certificate has what, when, by whom, and the heads before and after."""
    count = events_of(browser, "sessions=trip")
    before = browser.run(store.head())
    fields = {"sessions": "trip", "reason": "she asked", "events": count}
    done = browser.submit("/forgetting", {**fields, "confirm": "trip" if typed == "name" else count})
    page = browser.follow(done)
    assert (str(page["erasure"]["events"]), page["erasure"]["reason"]) == (count, "she asked")
    assert page["before"] == {"position": before.position, "digest": before.digest}
    after = browser.run(store.head())
    assert page["after"] == {"position": after.position, "digest": after.digest}
    assert page["pending_nodes"] == []
    assert page["completed_at"] is not None
    assert page["counts"]["turns said"] == 3
    html = browser.get(f"/forgetting/{page['erasure']['request']}").text
    assert before.digest in html
    assert "nobody can read their content any more" in html
    (listed,) = browser.json("/forgetting")["erasures"]
    assert listed["request"] == page["erasure"]["request"]
    assert "I drink tea" not in browser.get("/recall?q=drink+tea").text


@pytest.mark.parametrize("typed", ["", "Trip", "trip ", "0", "acme"])
def test_forgetting_without_the_right_confirmation_forgets_nothing(browser, store, typed):
    """Close is not enough, but for white space around it."""
    count = events_of(browser, "sessions=trip")
    before = browser.run(store.head())
    refused = browser.submit("/forgetting", {"sessions": "trip", "events": count, "confirm": typed})
    if typed.strip() == "trip":
        assert refused.status_code == 303
        return
    assert refused.status_code == 400
    assert "Nothing was forgotten" in refused.text
    assert browser.run(store.head()) == before


def test_what_was_recorded_after_the_preview_is_not_forgotten_unseen(browser, store):
    """The form has the number of events that the page showed."""
    count = events_of(browser, "sessions=trip")
    browser.run(store.record("trip", "user", "one more"))
    head = browser.run(store.head())
    refused = browser.submit("/forgetting", {"sessions": "trip", "events": count, "confirm": "trip"})
    assert refused.status_code == 409
    assert browser.run(store.head()) == head


def test_forgetting_needs_write_the_right_and_a_form_of_this_server(store, browser, reader):
    """Otherwise the page says how to allow it, and nothing is forgotten."""
    count = events_of(browser, "sessions=trip")
    head = browser.run(store.head())
    fields = {"sessions": "trip", "events": count, "confirm": "trip"}
    assert reader.submit("/forgetting", fields).status_code == 403
    assert "mnemolog serve DIR --write" in reader.get("/forgetting?sessions=trip").text
    records = as_caller(store, verbs=("read", "record"))
    assert records.submit("/forgetting", fields).status_code == 403
    assert "needs a token with the right <code>forget</code>" in records.get("/forgetting?sessions=trip").text
    assert browser.submit("/forgetting", {**fields, "csrf": "forged"}).status_code == 403
    assert browser.run(store.head()) == head


def test_the_reason_and_the_one_who_forgot_are_in_the_certificate(store):
    """As recorded in the log."""
    forgets = as_caller(store, verbs=("read", "forget"))
    with acting_as("ada"):
        count = events_of(forgets, "sessions=trip")
        page = forgets.follow(forgets.submit("/forgetting", {"sessions": "trip", "events": count, "confirm": count}))
    assert page["erasure"]["actor"] == "ada"
    assert forgets.json("/audit?actor=ada")["events"]
    assert forgets.json("/audit")["actors"] == [{"actor": "ada", "events": 4}]


# The audit


def test_the_audit_shows_the_chain_and_its_witnesses(browser, store):
    """At the moment of the page."""
    page = browser.json("/audit")
    head = browser.run(store.head())
    assert page["head"] == {"position": head.position, "digest": head.digest}
    assert page["witnesses"]
    assert all(item["agrees"] for item in page["witnesses"])
    assert browser.json("/audit?at=4")["head"]["position"] == 4


def test_the_history_is_verified_with_progress_and_against_a_head_that_was_noted(reader, store):
    """In the background, also without `--write`. A wrong head is a finding."""
    head = reader.run(store.head())
    job = reader.follow(reader.submit("/audit/verify", {"expect_head": str(head), "contents": "yes"}))
    assert job["result"]["sound"]
    assert job["done"] == job["total"] == head.position
    assert "The history is sound" in reader.get(f"/jobs/{job['id']}").text
    assert as_caller(store).get(f"/jobs/{job['id']}").status_code == 404  # It belongs to whoever started it.
    wrong = reader.follow(reader.submit("/audit/verify", {"expect_head": f"{head.position}:{'0' * 64}"}))
    assert not wrong["result"]["sound"]
    assert "The history is not sound" in reader.get(f"/jobs/{wrong['id']}").text


MOMENT_FIELDS = {
    "/?at={}": "Moment",
    "/recall?q=tea&then={}": "Compare with the answer of",
    "/diff?from={}": "From",
    "/diff?to={}": "To",
}


@pytest.mark.parametrize("url", MOMENT_FIELDS)
def test_a_moment_is_read_in_one_way_wherever_it_is_typed(reader, url):
    """A position, or a time; anything else is refused with the name of the field and the forms that are understood."""
    for moment in ("3", "003", "2026-03-16", "2026-03-16T14:00:00.5Z", "+2026-03-16+"):
        assert reader.get(url.format(moment)).status_code == 200, moment
    refused = reader.json(url.format("Tuesday"))
    assert refused["status"] == 400
    forms = "expected a position such as 1200, or a time such as '2026-03-16T14:00' or '2026-03-16'"
    assert refused["detail"] == f"{MOMENT_FIELDS[url]}: 'Tuesday' is not a time; {forms}"
    for number in ("20260316", "9" * 30, "٣" * 5):
        assert reader.json(url.format(number))["status"] == 400, number
    assert "which ends at" in reader.json(url.format("20260316"))["detail"]


def test_the_timeline_is_filtered_and_comes_in_pages_of_a_hundred(folder, clock):
    """Newest first: by kind, session, scope and actor."""
    with MemoryStore.open(folder, model=None, clock=clock, background=False) as store:
        for name in ("a", "b"):
            session = store.session(name, scope=f"acme/{name}")
            with acting_as(f"token {name}"):
                for number in range(120):
                    session.record("user", f"turn {number}")
            session.set("last", name)

    async def opened():
        return await AsyncMemoryStore.open(folder, model=None, clock=clock, background=False)

    store = asyncio.run(opened())
    browser = Browser(console_app(store))
    pages, before = [], ""
    while True:
        page = browser.json(f"/audit?before={before}")
        pages.append([event["position"] for event in page["events"]])
        if page["older"] is None:
            break
        before = page["older"]
    assert [len(page) for page in pages] == [100, 100, 44]
    assert [position for page in pages for position in page] == list(range(244, 0, -1))
    first = browser.json("/audit?session=a&topic=turn.recorded.v1")
    assert [event["what"] for event in first["events"]] == [f"user: turn {number}" for number in range(119, 19, -1)]
    rest = browser.json(f"/audit?session=a&topic=turn.recorded.v1&before={first['older']}")
    assert len(rest["events"]) == 20
    assert {event["session"] for event in browser.json("/audit?scope=acme/b")["events"]} == {"b"}
    assert {event["actor"] for event in browser.json("/audit?actor=token%20a")["events"]} == {"token a"}
    assert [event["what"] for event in browser.json("/audit?topic=value.set.v1")["events"]] == [
        'value last = "b"',
        'value last = "a"',
    ]
    asyncio.run(store.close())


def test_a_page_of_the_timeline_looks_through_a_bounded_part_of_the_log(browser, monkeypatch):
    """A filter that leaves little says how far it looked, and the next page goes on from there."""
    monkeypatch.setattr(event_search, "LOOKED_MAX", 4)
    page = browser.json("/audit?actor=nobody")
    head = page["looked_to"]
    assert (page["events"], page["looked_from"], page["older"]) == ([], head - 4, head - 3)
    further = browser.json(f"/audit?actor=nobody&before={page['older']}")
    assert further["looked_to"] == page["looked_from"]
    monkeypatch.setattr(event_search, "LOOKED_MAX", 5_000)
    assert browser.json("/audit?actor=nobody")["older"] is None


# Callers who may see a part only


def test_a_caller_of_a_scope_sees_its_own_and_is_told_where_a_page_is_about_everything(store):
    """Recall, context, difference, timeline and forgetting within; a plain sentence on the others."""
    alice = as_caller(store, verbs=("read", "record", "forget", "admin"), scope="acme/alice")
    others = browser_of_all(store).json("/recall?q=tea")["at"]  # The last event is one of Bob's.
    for url in ("/recall?q=tea", "/recall?q=tea&then=11", "/context?q=tea", "/diff?from=0", "/audit"):
        assert others.rstrip("Z") not in alice.get(url).text, url
        assert others.rstrip("Z") not in json.dumps(alice.json(url)), url
    sees = alice.json("/recall?q=tea")
    assert {hit["hit"]["session"] for hit in sees["hits"]} == {"trip"}
    assert [item["session"] for item in alice.json("/diff?from=0")["sessions"]] == ["trip"]
    audit = alice.json("/audit")
    assert {event["session"] for event in audit["events"]} == {"trip"}
    assert (audit["head"], audit["witnesses"]) == (None, [])
    assert alice.json("/audit?session=bad")["status"] == 404
    assert alice.json("/context?q=tea")["context"]["text"].count("script") == 0
    for url in ("/recall?q=tea&session=bad", "/context?q=tea&session=bad", "/forgetting?sessions=bad"):
        assert alice.get(url).status_code == 404, url
    assert alice.get("/forgetting?positions=12").status_code == 404
    for url in ("/health", "/recall/receipts", "/tokens"):
        page = alice.get(url)
        assert page.status_code == 403, url
        assert "about the whole memory" in page.text
        assert not any(f'href="{url}"' in alice.get(shown).text for shown in ("/", "/recall", "/audit")), url
        assert f'href="{url}"' in browser_of_all(store).get("/" if url != "/recall/receipts" else "/recall").text
    for url in ("/audit/verify", "/health/fix", "/health/model"):
        assert alice.submit(url, {}).status_code in (403, 404), url
    count = events_of(alice, "sessions=trip")
    fields = {"sessions": "trip", "events": count, "confirm": "trip"}
    page = alice.follow(alice.submit("/forgetting", fields))
    assert str(page["erasure"]["events"]) == count
    assert [item["request"] for item in alice.json("/forgetting")["erasures"]] == [page["erasure"]["request"]]
    bob = as_caller(store, verbs=("read",), scope="acme/bob")
    assert bob.json("/forgetting")["erasures"] == []
    assert bob.get(f"/forgetting/{page['erasure']['request']}").status_code == 404


def browser_of_all(store):
    """The console as a caller who sees everything has it."""
    return Browser(console_app(store))


def with_token(store, token):
    """The console of a server that needs a token, with an event loop of its own."""
    admits = Middleware(Authentication, callers=Callers(store), store=store, needs_token=True)
    return Browser(Starlette(routes=console_routes(write=True), middleware=[admits]), token=token)


def test_a_token_of_several_scopes_works_within_the_one_that_the_address_names(store):
    """In pages, forms, jobs and certificates; its actor is recorded, and nobody else sees its files and jobs."""
    made = asyncio.run(store.admin.create_token("ada", verbs=("read", "forget"), scopes=("acme/alice", "acme/bob")))
    other = asyncio.run(store.admin.create_token("ada", verbs=("read", "forget"), scopes=("acme/alice",)))
    ada, twin = with_token(store, made.secret), with_token(store, other.secret)
    for scope, session in (("acme/alice", "trip"), ("acme/bob", "bad")):
        assert {hit["hit"]["session"] for hit in ada.json(f"/recall?q=tea&scope={scope}")["hits"]} == {session}
        assert [item["session"] for item in ada.json(f"/diff?from=0&scope={scope}")["sessions"]] == [session]
    assert ada.get("/recall?q=tea&scope=acme/carol").status_code in (403, 404)
    assert ada.get("/forgetting?sessions=trip&scope=acme/bob").status_code == 404
    here = "scope=acme%2Fbob"
    page = ada.get(f"/forgetting?sessions=bad&{here}").text
    assert f'action="/forgetting?{here}"' in page
    fields = {"sessions": "bad", "events": events_of(ada, f"sessions=bad&{here}"), "confirm": "bad"}
    done = ada.submit(f"/forgetting?{here}", fields, seen_at=f"/diff?{here}")
    assert done.headers["location"].endswith(f"?{here}")
    certificate = ada.follow(done)
    assert certificate["erasure"]["actor"] == "ada"
    assert twin.get(f"/forgetting/{certificate['erasure']['request']}").status_code == 404


def test_no_page_is_shown_without_a_token(store):
    """Where one is needed."""
    nobody = with_token(store, "")
    for url in (*PAGES, "/jobs/x", "/forgetting/x", "/recall/receipts/3"):
        assert nobody.get(url).status_code == 401, url
