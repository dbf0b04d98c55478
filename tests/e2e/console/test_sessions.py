"""The pages that show what is recorded: overview, sessions, lineage, events, and the live page without a script."""

import re
from datetime import timedelta
from urllib.parse import urlencode

import pytest

from mnemolog import MemoryStore, acting_as
from mnemolog.domain.values import to_datetime
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.operations.backup_files import note_failed_commands
from mnemolog.projections.sql import queries
from mnemolog.server.console import moment as moments
from mnemolog.server.console.sessions_page import ROWS_MAX, TURNS_MAX
from tests.console import console_app
from tests.e2e.console.conftest import LABEL
from tests.support import HashEncoder

pytestmark = pytest.mark.local


# Overview and live


def test_the_overview_says_what_a_memory_holds(reader):
    """Numbers by scope and agent: as of an earlier position those of then, and the health is that of now."""
    shown = reader.json("/")
    assert (shown["position"], shown["sessions"], shown["turns"]) == (12, 2, 4)
    scopes = [(item["name"], item["sessions"], item["turns"]) for item in shown["scopes"]]
    assert scopes == [("acme/alice", 1, 3), ("acme/bob", 1, 1)]
    assert {item["name"] for item in shown["agents"]} == {"guide", LABEL}
    assert [item["position"] for item in shown["latest"]] == list(range(12, 2, -1))
    assert (shown["warnings"], shown["stale"]) == ([], [])
    assert "Nothing needs you:" in reader.get("/").text
    then = reader.json("/?at=4")
    assert (then["position"], then["sessions"], then["turns"]) == (4, 1, 1)
    assert [item["position"] for item in then["latest"]] == [4, 3, 2, 1]
    assert "Nothing needs you now:" in reader.get("/?at=4").text
    bob = reader.json("/?scope=acme/bob")
    assert (bob["sessions"], bob["turns"], [item["position"] for item in bob["latest"]]) == (1, 1, [12, 11, 10])
    assert bob["questions"] == []
    assert reader.json("/?at=0")["sessions"] == 0


def test_the_overview_names_what_is_stale_and_the_request_that_mends_it(tmp_path, opened):
    """Vectors with a damaged manifest."""
    encoder = HashEncoder()
    with MemoryStore.open(tmp_path / "store", model=encoder) as filled:
        filled.session("a").record("user", "x")
        filled.rebuild("vectors")
    for manifest in (tmp_path / "store").rglob("manifest.json"):
        manifest.write_bytes(b"damaged")
    console = opened(tmp_path / "store", model=encoder)
    (stale,) = console.json("/")["stale"]
    assert "vectors" in stale["name"]
    assert "`POST /v1/doctor`" in stale["action"]
    assert "To mend it" in console.get("/").text


def test_the_overview_asks_the_last_questions_again(store, console):
    """Each once, and those with another answer now first: the best turn of then, and that of now or of the moment."""
    trip = store.session("trip", scope="acme/alice")
    trip.record("user", "I drink tea.")
    for question in ("What does she drink?", "Is there a beagle?", "What does she drink?", "I drink tea."):
        trip.recall(question, 1, receipt=True, asked="keep", min_relevance=0)
    trip.record("user", "What does she drink? I drink coffee.")
    store.recall("coffee", receipt=True)
    found = console.json("/")["questions"]
    assert [item["receipt"]["position"] for item in found] == [5, 8, 6, 4]
    assert [item["differs"] for item in found] == [True, False, False, False]
    assert [found[0][when]["text"] for when in ("then", "now")] == [
        "I drink tea.",
        "What does she drink? I drink coffee.",
    ]
    assert "answered otherwise now" in console.get("/?ask=yes").text
    assert 'hx-get="/?ask=yes"' in console.get("/").text
    assert [item["differs"] for item in console.json("/?at=6")["questions"]] == [False] * 3
    assert "Then, and the same now" in console.get("/?ask=yes").text
    store.recall("And sugar?", scope="acme/alice", receipt=True)
    trip.context("And sugar?", receipt=True)
    assert [item["receipt"]["query"] for item in console.json("/")["questions"]].count("And sugar?") == 1


