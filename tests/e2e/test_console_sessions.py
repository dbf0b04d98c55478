"""The console's pages about sessions: lists in pages, a conversation as of any moment, an event as it is stored."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from mnemolog import AsyncMemoryStore, MemoryStore
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.projections.sql import queries
from mnemolog.server.console.session_page import TURNS_MAX
from mnemolog.server.console.sessions_page import ROWS_MAX
from tests.console import console_app
from tests.e2e.test_console import Browser

pytestmark = pytest.mark.local


class HeldClock:
    def __init__(self):
        self.time = datetime(2026, 3, 16, 12, tzinfo=UTC)

    def now(self):
        return int(self.time.timestamp() * 1_000_000)


@pytest.fixture
def clock():
    return HeldClock()


@pytest.fixture
def browse(tmp_path, clock):
    """Fill a store, and return a browser of its console."""
    opened: list[AsyncMemoryStore] = []

    def browse(fill):
        with MemoryStore.open(tmp_path / "store", model=None, clock=clock, synchronous="NORMAL") as store:
            fill(store)
        opened.append(asyncio.run(_opened(tmp_path / "store", clock)))
        return Browser(console_app(opened[-1]))

    browse.opened = opened
    yield browse
    for store in opened:
        asyncio.run(store.close())


async def _opened(folder, clock):
    return await AsyncMemoryStore.open(folder, model=None, clock=clock)


def test_sessions_come_in_pages_of_a_hundred(browse):
    """The links of one page lead to the next one and back, and every session is on one of them."""

    def fill(store):
        for number in range(2 * ROWS_MAX + 30):
            store.session(f"s{number:03}", scope="even" if number % 2 == 0 else "odd")

    browser = browse(fill)
    first = browser.json("/sessions")
    second = browser.json(f"/sessions?before={first['older']}")
    third = browser.json(f"/sessions?before={second['older']}")
    pages = [[item["session"] for item in page["sessions"]] for page in (first, second, third)]
    assert [len(page) for page in pages] == [100, 100, 30]
    assert [name for page in pages for name in page] == [f"s{number:03}" for number in range(229, -1, -1)]
    assert (first["newer"], third["older"]) == (None, None)
    back = browser.json(f"/sessions?after={third['newer']}")
    assert [item["session"] for item in back["sessions"]] == pages[1]
    assert [item["session"] for item in browser.json("/sessions?scope=odd")["sessions"]][:2] == ["s229", "s227"]
    assert "← Earlier" in browser.get("/sessions").text


def test_a_list_of_sessions_is_that_of_the_moment(browse):
    """As of an earlier position there are fewer sessions, with fewer turns."""

    def fill(store):
        first = store.session("first")
        first.record("user", "one")
        store.session("second").record("user", "two")
        first.record("user", "three")

    browser = browse(fill)
    now, then = browser.json("/sessions")["sessions"], browser.json("/sessions?at=2")["sessions"]
    assert [(item["session"], item["turns"]) for item in now] == [("second", 1), ("first", 2)]
    assert [(item["session"], item["turns"]) for item in then] == [("first", 1)]


def test_a_session_is_shown_as_it_was(browse, clock):
    """Turns, values, task and notes of then; a value that had expired then is marked."""

    def fill(store):
        trip = store.session("trip", title="A trip")
        trip.record("user", "to Porto?", speaker="Anna")
        trip.set("city", "Porto", ttl=60)
        trip.set_task("book a room", step=1, total=3)
        clock.time += timedelta(hours=1)
        trip.record("assistant", "No, to Lisbon.")
        trip.set("city", "Lisbon")
        trip.note("she likes the sea")

    browser = browse(fill)
    now = browser.json("/session?id=trip")
    assert [item["turn"]["text"] for item in now["turns"]] == ["to Porto?", "No, to Lisbon."]
    assert [(item["key"], item["value"], item["expired"]) for item in now["values"]] == [("city", "Lisbon", False)]
    assert [item["text"] for item in now["notes"]] == ["she likes the sea"]
    then = browser.json("/session?id=trip&at=4")
    assert [item["turn"]["text"] for item in then["turns"]] == ["to Porto?"]
    assert [(item["key"], item["value"], item["expired"]) for item in then["values"]] == [("city", "Porto", False)]
    assert then["notes"] == []
    assert then["task"]["description"] == "book a room"
    late = browser.json("/session?id=trip&at=5")
    assert [item["expired"] for item in late["values"]] == [True]
    assert "the agent did not see it" in browser.get("/session?id=trip&at=5").text
    between = clock.time - timedelta(minutes=30)
    for moment, expired in ((between, True), (clock.time - timedelta(minutes=59, seconds=30), False)):
        (value,) = browser.json(f"/session?id=trip&at={moment:%Y-%m-%dT%H:%M:%SZ}")["values"]
        assert (value["value"], value["expired"]) == ("Porto", expired)


@pytest.mark.parametrize(("earlier", "is_shown"), [(timedelta(milliseconds=1), False), (timedelta(days=1), True)])
def test_when_a_turn_was_recorded_is_shown_where_it_was_said_at_another_time(browse, clock, earlier, is_shown):
    clock.time += timedelta(milliseconds=500)
    console = browse(lambda store: store.session("s").record("user", "Hello.", said_at=clock.time - earlier))
    page = console.get("/session?id=s")
    assert ('<span class="recorded">' in page.text) is is_shown


def test_a_session_that_had_not_begun_says_when_it_did(browse):
    """Going back beyond the start of a session is no error."""
    browser = browse(lambda store: [store.session("a").record("user", "x"), store.session("b").record("user", "y")])
    page = browser.get("/session?id=b&at=2")
    assert page.status_code == 200
    assert "had not been started" in page.text
    assert "at=3" in page.text


def test_hidden_turns_are_greyed_with_the_reason(browse):
    """A rewound turn stays on the page, with what hid it; before the rewind it is not hidden."""

    def fill(store):
        talk = store.session("talk")
        for text in ("one", "two", "three"):
            talk.record("user", text)
        talk.rewind(turns=2)
        talk.record("user", "again")

    browser = browse(fill)
    turns = browser.json("/session?id=talk")["turns"]
    assert [(item["turn"]["text"], item["hidden"]) for item in turns] == [
        ("one", False),
        ("two", True),
        ("three", True),
        ("again", False),
    ]
    assert turns[1]["hidden_by"]["kind"] == "rewind"
    assert turns[1]["hidden_by"]["position"] == 5
    page = browser.get("/session?id=talk").text
    assert page.count("Hidden by the rewind at") == 2
    assert not any(item["hidden"] for item in browser.json("/session?id=talk&at=4")["turns"])


def test_a_branch_shows_what_it_inherited(browse):
    """Turns of the session that it was branched from are marked, also those hidden there before."""

    def fill(store):
        talk = store.session("talk")
        talk.record("user", "one")
        talk.record("user", "two")
        talk.rewind(turns=1)
        talk.branch("other").record("user", "three")
        talk.record("user", "not seen by the branch")

    turns = browse(fill).json("/session?id=other")["turns"]
    assert [(item["turn"]["text"], item["inherited"], item["hidden"]) for item in turns] == [
        ("one", True, False),
        ("two", True, True),
        ("three", False, False),
    ]
    assert turns[1]["hidden_by"]["kind"] == "rewind"


def test_a_long_conversation_comes_in_pages(browse):
    """The last hundred turns first, with the way to the earlier ones and back."""

    def fill(store):
        store.session("long").record_many([{"role": "user", "text": f"turn {number}"} for number in range(250)])

    browser = browse(fill)

    def texts(page):
        return [item["turn"]["text"] for item in page["turns"]]

    last = browser.json("/session?id=long")
    middle = browser.json(f"/session?id=long&before={last['earlier']}")
    first = browser.json(f"/session?id=long&before={middle['earlier']}")
    assert (len(texts(last)), len(texts(middle)), len(texts(first))) == (TURNS_MAX, TURNS_MAX, 50)
    assert texts(first) + texts(middle) + texts(last) == [f"turn {number}" for number in range(250)]
    assert (first["earlier"], last["later"]) == (None, None)
    assert texts(browser.json(f"/session?id=long&after={first['later']}")) == texts(middle)


def test_a_text_of_a_megabyte_is_cut_with_a_link_to_its_event(browse):
    """A page stays small, and the whole text is one link away."""
    browser = browse(lambda store: store.session("big").record("user", "x" * 1_000_000 + " the end"))
    page = browser.get("/session?id=big").text
    assert len(page) < 60_000
    assert "the end" not in page
    assert 'href="/event/2">the whole event' in page
    event = browser.get("/event/2").text
    assert len(event) < 200_000
    assert browser.json("/event/2")["stored"]["event"]["text"].endswith("the end")


def test_a_session_id_may_be_any_text(browse):
    """Ids with slashes, dots and question marks are found by the links to them."""
    ids = ["acme/alice/trip", "..", "a?b#c&d", "%2e%2e", "ü ö"]
    browser = browse(lambda store: [store.session(name) for name in ids])
    page = browser.get("/sessions").text
    for name in ids:
        link = next(
            part.split('"')[0].replace("&amp;", "&")
            for part in page.split('href="')
            if part.startswith("/session?id=") and browser.json(part.split('"')[0])["session"] == name
        )
        assert browser.get(link).status_code == 200, name


def test_an_unknown_session_is_not_found(browse):
    """A page for an unknown session says so."""
    page = browse(lambda store: store.session("known")).get("/session?id=unknown")
    assert page.status_code == 404


def test_an_event_is_shown_as_stored_with_its_proof(browse):
    """Its fields, its digest, and whether that matches."""
    browser = browse(lambda store: store.session("a").record("user", "hello", key="k1"))
    event = browser.json("/event/2")
    assert (event["stored"]["topic"], event["stored"]["key"], event["stored"]["link_holds"]) == (
        "turn.recorded.v1",
        "k1",
        True,
    )
    assert event["stored"]["event"]["text"] == "hello"
    assert "matches what is stored" in browser.get("/event/2").text
    assert browser.get("/event/3").status_code == 400


def test_a_hundred_thousand_turns_do_not_slow_a_page(browse, monkeypatch):
    """However long a log is, a page reads a hundred turns or a thousand events of it, not all."""
    read = []

    def counted(kind, name):
        method = getattr(kind, name)

        def call(*given):
            found = method(*given)
            read.extend(found if isinstance(found, list) else [found])
            return found

        monkeypatch.setattr(kind, name, call)

    def fill(store):
        store.session("short", scope="small").record("user", "x")
        for _ in range(3):
            store.session("long").record_many([{"role": "user", "text": f"turn {n}"} for n in range(1_500)])
            store.session("long").rewind(turns=1)
        store.session("long").branch("branch")
        store.session("later", scope="small").record("user", "turn of a small scope")

    browser = browse(fill)
    scoped = Browser(console_app(browse.opened[-1].within("small", own_names=True)))
    asked = {
        browser: (
            *("/", "/sessions", "/session?id=long", "/session?id=branch", "/lineage", "/event/2000"),
            *("/live", "/live?scope=small", "/live?session=short", "/live?topic=session.started.v1"),
            *("/audit", "/audit?scope=small", "/audit?session=short", "/audit?topic=session.started.v1"),
            *("/recall?q=turn", "/context?q=turn", "/diff", "/health", "/forgetting?sessions=long"),
        ),
        scoped: (
            "/",
            "/sessions",
            "/live",
            "/live?scope=small",
            "/audit",
            "/recall?q=turn",
            "/context?q=turn",
            "/diff",
        ),
    }
    browser.get("/")
    counted(queries, "_turn")
    counted(EventCodec, "recorded_event")
    for someone, paths in asked.items():
        for path in paths:
            for moment in ("", "&at=3000" if "?" in path else "?at=3000"):
                read.clear()
                assert someone.get(path + moment).status_code == 200
                assert len(read) <= 1_100, (path, len(read))
    here = browser.json("/live?scope=small")
    assert [item["session"] for item in here["events"]] == ["later", "later", "short", "short"]
    assert (here["events"], here["complete"]) == (scoped.json("/live")["events"], True)
