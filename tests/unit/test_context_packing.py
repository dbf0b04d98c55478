"""A context within its budget: whatever is recorded, however tokens are counted."""

import json
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mnemolog.domain import errors
from mnemolog.domain.message import Role
from mnemolog.domain.session import NoteState, TaskState
from mnemolog.domain.standing import StandingKind
from mnemolog.domain.values import Micros, Position
from mnemolog.projections.context.answer import (
    HEADING,
    BlockKind,
    ContextPassage,
    Static,
    WhyLeftOut,
    entry,
    fact_block,
    label,
    note_block,
    session_heading,
    standing_block,
    task_block,
    value_block,
)
from mnemolog.projections.context.packing import (
    STANDING_TOKENS_MAX,
    Counter,
    GrowingTurn,
    Packing,
    counter_of,
    estimated_tokens,
)
from mnemolog.projections.read_models import Fact, StandingStatement

DAY = datetime(2026, 3, 16, 10, tzinfo=UTC)
TEXTS = st.text(
    alphabet=st.sampled_from("ab 1.:@\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029\t-—日🎉"), min_size=1, max_size=60
)
COUNTERS = {
    "estimate": estimated_tokens,
    "characters": len,
    "four characters": lambda text: len(text) // 4,
    "with two special tokens": lambda text: 2 + len(text.split()),
    "more than its parts": lambda text: len(text) ** 2 // 50,
    "one for anything": lambda text: 1,
    "too many for anything": lambda text: 10**9,
    "without sense": lambda text: hash(text) % 97,
}


def passage(position, text, *, session="s", days=0, speaker=None, relevance=0.5, of=None):
    return ContextPassage(
        position=Position(position),
        session=session,
        scope="",
        role=Role("user"),
        speaker=speaker,
        said_at=DAY + timedelta(days=days),
        text=text,
        start=0,
        end=len(text),
        of=len(text) if of is None else of,
        relevance=relevance,
    )


def cut(whole, length):
    """The beginning of a passage, as if a turn were cut there."""
    text = whole.text if length is None else whole.text[:length]
    return replace(whole, text=text, end=len(text))


def packed(budget, counter=estimated_tokens, *, static=(), always=(), standing=(), passages=(), replies=()):
    packing = Packing(
        budget,
        Counter("test", counter),
        titles={},
        turns_before=lambda positions: {position: [position - 1] for position in positions},
    )
    packing.add_static(static)
    packing.add_standing(always, standing)
    packing.add_turns([GrowingTurn(item.of, partial(cut, item)) for item in passages])
    packing.add_turns([GrowingTurn(item.of, partial(cut, item)) for item in replies], found=False)
    return packing.packed()


PASSAGES = st.lists(
    st.builds(lambda text, session, days: (text, session, days), TEXTS, st.sampled_from("ab"), st.integers(0, 2)),
    max_size=8,
)
STATIC = st.lists(TEXTS, max_size=4)


@pytest.mark.parametrize("counter", COUNTERS.values(), ids=COUNTERS)
@given(budget=st.integers(0, 200), texts=PASSAGES, values=STATIC, notes=STATIC)
def test_a_context_never_has_more_tokens_than_its_budget(counter, budget, texts, values, notes):
    """By the counter that the caller gives, for every text; what is not there is in `left_out`; blocks are in order."""
    passages = [passage(at, text, session=session, days=days) for at, (text, session, days) in enumerate(texts, 1)]
    static = [value_block(f"k{n}", text) for n, text in enumerate(values)]
    static += [note_block(NoteState(text, Micros(0))) for text in notes]
    found = packed(budget, counter, static=static, passages=passages)
    assert found.tokens <= budget
    assert found.tokens == (counter(found.text) if found.text else 0)
    shown = [position for block in found.blocks for position in block.positions]
    left_out = [item.position for item in found.left_out if item.position is not None]
    assert sorted(shown + left_out) == [item.position for item in passages]
    assert len([block for block in found.blocks if not block.positions]) + len(found.left_out) - len(left_out) == len(
        static
    )
    at = 0
    for block in found.blocks:
        at = found.text.index(block.text, at) + len(block.text)
    assert bool(found.text) == bool(found.blocks)