def test_the_overview_says_what_changed_since_the_last_visit(store, console, monkeypatch):
    """Of the same browser: a visit ends with a pause, and pages within it do not move its beginning."""
    store.session("a").record("user", "before")
    assert console.json("/")["changed"] is None
    console.get("/")
    console.run(console.store.record("a", "user", "while the page is open"))
    console.get("/sessions")
    assert console.json("/")["changed"]["turns"] == 1
    monkeypatch.setattr(moments, "PAUSE", timedelta(0))
    console.get("/")
    monkeypatch.undo()
    console.run(console.store.start_session("b"))
    console.run(console.store.record("b", "user", "after the pause"))
    changed = console.json("/")["changed"]
    assert (changed["turns"], changed["sessions"]) == (1, 1)
    assert f'href="/diff?from={changed["since"]}">1 turn in 1 session' in console.get("/").text
    for wrong in ("1-2-3", "a-b-c-d", "1-99999999999-1-1", "99-1-99-1"):
        console.cookies.clear()
        console.cookies.set(moments.VISIT_COOKIE, wrong)
        assert console.json("/")["changed"] is None, wrong


def test_the_overview_names_tokens_that_end_soon_and_backups_that_were_not_copied(store, console, tmp_path):
    """To callers who may do something about it."""
    store.backup(tmp_path / "backup")
    note_failed_commands(store.path, 2)
    ends = {"ann": timedelta(days=3), "bob": timedelta(days=90)}
    for who, end in ends.items():
        store.admin.create_token(who, verbs=("read",), expires_in=end)
    warnings = console.json("/")["warnings"]
    assert ["after the last 2 backups failed" in warnings[0], "of ann ends in" in warnings[1]] == [True, True]
    assert set(warnings) <= set(console.json("/health")["says"])
    assert console.as_caller("read").json("/")["warnings"] == []


def test_the_live_page_has_the_newest_events_without_a_script(reader):
    """Newest first, with filters and a link to reload; as of an earlier moment, those of then."""
    assert "Reload" in reader.get("/live").text
    for query, positions, tail in (
        ("", range(12, 0, -1), "/v1/tail?after=12"),
        ("?at=2", (2, 1), ""),
        ("?scope=acme/bob", (12, 11, 10), "/v1/tail?after=12&scope=acme%2Fbob"),
        ("?session=bad", (12, 11, 10), "/v1/tail?after=12&session=bad"),
        ("?topic=turn.recorded.v1", (11, 9, 5, 4), "/v1/tail?after=12&topics=turn.recorded.v1"),
    ):
        shown = reader.json(f"/live{query}")
        assert [item["position"] for item in shown["events"]] == list(positions), query
        assert shown["tail"] == tail
    assert reader.get("/live?session=unknown").status_code == 404


# The list of sessions


def test_sessions_come_in_pages_of_a_hundred(store, console):
    """The links of one page lead to the next one and back, and every session is on one of them."""
    for number in range(2 * ROWS_MAX + 30):
        store.session(f"s{number:03}", scope="even" if number % 2 == 0 else "odd")
    first = console.json("/sessions")
    second = console.json(f"/sessions?before={first['earlier']}")
    third = console.json(f"/sessions?before={second['earlier']}")
    pages = [[item["session"] for item in page["sessions"]] for page in (first, second, third)]
    assert [len(page) for page in pages] == [100, 100, 30]
    assert [name for page in pages for name in page] == [f"s{number:03}" for number in range(229, -1, -1)]
    assert (first["later"], third["earlier"]) == (None, None)
    back = console.json(f"/sessions?after={third['later']}")
    assert [item["session"] for item in back["sessions"]] == pages[1]
    assert [item["session"] for item in console.json("/sessions?scope=odd")["sessions"]][:2] == [
        "s229",
        "s227",
    ]
    assert "← Earlier" in console.get("/sessions").text


