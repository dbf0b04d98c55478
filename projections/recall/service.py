"""Answer questions as of a position of the log, and keep receipts of the answers.

The present is a position like any other. So a later page, a recall `as_of` an earlier position and the audit of a
receipt use the same code as the first answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import sqlalchemy as sa
from msgspec import Struct, structs, to_builtins

from mnemolog.domain import errors
from mnemolog.domain.choices import Activation
from mnemolog.domain.display import dated
from mnemolog.domain.events import RECALLS_STREAM, ContextServed, Event, RecallServed
from mnemolog.domain.head import Known, known_at
from mnemolog.domain.scope import UNBOUNDED, Boundary, Scope, Scopes
from mnemolog.domain.session import Spans, cut, own
from mnemolog.domain.structured_log import TRACEPARENT
from mnemolog.domain.values import (
    ORIGIN,
    Clock,
    Micros,
    Position,
    When,
    checked_by,
    checked_number,
    checked_position,
    to_datetime,
)
from mnemolog.projections.ports import Append, SpansAt, Timed, untimed
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.answer import RERANKER, Recall
from mnemolog.projections.recall.candidates import Candidates, Offer, Ranked, from_views, in_windows, with_neighbours
from mnemolog.projections.recall.hits import hits_of
from mnemolog.projections.recall.passages import SoughtWords, sought
from mnemolog.projections.recall.question import (
    MODES,
    RANKING,
    TEXT,
    VECTOR,
    About,
    Asked,
    Cursor,
    Floor,
    Kind,
    Order,
    Question,
    Superseded,
    Weights,
    cursor_refused,
    decode_cursor,
    encode_cursor,
    one_of,
    stored_weights,
)
from mnemolog.projections.recall.ranking import Page, Ranking
from mnemolog.projections.sql import distrust, fact_queries, queries
from mnemolog.projections.sql.conversation_views import Views
from mnemolog.projections.sql.database import tracked
from mnemolog.projections.vectors.model_vectors import Vectors

if TYPE_CHECKING:  # Imports numpy, which a text recall does not need.
    from mnemolog.projections.vectors.projection import VectorAnswer

TIMEOUT_S: Final = 10.0
NOT_LOADED: Final = "its model is not loaded yet, and this recall does not wait for it"
_LEAVES_TEXT: Final = (errors.ModelError, errors.ProjectionError, errors.StorageFull, errors.LogUnreachable)
"""Errors of the vector leg that a hybrid recall survives."""
_NO_MODEL: Final = (errors.ModelUnavailable, errors.ModelMismatch)


class Fixed(NamedTuple):
    """The vectors of an earlier answer, which this answer repeats or continues."""

    vectors_cover: Position | None
    """None if the vectors did not answer then; so they must not answer now."""
    model: str | None
    why: str = "it did not answer when this was first asked"
    """Why not, if `vectors_cover` is None."""


class Basis(NamedTuple):
    """What an answer is based on, besides the question. The same basis gives the same answer."""

    head: Position | None
    """The position that the answer refers to; None for the present."""
    page: Page
    fixed: Fixed | None = None
    model: Activation | None = None
    """The model that must answer; None for the one active at `head`."""
    newer: int = 1
    """For how many hits later statements are looked for."""
    moment: int | None = None
    """When it is judged what holds; None for now, or else for when something was last recorded up to `head`."""
    reranked: bool = True
    """Whether the store's reranker orders the best turns, if there is one."""


class Answer(NamedTuple):
    """A recall, its ranking, what was ranked last, and the vectors that answered."""

    recall: Recall
    ranking: Ranking
    found: Candidates
    vectors: Vectors | None
    searched: VectorAnswer | None
    """What the vectors answered; None if they did not."""
    words: SoughtWords
    """The words of the question, to choose passages by."""
    known: Known
    """The position that it refers to, and when it was judged what holds."""
    filters: queries.Filters
    """What the turns that were searched have in common, as of the position of the answer."""
    connection: sa.Connection
    """The snapshot of the views that the hits were read from. It is open as long as the caller keeps it."""

    @property
    def scores(self) -> list[float]:
        """The numbers that ordered the hits."""
        of = {turn.position: turn.score for turn in self.ranking.turns}
        return [of[hit.position] for hit in self.recall.hits]


