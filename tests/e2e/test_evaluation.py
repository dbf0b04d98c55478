"""Measuring recall on a store of one's own: with questions from a file, and with judged receipts."""

from __future__ import annotations

import asyncio
import json
import re

import msgspec
import pytest

from mnemolog import AsyncMemoryStore, InvalidInput, MemoryStore, Weights
from mnemolog.adapters.support.store_access import log_of
from mnemolog.domain.events import RecallServed
from tests.support import HashEncoder

pytestmark = pytest.mark.local

SAID = {
    "garden": ("We planted tomatoes.", "Mine never ripen.", "The tomatoes are red now."),
    "music": ("The cello needs a bow.", "Who has planted the tomatoes?", "The concert is on Sunday."),
}
QUESTIONS = [
    {"question": "Which tomatoes are red?", "evidence": ["garden-2"], "category": "garden"},
    {"question": "Who planted tomatoes?", "evidence": ["garden-0", "garden-2"], "category": "garden", "note": "both"},
    {"question": "What does the cello need?", "scope": "acme/music", "evidence": ["music-0"], "category": "music"},
    {"question": "Where is the submarine?", "evidence": []},
]


def fill(store):
    for name, texts in SAID.items():
        session = store.session(name, scope=f"acme/{name}")
        for number, text in enumerate(texts):
            session.record("user", text, key=f"{name}-{number}")


@pytest.fixture
def talks(folder):
    """A closed store with two conversations, of words alone."""
    with MemoryStore.open(folder, model=None) as store:
        fill(store)
    return folder


@pytest.fixture
def questions(tmp_path):
    """A file of three questions with evidence, and one without."""
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, QUESTIONS)) + "\n\n")
    return file


def test_questions_with_known_evidence_measure_recall(talks, questions):
    """A hit where any evidence is among the first, the share of the evidence, and each turn's rank."""
    with MemoryStore.open(talks, model=None) as store:
        head = store.head()
        found = store.audit.evaluate(questions)
        assert store.head() == head
    assert (found.answerable, found.unanswerable, found.k) == (3, 1, 10)
    first, second, third, nothing = found.asked
    assert (first.ranks, third.ranks) == ((1,), (1,))
    assert len(second.evidence) == 2
    assert set(second.ranks) <= {1, 2, 3}
    assert (nothing.evidence, nothing.hits, nothing.relevance, nothing.is_missed) == ((), (), 0.0, False)
    assert first.relevance > 0
    assert found.overall.questions == 3
    assert set(found.overall.metrics) == {"hit@1", "hit@5", "hit@10", "evidence recall@10", "NDCG@10"}
    assert found.overall.metrics["hit@10"].mean == found.overall.metrics["evidence recall@10"].mean == 1.0
    assert {name: scores.questions for name, scores in found.categories.items()} == {"garden": 2, "music": 1}
    assert found.auroc.mean == 1.0
    assert 0 < found.p50_ms <= found.p95_ms
    assert found.missed == ()


def test_a_scope_bounds_the_question_and_its_evidence_and_what_was_not_found_is_listed(talks):
    """A turn of another scope can never be found, so it is no evidence. Dicts are taken like lines of a file."""
    missing = [
        {"question": "submarine", "evidence": ["garden-1"]},
        {"question": "tomatoes", "evidence": [2, "garden-1"]},
    ]
    with MemoryStore.open(talks, model=None) as store:
        found = store.audit.evaluate(missing, k=3)
        assert [item.question for item in found.missed] == ["submarine"]
        assert sorted(found.asked[1].ranks, key=str)[1] is None
        assert found.overall.metrics["evidence recall@3"].mean == 0.25
        assert (found.auroc, found.categories) == (None, {})
        found = store.audit.evaluate([{"question": "tomatoes", "scope": "acme/music", "evidence": ["music-1"]}])
        assert found.asked[0].hits == found.asked[0].evidence
        why = "line 1: evidence: no turn of scope 'acme/music' has the key 'garden-0'"
        with pytest.raises(InvalidInput, match=why):
            store.audit.evaluate([{"question": "tomatoes", "scope": "acme/music", "evidence": ["garden-0"]}])


def test_a_bad_line_is_an_error_with_its_number(talks, tmp_path, run):
    """Nothing is asked before all lines are read. No question, no file and a number of hits are errors too."""
    with MemoryStore.open(talks, model=None) as store:
        for name in SAID:
            store.record(name, "user", "the same key", key="t")
        file = tmp_path / "bad.jsonl"
        for line, why in BAD_LINES.items():
            file.write_text(f"{json.dumps(QUESTIONS[0])}\n\n{line}\n")
            with pytest.raises(InvalidInput, match=re.escape(why)):
                store.audit.evaluate(file)
            ran = run("eval", talks, file, "--model", "none")
            assert (ran.returncode, why in ran.stderr) == (2, True)
        named = {"question": "same", "evidence": ["t"], "evidence_session": "music"}
        assert len(store.audit.evaluate([named]).asked[0].evidence) == 1
        for arguments, why in (
            (([],), "there are none"),
            ((tmp_path / "none.jsonl",), "cannot be read"),
            ((), "no receipt is judged"),
        ):
            with pytest.raises(InvalidInput, match=why):
                store.audit.evaluate(*arguments)
        with pytest.raises(InvalidInput, match="k: a whole number from 1 to"):
            store.audit.evaluate(QUESTIONS, k=0)