def test_the_search_leads_to_what_is_meant(store, console):
    """An event, a session, a scope, a time on the page where it was typed; else the phrase, also in quotation marks."""
    with acting_as("ada"):
        store.session("call 7", scope="acme/support").record("user", "The window is 90 days, all day today.")
    store.assert_fact("user/city", "Porto", scope="acme/support")
    for words, leads_to in (
        ("@2", "/event/2?scope=acme"),
        ("2", "/event/2?scope=acme"),
        ("call 7", "/session?scope=acme&id=call+7"),
        ("acme/support", "/sessions?scope=acme%2Fsupport"),
        ("16 March 2026", "/live?at=2026-03-16T23%3A59%3A59.999999Z&scope=acme&topic=x"),
        ("user/city", "/facts?scope=acme&pattern=user%2Fcity"),
        ("ada", "/audit?scope=acme&actor=ada"),
        ('"ada"', "/sessions?scope=acme&q=ada"),
        ("90 days", "/sessions?scope=acme&q=90+days"),
        ('"today"', "/sessions?scope=acme&q=today"),
        ("@99", "/sessions?scope=acme&q=%4099"),
        ("", "/sessions?scope=acme"),
    ):
        sent = console.get("/search?" + urlencode({"q": words, "scope": "acme", "here": "/live?scope=acme&topic=x"}))
        assert (sent.status_code, sent.headers["location"]) == (303, leads_to), words
    for words, name, found in (("CITY", "keys", ["user/city"]), ("AD", "actors", ["ada"])):
        assert console.json(f"/sessions?q={words}")["found"][name] == found
        assert console.json(f"/sessions?q={words}&scope=acme/sales")["found"][name] == []
        assert f"<bdi>{found[0]}</bdi></a>" in console.get(f"/sessions?q={words}").text
    assert console.get("/search?q=2+hours+ago&here=//evil.example/").headers["location"].startswith("/?at=")
    assert "3 April 2026 or 4 March 2026" in console.get("/search?q=3/4/2026").text


def test_a_phrase_is_found_exactly_with_the_number_of_turns(store, console):
    """As of the moment and in the scope; with the sessions and scopes whose names have it."""
    for scope in ("acme", "tea/shop"):
        store.session(f"{scope}/a cup of tea", scope=scope).record_many(
            [{"role": "user", "text": f"{'x' * 500} Green TEA {'y' * 500}"}, {"role": "user", "text": "te a"}]
        )
    page = console.json("/sessions?q=tea")
    assert (page["found"]["turns"], page["found"]["scopes"], len(page["sessions"])) == (
        2,
        ["tea", "tea/shop"],
        2,
    )
    (newest, _) = page["found"]["newest"]
    assert (newest["position"], newest["phrase"]) == (5, "TEA")
    assert newest["before"].endswith(" Green ")
    assert "2 turns with exactly this phrase" in console.get("/sessions?q=tea").text
    assert console.json("/sessions?q=tea&at=3")["found"]["turns"] == 1
    assert console.json("/sessions?q=tea&scope=acme")["found"]["turns"] == 1


def test_a_scope_holds_on_every_page_or_is_said_not_to(reader):
    """One that no session is in is named, with the closest there are."""
    assert "No session is at or below the scope" in reader.get("/?scope=acme/alise").text
    assert "Did you mean" in reader.get("/?scope=acme/alise").text
    assert "No session is at or below" not in reader.get("/?scope=acme").text
    for path in ("/session?id=bad&", "/event/11?", "/health?", "/tokens?"):
        assert "The scope does not limit this page" in reader.get(f"{path}scope=acme/alice").text, path
    diff = reader.json("/diff?from=0&scope=acme/bob")
    assert (diff["kinds"], diff["switches"]) == ({"sessions started": 1, "turns said": 1, "values set": 1}, [])
    assert '<option value="acme/alice">' in reader.get("/").text


# Facts


def test_facts_are_those_of_the_moment_with_what_they_replaced(store, console, clock):
    """And the history of a key: what became of each assertion, and the turns that it rests on."""
    clock.step = 1_000_000
    chat = store.session("chat", scope="acme/alice")
    heard = chat.record("user", "I live in Porto.")
    wrong = chat.assert_fact("user/city", "Porto", valid_from="2020-01-01", because=[heard])
    chat.assert_fact("user/city", "Lisbon", valid_from="2021-01-01", maker="<b>extractor")
    store.assert_fact("team/size", 3, scope="acme")
    store.retract_fact(wrong, reason="misheard")
    now, then = console.json("/facts")["facts"], console.json("/facts?at=4")["facts"]
    assert [(item["fact"]["key"], item["fact"]["value"], item["replaced"]) for item in now] == [
        ("team/size", 3, None),
        ("user/city", "Lisbon", None),
    ]
    assert [(item["fact"]["value"], item["replaced"]["value"]) for item in then] == [("Lisbon", "Porto")]
    assert [item["fact"]["key"] for item in console.json("/facts?scope=acme/alice")["facts"]] == ["user/city"]
    assert [item["fact"]["key"] for item in console.json("/facts?pattern=team/*")["facts"]] == ["team/size"]
    history = console.json("/facts?key=user/city&of=acme/alice")["facts"]
    assert [(item["fact"]["value"], item["fact"]["state"]) for item in history] == [
        ("Lisbon", "holds"),
        ("Porto", "retracted"),
    ]
    html = console.get("/facts?key=user/city&of=acme/alice").text
    assert "&lt;b&gt;extractor" in html
    assert 'href="/event/2"' in html
    assert 'href="/facts?of=acme%2Falice&amp;key=user%2Fcity">History of this fact' in console.get("/event/3").text


