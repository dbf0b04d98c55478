"""The pages that answer questions: recall and its receipts, the context preview, the difference of two moments.

Which answers of a period would be different today, and why: asked again in the background, and judged. Who asked
what for which answer, and who relied on a turn: on the pages of the console.
"""

import json
import re

import pytest

from mnemolog import MemoryStore, acting_as
from mnemolog.audit.effects import Reviewing
from mnemolog.domain.events import EVENT_TYPES
from mnemolog.server.console import history_page, rendering
from tests.console import opened_console
from tests.support import HashEncoder

pytestmark = pytest.mark.local


# Recall


def test_hits_show_the_parts_of_their_score_as_bars_and_mark_words_of_the_question(reader):
    """The longest bar is the largest part; where every turn starts has none. Words are marked with any ending."""
    marked = reader.json("/recall?q=drinking+teas")["hits"]
    assert {piece["text"] for hit in marked for piece in hit["passage"] if piece["matches"]} >= {"drink", "tea"}
    for hit in marked:
        assert "".join(piece["text"] for piece in hit["passage"]) == hit["hit"]["passage"]["text"]
    assert "<mark>drink</mark>" in reader.get("/recall?q=drinking+teas").text
    page = reader.json("/recall?q=tea+coffee")
    parts = [part for hit in page["hits"] for part in hit["parts"]]
    assert max(part["share"] for part in parts) == 1
    assert {part["share"] for part in parts if part["name"] == "base"} == {0}
    for hit in page["hits"]:
        assert hit["score"] == pytest.approx(sum(part["value"] for part in hit["parts"]))
    drawn = reader.get("/recall?q=tea+coffee").text.count('<svg class="part-bar')
    assert drawn == sum(part["share"] > 0 for part in parts)


def test_recall_says_which_search_answered_or_why_not(reader, made, clock, opened):
    """A mode that asks for one of them, and a store without a model."""
    assert [leg["answered"] for leg in reader.json("/recall?q=tea")["legs"]] == [True, True]
    assert [leg["answered"] for leg in reader.json("/recall?q=tea&mode=vector")["legs"]] == [False, True]
    without_model = opened(made, clock=clock)
    assert without_model.json("/recall?q=tea")["legs"][1]["says"] == "Meaning: no: only words were searched."
    assert "did not answer" in without_model.get("/recall?q=tea").text
    assert without_model.get("/recall?q=tea&mode=vector").status_code == 409


def test_the_answer_of_another_moment_is_shown_beside_that_of_now(reader):
    """What was not said yet, what came and went, and what moved."""
    compared = reader.json("/recall?q=what+does+she+drink%3F&then=5")["compared"]
    assert compared["there_head"] == 5
    later = {item["position"] for item in compared["here"] if item["change"] == "not yet"}
    assert later
    assert all(position > 5 for position in later)
    assert all(item["position"] <= 5 for item in compared["there"])
    assert "not said yet" in reader.get("/recall?q=what+does+she+drink%3F&then=5").text
    assert reader.json("/recall?q=beagle&then=12")["compared"]["is_same"]


def test_a_recall_of_the_console_uses_all_filters_and_leaves_no_receipt(reader):
    """Scope, session, lineage, roles, speakers, times, mode and relevance; the form keeps them, the log its events."""
    url = "/recall?q=tea&scope=acme&session=trip&lineage=yes&role=user&speaker=Alice&since=2020-01-01T00:00Z"
    url += "&until=2030-01-01T00:00Z&by=recorded&min_relevance=0.01&k=1"
    assert [hit["hit"]["speaker"] for hit in reader.json(url)["hits"]] == ["Alice"]
    html = reader.get(url).text
    for name, value in (
        ("session", "trip"),
        ("speaker", "Alice"),
        ("until", "2030-01-01 00:00"),
        ("min_relevance", "0.01"),
    ):
        assert f'id="f-{name}" name="{name}" ' in html
        assert f'value="{value}"' in html
    assert '<option value="recorded" selected>' in html
    assert reader.json("/diff")["after"] == 12
    for wrong in ("mode=magic", "by=hearsay", "role=king", "k=0", "k=x", "min_relevance=2", "min_relevance=much"):
        assert reader.get(f"/recall?q=tea&{wrong}").status_code == 400, wrong
    assert reader.get("/recall?q=tea&session=nobody").status_code == 404


