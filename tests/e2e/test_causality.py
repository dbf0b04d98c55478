"""A recall says what it was for, and what a turn led to is followed to the answers that were given."""

import csv

import pytest

from mnemolog import InvalidInput, UnknownSession
from mnemolog.audit.effects import FORMULA

pytestmark = pytest.mark.local


@pytest.fixture
def call(store):
    """A session with a turn, beside one of another scope."""
    store.session("other", scope="acme/b").record("user", "ferry two")
    call = store.session("call", scope="acme/a")
    call.record("user", "ferry one")
    return call


def asked(store):
    return [(item.kind, item.asked_in, item.asked_for) for item in store.audit.receipts().receipts]


def test_a_receipt_says_which_session_asked_and_for_which_turn(store, call):
    """By itself where a session asks, by arguments where the store is asked; the answer and its pages stay the same."""
    call.recall("ferry", receipt=True)
    found = store.recall("ferry", 1, asked_in=call, asked_for=4, receipt=True)
    call.context("ferry", 100, asked_for=4, receipt=True)
    store.context("ferry", 100, asked_in="call", receipt=True)
    store.recall("ferry", session=call, receipt=True)
    kinds = ("recall", "recall", "context", "context", "recall")
    assert asked(store) == list(zip(kinds, ("call",) * 4 + (None,), (None, 4, 4, None, None), strict=True))
    assert store.recall("ferry", 1, after=found.next).hits == store.recall("ferry", 2).hits[1:]
    for ask, to in ((call.recall, 2), (call.context, 3), (store.recall, 4)):
        with pytest.raises(InvalidInput, match="no turn of the session that asks"):
            ask("ferry", asked_for=to)
    with pytest.raises(UnknownSession):
        store.within("acme/b").recall("ferry", asked_in="call")


def test_who_asked_is_told_within_the_scope_alone_and_goes_with_the_session(store, call):
    """A store for another scope sees the receipt of a question about it, without the session; forgetting takes it."""
    store.recall("ferry", scope="acme/b", asked_in=call, asked_for=4, receipt=True)
    assert asked(store.within("acme/b")) == [("recall", None, None)]
    store.forget(session=call)
    assert asked(store) == []


def test_effects_lead_to_the_answer_that_came_next_as_of_a_position_and_as_rows(store, call):
    """The answer is that of the session that asked, not the next of the log. No cell of the CSV is a formula."""
    bad = call.record("tool", "=The window is 90 days.").position
    store.recall("window", asked_in=call, receipt=True)
    store.session("other").record("assistant", "something else")
    before = store.head().position
    answer, *_ = [call.record("assistant", text) for text in ("Yes, 90 days.", "more")]
    call.assert_fact("=window", 90, because=[bad])
    found, then = store.audit.effects(bad), store.audit.effects(bad, as_of=before)
    assert [item.answer for item in (*found.shown_in, *then.shown_in)] == [answer, None]
    assert (then.came_after, then.rests_on) == ((), ())
    with pytest.raises(InvalidInput, match="no turn"):
        store.audit.effects(bad, as_of=bad - 1)
    rows = list(csv.reader(found.to_csv().splitlines()))
    assert [row[0] for row in rows[:5]] == ["what", "turn", "recall", "answer", "fact"]
    assert [row[5][:5] for row in (rows[1], rows[4])] == ["'=The", "'=win"]
    assert not any(cell.startswith(FORMULA) for row in rows for cell in row)
