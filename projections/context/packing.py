"""Choose what a context shows: whole entries, the most relevant first, within a budget of tokens."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from mnemolog.domain.position import Position
from mnemolog.projections.context.answer import BlockKind, ContextBlock, ContextPassage, LeftOut, WhyLeftOut
from mnemolog.projections.context.rendering import (
    HEADING,
    HEADINGS,
    NOTHING_FITS,
    Excerpt,
    Static,
    day,
    entry,
    session_heading,
    written,
)
from mnemolog.projections.context.token_counting import Counter
from mnemolog.projections.recall.answer import Hit

FACTS_SHARE: Final = 0.2
"""Facts take at most this share of the budget. They come first and do not depend on the question."""
STANDING_SHARE: Final = 0.2
STANDING_TOKENS_MAX: Final = 300
"""Standing statements take at most this share of the budget and so many tokens, and those without a condition half."""
STATIC_SHARE: Final = 0.5
"""Facts, task, values and notes take at most this share of the budget, whatever the question finds."""
CHARACTERS_PER_TOKEN_MAX: Final = 100
"""An entry with more characters for each token that is left is not even counted: it does not fit."""

Consecutive = Callable[[ContextPassage, ContextPassage], bool]
"""Whether the second passage is of the turn after that of the first."""


LENGTHS: Final[tuple[int | None, ...]] = (300, 500, 900, 1_500, None)
"""The lengths at which a turn can be shown, in characters; None for all of it."""
SHARE_POWER: Final = 0.4
"""A passage of a share of its turn holds about share ** 0.4 of what the turn answers."""
RANK_POWER: Final = 1.3
"""The turn at a rank is worth 1 / rank ** 1.3. Both were chosen on assistant-dev (docs/reports/recall-quality.md)."""


class GrowingTurn:
    """A turn that can be shown at several lengths. `cut` returns its passage of at most so many characters."""

    def __init__(self, size: int, cut: Callable[[int | None], ContextPassage]) -> None:
        self.size, self.at = size, cache(cut)

    def share(self, step: int) -> float:
        """Return how much of what it answers a passage of a length holds, about."""
        length = LENGTHS[step]
        return 1.0 if length is None else math.pow(min(length / max(self.size, 1), 1.0), SHARE_POWER)


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
        consecutive: Consecutive,
        fits: bool = True,
        brief: bool = False,
    ) -> None:
        self._budget, self._counter, self._titles, self._consecutive = budget, counter, titles, consecutive
        self._fits, self._brief = fits, brief
        self._none = counter.count("")
        self._used = self._cost(HEADING if fits else f"{HEADING}\n{NOTHING_FITS}", budget)
        self._headings: set[str] = set()
        self._costs: dict[tuple[int, int, int], int] = {}
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
        steps: list[tuple[float, int, int]] = []
        for rank, turn in enumerate(turns):
            heapq.heappush(steps, (-self._gain(turn, rank, 0), rank, 0))
        while steps:
            _, rank, step = heapq.heappop(steps)
            turn, passage = turns[rank], turns[rank].at(LENGTHS[step])
            cost, heading = self._more(turn, step), session_heading(passage, self._titles)
            if self._used + cost > self._budget:
                continue
            self._used += cost
            self._headings.add(heading)
            shown[rank] = passage
            if not self._brief and step + 1 < len(LENGTHS) and not passage.whole:
                heapq.heappush(steps, (-self._gain(turn, rank, step + 1), rank, step + 1))
        for rank, turn in enumerate(turns):
            if rank in shown:
                self._passages.append(shown[rank])
            elif found:
                self._left_out.append(left_out(turn.at(LENGTHS[0]), WhyLeftOut.NO_ROOM))

    def _gain(self, turn: GrowingTurn, rank: int, step: int) -> float:
        """Return what a step gains for each of its tokens."""
        share = turn.share(step) - (turn.share(step - 1) if step else 0)
        return share / math.pow(rank + 1, RANK_POWER) / max(self._more(turn, step), 1)

    def _more(self, turn: GrowingTurn, step: int) -> int:
        """Return the tokens that a step adds: of the first, the entry and its heading, if that is new."""
        passage = turn.at(LENGTHS[step])
        cost = self._entry_cost(passage)
        if step:
            return cost - self._entry_cost(turn.at(LENGTHS[step - 1]))
        heading = session_heading(passage, self._titles)
        return cost + (0 if heading in self._headings else self._cost(heading, self._budget))

    def _entry_cost(self, passage: ContextPassage) -> int:
        place = passage.position, passage.start, passage.end
        if place not in self._costs:
            self._costs[place] = self._cost(entry(passage), self._budget)
        return self._costs[place]

    def leave_out(self, found: Sequence[LeftOut]) -> None:
        """Add what was left out before it came to the budget."""
        self._left_out += found

    def packed(self) -> Packed:
        """Return the text and its blocks."""
        while True:
            excerpts = list(self._excerpts())
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

    def _excerpts(self) -> Iterator[Excerpt]:
        """Yield the passages as excerpts: by session, the one whose first passage was said first, then by position."""
        sessions: dict[str, list[ContextPassage]] = {}
        for passage in sorted(self._passages, key=lambda passage: (passage.said_at, passage.position)):
            sessions.setdefault(passage.session, []).append(passage)
        for passages in sessions.values():
            passages.sort(key=lambda passage: passage.position)
            begun: list[ContextPassage] = []
            for passage in passages:
                if begun and not self._continues(begun[-1], passage):
                    yield _excerpt(begun)
                    begun = []
                begun.append(passage)
            yield _excerpt(begun)

    def _continues(self, one: ContextPassage, other: ContextPassage) -> bool:
        return day(one.said_at) == day(other.said_at) and self._consecutive(one, other)

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
            positions=tuple(passage.position for passage in excerpt.passages),
            passages=excerpt.passages,
            relevance=max(relevances, default=None),
            session=excerpt.passages[0].session,
        )


def _excerpt(passages: Sequence[ContextPassage]) -> Excerpt:
    return Excerpt(tuple(passages), "\n".join(map(entry, passages)))


def _no_room_for(block: Static) -> LeftOut:
    position = block.passages[0].position if block.passages else None
    return LeftOut(kind=block.kind, why=WhyLeftOut.NO_ROOM, name=block.name, position=position)


def left_out(turn: Hit | ContextPassage, why: WhyLeftOut, *, newer: Position | None = None) -> LeftOut:
    """Say why a turn is not shown."""
    return LeftOut(
        kind=BlockKind.PASSAGE,
        why=why,
        position=turn.position,
        relevance=turn.relevance,
        newer=newer,
    )