# One session


def test_a_session_is_shown_as_it_was(store, console, clock):
    """Turns, values, task and notes of then; a value that had expired then is marked."""
    clock.step = 0
    trip = store.session("trip", title="A trip")
    trip.record("user", "to Porto?", speaker="Anna")
    trip.set("city", "Porto", ttl=60)
    trip.set_task("book a room", step=1, total=3)
    clock.advance(seconds=3_600)
    trip.record("assistant", "No, to Lisbon.")
    trip.set("city", "Lisbon")
    trip.note("she likes the sea")
    now = console.json("/session?id=trip")
    assert [item["turn"]["text"] for item in now["turns"]] == ["to Porto?", "No, to Lisbon."]
    assert [(item["key"], item["value"], item["expired"]) for item in now["values"]] == [("city", "Lisbon", False)]
    assert [item["text"] for item in now["notes"]] == ["she likes the sea"]
    then = console.json("/session?id=trip&at=4")
    assert [item["turn"]["text"] for item in then["turns"]] == ["to Porto?"]
    assert [(item["key"], item["value"], item["expired"]) for item in then["values"]] == [("city", "Porto", False)]
    assert (then["notes"], then["task"]["description"]) == ([], "book a room")
    assert [item["expired"] for item in console.json("/session?id=trip&at=5")["values"]] == [True]
    assert "the agent did not see it" in console.get("/session?id=trip&at=5").text
    end = to_datetime(clock.now())
    for minutes, expired in ((30, True), (59.5, False)):
        moment = end - timedelta(minutes=minutes)
        (value,) = console.json(f"/session?id=trip&at={moment:%Y-%m-%dT%H:%M:%SZ}")["values"]
        assert (value["value"], value["expired"]) == ("Porto", expired)


def test_when_a_turn_was_recorded_is_shown_where_it_was_said_at_another_time(store, console, clock):
    """A difference of less than a second is not shown."""
    clock.step, now = 0, to_datetime(clock.now())
    for name, earlier in (("at once", timedelta(0)), ("later", timedelta(days=1))):
        store.session(name).record("user", "Hello.", said_at=now - earlier)
    assert '<span class="recorded">' not in console.get("/session?id=at+once").text
    assert '<span class="recorded">' in console.get("/session?id=later").text


def test_before_a_session_began_it_is_not_listed_and_its_page_says_when_it_did(store, console):
    """As of an earlier position there are fewer sessions, with fewer turns. Going back beyond the start is no error."""
    first = store.session("first")
    first.record("user", "one")
    store.session("second").record("user", "two")
    first.record("user", "three")
    now, then = console.json("/sessions")["sessions"], console.json("/sessions?at=2")["sessions"]
    assert [(item["session"], item["turns"]) for item in now] == [("second", 1), ("first", 2)]
    assert [(item["session"], item["turns"]) for item in then] == [("first", 1)]
    page = console.get("/session?id=second&at=2")
    assert page.status_code == 200
    assert "had not been started" in page.text
    assert "at=3" in page.text


def test_what_was_asked_stands_between_the_turns(store, console):
    """For the session, or in a scope that it is in; not for others. As of then, and on each page of a long session."""
    trip = store.session("trip", scope="acme/alice")
    trip.record("user", "What do I drink?")
    trip.recall("drink", receipt=True)
    trip.context("drink", 100, receipt=True)
    trip.record("assistant", "Tea.")
    for number in range(5):
        store.recall(f"asked above {number}", scope="acme", receipt=True)
    store.recall("asked beside", scope="acme/bob", receipt=True)
    store.session("other", scope="acme/alice").recall("asked for another", receipt=True)
    trip.branch("branch").recall("asked for the branch", receipt=True)
    trip.record_many([{"role": "user", "text": f"turn {number}"} for number in range(TURNS_MAX)])

    def asked(address):
        page = console.json(address)
        return [
            ([receipt["query"] for receipt in item["receipts"]], item["left_out"])
            for item in (*(turn["asked"] for turn in page["turns"]), page["asked"])
            if item["receipts"]
        ]

    drink, above = (["drink", "drink"], 0), ([f"asked above {number}" for number in (2, 3, 4)], 2)
    last = console.json("/session?id=trip")
    assert asked("/session?id=trip") == [above]
    assert asked(f"/session?id=trip&before={last['earlier']}") == [drink]
    assert asked("/session?id=trip&turn=5") == [drink, above]
    assert asked("/session?id=trip&at=3") == [(["drink"], 0)]
    assert asked("/session?id=branch&at=5") == []
    assert asked("/session?id=branch") == [drink, ([*above[0], "asked for the branch"], 2)]
    html = console.get("/session?id=trip&turn=5").text
    assert 'href="/recall/receipts/4"' in html
    assert 'href="/recall/receipts?turn=2">Shown by' in html
    then = console.get("/session?id=trip&at=2").text
    assert 'href="/recall/receipts?turn=2">Who else was shown this?' in then, "also who was shown it later"
    assert re.search(r"<q[^>]*>drink</q>: 1 turn found", html)
    assert "Asked meanwhile by others: 2" in html


