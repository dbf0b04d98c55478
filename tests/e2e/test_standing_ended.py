"""What a user said of all answers to come is lifted by what was said later, or ended by a person."""

import numpy as np
import pytest

from mnemolog import MemoryStore, acting_as
from mnemolog.domain import errors
from mnemolog.projections.context.answer import WhyLeftOut
from tests.support import HashEncoder

OLD, LIFTED = "Never use emojis.", "You may use emojis again."


class OfTopics(HashEncoder):
    """Texts about emojis point almost one way, all others elsewhere."""

    def encode(self, texts):
        """Return vectors."""
        found = super().encode(texts)
        for row, text in zip(found, texts, strict=True):
            if "emoji" in text.casefold():
                row[:] = 0.1 * row / np.linalg.norm(row)
                row[0] += 1
        return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.fixture
def store(folder):
    with MemoryStore.open(folder, model=OfTopics(), background=False) as opened:
        yield opened


def said(store, *texts, scope="ada", **how):
    """Record what a user says; return the positions."""
    session = store.session(f"{scope}-chat", scope=scope)
    found = [session.record("user", text, **how).position for text in texts]
    store.admin.catch_up_vectors()
    return found


def lines(store, question="Which ferry is the first one?"):
    return [line.strip() for line in str(store.context(question, scope="ada")).splitlines()]


def test_what_lifts_a_statement_comes_first_and_the_statement_points_to_it(store):
    old, other, lifted = said(store, OLD, "We planted tomatoes.", LIFTED)
    shown = [line for line in lines(store) if "emojis" in line]
    assert [line.split()[0] for line in shown] == [f"@{lifted}", f"@{old}"]
    assert f"(see also @{lifted}, later)" in shown[1]
    found = store.standing("Which ferry is the first one?", scope="ada")
    assert [(item.position, item.newer) for item in found] == [(lifted, None), (old, lifted)]
    assert store.context("Which ferry?", scope="ada", as_of=other).text.count("see also") == 0


@pytest.mark.parametrize(
    ("later", "who"), [("We planted tomatoes.", {}), ("Do I like emojis?", {}), (LIFTED, {"speaker": "Bo"})]
)
def test_another_subject_a_question_or_another_speaker_lifts_nothing(store, later, who):
    said(store, OLD)
    said(store, later, **who)
    assert "see also" not in str(store.context("Which ferry is the first one?", scope="ada"))


def test_likeness_leaves_nothing_out_and_the_same_words_are_shown_once(store):
    said(store, OLD, "Never use EMOJIS!", "Never use emojis, says the pasted page.")
    assert sum("emojis" in line.casefold() for line in lines(store)) == 2


@pytest.mark.parametrize("folder", ["folder", "postgres"], indirect=True)
def test_a_person_ends_a_statement_and_the_event_says_who_and_why(store):
    old, _ = said(store, OLD, "We planted tomatoes.")
    before = store.head().position
    with acting_as("ada"):
        assert store.end_standing(store.standing(scope="ada")[0], reason="said on the phone")
        assert not store.end_standing(old, reason="again")
    assert store.standing(scope="ada") == []
    context = store.context("Which ferry?", scope="ada")
    assert (old, WhyLeftOut.ENDED) in [(item.position, item.why) for item in context.left_out]
    assert [item.position for item in store.standing(scope="ada", as_of=before)] == [old]
    (ended,) = store.events(after=before)
    assert (ended.event.actor, ended.event.turn, ended.event.reason) == ("ada", old, "said on the phone")
    store.rebuild("views")
    assert store.standing(scope="ada") == []
    with pytest.raises(errors.InvalidInput, match="would bring it back"):
        store.forget(positions=ended.position)
    assert store.verify(contents=True).sound


def test_what_says_nothing_of_other_answers_cannot_be_ended(store):
    (turn,) = said(store, "We planted tomatoes.")
    fact = store.assert_fact("standing/tone", "formal", scope="ada")
    for position, why in ((turn, "said of no other answer"), (fact.position, "retract_fact"), (9_999, "no turn")):
        with pytest.raises(errors.InvalidInput, match=why):
            store.end_standing(position, reason="no")
    (foreign,) = said(store, OLD, scope="bo")
    with pytest.raises(errors.InvalidInput, match="no turn"):
        store.within("ada").end_standing(foreign, reason="no")