class Served(NamedTuple):
    """An answer, and what its receipt needs."""

    question: Question
    page: Page
    answer: Answer

    def receipt(self) -> RecallServed:
        """Return the receipt."""
        question, answer, model = self.question, self.answer.recall, self.answer.vectors
        return RecallServed(
            query=question.query,
            k=question.k,
            mode=question.mode,
            head=answer.head,
            moment=self.answer.known.valid_at,
            as_of=answer.as_of is not None,
            scope=question.scopes[0] if len(question.scopes) == 1 else "",
            scopes=list(question.scopes) if len(question.scopes) > 1 else [],
            session=question.session,
            asked_in=question.asked_in,
            asked_for=question.asked_for,
            lineage=question.lineage,
            beside=None if question.beside is None else list(question.beside),
            hidden=question.hidden,
            roles=list(question.roles),
            speakers=list(question.speakers),
            since=question.since,
            until=question.until,
            by=question.by,
            metadata=question.metadata,
            min_relevance=question.min_relevance,
            asked=question.asked,
            superseded=question.superseded,
            order=question.order,
            about=question.about,
            cover=question.cover,
            kind=answer.kind,
            topic_searched=answer.topic if answer.topic != question.query else "",
            alone=question.alone,
            passed_over=self.page.passed_over,
            candidates=self.page.offered(question.mode),
            ranking=RANKING,
            weights=to_builtins(question.weights),
            reranker=answer.reranker or "",
            vectors_to=answer.vectors_cover,
            model=answer.model,
            model_name="" if model is None else model.encoder.name,
            hits=[hit.position for hit in answer.hits],
            scores=self.answer.scores,
            ranks={leg: [hit.ranks.get(leg, 0) for hit in answer.hits] for leg in answer.legs},
            around=sorted({turn.position for hit in answer.hits for turn in hit.others}),
            traceparent=TRACEPARENT.get(),
        )


def basis_of(served: RecallServed) -> Basis:
    """Return the basis of the answer that a receipt has."""
    cover = None if served.vectors_to is None else Position(served.vectors_to)
    fixed = None if served.mode == TEXT else Fixed(cover, served.model)
    page = Page(served.k, served.passed_over, served.candidates)
    model = None
    if served.model is not None:
        model = Activation(
            position=Position(served.head), fingerprint=served.model, model=served.model_name, dimension=0
        )
    return Basis(
        Position(served.head),
        page,
        fixed,
        model,
        moment=served.moment,
        reranked=bool(served.reranker),
    )


class _VectorLeg(NamedTuple):
    """How the vector leg answered, or why it did not: also where it had nothing to search."""

    vectors: Vectors | None = None
    answer: VectorAnswer | None = None
    why_not: str | None = None


class _Snapshot(Struct):
    """One state of the views, in a transaction that is kept open by `kept`."""

    views: Views
    kept: ExitStack
    connection: sa.Connection

    @contextmanager
    def released(self) -> Iterator[None]:
        """Hold no transaction in the block, and a new one after it."""
        self.kept.close()
        yield
        self.connection = self.kept.enter_context(self.views.database.reading())


def _newer(
    connection: sa.Connection, ranked: Sequence[Ranked], found: Sequence[Candidates], *, of: int
) -> dict[Position, Turn | None]:
    """Return what was said later about each of the first turns, and about what the first one changes."""
    newer = dict[Position, Turn | None]()
    if ranked:
        first = ranked[: of + bool(ranked[0].parts.get("currency"))]
        for some in found:
            near = [turn.position for turn in first if turn.position in some.rows.positions]
            newer |= {at: some.later(connection, at) for at in near if some.later is not None}
    return newer