@given(
    texts=st.lists(TEXTS, min_size=1, max_size=5), speaker=st.sampled_from([None, "Ada", "assistant", "@9 system: x"])
)
def test_recorded_text_cannot_look_like_a_line_of_the_program(texts, speaker):
    """Every further line of it is indented, at every character that some program reads as a line break."""
    passages = [passage(2 * at, f"hi\n{text}", speaker=speaker) for at, text in enumerate(texts, 1)]
    static = [
        task_block(TaskState(texts[0], None, None, None, "active", Micros(0))),
        value_block("name", texts[0]),
        note_block(NoteState(texts[0], Micros(0))),
    ]
    text = packed(10**6, static=static, passages=passages).text
    lines = [line for line in re.split("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", text) if line]
    assert [line.lstrip()[0] for line in lines if re.match(" {1,3}[^ ]", line)] == ["(", "n", "-"], (
        "one of each heading"
    )
    ours = [line for line in lines if not line.startswith(" ")]
    expected = [HEADING, "Task:", "Values:", "Notes:", "2026-03-16, s:"]
    assert ours[:5] == expected
    who = {None: "user", "Ada": "user Ada"}.get(speaker, f'user "{speaker}"')
    assert ours[5:] == [f"@{item.position} {who}: hi" for item in passages]


@pytest.mark.parametrize(
    "name",
    [
        *("a: b", "Ada (newest)", "@9", "a, b", 'a "b', "a\nb", "a\x85b", "a\u2028@3 user: b", "\u202ea", "a\tb", ""),
        *("- a", "* a", "+ a", "> a", "# a", "1. a", "[a](b)", "| a", "`a`", "<a>", "a = b", "a\\", "\u2026", " a"),
        *("Ada\uff1a ok", "Ada\uff08newest\uff09", "\uff209", "\uff11\uff0e a", "\u2488 a", "\u200ba", "a\u2060b"),
        *("system", "Ada system", "USER", "\uff53\uff59\uff53\uff54\uff45\uff4d", "Facts", "notes", "Standing orders"),
    ],
)
def test_a_label_that_could_be_read_as_more_than_a_name_is_quoted_on_one_line(name):
    """A speaker, a title, a key, a scope and a status alike; the quotes hold all of it."""
    quoted = label(name)
    assert (json.loads(quoted), len(quoted.splitlines())) == (name, 1)
    said = replace(passage(2, "hi", speaker=name), newer=Position(4), superseded_by=Position(9))
    assert entry(said) == f"@2 user {quoted} (see also @4, later) (no longer holds: see the fact at @9): hi"
    assert session_heading(said, {"s": name or "s"}) == f"2026-03-16, {quoted if name else 's'}:"
    assert session_heading(replace(said, session=name), {}) == f"2026-03-16, {quoted}:"
    assert value_block(name, 1).text == f"  {quoted}: 1"
    known = {"assumed": False, "checked_at": DAY, "state": "holds", "position": Position(9), "recorded_at": DAY}
    fact = Fact(key=name, value="x", scope=name, valid_from=DAY, until=None, assertions=(), because=(), **known)
    where = f" in {quoted}" if name else ""
    assert fact_block(fact, of="").text == f'  {quoted}: "x" (since 2026-03-16{where})'
    task = TaskState("go", None, None, None, name, Micros(0))
    assert task_block(task).text == f"  ({quoted}) go"
    at = {"position": Position(9), "session": None, "scope": "", "said_at": DAY}
    if name:
        standing = StandingStatement(kind=StandingKind.FACT, text="x (since 2020-01-01)", key=name, **at)
        assert standing_block(standing).text == f"  {quoted} (since 2026-03-16): x (since 2020-01-01)"
    standing = StandingStatement(kind=StandingKind.INSTRUCTION, text="x", speaker=name, **at)
    assert standing_block(standing).text == f"  @9 2026-03-16 {quoted}: x"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Ada",
            "Ada O\u2019Neil-Smith",
            "user/city",
            "acme/ada",
            "trip.2026",
            "AT&T",
            "C++",
            "x_1",
            "J. R. Smith",
            "1.5 km",
        ),
        *("2026-03-16", "\u0935\u093f\u0915\u093e\u0938", "\u65e5\u672c\u30fc", "cafe\u0301", "users", "factsheet"),
    ],
)
def test_a_label_that_is_a_plain_name_stands_as_it_is(name):
    """In any script."""
    assert label(name) == name


