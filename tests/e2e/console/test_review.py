"""Which answers of a period would be different today, and why: asked again in the background, and judged."""

import json

import pytest

from mnemolog import MemoryStore
from mnemolog.audit.effects import Reviewing
from tests.console import opened_console
from tests.support import HashEncoder

pytestmark = pytest.mark.local
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
