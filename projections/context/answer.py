"""The result of a context: a text for a prompt, the blocks it is made of, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated

from mnemolog.domain.display import counted
from mnemolog.domain.message import Role
from mnemolog.domain.position import Position, UtcTime
from mnemolog.domain.references import TO_EVENT, ShownAt
from mnemolog.domain.result import Result, Stale, brief


class BlockKind(StrEnum):
    """What a block shows."""

    FACT = "fact"
    STANDING = "standing"
    """What a user said that should hold for every answer, or a fact that is below `standing/`."""
    TASK = "task"
    VALUE = "value"
    NOTE = "note"
    PASSAGE = "passage"


class WhyLeftOut(StrEnum):
    """Why something is not in a context."""

    NO_ROOM = "no-room"
    """The budget of tokens does not hold it."""
    BELOW_MIN_RELEVANCE = "below-min-relevance"
    REPETITION = "repetition"
    """A later turn, `LeftOut.newer`, says the same."""
    ENDED = "ended"
    """A standing statement that `end_standing` ended."""


class ContextPassage(Result, frozen=True, kw_only=True):
    """A turn, or a part of it, in a context."""

    position: ShownAt
    session: str
    scope: str
    role: Role
    speaker: str | None
    said_at: UtcTime
    text: str
    """The characters `start` to `end` of the turn's text."""
    start: int
    end: int
    of: int
    """Characters of the turn's text. The context's text has `…` where something is cut off."""
    relevance: float | None
    """As `Hit.relevance`; None for a turn that is shown because it belongs to a hit."""
    also_said: tuple[UtcTime, ...] = ()
    """When earlier turns said the same; newest first. They are not shown."""
    newer: Annotated[Position, TO_EVENT] | None = None
    """The most similar statement that the same user made later, as `Hit.newer`."""
    superseded_by: Annotated[Position, TO_EVENT] | None = None
    """As `Hit.superseded_by`: facts rest on the turn, and none of them holds."""

    @property
    def whole(self) -> bool:
        """Whether it is the whole turn."""
        return self.end - self.start == self.of

    def _shown(self) -> Iterable[str]:
        return (f"@{self.position}", f"{self.speaker or self.role.value}: {brief(self.text)}")


class ContextBlock(Result, frozen=True, kw_only=True):
    """A part of a context's text."""

    kind: BlockKind
    text: str
    """As it stands in the text of the context."""
    tokens: int
    """Of this text alone: the sum over the blocks is not `Context.tokens`."""
    name: str = ""
    """The key, for a fact or a value."""
    fact: Annotated[ShownAt, TO_EVENT] | None = None
    """The position of the assertion that decides, for a fact."""
    positions: tuple[Annotated[ShownAt, TO_EVENT], ...] = ()
    """The turns it shows, in order."""
    passages: tuple[ContextPassage, ...] = ()
    """Likewise. Turns that follow one another in a session are one block."""
    relevance: float | None = None
    """The highest of its passages."""
    session: str | None = None

    def _shown(self) -> Iterable[str]:
        return (self.kind.value, brief(self.text), counted(self.tokens, "token"))


class LeftOut(Result, frozen=True, kw_only=True):
    """Something that is not in a context, and why."""

    kind: BlockKind
    why: WhyLeftOut
    position: Position | None = None
    """Of a passage: its turn."""
    name: str = ""
    """Of a fact or a value: its key."""
    relevance: float | None = None
    newer: Annotated[Position, TO_EVENT] | None = None
    """Of a repetition: the turn that is shown in its place, or would be if there were room."""


class Context(Result, frozen=True, kw_only=True):
    """What a memory has on a question, as a text for a prompt. `str(context)` is the text.

    A sequence of its blocks: iterate over it, take its length. Without blocks it is false and its text is empty.
    """

    query: str
    text: str
    blocks: tuple[ContextBlock, ...]
    tokens: int
    """Tokens of the text, at most `budget`."""
    budget: int
    counted_by: str
    """What counted the tokens: the estimate, or the name of the tokenizer."""
    left_out: tuple[LeftOut, ...]
    """What is not shown, each with the reason."""
    head: Position
    """The position that it refers to: `as_of`, or the head of the log at the time of the call."""
    as_of: Position | None = None
    """The `as_of` of the call; None for the present."""
    min_relevance: float
    """Turns of less relevance are left out: as given, or the floor that suits the best hit."""
    fits: bool = True
    """Whether something fits the question well. If not, the text says so, and has only the nearest few passages."""
    vectors_cover: Position | None = None
    """The vectors searched every turn up to this position; None if they did not answer."""
    unavailable_legs: dict[str, str]
    """Why a requested leg of the recall did not answer, by leg."""
    receipt: Position | None = None
    """Position of its receipt in the log, if one was requested."""

    stale: Stale | None = None
    """Set if the log does not answer, as in a recall."""

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        return bool(self.blocks)

    def __iter__(self) -> Iterator[ContextBlock]:
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def positions(self) -> tuple[Position, ...]:
        """The turns that are shown, in the order of the text."""
        return tuple(position for block in self.blocks for position in block.positions)

    def _shown(self) -> Iterable[str]:
        when = f"head={self.head}" if self.as_of is None else f"as_of={self.as_of}"
        return (brief(self.query), counted(len(self.blocks), "block"), f"{self.tokens} of {self.budget} tokens", when)
