"""Judgements: which hits of an answer were good, said by somebody who knows, kept in the log."""

import pytest

from mnemolog import InvalidInput, MemoryStore, errors
from mnemolog.domain.events import RecallJudged


@pytest.fixture
def talk(store):
    """Three turns about tea, and one about a ferry."""
    session = store.session("talk", scope="acme")
    for text in ("We bought green tea.", "The tea is gone.", "More tea, please.", "The ferry leaves at nine."):
        session.record("user", text)
    return session


def test_a_judgement_says_which_turns_were_good_and_which_were_bad(store, talk):
    """It is an event that names its receipt and turns by position."""
    answer = store.recall("tea", k=3, receipt=True)
    best, second, third = (hit.position for hit in answer)
    made = store.audit.judge(answer.receipt, good=[third, second], bad=[best], by="Ada")
    assert (made.receipt, made.query, made.by) == (answer.receipt, "tea", "Ada")
    assert (made.good, made.bad, made.nothing) == (tuple(sorted((second, third))), (best,), False)
    assert store.audit.judgements() == [made]
    recorded = list(store.events())[-1]
    assert (recorded.position, recorded.stream) == (made.position, "recalls")
    assert isinstance(recorded.event, RecallJudged)
    assert [str(moment.what) for moment in store.audit.timeline(after=made.position - 1)] == [
        f"recall {answer.receipt} judged by Ada: good {made.good[0]}, {made.good[1]}; bad {best}"
    ]


def test_a_later_judgement_of_the_same_receipt_replaces_the_earlier_one(store, talk):
    """Both stay in the log; the last one counts."""
    first, second = (store.recall(query, receipt=True) for query in ("tea", "ferry"))
    store.audit.judge(second.receipt, good=[second[0].position])
    store.audit.judge(first.receipt, bad=[first[0].position])
    store.audit.judge(first.receipt, good=[first[0].position])
    found = store.audit.judgements()
    assert [(item.receipt, item.good, item.bad) for item in found] == [
        (first.receipt, (first[0].position,), ()),
        (second.receipt, (second[0].position,), ()),
    ]
    assert sum(isinstance(recorded.event, RecallJudged) for recorded in store.events()) == 3


def test_a_turn_that_was_not_found_can_be_good(store, talk):
    """If it was there when the recall was made."""
    answer = store.recall("when does the boat go?", k=1, mode="text", speakers=["Bob"], receipt=True)
    assert not answer
    ferry = talk.turns()[-1].position
    assert store.audit.judge(answer.receipt, good=[ferry]).good == (ferry,)
    later = talk.record("user", "The boat goes at ten.").position
    with pytest.raises(InvalidInput, match="recorded after the recall"):
        store.audit.judge(answer.receipt, good=[later])


def test_a_question_that_nothing_answers_is_judged_so(store, talk):
    """Whatever was found for it."""
    answer = store.recall("tea in a submarine", receipt=True)
    made = store.audit.judge(answer.receipt, bad=[answer[0].position], nothing=True)
    assert (made.nothing, made.good) == (True, ())
    assert store.audit.judgements()[0].nothing


@pytest.mark.local
def test_a_judgement_that_makes_no_sense_is_refused_and_nothing_is_written(store, talk):
    """With the reason."""
    answer = store.recall("tea", k=2, receipt=True)
    (good, bad), head = (hit.position for hit in answer), store.head()
    ferry = talk.turns()[-1].position
    for receipt, judged, why in (
        (2, {"nothing": True}, "no receipt is at position 2"),
        (0, {"nothing": True}, "no receipt is at position 0"),
        (999, {"nothing": True}, "position 999 is not in this log"),
        ("2", {"nothing": True}, "expected a position"),
        (answer.receipt, {}, "give turns that are good or bad"),
        (answer.receipt, {"bad": [ferry]}, f"position {ferry} is not in the answer"),
        (answer.receipt, {"good": [1]}, "position 1 is not a turn"),
        (answer.receipt, {"good": [answer.receipt]}, "is not a turn"),
        (answer.receipt, {"good": [good], "bad": [good, bad]}, "both good and bad"),
        (answer.receipt, {"good": [good], "nothing": True}, "says that no turn answers"),
        (answer.receipt, {"nothing": True, "by": "two\nlines"}, "control character"),
    ):
        with pytest.raises(InvalidInput, match=why):
            store.audit.judge(receipt, **judged)
    assert store.head() == head
    assert store.audit.judgements() == []


