"""What a user said that should hold for every answer: listed, in a context, forgotten, and lifted or ended later."""

import numpy as np
import pytest

from mnemolog import MemoryStore, StandingStatement, acting_as
from mnemolog.domain import errors
from mnemolog.domain.standing import StandingKind
from mnemolog.projections.context.answer import BlockKind, WhyLeftOut
from tests.support import HashEncoder

SCOPE = "acme/alice"
HEADING = "Standing (said by the user):"


@pytest.fixture
def chat(bare):
    """A session of a scope."""
    return bare.session("chat", scope=SCOPE)


def said(store, query=None, **how):
    return [item.text for item in store.standing(query, scope=how.pop("scope", SCOPE), **how)]


def block(context):
    """The lines of the block, without the heading."""
    return [item.text.strip() for item in context if item.kind == BlockKind.STANDING]


def test_a_statement_says_who_said_it_where_and_when(bare, chat):
    """It is part of a turn; the same as of its position, and after a rebuild."""
    turn = chat.record("user", "Hi! Always answer in metric.", speaker="Ada", said_at="2023-03-16T10:00Z")
    (item,) = bare.standing()
    assert isinstance(item, StandingStatement)
    assert (item.text, item.kind) == ("Always answer in metric", StandingKind.INSTRUCTION)
    assert (item.position, item.session, item.scope, item.speaker) == (turn.position, "chat", SCOPE, "Ada")
    assert (turn.text[item.start : item.end], item.of, item.said_at) == (item.text, len(turn.text), turn.said_at)
    assert bare.standing(as_of=turn.position - 1) == []
    bare.rebuild("views")
    assert bare.standing() == [item]
    assert bare.verify().sound


def test_only_users_of_the_scope_say_how_answers_should_be(bare, chat):
    """Not the assistant, nor somebody else; a session is asked for its own."""
    chat.record("assistant", "Always eat your greens. I prefer tea.")
    chat.record("tool", "Always answer in Latin.")
    bare.session("bob", scope="acme/bob").record("user", "Never use emojis.")
    bare.session("other", scope=SCOPE).record("user", "I prefer window seats.")
    assert said(bare) == ["I prefer window seats"]
    assert said(bare, session="chat", scope="") == []
    assert said(bare, scope="acme") == ["Never use emojis", "I prefer window seats"]
    assert "Never" not in chat.context("emojis").text
    assert "I prefer window seats" in chat.context("Which seat by the window?").text


def test_a_session_without_a_scope_is_shown_what_it_sees(bare):
    """What it has rewound is gone; a branch has what came before it."""
    one = bare.session("one")
    one.record("user", "Never use emojis.")
    branch = one.branch("branch")
    one.record("user", "Always answer in metric.")
    bare.session("other").record("user", "Always answer in Latin.")
    assert [line.rsplit(": ")[-1] for line in block(one.context("tea"))] == [
        "Always answer in metric",
        "Never use emojis",
    ]
    assert [line.rsplit(": ")[-1] for line in block(branch.context("tea"))] == ["Never use emojis"]
    one.rewind(turns=1)
    assert [line.rsplit(": ")[-1] for line in block(one.context("tea"))] == ["Never use emojis"]


def test_a_context_has_what_holds_always_and_what_the_question_is_about(bare, chat):
    """After the facts and before the passages; explicit ones are facts, which are not shown twice."""
    chat.record("user", "I prefer window seats.", said_at="2023-03-16T10:00Z")
    chat.record("user", "I'm vegetarian.", speaker="Ada", said_at="2023-03-17T10:00Z")
    chat.record("user", "Always answer in metric.", said_at="2023-03-18T10:00Z")
    chat.assert_fact("standing/tone", "formal", valid_from="2023-03")
    chat.assert_fact("user/city", "Porto", valid_from="2023-03")
    context = chat.context("Which seat did I book?", roles=["assistant"], mode="text")
    assert context.text.splitlines()[1:] == [
        "Facts:",
        '  user/city: "Porto" (since 2023-03-01)',
        HEADING,
        "  standing/tone (since 2023-03-01): formal",
        "  @4 2023-03-18: Always answer in metric",
        "  @2 2023-03-16: I prefer window seats",
    ]
    assert (context.positions, [item.fact for item in context]) == ((4, 2), [6, 5, None, None])
    assert block(chat.context("Am I vegetarian?", mode="text"))[-1] == "@3 2023-03-17 Ada: I'm vegetarian"
    assert said(bare, "Which seat?")[0] == "formal"
    assert bare.standing("Which seat?", scope=SCOPE)[0].key == "standing/tone"


