"""Ask what an agent asks: why a question is answered so, and what a prompt would get within a budget of tokens."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from starlette.responses import Response

from mnemolog.adapters.support.store_access import known_session, read
from mnemolog.domain.choices import DEFAULT_LANGUAGE, LANGUAGE_STREAM, evolve_language
from mnemolog.domain.display import counted
from mnemolog.domain.result import Result
from mnemolog.domain.values import INTEGER_MAX, Position
from mnemolog.projections.context.answer import BlockKind, Context, LeftOut, WhyLeftOut
from mnemolog.projections.context.service import TOKENS
from mnemolog.projections.recall.answer import PARTS, RERANKER, Hit, Recall, by_meaning
from mnemolog.projections.recall.question import TEXT, VECTOR
from mnemolog.projections.sql.words import WORD, stems_of, terms_of
from mnemolog.server.console.moment import AsOf, as_of, recorded_at
from mnemolog.server.console.page import ConsoleRequest, PageRequest, action, page, redirect, view
from mnemolog.server.console.receipts_page import answered_turn
from mnemolog.server.console.rendering import excerpt
from mnemolog.store import MemoryStore

HITS: Final = 10
HITS_MAX: Final = 100
_START: Final = "base"


class ScorePart(Result, frozen=True, kw_only=True):
    """One part of the score of a hit."""

    name: str
    says: str
    """What it stands for, in words."""
    value: float
    """Log-odds; below 0 where it speaks against the turn."""
    share: float
    """Its length as a bar: 1 for the largest part of the answer. 0 for where every turn starts."""


class Piece(Result, frozen=True, kw_only=True):
    """A piece of a passage."""

    text: str
    matches: bool
    """Whether it is a word of the question, with any ending."""


class ShownHit(Result, frozen=True, kw_only=True):
    """A hit and the parts of its score."""

    place: int
    hit: Hit
    passage: tuple[Piece, ...]
    """The best passage of the turn, with the words of the question apart."""
    score: float | None
    """The sum of the parts; None in `vector` mode, where the similarity alone counts."""
    parts: tuple[ScorePart, ...]
    found: str
    """How each leg found it, in words."""


class Leg(Result, frozen=True, kw_only=True):
    """A search path of the recall: whether it answered."""

    name: str
    answered: bool
    says: str


class ComparedHit(Result, frozen=True, kw_only=True):
    """A hit in one of two answers that are compared."""

    place: int
    position: Position
    session: str
    who: str
    text: str
    relevance: float
    elsewhere: int | None
    """Its place in the other answer; None if it is not in it."""
    change: str
    """Against the other answer: `same`, `up`, `down`, `only here`; `not yet` if it was recorded after that moment."""


class Comparison(Result, frozen=True, kw_only=True):
    """Two answers to the same question, side by side."""

    here: tuple[ComparedHit, ...]
    there: tuple[ComparedHit, ...]
    there_head: Position
    there_at: datetime | None
    is_same: bool


class RecallPage(Result, frozen=True, kw_only=True):
    """The recall debugger."""

    head: Position | None = None
    """The position that the answer refers to; None without a question."""
    at: datetime | None = None
    """When the event at that position was recorded; None if it is outside of what the caller may see."""
    hits: tuple[ShownHit, ...] = ()
    searched: str = ""
    legs: tuple[Leg, ...] = ()
    compared: Comparison | None = None
    """The answer at the chosen moment beside that of the other moment."""


@page("/recall", title="Recall", template="recall.html")
async def recall(asked: PageRequest) -> RecallPage:
    """Show what a question is answered with, and why. Leaves no receipt."""
    store, then = asked.caller.store, asked.text("then")
    if not (question := asked.text("q")):
        return RecallPage()
    ask, other = partial(store.recall, question, receipt=False, **_options(asked)), None
    if then:
        other = await read(store, lambda blocking: as_of(blocking, then, name="then"))
    here, *there = await asyncio.gather(*(ask(as_of=moment.when) for moment in (asked.at, other) if moment))
    return await read(store, lambda blocking: _page(blocking, question, other, here, *there))


def _options(asked: PageRequest) -> dict[str, Any]:
    """Return the options of a recall that a URL has. The recall checks them."""
    session = asked.text("session") or None
    return {
        "k": asked.whole("k", HITS, least=1, most=HITS_MAX),
        "mode": asked.text("mode", "hybrid"),
        "scope": asked.scope,
        "session": session,
        "lineage": bool(session and asked.text("lineage")),
        "roles": asked.several("role"),
        "speakers": asked.several("speaker"),
        "since": asked.text("since") or None,
        "until": asked.text("until") or None,
        "by": asked.text("by", "said"),
        "min_relevance": asked.decimal("min_relevance"),
    }


def _page(
    store: MemoryStore, question: str, other: AsOf | None, here: Recall, there: Recall | None = None
) -> RecallPage:
    """Return the page of an answer, beside that of the `other` moment if there is one."""
    language = store.parts.log.fold(LANGUAGE_STREAM, evolve_language).state or DEFAULT_LANGUAGE
    return RecallPage(
        head=here.head,
        at=recorded_at(store, here.head),
        hits=tuple(_shown(here, frozenset(terms_of(question, language)), language)),
        searched=_searched(here),
        legs=tuple(_legs(here)),
        compared=None
        if there is None or other is None
        else _compared(here, there, at=other.time or recorded_at(store, there.head)),
    )


def _compared(here: Recall, there: Recall, *, at: datetime | None) -> Comparison:
    places_here, places_there = _places(here), _places(there)
    return Comparison(
        here=tuple(_placed(here, places_there, other_head=there.head)),
        there=tuple(_placed(there, places_here, other_head=here.head)),
        there_head=there.head,
        there_at=at,
        is_same=places_here == places_there,
    )


def _placed(answer: Recall, others: dict[Position, int], *, other_head: Position) -> Iterator[ComparedHit]:
    for place, hit in enumerate(answer.hits, 1):
        other = others.get(hit.position)
        lacking = "not yet" if hit.position > other_head else "only here"
        yield ComparedHit(
            place=place,
            position=hit.position,
            session=hit.session,
            who=hit.speaker or hit.role.value,
            text=excerpt(hit.passage.text),
            relevance=hit.relevance,
            elsewhere=other,
            change=lacking if other is None else "same" if other == place else "up" if place < other else "down",
        )


def _places(answer: Recall) -> dict[Position, int]:
    return {hit.position: place for place, hit in enumerate(answer.hits, 1)}


def _pieces(text: str, stems: frozenset[str], language: str) -> Iterator[Piece]:
    """Yield a text in pieces: words of the question, and what is between them."""
    start = 0
    for word in WORD.finditer(text):
        if not stems.isdisjoint(stems_of(word[0], language)):
            if word.start() > start:
                yield Piece(text=text[start : word.start()], matches=False)
            yield Piece(text=word[0], matches=True)
            start = word.end()
    if start < len(text):
        yield Piece(text=text[start:], matches=False)


def _shown(answer: Recall, stems: frozenset[str], language: str) -> Iterator[ShownHit]:
    drawn = [abs(part) for hit in answer.hits for name, part in hit.score_parts.items() if name != _START]
    largest = max(drawn, default=0.0) or 1.0
    for place, hit in enumerate(answer.hits, 1):
        yield ShownHit(
            place=place,
            hit=hit,
            passage=tuple(_pieces(hit.passage.text, stems, language)),
            score=sum(hit.score_parts.values()) if hit.score_parts else None,
            parts=tuple(
                ScorePart(
                    name=name,
                    says="to begin with" if name == _START else PARTS.get(name, name),
                    value=part,
                    share=0.0 if name == _START else abs(part) / largest,
                )
                for name, part in hit.score_parts.items()
                if part
            ),
            found=_found(hit),
        )


def _found(hit: Hit) -> str:
    ways = {TEXT: "by its words", VECTOR: "by its meaning"}
    found = [f"number {rank} {ways.get(leg, leg)}" for leg, rank in hit.ranks.items()]
    near = "" if hit.similarity is None else f" (similarity {hit.similarity:.2f})"
    how = f"Found as {', '.join(found)}" if found else "Found beside other turns"
    return f"{how}{near}."


def _searched(answer: Recall) -> str:
    turns = "All turns" if answer.searched_turns is None else counted(answer.searched_turns, "turn")
    left_out = f"; {counted(answer.left_out, 'turn')} had too little relevance" if answer.left_out else ""
    return (
        f"{turns} up to position {answer.head:,} {'was' if answer.searched_turns == 1 else 'were'} searched{left_out}."
    )


def _legs(answer: Recall) -> Iterator[Leg]:
    words = TEXT in answer.legs
    yield Leg(
        name=TEXT,
        answered=words,
        says="Words: every turn was searched for the words of the question."
        if words
        else "Words: not asked, the question was for the meaning only.",
    )
    yield Leg(name=VECTOR, answered=VECTOR in answer.legs, says=f"Meaning: {by_meaning(answer)}.")
    if answer.reranker is not None or RERANKER in answer.unavailable_legs:
        why = answer.unavailable_legs.get(RERANKER)
        says = f"Second look: the best turns were ordered again by {answer.reranker}."
        yield Leg(name=RERANKER, answered=why is None, says=says if why is None else f"Second look: no, {why}.")


TOKENS_MAX: Final = 1_000_000
LEFT_OUT_MAX: Final = 100
"""How many of the things that were left out are listed."""


class ShownLeftOut(Result, frozen=True, kw_only=True):
    """Something that the prompt would not get."""

    item: LeftOut
    who: str = ""
    text: str = ""
    """The beginning of the turn, or the key of the value."""
    session: str = ""


class ContextPage(Result, frozen=True, kw_only=True):
    """The context preview."""

    kinds: ClassVar[Mapping[BlockKind, str]] = {
        BlockKind.FACT: "a fact",
        BlockKind.STANDING: "what should hold for every answer",
        BlockKind.TASK: "the task",
        BlockKind.VALUE: "a value",
        BlockKind.NOTE: "a note",
        BlockKind.PASSAGE: "what was said",
    }
    reasons: ClassVar[Mapping[WhyLeftOut, str]] = {
        WhyLeftOut.NO_ROOM: "It did not fit into the budget.",
        WhyLeftOut.BELOW_MIN_RELEVANCE: "It has too little to do with the question.",
        WhyLeftOut.REPETITION: "A later turn says the same.",
        WhyLeftOut.ENDED: "Somebody ended it: it holds for no answer any more.",
    }
    default_tokens: ClassVar[int] = TOKENS

    context: Context | None = None
    """None without a question."""
    at: datetime | None = None
    """When the event at the position of the context was recorded."""
    left_out: tuple[ShownLeftOut, ...] = ()
    left_out_more: int = 0
    """What else was left out, and is not listed."""
    says: tuple[str, ...] = ()


@action("/context/end", title="End a standing statement", verb="record")
async def end_standing(asked: ConsoleRequest) -> Response:
    """End what a turn says of all answers to come."""
    await asked.caller.store.end_standing(asked.whole("turn", 0, most=INTEGER_MAX), reason=asked.text("reason"))
    return redirect(f"/context?{urlencode({name: asked.text(name) for name in ('q', 'scope') if asked.text(name)})}")


@view("/context", title="Context", template="context.html", pool="recall")
def context(store: MemoryStore, asked: PageRequest) -> ContextPage:
    """Show what a prompt would get. Leaves no receipt."""
    if not asked.text("q"):
        return ContextPage()
    found = _context(store, asked)
    shown = found.left_out[:LEFT_OUT_MAX]
    return ContextPage(
        context=found,
        at=recorded_at(store, found.head),
        left_out=tuple(_shown_left_out(store, item) for item in shown),
        left_out_more=len(found.left_out) - len(shown),
        says=tuple(_in_sentences(found)),
    )


def _context(store: MemoryStore, asked: PageRequest) -> Context:
    question, budget = asked.text("q"), asked.whole("tokens", TOKENS, most=TOKENS_MAX)
    session = asked.text("session")
    how: dict[str, Any] = {
        "as_of": asked.at.when,
        "min_relevance": asked.decimal("min_relevance"),
        "receipt": False,
    }
    if not session:
        return store.context(question, budget, scope=asked.scope, **how)
    return known_session(store, session).context(question, budget, scope=asked.scope or None, **how)


def _shown_left_out(store: MemoryStore, item: LeftOut) -> ShownLeftOut:
    turn = None if item.position is None else answered_turn(store, item.position)
    if turn is None or turn.forgotten:
        return ShownLeftOut(item=item, text=item.name)
    return ShownLeftOut(item=item, who=turn.who, text=turn.text, session=turn.session or "")


def _in_sentences(found: Context) -> Iterator[str]:
    if not found.blocks:
        yield "The prompt would get nothing: the memory has nothing on this, or nothing fits into the budget."
    else:
        shown = counted(len(found.blocks), "block")
        yield f"The prompt would get {shown} of {found.tokens:,} tokens together; the budget is {found.budget:,}."
    if not found.fits:
        yield "Nothing that was recorded fits the question well."
    for leg, reason in found.unavailable_legs.items():
        yield f"The search by {'meaning' if leg == 'vector' else leg} did not answer: {reason}."