def test_a_recorded_recall_is_repeated_then_and_now(reader):
    """The verdict in words, the turns of then, and those that today's answer has instead."""
    (listed,) = reader.json("/recall/receipts")["receipts"]
    assert (listed["query"], listed["turns"], listed["kind"]) == ("what does she drink?", [4, 5], "recall")
    path = f"/recall/receipts/{listed['position']}"
    page = reader.json(path)
    assert page["says"] == [
        "Asked again as of then, the memory gives the same answer.",
        "Asked today, the memory answers otherwise.",
    ]
    assert [turn["position"] for turn in page["now"]] != [4, 5]
    assert [turn["forgotten"] for turn in page["then"]] == [False, False]
    again = reader.json(f"/recall?q=what+does+she+drink%3F&at={page['audited']['head']}")
    assert [hit["hit"]["position"] for hit in again["hits"]][:2] == [turn["position"] for turn in page["then"]]
    assert re.search(r"class=\"warning\".*Asked today, the memory answers otherwise", reader.get(path).text, re.DOTALL)
    assert reader.get("/recall/receipts/3").status_code == 400
    assert reader.json(f"/recall/receipts?at={listed['position'] - 1}")["receipts"] == []


def test_a_context_with_a_receipt_shows_the_text_that_the_model_was_given(store, console):
    """The text of then, although she says something else since; and the turns that were in it, each with a link."""
    trip = store.session("trip", scope="acme/alice")
    trip.record("user", "I drink tea.")
    shown = trip.context("what does she drink?", 200, receipt=True)
    trip.record("user", "I drink coffee now.")
    page, html = console.json("/recall/receipts/3"), console.get("/recall/receipts/3").text
    assert (page["text"], page["audited"]["kind"], page["audited"]["session"]) == (shown.text, "context", "trip")
    assert page["says"][0] == "Asked again as of then, the memory gives the same answer."
    assert [turn["text"] for turn in page["then"]] == ["I drink tea."]
    assert 'href="/recall/receipts?turn=2"' in html
    assert 'href="/session?id=trip&amp;turn=2#p2"' in html
    assert 'href="/recall/receipts/3">Open the receipt' in console.get("/event/3").text


def test_a_turn_leads_to_every_recall_and_context_that_was_shown_it(store, console):
    """And to no other: newest first, a page of them at a time, with a filter for words of the question."""
    trip = store.session("trip", scope="acme")
    trip.record_many([{"role": "user", "text": "tea is nice"}, {"role": "user", "text": "a beagle"}])
    for number in range(130):
        store.recall(f"tea {number}", scope="acme", receipt=True, min_relevance=0)
    store.recall("beagle", scope="acme", receipt=True)
    trip.context("beagle", receipt=True)
    assert [item["query"] for item in console.json("/recall/receipts?turn=3")["receipts"]] == ["beagle"] * 2
    first = console.json("/recall/receipts?turn=2")
    rest = console.json(f"/recall/receipts?turn=2&before={first['earlier']}")
    found = [item["query"] for page in (first, rest) for item in page["receipts"]]
    assert found == [f"tea {number}" for number in reversed(range(130))]
    assert (first["about"]["text"], rest["earlier"]) == ("tea is nice", None)
    assert len(console.json("/recall/receipts?q=TEA+12")["receipts"]) == 11
    assert [item["kind"] for item in console.json("/recall/receipts?session=trip")["receipts"]] == ["context"]
    assert "No recall and no context" in console.get("/recall/receipts?turn=1").text


# The context preview


def test_the_context_preview_shows_each_block_with_its_tokens_and_what_was_left_out(reader):
    """As the prompt gets it: the text is that of a context of the library."""
    url = "/context?q=what+does+she+drink%3F&session=trip&tokens=120&min_relevance=0.3"
    page, html = reader.json(url), reader.get(url).text
    assert [block["kind"] for block in page["context"]["blocks"]][:3] == ["task", "value", "note"]
    places = [html.index(words) for words in ("the task", "a value", "a note", "Plan a trip")]
    assert places[:3] == sorted(places[:3])
    assert page["context"]["tokens"] <= 120
    reasons = {
        "no-room": "It did not fit into the budget.",
        "below-min-relevance": "It has too little to do with the question.",
        "repetition": "A later turn says the same.",
    }
    assert page["left_out"]
    for item in page["left_out"]:
        assert reasons[item["item"]["why"]] in html
    none = reader.json("/context?q=what+does+she+drink%3F&tokens=0")
    assert none["says"][0].startswith("The prompt would get nothing")
    assert reader.json("/context?q=tea&session=trip&at=4")["context"]["head"] == 4
    assert reader.json("/context?q=tea")["context"]["receipt"] is None


