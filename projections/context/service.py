"""Build contexts: recall, add the working memory of a session, and pack both into a budget of tokens."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from functools import cache, partial
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec.structs import replace

from mnemolog.domain import errors
from mnemolog.domain.events import ContextServed
from mnemolog.domain.result import Results
from mnemolog.domain.scope import Scope
from mnemolog.domain.session import SessionState
from mnemolog.domain.values import RECALL_K_MAX, Micros, Position, When, checked_whole
from mnemolog.domain.working_memory import is_expired, notes
from mnemolog.projections.context.answer import (
    BlockKind,
    Context,
    ContextPassage,
    LeftOut,
    Static,
    WhyLeftOut,
    fact_block,
    note_block,
    receipt_of,
    standing_block,
    task_block,
    value_block,
)
from mnemolog.projections.context.packing import (
    FACTS_SHARE,
    Counter,
    GrowingTurn,
    Packing,
    Tokenizer,
    counter_of,
    left_out,
)
from mnemolog.projections.context.standing import FOLDER, standing_fact, standing_statements
from mnemolog.projections.read_models import Fact, StandingStatement, Turn
from mnemolog.projections.recall.answer import Hit, Recall
from mnemolog.projections.recall.hits import exchanges_of
from mnemolog.projections.recall.passages import PASSAGE_CHARACTERS_MAX, SoughtWords, best_passage
from mnemolog.projections.recall.question import FEW, Kind, Question, floor
from mnemolog.projections.recall.ranking import Page
from mnemolog.projections.recall.service import Answer, Basis, Recalls, basis_of, question_of, question_today
from mnemolog.projections.sql import fact_queries, queries

TOKENS: Final = 1_500
"""The default budget."""
TOKENS_PER_HIT: Final = 25
"""One hit is requested for so many tokens of the budget: more than fit if all are long, because short ones may fit."""
HITS_MIN: Final = 20
HITS_MAX: Final = 200
EXCHANGES_FROM: Final = 1_000
"""From this budget on, what is left of it is filled with the question or the reply to the turns that are shown.

