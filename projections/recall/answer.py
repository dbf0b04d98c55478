"""The result of a recall: hits with their sources, what the answer is based on, and both explained in words."""

import textwrap
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any, Final, overload

import msgspec

from mnemolog.domain.display import counted, one_line
from mnemolog.domain.event import TO_EVENT, ShownAt
from mnemolog.domain.message import Role
from mnemolog.domain.result import Result, Stale, brief
from mnemolog.domain.values import Position, UtcTime
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.passages import Passage, marked
from mnemolog.projections.recall.question import TEXT, VECTOR

COLUMNS: Final = 80
_NAME_COLUMNS: Final = 12
_PART_COLUMNS: Final = 28
_BAR_COLUMNS: Final = 32
PARTS: Final = {
    "words": "words in it",
    "neighbours": "turns next to it",
    "vector": "meaning",
    "speaker": "the speaker you named",
    "date": "the time you named",
    "role": "who said it",
    "currency": "tells of a change",
    "base": "any turn",
}
"""What each part of a score stands for, in words."""
_BY: Final = {TEXT: "by words", VECTOR: "by meaning"}


class Hit(Result, frozen=True, kw_only=True):
    """One turn of the answer, with its source."""

    text: str
    passage: Passage
    """The best passage of a long turn for the query; all of a turn of up to 500 characters."""
    relevance: float
    """How likely the turn has to do with the query, from 0 to 1. In `vector` mode its similarity, at least 0."""
    position: ShownAt
    session: str
    session_title: str
    """Empty if the session has none, or if it was forgotten."""
    role: Role
    speaker: str | None
    said_at: UtcTime
    key: str | None
    scope: str
    metadata: dict[str, Any]
    ranks: dict[str, int]
    """Rank of the turn in each leg that found it, starting at 1."""
    similarity: float | None
    """Cosine similarity to the query, if the turn has a vector."""
    score_parts: dict[str, float] = msgspec.field(default_factory=dict)
    """The parts of the score, by the names of `Weights`, and `words`. Empty in `vector` mode: similarity alone."""
    before: tuple[Turn, ...] = ()
    """With `context_turns`: the turns before it in its session, or as the recalling session sees them; in order."""
    after: tuple[Turn, ...] = ()
    """Likewise the turns after it."""
    newer: Turn | None = None
    """Of the first hit: the most similar statement that the same user made later. It does not say which one holds."""
    repeated: tuple[Annotated[Position, TO_EVENT], ...] = ()
    """Other turns of the same role, speaker and scope with the same words. They are no hits of their own."""
    superseded_by: Annotated[Position, TO_EVENT] | None = None
    """Of a turn that facts rest on of which none holds: the fact that does, or the retraction (docs/facts.md)."""
    exchange: tuple[Turn, ...] = ()
    """With `exchange`: the assistant's reply to a user's turn, or the user's turns that an assistant's turn answers."""

    @property
    def others(self) -> tuple[Turn, ...]:
        """The turns that it brings with it: around it, of its exchange, and said later."""
        newer = () if self.newer is None else (self.newer,)
        return (*self.before, *self.after, *self.exchange, *newer)

    def _shown(self) -> Iterable[str]:
        return (f"@{self.position}", brief(self.text), f"relevance={self.relevance:.2f}")


class Recall(Result, frozen=True, kw_only=True):
    """The answer of a recall, and the state of log and vectors it is based on.

    A sequence of its hits, best first: iterate over it, take its length, index it. Without hits it is false.
    """

    query: str
    hits: tuple[Hit, ...]
    head: Position
    """The position that the answer refers to: `as_of`, or the head of the log at the time of the call.

    The text leg covers all of it.
    """
    vectors_cover: Position | None
    """The vector leg searched every turn up to this position; None if that leg did not answer."""
    legs: tuple[str, ...]
    """The legs that answered: `text`, `vector` or both."""
    unavailable_legs: dict[str, str]
    """Why a requested leg did not answer, by leg."""
    vectors_lag: str | None = None
    """Why the vectors reach no further than `vectors_cover`, if something went wrong."""
    model: str | None
    """Fingerprint of the model that embedded the query and every vector it was compared with."""
    as_of: Position | None = None
    """The `as_of` of the call; None for the present."""
    next: str | None = None
    """Pass this as `after` for the next page; None if there is none."""
    reranker: str | None = None
    """The reranker that reordered the best hits; None if there is none or it failed (`unavailable_legs`)."""
    filters: dict[str, Any] = msgspec.field(default_factory=dict)
    """The filters that were given, by the names of the arguments."""
    searched_turns: int | None = None
    """How many turns the filters left to search; None where they were not counted."""
    left_out: int = 0
    """How many of the `k` hits are missing because the turns in their place are below `min_relevance`."""
    skipped: tuple[Annotated[Position, TO_EVENT], ...] = ()
    """Turns that ask what the query asks, and so do not answer it (`asked`)."""
    kind: str = "answer"
    """What the query was understood to ask for: an `answer`, the `order` in which things were said, or a `summary`.

    For an `order`, the hits of a page are in the order of time, and only the user's turns.
    """
    topic: str = ""
    """What was searched for: the query, its topic, or up to three parts of a long query, one below the other."""
    min_relevance: float = 0.0
    """Turns of less relevance are left out: as given, or the floor that suits the best hit (docs/ranking.md)."""
    fits: bool = True
    """Whether something fits the question well. If not, and no `min_relevance` was given, there are at most 5 hits."""
    receipt: Position | None = None
    """Position of this answer's receipt in the log, if one was requested."""

    stale: Stale | None = None
    """Set if the log does not answer: then the hits come from projections alone (docs/postgres.md)."""

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...

    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def explain(self) -> str:
        """Return what was searched, what each hit scored for and why a leg is missing, in words for a terminal."""
        return "\n".join((*_basis_in_words(self), *_hits_in_words(self)))

    def _shown(self) -> Iterable[str]:
        when = f"head={self.head}" if self.as_of is None else f"as_of={self.as_of}"
        shown = (brief(self.query), counted(len(self.hits), "hit"), when)
        return shown if self.stale is None else (*shown, "STALE")