class Recalls:
    """Answers questions to one store. Safe for many threads.

    `spans_at` returns the spans that a session sees at a position, `append` appends a receipt to the log, and `timed`
    measures a recall and each of its legs. With `receipts` every recall leaves one that does not say otherwise. No turn
    outside of `boundary` is found.
    """

    def __init__(
        self,
        projections: ProjectionSet,
        *,
        spans_at: SpansAt,
        append: Append,
        clock: Clock,
        receipts: bool = False,
        timed: Timed = untimed,
        boundary: Boundary = UNBOUNDED,
    ) -> None:
        self._projections, self._log_id = projections, projections.log.log_id
        self._spans_at = spans_at
        self._append = append
        self._timed = timed
        self._boundary = boundary
        self._clock = clock
        self._receipts = receipts

    def ask(
        self,
        question: Question,
        *,
        as_of: When | None = None,
        min_position: int | None = None,
        timeout_s: float = TIMEOUT_S,
        after: str | None = None,
        receipt: bool | None = None,
        wait_for_model: bool = True,
    ) -> Answer:
        """Answer a question. See `MemoryStore.recall`."""
        with ExitStack() as snapshot:
            served = self.serve(
                question,
                snapshot,
                as_of=as_of,
                min_position=min_position,
                timeout_s=timeout_s,
                after=after,
                wait_for_model=wait_for_model,
            )
        kept = self.keep(served.receipt()) if self.leaves_receipt(receipt) else None
        made, hits = served.answer.recall, served.answer.recall.hits
        if made.kind == Kind.ORDER:
            hits = tuple(sorted(hits, key=lambda hit: (hit.said_at, hit.position)))
        return served.answer._replace(recall=structs.replace(made, hits=hits, receipt=kept))

    def leaves_receipt(self, receipt: bool | None) -> bool:
        """Whether an answer leaves a receipt: as the call says, else as the store was opened."""
        return self._receipts if receipt is None else receipt

    def keep(self, receipt: Event) -> Position:
        """Append a receipt to the log."""
        return self._append(RECALLS_STREAM, receipt)

    def serve(
        self,
        question: Question,
        snapshot: ExitStack,
        *,
        as_of: When | None = None,
        min_position: int | None = None,
        timeout_s: float = TIMEOUT_S,
        after: str | None = None,
        wait_for_model: bool = True,
        newer: int = 1,
    ) -> Served:
        """Answer a question without leaving a receipt. `snapshot` keeps `Answer.connection` open."""
        checked_number("timeout_s", timeout_s)
        boundary = self._boundary
        question = structs.replace(question, scopes=boundary.narrow(question.scopes), alone=bool(boundary.scopes))
        with self._timed("mnemolog.recall", mode=question.mode):
            then, moment = (None, None) if as_of is None else known_at("as_of", as_of, self._projections.log)
            if then == ORIGIN and not isinstance(as_of, int) and question.session is None:
                self._require_a_past(as_of)
            views, newest, stale = self._projections.to_answer()
            basis, cursor = Basis(then, Page(question.k), newer=newer, moment=moment), None
            if after is not None:
                if min_position is not None:
                    raise errors.InvalidInput("min_position", "a later page has the vectors of the first: leave it out")
                cursor = self._checked(decode_cursor(after), question, newest=newest, as_of=then)
                with views.database.reading() as connection:
                    if not cursor.as_of and distrust.last_change(connection) > cursor.head:
                        raise cursor_refused("what is distrusted has changed since: begin with the first page")
                page = Page(question.k, cursor.passed_over, cursor.candidates)
                basis = Basis(cursor.head, page, Fixed(cursor.vectors_cover, cursor.model), moment=cursor.moment)
            if min_position is not None:
                upto = checked_position("min_position", min_position, head=basis.head or newest)
                if question.mode != TEXT:
                    self._projections.indexing.cover(self._vectors(basis, basis.head), upto, timeout_s=timeout_s)
            elif after is None and question.mode == "hybrid" and not (wait_for_model or self._loaded(basis)):
                basis = basis._replace(fixed=Fixed(None, None, NOT_LOADED))
            answer = self._answer(question, basis, views, snapshot)
            if cursor is not None and cursor.order != answer.ranking.digest(cursor.passed_over):
                raise cursor_refused("the pages before cannot be reproduced: begin with the first")
            if min_position is not None and question.mode != TEXT:
                _require(answer.recall, min_position)
            is_as_of = then is not None if cursor is None else cursor.as_of
            made = structs.replace(
                answer.recall,
                as_of=answer.recall.head if is_as_of else None,
                next=self._next(question, basis.page, answer, as_of=is_as_of),
                stale=stale,
            )
            return Served(question, basis.page, answer._replace(recall=made))

    def _require_a_past(self, as_of: object) -> None:
        """Raise `InvalidInput` if the log has events, all of which were recorded later."""
        if self._projections.log.head().position:
            begins = dated(to_datetime(self._projections.log.recorded_at(Position(1))))
            error = errors.InvalidInput("as_of", f"nothing was recorded by then: the log begins at {begins}")
            error.hint = errors.Hint("to ask by the time of saying, use ", errors.again(until=str(as_of), as_of=None))
            raise error

    def answer(self, question: Question, basis: Basis, snapshot: ExitStack | None = None) -> Answer:
        """Answer from a basis. `snapshot` keeps `Answer.connection` open.

        Raises `UnknownSession`, `OutsideSession`; if the basis fixes the vectors, also the error that makes them
        unavailable.
        """
        with ExitStack() as own:
            return self._answer(question, basis, self._projections.current_views(), snapshot or own)

    def _answer(self, question: Question, basis: Basis, views: Views, kept: ExitStack) -> Answer:
        """Answer as of the position that the basis fixes, or else that of the views at the first read.

        One transaction reads everything that depends on the position. No transaction is open while a model works. Hits
        are read afterwards, so that a turn forgotten meanwhile is not returned.
        """
        page, end = basis.page, basis.page.end
        snapshot = _Snapshot(views, kept, kept.enter_context(views.database.reading()))
        head = tracked(snapshot.connection, views.name).position if basis.head is None else basis.head
        known = (
            fact_queries.known_now(snapshot.connection, head, self._clock if basis.head is None else None)
            if basis.moment is None
            else Known(head, Micros(basis.moment))
        )
        filters = self.filters(snapshot.connection, question, head)
        reranker = self._projections.reranker if basis.reranked and question.mode != VECTOR else None
        ranking = Ranking(question, count=end, to_be_reranked=reranker is not None)
        found, legs = self._ranked(question, basis, snapshot, filters, known, ranking)
        failed = None
        if reranker is not None:
            texts = queries.turns_at(snapshot.connection, ranking.to_rerank)
            with snapshot.released():
                failed = ranking.rerank(reranker, {at: turn.text for at, turn in texts.items()})
        ranked, connection = ranking.turns[page.passed_over : end], snapshot.connection
        offers = [some.offer for some in found]
        terms = (sought(offer.terms.stems, offer.found.counts, language=offer.language) for offer in offers)
        words = SoughtWords({stem: worth for some in terms for stem, worth in some.worth.items()}, offers[0].language)
        leg = next((leg for leg in legs if leg.why_not is not None), legs[0])
        hits = hits_of(
            connection,
            ranked,
            words=words,
            question=question,
            spans=filters.spans,
            head=head,
            seen_by=partial(self.seen_by, connection, head=head),
            repeated=ranking.repeated,
            superseded=self.superseded(connection, [turn.position for turn in ranked], known),
            newer={} if page.passed_over else _newer(connection, ranked, found, of=basis.newer),
        )
        floor = ranking.floor or Floor(question.min_relevance or 0.0)
        recall = Recall(
            query=question.query,
            hits=hits,
            head=head,
            vectors_cover=None if leg.answer is None else leg.answer.covers,
            legs=tuple(name for name in found[0].legs if name != VECTOR or leg.why_not is None),
            unavailable_legs={
                name: why for name, why in ((VECTOR, leg.why_not), (RERANKER, failed)) if why is not None
            },
            vectors_lag=None if leg.answer is None else leg.answer.lag,
            model=None if leg.vectors is None else leg.vectors.fingerprint,
            reranker=None if reranker is None or failed is not None else reranker.name,
            filters=question.given_filters(),
            searched_turns=_searched(found[0].offer),
            left_out=ranking.left_out,
            skipped=tuple(sorted({at for some in found for at in some.skipped})),
            kind=found[0].offer.terms.request.kind,
            topic="\n".join(some.offer.terms.request.topic for some in found),
            min_relevance=floor.least,
            fits=floor.fits,
        )
        return Answer(recall, ranking, found[0], leg.vectors, leg.answer, words, known, filters, connection)

    def _ranked(
        self,
        question: Question,
        basis: Basis,
        snapshot: _Snapshot,
        filters: queries.Filters,
        known: Known,
        ranking: Ranking,
    ) -> tuple[list[Candidates], list[_VectorLeg]]:
        """Rank candidates, twice as many until enough are good. Return those of each window, and how vectors did."""
        wanted = basis.page.offered(question.mode)
        windows = in_windows(snapshot.connection, question, head=known.upto)
        legs = [_VectorLeg()] * len(windows)
        while True:
            with self._timed("mnemolog.recall.leg", leg=TEXT):
                offers = [
                    from_views(snapshot.connection, window, filters, head=known.upto, wanted=wanted)
                    for window in windows
                ]
            if question.mode != TEXT:
                with snapshot.released():
                    legs = [self._ask_vectors(question, basis, offer, wanted) for offer in offers]
            found = [
                with_neighbours(snapshot.connection, question, offer, leg.answer)
                for offer, leg in zip(offers, legs, strict=True)
            ]
            dropped = dict[Position, Position]()
            if question.superseded == "drop":
                offered = {at for some in found for leg in (some.rows.positions, *some.legs.values()) for at in leg}
                dropped = self.superseded(snapshot.connection, sorted(offered), known)
            if ranking.add(snapshot.connection, found, wanted=wanted, dropped=dropped):
                return found, legs
            wanted *= 2

    def superseded(
        self, connection: sa.Connection, turns: Sequence[Position], known: Known
    ) -> dict[Position, Position]:
        """Return which turns facts rest on of which none holds, each with the position of what took its place."""
        return fact_queries.superseded(connection, turns, known, self._boundary.scopes)

    def filters(self, connection: sa.Connection, question: Question, head: Position) -> queries.Filters:
        """Return the filters as of `head`. Raises `UnknownSession`, `OutsideSession`."""
        spans = None
        if question.session is not None:
            try:
                spans = self._spans_at(question.session, head, hidden=question.hidden)
            except errors.LogUnreachable:
                if question.lineage:
                    raise  # The views have no sessions' lineages.
        filters = question.filters(spans if question.lineage else None, self._projections.log)
        return structs.replace(filters, distrusted=distrust.all_at(connection, head))

    def seen_by(self, connection: sa.Connection, sessions: Collection[str], *, head: Position) -> dict[str, Spans]:
        """Return what sessions see at `head`; of one that inherits from outside of the boundary, its own turns.

        The log is read for branches and for sessions that have hidden turns.
        """
        found = dict[str, Spans]()
        for session, started, sees_others, hides in queries.starts_of(connection, sessions):
            spans = own(session, at=started)
            if sees_others or hides:
                with suppress(errors.UnknownSession):
                    spans = self._spans_at(session, head)
            found[session] = cut(spans, upto=head)
        return found

    def _ask_vectors(self, question: Question, basis: Basis, offer: Offer, wanted: int) -> _VectorLeg:
        """Return the answer of the vectors. In `hybrid` mode, unless the basis fixes them, they may be unavailable."""
        fixed, models = basis.fixed, self._projections.models
        if models.own is None and question.mode != VECTOR and (fixed is None or fixed.vectors_cover is None):
            return _VectorLeg()  # Words only, as the store was opened: nothing is missing.
        if fixed is not None and fixed.vectors_cover is None:
            return _VectorLeg(why_not=fixed.why)
        try:
            with self._timed("mnemolog.recall.leg", leg=VECTOR):
                found = self._search(basis, offer, wanted, hybrid=question.mode != VECTOR)
                models.trouble = None
                return found
        except errors.MnemologError as error:
            if question.mode == VECTOR or fixed is not None or not isinstance(error, _LEAVES_TEXT):
                raise
            if isinstance(error, _NO_MODEL):
                models.failed(error)
            return _VectorLeg(why_not=str(error))

    def _search(self, basis: Basis, offer: Offer, wanted: int, *, hybrid: bool) -> _VectorLeg:
        fixed = basis.fixed
        upto = offer.head if fixed is None or fixed.vectors_cover is None else fixed.vectors_cover
        try:
            vectors = self._vectors(basis, offer.head)
            if fixed is not None and vectors.fingerprint != fixed.model:
                of_first = f"of the first answer ({fixed.model})"
                raise errors.ModelMismatch(built_with=of_first, asked_with=vectors.fingerprint)
            indexer = self._projections.indexing
            answer = indexer.search(vectors, offer.terms.about, k=wanted, allowed=offer.allowed, upto=upto)
        except errors.MnemologError:
            raise
        except Exception as error:  # Out of memory, or an error in a library: log and text are not affected.
            raise errors.ProjectionError(f"the vectors could not be searched: {error!r}") from error
        if fixed is not None and answer.covers < upto:
            why = answer.lag or "they were lost since"
            raise errors.ProjectionBehind("vectors", behind_events=upto - answer.covers, why=why)
        if hybrid and answer.covers == ORIGIN < upto:
            return _VectorLeg(vectors, answer, f"no turn has a vector yet: {answer.lag or 'none was embedded'}")
        return _VectorLeg(vectors, answer)

    def _vectors(self, basis: Basis, head: Position | None) -> Vectors:
        """Return the vectors that must answer as of `head`, None for the present."""
        models = self._projections.models
        if basis.model is not None and models.own is not None:
            return models.find(basis.model)
        return models.answering(models.active(upto=head))

    def _loaded(self, basis: Basis) -> bool:
        """Whether the vectors can answer, or report an error, without loading anything first."""
        try:
            return self._vectors(basis, basis.head).loaded
        except errors.MnemologError:
            return True

    def _checked(self, cursor: Cursor, question: Question, *, newest: Position, as_of: int | None) -> Cursor:
        """Return the cursor if it continues this question on this log. Raises `InvalidInput` otherwise."""
        if cursor.log_id != self._log_id or cursor.head > newest:
            raise cursor_refused("it belongs to another log, or to a longer version of this one")
        if cursor.ranking != RANKING:
            raise cursor_refused(f"its pages are ranked by {cursor.ranking}, now by {RANKING}: begin again")
        if cursor.question != question.digest():
            raise cursor_refused("it belongs to another question, or to other filters")
        if as_of is not None and as_of != cursor.head:
            raise cursor_refused(f"it continues as of {cursor.head}, not of {as_of}")
        return cursor

    def _next(self, question: Question, page: Page, answer: Answer, *, as_of: bool) -> str | None:
        if not answer.ranking.more:
            return None
        end = page.end
        return encode_cursor(
            Cursor(
                log_id=self._log_id,
                question=question.digest(),
                head=answer.recall.head,
                moment=answer.known.valid_at,
                as_of=as_of,
                passed_over=end,
                candidates=page.offered(question.mode),
                order=answer.ranking.digest(end),
                vectors_cover=answer.recall.vectors_cover,
                model=answer.recall.model,
                ranking=RANKING,
            )
        )


