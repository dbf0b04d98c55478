"""Choose what a context shows: whole entries, the most relevant first, within a budget of tokens.

Tokens are counted with the tokenizer of the caller, or by an estimate that needs none.
"""

import heapq
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from operator import attrgetter
from typing import Any, Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.values import INTEGER_MAX, Position
from mnemolog.projections.context.answer import (
    HEADING,
    HEADINGS,
    NOTHING_FITS,
    BlockKind,
    ContextBlock,
    ContextPassage,
    Excerpt,
    LeftOut,
    Static,
    WhyLeftOut,
    entry,
    session_heading,
    written,
)
from mnemolog.projections.recall.answer import Hit

Tokenizer = Callable[[str], int]
"""Returns the number of tokens of a text."""

ESTIMATE: Final = "estimate/1"
"""Name and version of the estimate, stored in receipts. Change it whenever the estimate changes."""

WORD_CHARACTERS: Final = 6
"""Each part of an ASCII word of so many letters counts as a token."""
DIGITS: Final = 3
OTHER_CHARACTERS: Final = 3
"""Likewise of words with letters outside of ASCII, in scripts with spaces between words."""
UNSPACED_FROM: Final = "\u2e80"
"""From this character on, the first one of Chinese and Japanese, each character counts as a token."""

_PIECE: Final = re.compile(rf"[A-Za-z]{{1,{WORD_CHARACTERS}}}|\d{{1,{DIGITS}}}|([^\W\d_]+)|[^\w\s]|_")
"""What counts as one token; a word with letters outside of ASCII is a group."""


class Counter(NamedTuple):
    """A way to count tokens."""

    name: str
    count: Tokenizer


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has.

    Each 6 letters of a word, each 3 digits and each other character count as one; spaces count nothing. Compared with
    the tokenizer of all-MiniLM-L6-v2: 1.14 of it for chats with an assistant, 1.13 among friends, 1.01 for minutes of
    meetings, 1.02 for Python, 0.95 for JavaScript, and 1.00 for Chinese (docs/context.md).
    """
    found = _PIECE.findall(text)
    return len(found) + sum(map(_further_tokens, filter(None, found)))


def _further_tokens(word: str) -> int:
    return (len(word) if word[0] >= UNSPACED_FROM else -(-len(word) // OTHER_CHARACTERS)) - 1


def counter_of(tokenizer: Any) -> Counter:
    """Return a counter with a `Tokenizer`, or with the estimate for None. Raises `InvalidInput`."""
    if tokenizer is None:
        return Counter(ESTIMATE, estimated_tokens)
    if not callable(tokenizer):
        why = f"expected a function from a text to its number of tokens, got {type(tokenizer).__name__}"
        raise errors.InvalidInput("tokenizer", why)

    def count(text: str) -> int:
        found = tokenizer(text)
        if type(found) is not int or not 0 <= found <= INTEGER_MAX:
            raise errors.InvalidInput("tokenizer", f"it counted {found!r} tokens; return a whole number from 0 on")
        return found

    module, name = getattr(tokenizer, "__module__", None), getattr(tokenizer, "__qualname__", None)
    return Counter(f"{module}.{name}" if module and name else type(tokenizer).__qualname__, count)


FACTS_SHARE: Final = 0.2
"""Facts take at most this share of the budget. They come first and do not depend on the question."""
STANDING_SHARE: Final = 0.2
STANDING_TOKENS_MAX: Final = 300
"""Standing statements take at most this share of the budget and so many tokens, and those without a condition half."""
STATIC_SHARE: Final = 0.5
"""Facts, task, values and notes take at most this share of the budget, whatever the question finds."""
CHARACTERS_PER_TOKEN_MAX: Final = 100
"""An entry with more characters for each token that is left is not even counted: it does not fit."""

TurnsBefore = Callable[[Sequence[Position]], Mapping[Position, Sequence[Position]]]
"""Returns of each turn the one before it in its session, if there is one."""


LENGTHS: Final[tuple[int | None, ...]] = (300, 500, 900, 1_500, None)
"""The lengths at which a turn can be shown, in characters; None for all of it."""
SHARE_POWER: Final = 0.4
"""A passage of a share of its turn holds about share ** 0.4 of what the turn answers."""
RANK_POWER: Final = 1.3
"""The turn at a rank is worth 1 / rank ** 1.3. Both were chosen on assistant-dev (docs/reports/recall-quality.md)."""


class GrowingTurn(NamedTuple):
    """A turn that can be shown at several lengths."""

    size: int
    """Characters of all of it."""
    at: Callable[[int | None], ContextPassage]
    """Returns its passage of at most so many characters; all of it for None."""


_Step = tuple[float, int, int, ContextPassage, str, int, tuple[str, int]]
"""A turn is shown, or more of it: the gain for each of its tokens, negative, so that the first of them is the best; the
rank of the turn; the place of its length in `LENGTHS`; the passage, its entry, the tokens of that; the heading above it
and the tokens of that."""


class Packed(NamedTuple):
    """A context's text, what it is made of, and what was left out."""

    text: str
    tokens: int
    blocks: tuple[ContextBlock, ...]
    left_out: tuple[LeftOut, ...]