# The difference of two moments


def test_the_difference_of_two_moments_shows_turns_values_task_and_notes(reader):
    """Between positions or times, whichever is given first."""
    (trip,) = reader.json("/diff?from=6&to=9")["sessions"]
    assert trip["values"] == [{"key": "city", "change": "changed", "before": "Porto", "after": "Lisbon"}]
    assert [note["text"] for note in trip["notes_added"]] == ["Rex is a beagle."]
    assert [turn["text"] for turn in trip["turns"]] == ["I drink coffee now, no tea any more."]
    assert reader.json("/diff?from=9&to=6")["swapped"]
    assert reader.json("/diff?from=0&to=2020-01-01")["says"][0].startswith("Nothing happened")
    assert reader.json("/diff?at=3")["after"] == 3
    assert "Lisbon" in reader.get("/diff?from=6&to=9").text
    assert [session["session"] for session in reader.json("/diff?from=0&scope=acme/bob")["sessions"]] == ["bad"]
    assert reader.get("/diff?from=99999").status_code == 400


def test_the_difference_of_two_moments_shows_facts_of_the_scope(store, console):
    """With what they were; of other scopes none."""
    store.retract_fact(store.assert_fact("user/tea", "<b>green", scope="acme/alice"))
    (tea,) = console.json("/diff?from=1&scope=acme")["facts"]
    assert (tea["key"], tea["change"], tea["before"], tea["after"]) == ("user/tea", "retracted", "<b>green", None)
    assert console.json("/diff?from=0&to=1&scope=acme/bob")["facts"] == []
    assert "&lt;b&gt;green" in console.get("/diff?from=1").text


def test_moments_that_are_far_apart_are_not_compared(reader, monkeypatch):
    """The page says how far, and what compares them."""
    monkeypatch.setattr(history_page, "FAR_EVENTS", 5)
    assert reader.get("/diff?from=6&to=11").status_code == 200
    refused = reader.json("/diff?from=6&to=12")
    assert (refused["status"], "6 events" in refused["detail"], "mnemolog diff" in refused["hint"]) == (400, True, True)


def test_every_kind_of_event_has_words_of_its_own():
    assert set(rendering.KINDS) == set(EVENT_TYPES)
    assert len(set(rendering.KINDS.values())) == len(EVENT_TYPES)


CAUSES = {
    "window": ["distrusted"],
    "tea": ["superseded"],
    "boat": ["said since"],
    "quay": ["hidden"],
    "the window again": ["distrusted"],
}
"""What was asked of `acme/nora`, and why it is answered otherwise today."""
TOPICS = ("tea", "window", "boat", "same", "gate", "lost")


@pytest.fixture
def asked(store):
    """A memory that has changed since it was asked. Returns the positions of turns and of receipts, by topic."""
    call, quay = store.session("call", scope="acme/nora"), store.session("quay", scope="acme/nora")
    at = {topic: call.record("tool", f"About the {topic}.").position for topic in TOPICS}
    at["quay"] = quay.record("tool", "About the quay.").position
    call.assert_fact("drink", "tea", because=[at["tea"]])
    for topic in TOPICS:
        at[f"asked {topic}"] = store.recall(topic, scope="acme/nora", asked_in=call, receipt=True).receipt
        at[f"answer {topic}"] = call.record("assistant", f"Number {len(at)}.").position
    call.assert_fact("days", 90, because=[at["answer window"]])
    quay.recall("quay", receipt=True)
    call.context("the window again", 200, scope="acme/nora", receipt=True)
    other = store.session("other", scope="acme/bob")
    other.record("user", "A barge.")
    store.recall("barge", scope="acme/bob", receipt=True)
    call.assert_fact("drink", "water", because=[call.record("user", "Only water now.").position])
    store.distrust(positions=[at["window"]], reason="wrong")
    store.forget(positions=[at["gate"], at["asked lost"]], questions=False)
    quay.rewind(turns=1)
    call.record("user", "The boat, the boat.")
    other.record("user", "The barge, the barge.")
    return at


def ask(browser, **fields):
    """The page of a review."""
    return browser.follow(browser.submit("/review", {"from": "0"} | fields))


