"""Explain an answer in words: what was searched, what each hit scored for, and why a leg is missing."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from mnemolog.domain.clock import to_datetime
from mnemolog.domain.display import counted, one_line
from mnemolog.projections.recall.passages import marked
from mnemolog.projections.recall.question import TEXT, VECTOR, Question

if TYPE_CHECKING:
    from mnemolog.projections.recall.answer import Hit, Recall

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
    "recency": "recent",
    "base": "any turn",
}
"""What each part of a score stands for, in words."""
_BY: Final = {TEXT: "by words", VECTOR: "by meaning"}


def filters_of(question: Question) -> dict[str, Any]:
    """Return the filters that were given, by the names of the arguments of a recall."""
    given = {
        "scope": question.scope,
        "session": question.session,
        "lineage": question.lineage,
        "hidden": question.hidden,
        "roles": [role.value for role in question.roles],
        "speakers": list(question.speakers),
        "since": None if question.since is None else to_datetime(question.since),
        "until": None if question.until is None else to_datetime(question.until),
        "by": question.by if question.by != "said" else None,
        "metadata": question.metadata,
        "min_relevance": question.min_relevance,
    }
    return {name: value for name, value in given.items() if value}


def explain(answer: Recall) -> str:
    """Return the explanation of an answer, in lines of at most 80 columns."""
    return "\n".join((*_basis(answer), *_hits(answer)))


def _basis(answer: Recall) -> Iterator[str]:
    yield from _fact("question", one_line(answer.query))
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
        yield from _fact("left out", f"{counted(answer.left_out, 'turn')} below {answer.filters['min_relevance']:g}")
    if answer.receipt is not None:
        yield from _fact("receipt", f"at position {answer.receipt}: `store.audit.recalls` repeats this recall")


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


def _hits(answer: Recall) -> Iterator[str]:
    if not answer.hits:
        yield from ("", "No turn was found.")
    largest = max((abs(part) for hit in answer.hits for part in hit.score_parts.values()), default=0.0)
    for number, hit in enumerate(answer.hits, 1):
        yield ""
        yield _fitted(f"{number}. @{hit.position} {one_line(hit.speaker or hit.role.value)}: {_passage(hit)}")
        for name, part in hit.score_parts.items():
            if part:
                yield f"   {PARTS.get(name, name):<{_PART_COLUMNS}}{_bar(part, largest)} {part:5.2f}"
        yield from _wrapped(_summary(hit), "   ", "   ")


def _passage(hit: Hit) -> str:
    return one_line(marked(hit.passage, hit.text))


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