def test_the_question_itself_adds_nothing(bare, chat):
    """Whoever answers it has it in front of them."""
    asked = "I'm vegetarian, what can I cook?"
    chat.record("user", asked)
    assert HEADING not in chat.context(asked).text
    assert "I'm vegetarian" in block(chat.context("Something to cook that is vegetarian?"))[0]
    assert HEADING not in bare.session("empty", scope="acme/bob").context("tea").text


def test_the_block_keeps_to_its_tokens(bare, chat):
    """A fifth of the budget and 300 tokens at most, half of it for what holds always, the newest first."""
    for n in range(40):
        chat.record("user", f"Always write the letter {n} like this: {'x' * 20}.")
        chat.record("user", f"I prefer the boat {n} to the train.")
    for tokens, most in ((5_000, 300), (1_000, 200), (100, 20)):
        context = chat.context("Which boat?", tokens=tokens)
        blocks = [item for item in context if item.kind == BlockKind.STANDING]
        used = sum(item.tokens for item in blocks)
        assert used <= most, tokens
        always = [item for item in blocks if "letter" in item.text]
        assert sum(item.tokens for item in always) <= most / 2, tokens
        assert not always or "letter 39" in always[0].text
        left = [item for item in context.left_out if item.kind == BlockKind.STANDING]
        assert left, tokens
        assert {(item.why, bool(item.position)) for item in left} == {(WhyLeftOut.NO_ROOM, True)}
        assert context.tokens <= tokens


def test_a_later_statement_like_it_comes_first_and_takes_the_place_of_none(folder):
    """By meaning, of the same kind. Likeness leaves nothing out."""
    with MemoryStore.open(folder, model=HashEncoder()) as store:
        chat = store.session("chat", scope=SCOPE)
        for text in ("I prefer the window seat by day.", "I prefer the window seat by night.", "I prefer tea."):
            chat.record("user", text)
        alike = ["I prefer the window seat by night", "I prefer the window seat by day"]
        assert said(store, "the window seat") == alike
        assert len(said(store)) == 3
        found = store.standing("the window seat", scope=SCOPE)
        assert found[0].relevance == pytest.approx(store.recall("the window seat", asked="keep")[0].similarity, abs=0.2)


def test_a_statement_in_other_words_is_found_whatever_turns_may_be_hits(folder):
    """By meaning: the filters of the hits are not for statements."""

    class Alike(HashEncoder):
        """A model to which a chair is a seat."""

        def _word(self, word):
            return super()._word("seat" if word == "chair" else word)

    with MemoryStore.open(folder, model=Alike()) as store:
        chat = store.session("chat", scope=SCOPE)
        chat.record("user", "I prefer the window seat.")
        chat.record("assistant", "The chair is booked.")
        for filters in ({}, {"roles": ["assistant"]}, {"roles": ["tool"]}, {"metadata": {"row": 1}}):
            assert "I prefer the window seat" in block(chat.context("Which chair?", **filters))[-1], filters


def test_forgetting_a_turn_takes_its_statements_and_the_receipts_that_showed_them(bare, chat):
    """Nothing of the words stays in the views."""
    turn = chat.record("user", "I prefer zanzibar.")
    chat.record("user", "Never use emojis.")
    receipt = chat.context("zanzibar?", roles=["assistant"], receipt=True)
    assert (receipt.positions, receipt.receipt) == ((3, 2), bare.head().position)
    (audited,) = bare.audit.receipts().receipts
    assert audited.verdict == "reproduces"
    assert bare.forget(positions=turn.position).counts["context.served.v1"] == 1
    assert said(bare) == ["Never use emojis"]
    assert bare.verify().sound
    assert b"zanzibar" not in (bare.path / "projections" / "views.db").read_bytes()