def test_a_judgement_changes_no_recall_and_no_audit(store, talk):
    """It is no turn and no receipt."""
    answer = store.recall("tea", receipt=True)
    before = store.recall("tea good judged", k=50).hits
    store.audit.judge(answer.receipt, good=[answer[0].position], by="tea")
    assert store.recall("tea good judged", k=50).hits == before
    audit = store.audit.receipts()
    assert (len(audit.receipts), audit.reproduced) == (1, 1)
    assert store.verify().sound


def test_a_judgement_of_a_forgotten_question_says_that_it_has_lost_its_use(store, talk):
    """So does one whose right answer was forgotten; neither shows what was forgotten."""
    asked, other = (store.recall(query, k=1, receipt=True) for query in ("tea", "ferry"))
    store.audit.judge(asked.receipt, good=[asked[0].position])
    right = next(turn.position for turn in talk.turns() if turn.position not in {hit.position for hit in other})
    store.audit.judge(other.receipt, good=[right])
    store.forget(positions=[asked.receipt, right], questions=False)
    lost, answerless = store.audit.judgements()
    assert (lost.receipt, lost.query, lost.unusable) == (asked.receipt, "", "its question was forgotten")
    assert answerless.unusable == f"right answers were forgotten: {right}"
    with pytest.raises(InvalidInput, match="was forgotten"):
        store.audit.judge(asked.receipt, nothing=True)
    with pytest.raises(InvalidInput, match="a turn that was forgotten"):
        store.audit.judge(other.receipt, good=[right])


@pytest.mark.local
def test_a_context_can_be_judged_too(store, talk):
    """By the receipt that it left: its question, and the turns that its recall found."""
    context = talk.context("When does the ferry leave?", receipt=True)
    ferry = talk.turns()[-1].position
    assert ferry in context.positions
    made = store.audit.judge(context.receipt, good=[ferry])
    assert (made.query, made.good) == ("When does the ferry leave?", (ferry,))
    store.forget(positions=[context.receipt])
    assert store.audit.judgements()[0].unusable == "its question was forgotten"
    with pytest.raises(InvalidInput, match="was forgotten"):
        store.audit.judge(context.receipt, nothing=True)


def test_a_store_that_is_only_read_takes_no_judgement(store, talk, folder):
    """Nothing is written."""
    receipt = store.recall("tea", receipt=True).receipt
    with MemoryStore.open(folder, model=None, read_only=True) as read, pytest.raises(errors.StoreNotWritable):
        read.audit.judge(receipt, nothing=True)
    assert store.audit.judgements() == []


def test_the_command_judges_hits_by_their_numbers(run, folder):
    """From 1, as `mnemolog recall` prints them; turns that were not found by their positions."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.session("talk")
        for text in ("Green tea and more tea.", "The tea is gone.", "The ferry leaves at nine."):
            session.record("user", text)
        answer, context = store.recall("tea", receipt=True), store.context("tea", receipt=True).receipt
    first, second = (hit.position for hit in answer)
    receipt = answer.receipt
    shown = run("judge", folder, receipt, "--good", 2, "--bad", 1, "--good-turn", 4, "--by", "Ada")
    assert shown.stdout == f"receipt @{receipt} judged by Ada: good @{second}, @4; bad @{first}\n   tea\n"
    assert run("judge", folder, context, "--good-turn", 3).stdout == f"receipt @{context} judged: good @3\n   tea\n"
    found = run("judge", folder, receipt, "--nothing", "--json").json
    assert (found["receipt"], found["nothing"], found["good"]) == (receipt, True, [])
    for arguments, why in (
        ((context, "--good", 1), "--good: the turns of a context have no numbers: name one by --good-turn POSITION"),
        ((receipt, "--good", 3), "--good: there is no hit 3: the answer has 2"),
        ((2, "--good", 1), "RECEIPT: no receipt is at position 2"),
        ((receipt,), "--good: give turns that are good or bad"),
    ):
        assert why in run("judge", folder, *arguments).exited(2).stderr
    with MemoryStore.open(folder, model=None) as store:
        store.forget(positions=[receipt])
    assert "was forgotten" in run("judge", folder, receipt, "--nothing").exited(2).stderr