Below it, exchanges cost more than they bring.
"""

FOLLOWED: Final = 5
"""For so many hits the most similar statement that the same user made later is shown too."""

StateAt = Callable[[str, int], SessionState]
"""Returns the state of a session at a position. Raises `UnknownSession`, `OutsideSession`."""


class Wanted(NamedTuple):
    """What a context is to be like, besides its question."""

    budget: int
    counter: Counter
    of: str | None
    """The session whose task, values and notes are shown; None for none."""

    @property
    def k(self) -> int:
        """How many hits to ask for."""
        return min(max(self.budget // TOKENS_PER_HIT, HITS_MIN), HITS_MAX, RECALL_K_MAX)


def wanted(tokens: int, *, tokenizer: Tokenizer | None, of: str | None = None) -> Wanted:
    """Return what a caller wants, validated. Raises `InvalidInput`."""
    checked_whole("tokens", tokens)
    return Wanted(tokens, counter_of(tokenizer), of)


class Rebuilt(NamedTuple):
    """A context that was built again, and the recall behind it."""

    context: Context
    recall: Recall


class _Making(NamedTuple):
    """What the sections of one context are made of."""

    question: Question
    answer: Answer
    wanted: Wanted
    state: SessionState | None
    """Of the session whose working memory is shown."""
    facts: Sequence[Fact]
    relevant: Sequence[Hit]
    """The hits to show, each as the turn that said its words last."""
    repeated: Mapping[Position, Turn]
    """The turns that said the same before."""
    fits: bool
    """Whether anything fits the question well."""
    packing: Packing

    def found(self) -> set[Position]:
        """Return the positions of what is shown, was found, or is said again by it."""
        again = {at for hit in self.relevant for at in hit.repeated}
        return again | {hit.position for hit in self.relevant} | {item.position for item in self.packing.passages}

    def left_out(self) -> Iterator[LeftOut]:
        """Yield the turns that say the same as another, and the hits that are not relevant enough."""
        again = {at: hit.position for hit in self.relevant for at in hit.repeated}
        for at, newest in again.items():
            yield LeftOut(kind=BlockKind.PASSAGE, why=WhyLeftOut.REPETITION, position=at, newer=newest)
        found = self.found()
        for hit in self.answer.recall.hits:
            if hit.position not in found:
                yield left_out(hit, WhyLeftOut.BELOW_MIN_RELEVANCE)


class Contexts:
    """Builds the contexts of one store. Safe for many threads.

    `state_at` returns what a session is at a position.
    """

    def __init__(self, recalls: Recalls, *, state_at: StateAt) -> None:
        self.recalls, self._state_at = recalls, state_at

    def ask(
        self,
        question: Question,
        wanted: Wanted,
        *,
        as_of: When | None = None,
        wait_for_model: bool = True,
        receipt: bool | None = None,
    ) -> Context:
        """Return the context for a question. See `MemoryStore.context`."""
        # The context says itself what it leaves out.
        once = replace(question.weights, distinct=True)
        asked = replace(question, k=wanted.k, min_relevance=0.0, weights=once)
        with ExitStack() as snapshot:
            served = self.recalls.serve(asked, snapshot, as_of=as_of, wait_for_model=wait_for_model, newer=FOLLOWED)
            made = self._built(served.question, served.answer, wanted, question.min_relevance)
        if not self.recalls.leaves_receipt(receipt):
            return made
        event = receipt_of(made, served.receipt(), question.min_relevance, of=wanted.of)
        return replace(made, receipt=self.recalls.keep(event))

    def again(self, served: ContextServed, counter: Counter) -> Rebuilt:
        """Return the context of a receipt, built again as of its position. Raises as `Recalls.answer` does."""
        return self._rebuilt(served, counter, question_of(served.recall), basis_of(served.recall))

    def today(self, served: ContextServed, counter: Counter) -> Rebuilt:
        """Return the context that the question of a receipt has today."""
        question = replace(question_today(served.recall), k=served.recall.k)
        return self._rebuilt(served, counter, question, Basis(None, Page(served.recall.k)))

    def _rebuilt(self, served: ContextServed, counter: Counter, question: Question, basis: Basis) -> Rebuilt:
        wanted = Wanted(served.budget, counter, served.of)
        with ExitStack() as snapshot:
            answer = self.recalls.answer(question, basis._replace(newer=FOLLOWED), snapshot)
            return Rebuilt(self._built(question, answer, wanted, served.min_relevance), answer.recall)

    def _built(self, question: Question, answer: Answer, wanted: Wanted, min_relevance: float | None) -> Context:
        """Return the context for an answer, with what working memory held then and had not expired.

        Its sections get what they need of the budget in this order: facts, working memory, standing statements, turns,
        and replies to them. Where nothing fits the question well, it has the beginnings of the best few passages, and
        no replies: there is room, but nothing that is worth it.
        """
        recall = answer.recall
        best = max([hit.relevance for hit in recall.hits], default=0.0)
        least = floor(best, min_relevance, question.mode)
        enough = [hit for hit in recall.hits if hit.relevance >= least.least]
        relevant = enough if least.fits else enough[:FEW]
        repeated = queries.turns_at(answer.connection, [at for hit in relevant for at in hit.repeated])
        superseded = self.recalls.superseded(answer.connection, list(repeated), answer.known)
        relevant = [_newest(hit, repeated, superseded, answer.words) for hit in relevant]
        packing = Packing(
            wanted.budget,
            wanted.counter,
            titles={hit.session: hit.session_title for hit in relevant},
            turns_before=partial(queries.turns_beside, answer.connection, newest_first=True, limit=1),
            fits=least.fits,
            brief=not least.fits or recall.kind != Kind.ANSWER,
        )
        state = None if wanted.of is None else self._state_at(wanted.of, recall.head)
        facts, scope = self._facts(question, answer, state)
        made = _Making(question, answer, wanted, state, facts, relevant, repeated, least.fits, packing)
        plain = [fact_block(fact, of=scope) for fact in facts if not fact.key.startswith(FOLDER)]
        packing.add_static(plain, share=FACTS_SHARE)
        packing.add_static([] if state is None else list(_static(state, answer.known.valid_at)))
        self._add_standing(made)
        self._add_turns(made)
        if least.fits:
            self._add_replies(made)
        packing.leave_out(list(made.left_out()))
        packed = packing.packed()
        return Context(
            query=recall.query,
            text=packed.text,
            blocks=packed.blocks,
            tokens=packed.tokens,
            budget=wanted.budget,
            counted_by=wanted.counter.name,
            left_out=packed.left_out,
            head=recall.head,
            as_of=recall.as_of,
            min_relevance=least.least,
            fits=least.fits,
            vectors_cover=recall.vectors_cover,
            unavailable_legs=recall.unavailable_legs,
            stale=recall.stale,
        )

    def _add_standing(self, made: _Making) -> None:
        """Add the standing statements that have not ended: those that hold for all answers, and the others."""
        question, unowned = made.question, not made.question.scopes and made.state is None
        if unowned:
            question = replace(question, scopes=(Scope(""),))
        standing = self._standing(question, made.answer, made.facts)
        holding = [item for item in standing if item.ended is None]
        made.packing.add_standing(
            [standing_block(item) for item in holding if item.always],
            [standing_block(item) for item in holding if not item.always],
        )
        ended = [item.position for item in standing if item.ended is not None]
        made.packing.leave_out([LeftOut(kind=BlockKind.STANDING, why=WhyLeftOut.ENDED, position=at) for at in ended])

    def _add_turns(self, made: _Making) -> None:
        """Add the turns that were found, with what the same user said later if anything fits well."""
        newer = [hit.newer for hit in made.relevant if hit.newer is not None]
        later = self._marked(newer, made.question, made.answer) if made.fits else {}
        said_at = {at: turn.said_at for at, turn in made.repeated.items()}
        said_at |= {hit.position: hit.said_at for hit in made.answer.recall.hits}
        made.packing.add_turns(list(_turns(made.relevant, said_at, made.answer.words, later)))

    def _add_replies(self, made: _Making) -> None:
        """Add the other side of exchanges, if the budget is large and much of it is left."""
        room = made.packing.left >= EXCHANGES_FROM // 20
        if made.wanted.budget < EXCHANGES_FROM or not room or _chooses_turns(made.question):
            return
        others: list[Turn] = []
        with suppress(errors.LogUnreachable):  # The context is complete without replies.
            others = self._exchanges(made.question, made.answer, made.packing.passages)
        found = made.found()
        replies = self._marked([turn for turn in others if turn.position not in found], made.question, made.answer)
        made.packing.add_turns(list(replies.values()), found=False)

    def _marked(self, turns: Sequence[Turn], question: Question, answer: Answer) -> dict[Position, GrowingTurn]:
        """Return turns that no recall has found, by position, with what facts say of them."""
        positions = [turn.position for turn in turns]
        superseded = self.recalls.superseded(answer.connection, positions, answer.known)
        return {
            turn.position: GrowingTurn(
                len(turn.text),
                cache(partial(_passage_of, turn, answer.words, superseded_by=superseded.get(turn.position))),
            )
            for turn in turns
            if question.superseded == "mark" or turn.position not in superseded
        }

    def standing(
        self, question: Question, *, of: str | None = None, as_of: When | None = None
    ) -> Results[StandingStatement]:
        """Return the standing statements for a question. See `MemoryStore.standing`."""
        with ExitStack() as snapshot:
            served = self.recalls.serve(question, snapshot, as_of=as_of)
            recall, question = served.answer.recall, served.question
            state = None if of is None else self._state_at(of, recall.head)
            facts, _ = self._facts(question, served.answer, state, anywhere=of is None)
            found = Results(item for item in self._standing(question, served.answer, facts) if item.ended is None)
            found.stale = recall.stale
            return found

    def _standing(self, question: Question, answer: Answer, facts: Sequence[Fact]) -> list[StandingStatement]:
        explicit = [standing_fact(fact) for fact in facts if fact.key.startswith(FOLDER)]
        return explicit + standing_statements(question, answer)

    def _facts(
        self, question: Question, answer: Answer, of: SessionState | None, *, anywhere: bool = False
    ) -> tuple[list[Fact], str]:
        """Return the facts that hold, by key: of the scopes of the question, or of exactly that of the session.

        With the scope that they all have or are below, if there is one. Without scopes and session those of no scope,
        or `anywhere` all.
        A session without a scope sees none that was asserted in another one: nothing says that both have one owner.
        """
        scopes, own = question.scopes, ""
        if not scopes and of is not None:
            own = of.started.scope
        below = bool(scopes) or anywhere
        within = scopes if below else (Scope(own),)
        found = fact_queries.facts(answer.connection, within, answer.known)
        seen = [
            fact
            for fact in found
            if (below or fact.scope == own) and (scopes or own or of is None or fact.session in (None, of.session))
        ]
        return seen, scopes[0] if len(scopes) == 1 else own

    def _exchanges(self, question: Question, answer: Answer, shown: Sequence[ContextPassage]) -> list[Turn]:
        """Return the question or the reply to each turn that is shown, as far as its session saw it then."""
        seen_by = partial(self.recalls.seen_by, answer.connection, head=answer.recall.head)
        asking = question.session if question.lineage else None
        own = () if asking is None else seen_by([asking]).get(asking, ())
        exchanges = exchanges_of(
            answer.connection, shown, own=own, seen_by=seen_by, scopes=question.scopes, head=answer.recall.head
        )
        return list({turn.position: turn for others in exchanges.values() for turn in others}.values())


def _static(state: SessionState, moment: Micros) -> Iterator[Static]:
    """Yield the task, the values by key, and the notes, oldest first."""
    if state.task is not None:
        yield task_block(state.task)
    for key, value in sorted(state.values.items()):
        if not is_expired(value, moment):
            yield value_block(key, value.value)
    yield from map(note_block, notes(state))


def _newest(
    hit: Hit, repeated: Mapping[Position, Turn], superseded: Mapping[Position, Position], words: SoughtWords
) -> Hit:
    """Return the turn that said the words of a hit last, in the place of the hit; `repeated` has those before it."""
    said: list[Hit | Turn] = [hit, *(repeated[at] for at in hit.repeated)]
    said.sort(key=attrgetter("said_at", "position"))
    newest = said.pop()
    older = tuple(turn.position for turn in said)
    if newest is hit:
        return replace(hit, repeated=older) if older else hit
    return replace(
        hit,
        position=newest.position,
        session=newest.session,
        speaker=newest.speaker,
        said_at=newest.said_at,
        text=newest.text,
        passage=best_passage(newest.text, words, limit=PASSAGE_CHARACTERS_MAX),
        superseded_by=superseded.get(newest.position),
        repeated=older,
    )


def _turns(
    hits: Sequence[Hit],
    said_at: Mapping[Position, datetime],
    words: SoughtWords,
    later: Mapping[Position, GrowingTurn],
) -> Iterator[GrowingTurn]:
    """Yield the turns to show, best first. What the same user said `later` stands behind a turn."""
    seen = {hit.position for hit in hits}
    for hit in hits:
        also_said = tuple(said_at[at] for at in reversed(hit.repeated))
        yield GrowingTurn(len(hit.text), cache(partial(_passage_of, hit, words, also_said=also_said)))
        if hit.newer is not None and hit.newer.position in later.keys() - seen:
            seen.add(hit.newer.position)
            yield later[hit.newer.position]


def _chooses_turns(question: Question) -> bool:
    """Whether a question wants turns of some kind only, so that the other side of an exchange is not wanted."""
    chosen = question.roles, question.speakers, question.since, question.until, question.metadata
    return any(item not in (None, (), {}) for item in chosen)


def _passage_of(
    turn: Turn | Hit,
    words: SoughtWords,
    length: int | None,
    *,
    also_said: tuple[datetime, ...] = (),
    superseded_by: Position | None = None,
) -> ContextPassage:
    """Return the best passage of a turn of at most `length` characters; all of it for None."""
    hit, size = turn if isinstance(turn, Hit) else None, len(turn.text)
    length = size if length is None else length
    if hit is not None and (length == PASSAGE_CHARACTERS_MAX or size <= min(length, PASSAGE_CHARACTERS_MAX)):
        found = hit.passage
    else:
        found = best_passage(turn.text, words, limit=length)
    return ContextPassage(
        position=turn.position,
        session=turn.session,
        scope=turn.scope,
        role=turn.role,
        speaker=turn.speaker,
        said_at=turn.said_at,
        text=found.text,
        start=found.start,
        end=found.end,
        of=size,
        relevance=None if hit is None else hit.relevance,
        also_said=also_said,
        newer=None if hit is None or hit.newer is None else hit.newer.position,
        superseded_by=superseded_by if hit is None else hit.superseded_by,
    )