BAD_LINES = {
    "nonsense": "line 3: this is not JSON",
    '{"question": "x"}': "line 3: Object missing required field `evidence`; give",
    '{"evidence": []}': "line 3: Object missing required field `question`",
    '{"question": " ", "evidence": []}': "line 3: query: empty",
    '{"question": "x", "evidence": ["k9"]}': "line 3: evidence: no turn of the store has the key 'k9'",
    '{"question": "x", "evidence": [1]}': "line 3: evidence: no turn of the store has the position 1",
    '{"question": "x", "evidence": ["t"]}': "line 3: evidence: 2 sessions of the store have a turn with the key 't'",
    '{"question": "x", "evidence": [], "scope": "acm"}': "line 3: scope: no session is at or below 'acm'",
    '{"question": "x", "evidence": [], "scope": "a//b"}': "line 3: scope: 'a//b' has an empty segment",
}


def test_judged_receipts_are_questions_too(talks):
    """Each with its filters, as of its position: what was said later competes with nothing."""
    with MemoryStore.open(talks, model=None) as store:
        asked = store.recall("Who planted tomatoes?", scope="acme/garden", receipt=True)
        ferry = store.recall("Where is the submarine?", receipt=True)
        unsaid = store.recall("What needs a bow?", receipt=True)
        gone = store.recall("When is the concert?", receipt=True)
        store.audit.judge(asked.receipt, good=[asked[0].position])
        store.audit.judge(ferry.receipt, nothing=True)
        store.audit.judge(unsaid.receipt, bad=[unsaid[0].position])
        store.audit.judge(gone.receipt, good=[gone[0].position])
        store.forget(positions=[gone.receipt])
        for number in range(20):
            store.record("garden", "user", f"Who planted tomatoes? Tomatoes planted {number}.")
        found = store.audit.evaluate()
    assert [(item.question, item.ranks) for item in found.asked] == [
        ("Who planted tomatoes?", (1,)),
        ("Where is the submarine?", ()),
    ]
    assert found.left_out == {"no good turn is named": 1, "forgotten": 1}
    assert found.head == ferry.head


def test_a_judged_receipt_is_measured_with_todays_ranking(folder):
    """Whatever ranked it then, with which weights, and whatever was left out for too little relevance."""
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        fill(store)
        weighted = store.recall("Who planted tomatoes?", weights=Weights(vector=0), receipt=True)
        strict = store.recall("Which tomatoes are red?", min_relevance=1.0, receipt=True)
        assert strict.hits == ()
        (served, _) = [event.event for event in store.events() if event.event.topic == RecallServed.topic]
        earlier = msgspec.structs.replace(served, ranking="parts/1", weights={"question": 0.5})
        log_of(store).appends.transact(lambda tx: tx.append("recalls", earlier))
        head = store.head().position
        for receipt in (weighted.receipt, strict.receipt, head):
            store.audit.judge(receipt, good=[weighted[0].position])
        asked = store.audit.evaluate(k=10).asked
        assert [item.question for item in asked] == [weighted.query, strict.query, weighted.query]
        for item, answer in zip(asked, (weighted, strict, weighted), strict=True):
            assert item.hits == tuple(hit.position for hit in store.recall(item.question, 10, as_of=answer.head))


def test_a_store_that_is_only_read_can_be_measured_and_receipts_are_not_made(folder, questions):
    """Also where every recall leaves a receipt otherwise."""
    with MemoryStore.open(folder, model=HashEncoder(), background=False, receipts=True) as store:
        fill(store)
        head = store.head()
        expected = store.audit.evaluate(questions)
        assert store.head() == head
        assert expected.model is not None
    with MemoryStore.open(folder, model=HashEncoder(), read_only=True) as read:
        found = read.audit.evaluate(questions)
    assert [item.hits for item in found.asked] == [item.hits for item in expected.asked]


def test_an_evaluation_reports_progress_and_runs_under_asyncio(folder, questions):
    """Question by question."""
    seen = []

    async def measured():
        async with AsyncMemoryStore.open(folder, model=None) as store:
            return await store.audit.evaluate(questions, progress=lambda done, total: seen.append((done, total)))

    with MemoryStore.open(folder, model=None) as store:
        fill(store)
    assert asyncio.run(measured()).answerable == 3
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_command_prints_measures_by_category_and_what_was_missed(talks, questions, run, tmp_path):
    """Or all of it as JSON."""
    shown = run("eval", talks, questions, "--model", "none").stdout
    assert "3 questions with an answer, 1 that nothing answers; 10 hits each, hybrid" in shown
    assert re.search(r"^garden +2 ", shown, re.MULTILINE)
    assert re.search(r"^all +3 +\S+ \[\S+\] ", shown, re.MULTILINE)
    assert "told apart: 1.00 [1.00, 1.00]" in shown
    assert "no evidence among the hits" not in shown
    found = run("eval", talks, questions, "--model", "none", "-k", "2", "--json").json
    assert found["asked"][0]["ranks"] == [1]
    assert "NDCG@2" in found["overall"]["metrics"]
    (tmp_path / "hard.jsonl").write_text('{"question": "submarine", "evidence": ["music-0"]}')
    shown = run("eval", talks, tmp_path / "hard.jsonl", "--model", "none").stdout
    assert "no evidence among the hits of 1 question:\n   @6 submarine" in shown


def test_the_command_wants_a_file_or_judged_receipts(talks, questions, run, monkeypatch):
    """The folder may come from the environment as for every command."""
    with MemoryStore.open(talks, model=None) as store:
        answer = store.recall("tomatoes", receipt=True)
        store.audit.judge(answer.receipt, bad=[answer[0].position], nothing=True)
    assert run("eval", talks).returncode == run("eval", talks, questions, "--judged").returncode == 2
    shown = run("eval", talks, "--judged", "--model", "none").stdout
    assert shown.startswith("0 questions with an answer, 1 that nothing answers")
    monkeypatch.setenv("MNEMOLOG_STORE", str(talks))
    assert run("eval", questions, "--model", "none", "--json").json["answerable"] == 3