def found(page):
    """The causes by question, in the order of the page."""
    return {item["receipt"]["query"]: [of["cause"] for of in item["changed"]["reasons"]] for item in page["answers"]}


def test_answers_that_would_be_others_are_listed_with_the_reason(asked, store, console):
    """Those that most relied on come first; none that is the same; in the period and scope; no question leaves a
    receipt.
    """
    head = store.head()
    page = ask(console)
    assert found(page) == CAUSES | {"barge": ["said since"]}
    first, review = page["answers"][0]["changed"], page["review"]
    assert (first["position"], first["answer"]) == (asked["asked window"], asked["answer window"])
    assert (first["relied"], page["answers"][1]["changed"]["relied"]) == (2, 0)
    assert (review["asked"], review["forgotten"], review["more"]) == (7, 2, None)
    assert page["open"]["audited"]["position"] == asked["asked window"]
    period = {"from": asked["asked tea"], "to": asked["asked window"]}
    assert found(ask(console, **period)) == {"window": ["distrusted"]}
    nora = ask(console.as_caller("read", scope="acme/nora"))
    assert (found(nora), nora["review"]["forgotten"]) == (CAUSES, None)
    assert store.head() == head


def test_one_answer_after_the_other_is_judged(asked, store, console):
    """Without a script: the form leads to the next, and the list says which were judged."""
    writer = console.at_console(write=True)
    started = writer.submit("/review", {"from": "0"}).headers["location"]
    for topic in ("window", "tea"):
        page = writer.json(started)
        assert page["open"]["audited"]["query"] == topic
        onward = f"{started}?receipt={page['next']}"
        assert f'name="next" value="{onward}"' in writer.get(started).text
        fields = {"receipt": page["open"]["audited"]["position"], "bad": asked[topic], "next": onward}
        assert writer.submit("/recall/judge", fields).headers["location"] == onward
    assert [item["judged"] for item in writer.json(started)["answers"]] == [True, True, False, False, False, False]
    assert [item["judged"] for item in ask(writer)["answers"]].count(True) == 2
    store.forget(positions=[asked["asked boat"]], questions=False)
    forgotten = writer.json(f"{started}?receipt={asked['asked boat']}")
    assert (forgotten["open"], [item["receipt"] for item in forgotten["answers"]].count(None)) == (None, 1)


def test_a_long_period_is_asked_in_parts_and_leaves_one_line_of_reads(asked, store, tmp_path, monkeypatch):
    """The line is that of the page, with what it shows; progress and questions that are asked again leave none."""
    monkeypatch.setattr(Reviewing.review, "__kwdefaults__", {"limit": 2, "progress": None})
    reads = tmp_path / "reads.jsonl"
    store.close()
    with opened_console(store.path, audit_reads=reads) as console:
        page = ask(console)
        assert (page["review"]["asked"], page["review"]["more"]) == (2, asked["asked window"])
        (line,) = map(json.loads, reads.read_text().splitlines())
        assert line["operation"] == "console /review/{job}"
        assert [asked["window"]] * 2 in line["positions"]
        assert found(ask(console, after=page["review"]["more"])) == {"boat": ["said since"]}


def test_an_answer_of_another_model_says_so(folder, opened):
    """And one that only the vectors of a model that is not here can give is unknown."""
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        call = store.session("call")
        for number in range(9):
            call.record("user", f"Ship {number} sails at {number}.")
        store.admin.catch_up_vectors()
        store.recall("when does it sail", 3, mode="vector", receipt=True)
        other = HashEncoder(fingerprint="other", dimension=8)
        store.models.add(other)
        store.models.activate(other)
    assert found(ask(opened(folder, model=other))) == {"when does it sail": ["another model"]}
    (item,) = ask(opened(folder))["answers"]
    assert (item["changed"]["reasons"], "model" in item["changed"]["unknown"]) == ([], True)