RERANKER: Final = "reranker"
"""The key of a reranker that failed in `unavailable_legs`."""


def _basis_in_words(answer: Recall) -> Iterator[str]:
    yield from _fact("question", one_line(answer.query))
    if answer.kind != "answer":
        yield from _fact(
            "asked for", f"{'the order of what was said' if answer.kind == 'order' else 'a summary'} on: {answer.topic}"
        )
    elif answer.topic not in ("", answer.query):
        read, of = len(answer.topic), len(answer.query)
        yield from _fact("read", f"{read:,} of its {of:,} characters: {one_line(answer.topic)}")
    turns = "turns" if answer.searched_turns is None else counted(answer.searched_turns, "turn")
    when = "the newest" if answer.as_of is None else "as of then"
    yield from _fact("searched", f"{turns} up to position {answer.head} ({when})")
    if answer.filters:
        yield from _fact("filters", "; ".join(f"{name} {_value(value)}" for name, value in answer.filters.items()))
    yield from _fact("by words", "yes" if TEXT in answer.legs else "no: only the meaning was asked for")
    yield from _fact("by meaning", by_meaning(answer))
    for name, why in answer.unavailable_legs.items():
        if name != VECTOR:
            yield from _fact(name, f"no: {one_line(why)}")
    if answer.reranker is not None:
        yield from _fact("reranked", f"by {one_line(answer.reranker)}")
    if answer.left_out:
        yield from _fact("left out", f"{counted(answer.left_out, 'turn')} below {answer.min_relevance:g}")
    if answer.skipped:
        yield from _fact(
            "skipped", f"{counted(len(answer.skipped), 'turn')} that ask the same: `asked=keep` keeps them"
        )
    if answer.receipt is not None:
        yield from _fact("receipt", f"at position {answer.receipt}: `store.audit.receipts` repeats this recall")


def by_meaning(answer: Recall) -> str:
    """Return in words how far the vectors answered, and why they did not where they did not."""
    if (why := answer.unavailable_legs.get(VECTOR)) is not None:
        return f"no: {one_line(why)}"
    if answer.vectors_cover is None:
        return "no: only words were searched"
    if answer.vectors_cover >= answer.head:
        return "yes, every turn"
    lag = f": {one_line(answer.vectors_lag)}" if answer.vectors_lag else ""
    return f"only turns up to position {answer.vectors_cover}; the vectors reach no further yet{lag}"


def _hits_in_words(answer: Recall) -> Iterator[str]:
    if not answer.hits:
        yield from ("", "No turn was found.")
    largest = max((abs(part) for hit in answer.hits for part in hit.score_parts.values()), default=0.0)
    for number, hit in enumerate(answer.hits, 1):
        yield ""
        yield _fitted(
            f"{number}. @{hit.position} {one_line(hit.speaker or hit.role.value)}: "
            f"{one_line(marked(hit.passage, hit.text))}"
        )
        for name, part in hit.score_parts.items():
            if part:
                yield f"   {PARTS.get(name, name):<{_PART_COLUMNS}}{_bar(part, largest)} {part:5.2f}"
        yield from _wrapped(_summary(hit), "   ", "   ")
        if hit.repeated:
            yield from _wrapped(f"said {len(hit.repeated) + 1} times", "   ", "   ")
        if hit.superseded_by is not None:
            yield f"   no longer holds: see the fact at @{hit.superseded_by}"
        if hit.newer is not None:
            yield _fitted(f"   see also @{hit.newer.position}, later: {one_line(hit.newer.text)}")


def _summary(hit: Hit) -> str:
    """Return the relevance, and how each leg found the hit."""
    found = [f"number {rank} {_BY.get(leg, leg)}" for leg, rank in hit.ranks.items()]
    near = "" if hit.similarity is None else f" (similarity {hit.similarity:.2f})"
    return f"relevance {hit.relevance:.2f}; {', '.join(found) or 'found beside other turns'}{near}"


def _bar(part: float, largest: float) -> str:
    """Return a bar; a part that was subtracted is drawn lighter."""
    length = max(1, round(_BAR_COLUMNS * abs(part) / largest))
    return f"{('█' if part > 0 else '░') * length:<{_BAR_COLUMNS}}"


def _value(value: Any) -> str:
    match value:
        case datetime():
            return value.isoformat()
        case dict():
            return ", ".join(f"{key}={item!r}" for key, item in value.items())
        case list():
            return ", ".join(map(str, value))
        case True:
            return "yes"
        case _:
            return str(value)


def _fact(name: str, value: str) -> Iterator[str]:
    yield from _wrapped(one_line(value, characters_max=None), f"{name:<{_NAME_COLUMNS}}", " " * _NAME_COLUMNS)


def _wrapped(text: str, first: str, further: str) -> Iterator[str]:
    if text.isascii():
        yield from textwrap.wrap(text, COLUMNS, initial_indent=first, subsequent_indent=further)
    else:
        yield _fitted(first + text)


def _fitted(line: str) -> str:
    """Return a line that fits, cut with an ellipsis; East Asian characters take two columns."""
    used = 0
    for number, character in enumerate(line):
        used += 2 if unicodedata.east_asian_width(character) in "WF" else not unicodedata.combining(character)
        if used > COLUMNS - 1 and number < len(line) - 1:
            return f"{line[:number]}…"
    return line