class Packing:
    """Packs blocks into a budget.

    Entries are added while the sum of their tokens fits. At last the text is counted as a whole, and entries are taken
    out until it fits: a tokenizer may count more for a whole than for its parts. With `brief` turns are
    shown at their shortest. If nothing `fits` the question, the text says so.
    """

    def __init__(
        self,
        budget: int,
        counter: Counter,
        *,
        titles: Mapping[str, str],
        turns_before: TurnsBefore,
        fits: bool = True,
        brief: bool = False,
    ) -> None:
        self._budget = budget
        self._counter = counter
        self._titles = titles
        self._turns_before = turns_before
        self._fits, self._brief = fits, brief
        self._none = counter.count("")
        self._used = self._cost(HEADING if fits else f"{HEADING}\n{NOTHING_FITS}", budget)
        self._headings: set[str] = set()
        self._session_headings: dict[tuple[str, date], tuple[str, int]] = {}
        """By session and day, with their tokens."""
        self._texts: dict[Position, str] = {}
        """The entries of the turns that are shown."""
        self._static: list[Static] = []
        self._passages: list[ContextPassage] = []
        self._left_out: list[LeftOut] = []

    def add_static(self, blocks: Sequence[Static], *, share: float = STATIC_SHARE) -> None:
        """Add the blocks that fit into a share of the budget, in the order given. Of notes the newest are taken first.

        What was added before counts.
        """
        self._add(blocks, int(self._budget * share))

    def add_standing(self, always: Sequence[Static], others: Sequence[Static]) -> None:
        """Add the standing statements that fit, in the order given."""
        room, before = min(int(self._budget * STANDING_SHARE), STANDING_TOKENS_MAX), self._used
        self._add(always, before + room // 2)
        self._add(others, before + room)

    def _add(self, blocks: Sequence[Static], room: int) -> None:
        notes = [block for block in blocks if block.kind is BlockKind.NOTE]
        others = [block for block in blocks if block.kind is not BlockKind.NOTE]
        taken = [block for block in (*others, *reversed(notes)) if self._take(block.text, HEADINGS[block.kind], room)]
        while taken and self._counter.count(written([*self._static, *taken], (), {})) > room:
            taken.pop()
        kept = set(map(id, taken))
        for block in blocks:
            if id(block) in kept:
                self._static.append(block)
            else:
                self._left_out.append(_no_room_for(block))

    @property
    def left(self) -> int:
        """Tokens that are left, about."""
        return self._budget - self._used

    @property
    def passages(self) -> Sequence[ContextPassage]:
        """What is shown of turns so far, in the order in which they were given."""
        return tuple(self._passages)

    def add_turns(self, turns: Sequence[GrowingTurn], *, found: bool = True) -> None:
        """Add the turns that fit, each at the length that is worth its tokens. The most relevant one is given first.

        Without `found`, a turn that does not fit is not reported: no recall has found it.
        Again and again, the step that gains most for each token is taken: another turn at its shortest, or one that is
        shown already at its next length. A step that does not fit is not tried again.
        """
        shown: dict[int, ContextPassage] = {}
        used: dict[int, int] = {}
        steps = [self._step(turn, rank, 0, 0) for rank, turn in enumerate(turns)]
        heapq.heapify(steps)
        while steps:
            _, rank, step, passage, text, tokens, (heading, heading_cost) = heapq.heappop(steps)
            cost = tokens - used.get(rank, 0) + (0 if step or heading in self._headings else heading_cost)
            if self._used + cost > self._budget:
                continue
            self._used += cost
            self._headings.add(heading)
            shown[rank] = passage
            used[rank] = tokens
            self._texts[passage.position] = text
            if not self._brief and step + 1 < len(LENGTHS) and passage.end - passage.start < passage.of:
                heapq.heappush(steps, self._step(turns[rank], rank, step + 1, tokens))
        for rank, turn in enumerate(turns):
            if rank in shown:
                self._passages.append(shown[rank])
            elif found:
                self._left_out.append(left_out(turn.at(LENGTHS[0]), WhyLeftOut.NO_ROOM))

    def _step(self, turn: GrowingTurn, rank: int, step: int, used: int) -> _Step:
        """Return the step to a length of a turn that has used so many tokens before."""
        passage = turn.at(LENGTHS[step])
        in_session = passage.session, passage.said_at.date()
        if (heading := self._session_headings.get(in_session)) is None:
            above = session_heading(passage, self._titles)
            heading = self._session_headings[in_session] = above, self._cost(above, self._budget)
        text = entry(passage)
        tokens = self._cost(text, self._budget)
        share = _share(turn.size, step) - (_share(turn.size, step - 1) if step else 0)
        cost = tokens - used + (0 if step or heading[0] in self._headings else heading[1])
        gain = share / math.pow(rank + 1, RANK_POWER) / max(cost, 1)
        return -gain, rank, step, passage, text, tokens, heading

    def leave_out(self, found: Sequence[LeftOut]) -> None:
        """Add what was left out before it came to the budget."""
        self._left_out += found

    def packed(self) -> Packed:
        """Return the text and its blocks."""
        before = self._turns_before([passage.position for passage in self._passages])
        while True:
            excerpts = list(self._excerpts(before))
            text = written(self._static, excerpts, self._titles, fits=self._fits)
            tokens = self._counter.count(text) if text else 0
            if tokens <= self._budget:
                break
            if self._passages:
                last_passage = self._passages.pop()
                if last_passage.relevance is not None:
                    self._left_out.append(left_out(last_passage, WhyLeftOut.NO_ROOM))
            else:
                self._left_out.append(_no_room_for(self._static.pop()))
        blocks = (*map(self._static_block, self._static), *map(self._passage_block, excerpts))
        return Packed(text, tokens, blocks, tuple(self._left_out))

    def _take(self, text: str, heading: str, room: int) -> bool:
        """Whether an entry fits into what is left of `room`; if it does, it is used."""
        cost = self._cost(text, room)
        if heading not in self._headings:
            cost += self._cost(heading, room)
        if self._used + cost > room:
            return False
        self._headings.add(heading)
        self._used += cost
        return True

    def _cost(self, text: str, room: int) -> int:
        if len(text) > CHARACTERS_PER_TOKEN_MAX * room:
            return room + 1
        return max(self._counter.count("\n" + text) - self._none, 0)

    def _excerpts(self, before: Mapping[Position, Sequence[Position]]) -> Iterator[Excerpt]:
        """Yield the passages as excerpts: by session, the one whose first passage was said first, then by position."""
        sessions: dict[str, list[ContextPassage]] = {}
        for passage in sorted(self._passages, key=attrgetter("said_at", "position")):
            sessions.setdefault(passage.session, []).append(passage)
        for passages in sessions.values():
            passages.sort(key=attrgetter("position"))
            begun: list[ContextPassage] = []
            for passage in passages:
                if begun and not (
                    before.get(passage.position) == [begun[-1].position]
                    and passage.said_at.date() == begun[-1].said_at.date()
                ):
                    yield self._excerpt(begun)
                    begun = []
                begun.append(passage)
            yield self._excerpt(begun)

    def _excerpt(self, passages: Sequence[ContextPassage]) -> Excerpt:
        return Excerpt(tuple(passages), "\n".join([self._texts[passage.position] for passage in passages]))

    def _static_block(self, block: Static) -> ContextBlock:
        tokens = self._counter.count(block.text)
        return ContextBlock(
            kind=block.kind,
            text=block.text,
            tokens=tokens,
            name=block.name,
            fact=block.fact,
            positions=tuple(passage.position for passage in block.passages),
            passages=block.passages,
            session=block.passages[0].session if block.passages else None,
        )

    def _passage_block(self, excerpt: Excerpt) -> ContextBlock:
        relevances = [passage.relevance for passage in excerpt.passages if passage.relevance is not None]
        return ContextBlock(
            kind=BlockKind.PASSAGE,
            text=excerpt.text,
            tokens=self._counter.count(excerpt.text),
            positions=tuple([passage.position for passage in excerpt.passages]),
            passages=excerpt.passages,
            relevance=max(relevances, default=None),
            session=excerpt.passages[0].session,
        )


def _share(size: int, step: int) -> float:
    """Return how much of what a turn answers its passage of a length holds, about."""
    length = LENGTHS[step]
    return 1.0 if length is None else math.pow(min(length / max(size, 1), 1.0), SHARE_POWER)


def _no_room_for(block: Static) -> LeftOut:
    position = block.passages[0].position if block.passages else None
    return LeftOut(kind=block.kind, why=WhyLeftOut.NO_ROOM, name=block.name, position=position)


def left_out(turn: Hit | ContextPassage, why: WhyLeftOut) -> LeftOut:
    """Say why a turn is not shown."""
    return LeftOut(
        kind=BlockKind.PASSAGE,
        why=why,
        position=turn.position,
        relevance=turn.relevance,
    )