def test_hidden_and_inherited_turns_are_marked_with_the_reason(store, console):
    """A rewound turn stays on the page, with what hid it; before the rewind it is not hidden. So on a branch."""
    talk = store.session("talk")
    for text in ("one", "two", "three"):
        talk.record("user", text)
    talk.rewind(turns=2)
    talk.branch("other").record("user", "four")
    talk.record("user", "again")
    turns = console.json("/session?id=talk")["turns"]
    assert [item["turn"]["text"] for item in turns] == ["one", "two", "three", "again"]
    assert [item["hidden"] for item in turns] == [False, True, True, False]
    assert (turns[1]["hidden_by"]["kind"], turns[1]["hidden_by"]["position"]) == ("rewind", 5)
    assert console.get("/session?id=talk").text.count("Hidden by the rewind at") == 2
    assert not any(item["hidden"] for item in console.json("/session?id=talk&at=4")["turns"])
    turns = console.json("/session?id=other")["turns"]
    assert [item["turn"]["text"] for item in turns] == ["one", "two", "three", "four"]
    assert [item["inherited"] for item in turns] == [True, True, True, False]
    assert [item["hidden"] for item in turns] == [False, True, True, False]
    assert turns[1]["hidden_by"]["kind"] == "rewind"


def test_a_long_conversation_comes_in_pages(store, console):
    """The last hundred turns first, with links to the earlier ones and back."""
    turns = [{"role": "user", "text": f"turn {number}"} for number in range(250)]
    store.session("long").record_many(turns)

    def texts(page):
        return [item["turn"]["text"] for item in page["turns"]]

    last = console.json("/session?id=long")
    middle = console.json(f"/session?id=long&before={last['earlier']}")
    first = console.json(f"/session?id=long&before={middle['earlier']}")
    assert (len(texts(last)), len(texts(middle)), len(texts(first))) == (TURNS_MAX, TURNS_MAX, 50)
    assert texts(first) + texts(middle) + texts(last) == [f"turn {number}" for number in range(250)]
    assert (first["earlier"], last["later"]) == (None, None)
    assert texts(console.json(f"/session?id=long&after={first['later']}")) == texts(middle)
    assert "Nothing more was said." in console.get("/session?id=long&after=251").text


def test_a_text_of_a_megabyte_is_cut_with_a_link_to_its_event(store, console):
    """A page stays small, and the whole text is one link away."""
    store.session("big").record("user", "x" * 1_000_000 + " the end")
    page = console.get("/session?id=big").text
    assert len(page) < 60_000
    assert "the end" not in page
    assert 'href="/event/2">the whole event' in page
    assert len(console.get("/event/2").text) < 200_000
    assert console.json("/event/2")["stored"]["event"]["text"].endswith("the end")


def test_a_session_id_may_be_any_text(store, console):
    """Ids with slashes, dots and question marks are found by the links to them."""
    ids = ["acme/alice/trip", "..", "a?b#c&d", "%2e%2e", "ü ö"]
    for name in ids:
        store.session(name)
    hrefs = [part.split('"')[0].replace("&amp;", "&") for part in console.get("/sessions").text.split('href="')]
    found = [console.json(href)["session"] for href in hrefs if href.startswith("/session?id=")]
    assert sorted(found) == sorted(ids)


def test_an_event_is_shown_as_stored_with_its_proof(store, console):
    """Its fields, its digest, and whether that matches."""
    store.session("a").record("user", "hello", key="k1")
    stored = console.json("/event/2")["stored"]
    assert (stored["topic"], stored["key"], stored["link_holds"]) == ("turn.recorded.v1", "k1", True)
    assert stored["event"]["text"] == "hello"
    assert "matches what is stored" in console.get("/event/2").text