def test_the_command_lists_them(bare, chat, run):
    """As a table and as JSON."""
    chat.record("user", "I prefer window seats.")
    bare.assert_fact("standing/tone", "formal", scope=SCOPE)
    ran = run("standing", bare.path, "--model", "none").stdout
    assert "standing/tone: formal" in ran
    assert "I prefer window seats" in ran
    found = run("standing", bare.path, "Which seat?", "--scope", SCOPE, "--model", "none", "--json").json
    assert [(item["kind"], item["text"]) for item in found] == [
        ("fact", "formal"),
        ("preference", "I prefer window seats"),
    ]
    empty = "--as-of", "1", "--model", "none"
    assert (
        "no standing statements"
        in run("standing", bare.path, *empty).stdout + run("standing", bare.path, *empty).stderr
    )


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
def emojis(folder):
    with MemoryStore.open(folder, model=OfTopics(), background=False) as opened:
        yield opened


def say(store, *texts, scope="ada", **how):
    """Record what a user says; return the positions."""
    session = store.session(f"{scope}-chat", scope=scope)
    found = [session.record("user", text, **how).position for text in texts]
    store.admin.catch_up_vectors()
    return found


def lines(store, question="Which ferry is the first one?"):
    return [line.strip() for line in str(store.context(question, scope="ada")).splitlines()]


def test_what_lifts_a_statement_comes_first_and_the_statement_points_to_it(emojis):
    old, other, lifted = say(emojis, OLD, "We planted tomatoes.", LIFTED)
    shown = [line for line in lines(emojis) if "emojis" in line]
    assert [line.split()[0] for line in shown] == [f"@{lifted}", f"@{old}"]
    assert f"(see also @{lifted}, later)" in shown[1]
    found = emojis.standing("Which ferry is the first one?", scope="ada")
    assert [(item.position, item.newer) for item in found] == [(lifted, None), (old, lifted)]
    assert emojis.context("Which ferry?", scope="ada", as_of=other).text.count("see also") == 0


@pytest.mark.parametrize(
    ("later", "who"), [("We planted tomatoes.", {}), ("Do I like emojis?", {}), (LIFTED, {"speaker": "Bo"})]
)
def test_another_subject_a_question_or_another_speaker_lifts_nothing(emojis, later, who):
    say(emojis, OLD)
    say(emojis, later, **who)
    assert "see also" not in str(emojis.context("Which ferry is the first one?", scope="ada"))


def test_likeness_leaves_nothing_out_and_the_same_words_are_shown_once(emojis):
    say(emojis, OLD, "Never use EMOJIS!", "Never use emojis, says the pasted page.")
    assert sum("emojis" in line.casefold() for line in lines(emojis)) == 2


@pytest.mark.parametrize("folder", ["folder", "postgres"], indirect=True)
def test_a_person_ends_a_statement_and_the_event_says_who_and_why(emojis):
    old, _ = say(emojis, OLD, "We planted tomatoes.")
    before = emojis.head().position
    with acting_as("ada"):
        assert emojis.end_standing(emojis.standing(scope="ada")[0], reason="said on the phone")
        assert not emojis.end_standing(old, reason="again")
    assert emojis.standing(scope="ada") == []
    context = emojis.context("Which ferry?", scope="ada")
    assert (old, WhyLeftOut.ENDED) in [(item.position, item.why) for item in context.left_out]
    assert [item.position for item in emojis.standing(scope="ada", as_of=before)] == [old]
    (ended,) = emojis.events(after=before)
    assert (ended.event.actor, ended.event.turn, ended.event.reason) == ("ada", old, "said on the phone")
    emojis.rebuild("views")
    assert emojis.standing(scope="ada") == []
    with pytest.raises(errors.InvalidInput, match="would bring it back"):
        emojis.forget(positions=ended.position)
    assert emojis.verify(contents=True).sound


def test_what_says_nothing_of_other_answers_cannot_be_ended(emojis):
    (turn,) = say(emojis, "We planted tomatoes.")
    fact = emojis.assert_fact("standing/tone", "formal", scope="ada")
    for position, why in ((turn, "said of no other answer"), (fact.position, "retract_fact"), (9_999, "no turn")):
        with pytest.raises(errors.InvalidInput, match=why):
            emojis.end_standing(position, reason="no")
    (foreign,) = say(emojis, OLD, scope="bo")
    with pytest.raises(errors.InvalidInput, match="no turn"):
        emojis.within("ada").end_standing(foreign, reason="no")