def test_a_budget_that_is_too_small_for_anything_gives_an_empty_text():
    """And says of everything that there was no room."""
    static = [value_block("city", "Porto")]
    for budget in (0, 1, 5):
        found = packed(budget, static=static, passages=[passage(1, "We take the ferry.")])
        assert (found.text, found.tokens, found.blocks) == ("", 0, ())
        assert [item.why for item in found.left_out] == [WhyLeftOut.NO_ROOM] * 2


def test_a_smaller_entry_is_taken_where_a_larger_one_does_not_fit():
    """Entries are whole: none is cut where the budget ends."""
    found = packed(60, passages=[passage(1, "long " * 60), passage(2, "short")])
    assert [block.positions for block in found.blocks] == [(2,)]
    assert [item.position for item in found.left_out] == [1]


@given(budget=st.integers(100, 400), more=st.integers(0, 1_000), texts=PASSAGES)
def test_a_larger_budget_and_another_question_keep_the_beginning_equal(budget, more, texts):
    """So that prompt caches hold: task, values and notes stand first, and do not depend on what is found."""
    static = [value_block(f"k{n}", n) for n in range(5)]
    passages = [passage(at, text, session=session, days=days) for at, (text, session, days) in enumerate(texts, 1)]
    beginning = packed(budget, static=static).text
    assert packed(budget, static=static, passages=passages).text.startswith(beginning)
    assert packed(budget + more, static=static, passages=passages).text.startswith(beginning)


def test_working_memory_leaves_half_of_the_budget_to_passages():
    """However much it holds; of notes the newest are kept."""
    notes = [note_block(NoteState(f"note number {n}", Micros(0))) for n in range(100)]
    found = packed(200, static=notes, passages=[passage(1, "The ferry leaves at nine.")])
    kept = [block.text for block in found.blocks if not block.positions]
    assert sum(map(estimated_tokens, kept)) <= 100
    assert kept == [f"  - note number {n}" for n in range(100 - len(kept), 100)]
    assert found.blocks[-1].positions == (1,)


def test_turns_that_follow_one_another_are_one_block_in_order_of_time():
    """They are chosen by relevance, and shown as a conversation, by session."""
    found = packed(
        1_000,
        passages=[
            passage(9, "later", session="b", days=3),
            passage(3, "two", relevance=0.9),
            passage(2, "one", relevance=0.4),
            passage(5, "four", of=100),
        ],
    )
    assert [(block.positions, block.relevance) for block in found.blocks] == [((2, 3), 0.9), ((5,), 0.5), ((9,), 0.5)]
    assert found.text.splitlines() == [
        *(HEADING, "2026-03-16, s:", "@2 user: one", "@3 user: two", "", "@5 user: four…"),
        *("2026-03-19, b:", "@9 user: later"),
    ]


@pytest.mark.parametrize("wrong", [3, "gpt-4", lambda text: "3", lambda text: -1, lambda text: True, lambda text: 1.5])
def test_what_counts_no_tokens_is_refused(wrong):
    """With the number that it returned."""
    with pytest.raises(errors.InvalidInput, match="tokenizer"):
        counter_of(wrong).count("text")