# Lineage


def names(page):
    return [row["summary"]["session"] for row in page["rows"]]


def test_the_lineage_has_branches_rewinds_and_checkpoints(store, console):
    """Each session stands below its parent, indented, with what happened to it; as of any moment.

    A conversation with a rewind and a branch of a branch, and one without.
    """
    trip = store.session("trip", title="A trip", agent="guide")
    for text in ("one", "two", "three"):
        trip.record("user", text)
    trip.checkpoint("before the sea")
    trip.rewind(turns=1)
    other = trip.branch("trip/other")
    other.record("user", "four")
    other.branch("trip/third").end(reason="done")
    store.session("alone").record("user", "x")
    store.session("bad", title=LABEL).branch("bad 2", title=LABEL)
    page = console.json("/lineage?session=trip/other")
    root, branch, third = page["rows"]
    assert (names(page), [row["depth"] for row in page["rows"]]) == (
        ["trip", "trip/other", "trip/third"],
        [0, 1, 2],
    )
    assert [(mark["kind"], mark["position"], mark["to"], mark["detail"]) for mark in root["marks"]] == [
        ("checkpoint", 5, None, "before the sea"),
        ("rewind", 6, 3, ""),
    ]
    assert branch["summary"]["reason"] == "branch"
    assert third["summary"]["ended_at"] is not None
    assert third["marks"][0]["detail"] == "done"
    html = console.get("/lineage?session=trip/other").text
    assert [html.count(f'class="depth-{depth}"') for depth in range(4)] == [1, 1, 1, 0]
    whole, html = console.json("/lineage"), console.get("/lineage").text
    assert "<script>alert" not in html
    # The page without a session shows where branches are, the newest family first.
    assert names(whole) == ["bad", "bad 2", "trip", "trip/other", "trip/third"]
    assert "alone" not in html
    (row,) = console.json("/lineage?session=trip&at=5")["rows"]
    assert (row["summary"]["session"], len(row["marks"])) == ("trip", 1)
    assert console.json("/lineage?at=5")["rows"] == []


def test_a_long_chain_of_sessions_is_cut(store, console):
    """A family with more sessions than a page shows its first ones."""
    last = store.session("s0")
    for number in range(1, 130):
        last = last.branch(f"s{number}")
    assert names(console.json("/lineage?session=s129")) == [f"s{number}" for number in range(100)]


# The cost of a page


def test_a_long_log_does_not_slow_a_page(store, console, monkeypatch):
    """However long a log is, a page reads a hundred turns or a thousand events of it, not all."""
    read = []

    def counted(kind, name):
        method = getattr(kind, name)

        def call(*given):
            found = method(*given)
            read.extend(found if isinstance(found, list) else [found])
            return found

        monkeypatch.setattr(kind, name, call)

    store.session("short", scope="small").record("user", "x")
    for _ in range(3):
        store.session("long").record_many([{"role": "user", "text": f"turn {n}"} for n in range(1_500)])
        store.session("long").rewind(turns=1)
    store.session("long").branch("branch")
    store.session("later", scope="small").record("user", "turn of a small scope")
    scoped = console.of(console_app(console.store.within("small")))
    paths = {
        console: (
            *("/", "/sessions", "/session?id=long", "/session?id=branch", "/lineage", "/event/2000"),
            *("/live", "/live?scope=small", "/live?session=short", "/live?topic=session.started.v1"),
            *("/audit", "/audit?scope=small", "/audit?session=short", "/audit?topic=session.started.v1"),
            *("/recall?q=turn", "/context?q=turn", "/diff", "/health", "/forgetting?sessions=long"),
        ),
        scoped: (
            *("/", "/sessions", "/live", "/live?scope=small", "/audit", "/recall?q=turn", "/context?q=turn", "/diff"),
        ),
    }
    console.get("/")
    counted(queries, "_turn")
    counted(EventCodec, "recorded_event")
    for browser, shown in paths.items():
        for path in shown:
            for moment in ("", "&at=3000" if "?" in path else "?at=3000"):
                read.clear()
                assert browser.get(path + moment).status_code == 200
                assert len(read) <= 1_100, (path, len(read))
    here = console.json("/live?scope=small")
    assert [item["session"] for item in here["events"]] == ["later", "later", "short", "short"]
    assert (here["events"], here["complete"]) == (scoped.json("/live")["events"], True)