def test_what_others_asked_is_folded_and_a_turn_leads_both_ways(store, console):
    """However many others ask in its scope; where nobody said for which session, the line says so."""
    call = store.session("call", scope="acme/nora")
    with acting_as("agent"):
        bad = call.record("tool", "The kettle is fine.").position
        store.recall("the kettle", scope="acme", asked_in=call, receipt=True)
        store.recall("near it", scope="acme/nora", receipt=True)
    for number in range(30):
        store.recall(f"report {number}", scope="acme/nora", receipt=True)
    with acting_as("agent"):
        answer = call.record("assistant", "Yes: quince.").position
    asked = console.json("/session?id=call")["turns"][1]["asked"]
    assert [item["query"] for item in asked["receipts"]] == ["the kettle", "near it"]
    assert (len(asked["others"]), asked["others"][-1]["query"], asked["left_out"]) == (20, "report 29", 30)
    html = console.get("/session?id=call").text
    assert html.count("not for which session it was") == 1
    assert "Asked meanwhile by others: 30" in html
    page = f"/recall/receipts?turn={bad}"
    shown = [
        "quince" in console.get(page + more).text for more in ("", f"&at={answer - 1}", f"&at={bad - 1}", "&format=csv")
    ]
    assert shown == [True, False, False, True]
    assert [item["query"] for item in console.json(f"/recall/receipts?turn={answer}")["asked"]] == ["the kettle"]


def test_hits_of_a_receipt_are_judged(writer, reader):
    """Yes, no and a better one, by who may record, where the console may write."""
    found = writer.run(writer.store.recall("what does she drink?", 1, mode="text", receipt=True))
    url, hit = f"/recall/receipts/{found.receipt}", found.hits[0].position
    fields = {"receipt": found.receipt, "bad": hit, "better": 4 if hit != 4 else 5}
    shown = ['action="/recall/judge"' in who.get(url).text for who in (writer, reader)]
    assert shown == [True, False]
    assert reader.submit("/recall/judge", fields).status_code == 403
    assert writer.submit("/recall/judge", fields).headers["location"] == f"{url}?judged=yes"
    (judged,) = writer.run(writer.store.audit.judgements())
    assert (judged.good, judged.bad) == ((fields["better"],), (hit,))


def test_the_ways_out_are_forms_on_the_page_of_a_turn(writer, reader):
    """Judge a hit, correct a fact, distrust, forget: each for who has its verb, where the console may write."""
    store, run, turn = writer.store, writer.run, 4
    found = run(store.recall("drink", 3, mode="text", receipt=True))
    other = next(hit.position for hit in found.hits if hit.position != turn)
    run(store.audit.judge(found.receipt, bad=[other]))
    how = {"scope": "acme/alice", "because": [turn], "valid_from": "2020-01-01"}
    heard, _ = (run(store.assert_fact("user/drink", "tea", **how)) for _ in range(2))
    page = f"/recall/receipts?turn={turn}"
    fields = {
        "/recall/judge": {"receipt": found.receipt, "good": turn, "beside": "yes"},
        "/facts/correct": {"key": "user/drink", "of": "acme/alice", "fact": heard.position, "value": "coffee"},
        "/distrust": {"positions": turn, "reason": "she was joking"},
    }
    for who, may in (
        (reader, set()),
        (writer.as_caller("read"), set()),
        (writer.as_caller("read", "record"), {"/recall/judge", "/facts/correct"}),
        (writer.as_caller("read", "record", scope="acme"), {"/facts/correct"}),
        (writer.as_caller("read", "forget", scope="acme"), {"/distrust"}),
        (writer, set(fields)),
    ):
        html = who.get(page).text
        assert {path for path in fields if f'action="{path}"' in html} == may
        assert ("/forgetting?positions=4" in html) == ("/distrust" in may)
        refused = {path for path in fields if who.submit(path, fields[path]).status_code == 403} if not may else set()
        assert refused == (set() if may else set(fields))
    for path in fields:
        assert writer.submit(path, {**fields[path], "next": page}).headers["location"] == page
    (judged,) = run(store.audit.judgements())
    assert (judged.good, judged.bad) == ((turn,), (other,)), "what else was judged of it stays"
    said = run(store.fact_history("user/drink", scope="acme/alice"))
    assert [(fact.value, fact.state) for fact in said] == [
        ("tea", "retracted"),
        ("tea", "retracted"),
        ("coffee", "holds"),
    ]
    assert {fact.valid_from for fact in said} == {heard.valid_from}
    assert turn not in [hit.position for hit in run(store.recall("drink", 3, mode="text")).hits]
    assert "she was joking" in writer.get("/session?id=trip").text
    assert 'action="/distrust/end"' in writer.get(page).text
    wrong = {"fact": said[-1].position, "value": "", "reason": "misheard"}
    assert writer.submit("/facts/correct", fields["/facts/correct"] | wrong).status_code == 303
    assert run(store.fact("user/drink", scope="acme/alice")) is None
    assert writer.submit("/facts/correct", fields["/facts/correct"] | {"fact": turn}).status_code == 400