def test_a_more_relevant_turn_is_shown_at_greater_length():
    """And with more room all of them are longer; a short one is always whole."""
    turns = [passage(at, "word " * 400) for at in (1, 2, 3)] + [passage(4, "short")]
    lengths = []
    for budget in (500, 1_000, 3_000):
        found = packed(budget, passages=turns)
        shown = {item.position: item.end - item.start for block in found.blocks for item in block.passages}
        lengths.append([shown[position] for position in sorted(shown)])
    assert lengths[0][0] > lengths[0][-2]
    assert all(more >= less for short, long in pairwise(lengths) for less, more in zip(short, long, strict=False))
    assert lengths[-1] == [2_000, 2_000, 2_000, 5]
    assert lengths[0][-1] == 5


def shown_in(found):
    """The positions of the turns that a context shows."""
    return [position for block in found.blocks for position in block.positions]


def more_for_a_whole(text):
    """A tokenizer that counts more for a text than for its parts: as many tokens again for each ten characters."""
    return len(text) ** 2 // 1_000


def test_working_memory_is_counted_as_a_whole():
    """It keeps to its half, also where a tokenizer counts more for the whole of it than for its blocks."""
    values = [value_block(f"k{n}", "x" * 40) for n in range(20)]
    alone = packed(200, more_for_a_whole, static=values)
    assert 50 < alone.tokens <= 100
    assert len(alone.blocks) + len(alone.left_out) == 20


def test_standing_statements_keep_to_their_tokens_however_large_the_budget_is():
    """Those without a condition to half of them; of a small budget they take a fifth."""
    said = [Static(BlockKind.STANDING, f"  @{n} 2026-03-16: always answer in metric") for n in range(100)]

    def tokens(budget, **how):
        return sum(block.tokens for block in packed(budget, **how).blocks)

    one = estimated_tokens(said[0].text)
    for budget, most in ((100_000, STANDING_TOKENS_MAX), (500, 100)):
        assert most - 3 * one < tokens(budget, standing=said) <= most
        assert most // 2 - 3 * one < tokens(budget, always=said) <= most // 2
        assert most - 4 * one < tokens(budget, always=said, standing=said) <= most


def test_an_excerpt_ends_at_midnight():
    """Each day of a session has its heading, also where one turn follows the other."""
    late = replace(passage(1, "Good night."), said_at=DAY.replace(hour=23, minute=59))
    early = replace(passage(2, "Good morning."), said_at=late.said_at + timedelta(minutes=2))
    found = packed(1_000, passages=[late, early])
    assert [block.positions for block in found.blocks] == [(1,), (2,)]
    first, second = (found.text.index(day) for day in ("2026-03-16", "2026-03-17"))
    assert first < found.text.index("Good night.") < second < found.text.index("Good morning.")


def test_the_heading_of_a_session_is_counted_before_a_turn_is_taken():
    """Once: a turn below the same heading is taken where one that needs another heading does not fit."""
    turns = [passage(1, "x" * 40), passage(2, "y" * 40, session="another session"), passage(3, "z" * 40)]
    both = packed(10_000, len, passages=[turns[0], turns[2]])
    found = packed(both.tokens + 1, len, passages=turns)
    assert (shown_in(found), [item.position for item in found.left_out]) == ([1, 3], [2])


def test_the_heading_of_a_kind_of_block_is_counted_before_a_block_is_taken():
    """So a shorter note is taken where the newest one fits only without it."""
    value, short, long = value_block("k", "v"), *(note_block(NoteState(text, Micros(0))) for text in ("a", "b" * 6))
    both = packed(10_000, len, static=[value, short])
    found = packed(2 * (both.tokens + 1), len, static=[value, short, long])
    assert [block.text for block in found.blocks] == [value.text, short.text]


@pytest.mark.parametrize("counter", [len, more_for_a_whole])
def test_a_reply_for_which_there_is_no_room_is_not_reported(counter):
    """No recall has found it: neither where it does not fit at once, nor where the whole is too large in the end."""
    found, reply = passage(1, "x" * 40), replace(passage(2, "y" * 40), relevance=None)
    shown = packed(10_000, counter, passages=[found])
    assert shown_in(packed(10_000, counter, passages=[found], replies=[reply])) == [1, 2]
    without = packed(shown.tokens + 1, counter, passages=[found], replies=[reply])
    assert (shown_in(without), without.left_out) == ([1], ())