def _searched(offer: Offer) -> int | None:
    """Return how many turns the filters left, as far as it is known without counting them."""
    if offer.allowed is not None:
        return len(offer.allowed)
    all_turns = structs.replace(offer.filters, upto=None).leave_everything
    return offer.found.counts.turns or None if all_turns else None


def _require(answer: Recall, min_position: int) -> None:
    """Raise `ProjectionBehind` unless the vectors covered a position. The query may be refused, or vectors lost."""
    reached = answer.vectors_cover or 0
    if answer.vectors_cover is None or reached < min_position:
        why = answer.unavailable_legs.get(VECTOR) or answer.vectors_lag or "they were replaced meanwhile"
        raise errors.ProjectionBehind("vectors", behind_events=min_position - reached, why=why)


def question_of(served: RecallServed) -> Question:
    """Return the question of a receipt. Raises `InvalidInput` if it was ranked by another ranking than today's."""
    return _question(served, stored_weights(served.ranking, served.weights))


def question_today(served: RecallServed) -> Question:
    """Return the question of a receipt with today's ranking and the receipt's weights.

    Raises `InvalidInput` if the receipt has weights of its own for another ranking: today's has no such weights.
    """
    if served.ranking != RANKING and served.weights.keys() - {"distinct"}:
        why = f"the receipt has weights of {served.ranking}, and today's ranking is {RANKING}"
        raise errors.InvalidInput("weights", why)
    return _question(served, stored_weights(RANKING, served.weights))


def scopes_of(served: RecallServed) -> Scopes:
    """Return the scopes that a question was limited to, none for none."""
    return tuple(map(Scope, served.scopes or filter(None, (served.scope,))))


def _question(served: RecallServed, weights: Weights) -> Question:
    return Question(
        query=served.query,
        k=served.k,
        mode=one_of("mode", served.mode, MODES),
        scopes=scopes_of(served),
        session=served.session,
        lineage=served.lineage,
        beside=None if served.beside is None else tuple(map(Scope, served.beside)),
        hidden=served.hidden,
        roles=tuple(served.roles),
        speakers=tuple(served.speakers),
        since=None if served.since is None else Micros(served.since),
        until=None if served.until is None else Micros(served.until),
        by=checked_by(served.by),
        metadata=served.metadata,
        min_relevance=served.min_relevance,
        asked=cast(Asked, served.asked),
        superseded=cast(Superseded, served.superseded),
        order=cast(Order | None, served.order),
        about=cast(About | None, served.about),
        cover=served.cover,
        alone=served.alone,
        weights=weights,
    )


def recall_of(receipt: RecallServed | ContextServed) -> RecallServed:
    """Return the recall behind a receipt."""
    return receipt.recall if isinstance(receipt, ContextServed) else receipt
