"""Recalls of a store: a question is answered as of one offset, by what was there at that offset.

The head of the log is an offset like any other. So what is asked for later as of it, a page further on and an
audited receipt go the same way as the first answer did.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from mnemolog.application.session_service import Sessions
from mnemolog.domain import errors
from mnemolog.domain.model import Activation
from mnemolog.domain.position import Position
from mnemolog.infra.log.event_log import EventLog
from mnemolog.observability.instrumentation import timed, timed_leg
from mnemolog.observability.telemetry import NO_TELEMETRY, RECALL_SECONDS, Telemetry
from mnemolog.projections.indexer import Leg
from mnemolog.projections.projection_set import OpenedProjections
from mnemolog.projections.recall import cursor as cursors
from mnemolog.projections.recall.answer import Answer, Page, Recall, recall
from mnemolog.projections.recall.candidates import VECTOR, Fixed, MovedOn, Source
from mnemolog.projections.recall.cursor import Cursor
from mnemolog.projections.recall.question import Question, checked_offset
from mnemolog.projections.recall.receipts import RECALLS_STREAM, receipt_of
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.conversation_views import Views
from mnemolog.projections.vectors.leg import Vectors

TIMEOUT_S: Final = 10.0
NOT_LOADED: Final = "its model is not loaded yet, and this recall does not wait for it"
MOVES_MAX: Final = 3
"""How often a recall follows the head that others move, before it answers as of an earlier one, which takes longer."""


class Basis(NamedTuple):
    """What an answer is made from, besides the question. The same basis gives the same answer."""

    head: Position
    page: Page
    fixed: Fixed | None = None
    model: Activation | None = None
    """The model that is to answer; None for the one that was active at `head`."""


class Recalls:
    """Answers questions to one store. Safe for many threads."""

    def __init__(
        self, log: EventLog, sessions: Sessions, projections: OpenedProjections, telemetry: Telemetry = NO_TELEMETRY
    ) -> None:
        self._log, self._sessions, self._projections = log, sessions, projections
        self._telemetry = telemetry

    def ask(
        self,
        question: Question,
        *,
        as_of: int | None = None,
        at_least: int | None = None,
        timeout_s: float = TIMEOUT_S,
        after: str | None = None,
        receipt: bool = False,
        wait_for_model: bool = True,
    ) -> Recall:
        """Answer a question. See `MemoryStore.recall`."""
        with timed(self._telemetry, "mnemolog.recall", RECALL_SECONDS, mode=question.mode):
            if question.session is not None:
                self._sessions.state(question.session)
            views, newest = self._projections.caught_up()
            basis, asked = Basis(newest, Page(question.k)), as_of
            if after is not None:
                if at_least is not None:
                    raise errors.InvalidInput("at_least", "a later page has the vectors of the first: leave it out")
                found = self._fitting(cursors.decode(after), question, newest=newest, as_of=as_of)
                basis = _continued(found, question)
                asked = basis.head if found.as_of else None
            elif as_of is not None:
                basis = basis._replace(head=checked_offset("as_of", as_of, head=newest))
            if at_least is not None:
                self._cover(views, question, basis, at_least, timeout_s)
            elif after is None and question.mode == "hybrid" and not (wait_for_model or self._loaded(views, basis)):
                basis = basis._replace(fixed=Fixed(None, None, NOT_LOADED))
            live = after is None and as_of is None
            answer, basis = (self._at_the_head if live else self._at)(question, basis, views)
            if after is not None and not found.follows(answer.ranking.digest(found.passed_over)):
                raise cursors.refused("the pages before cannot be made again as they were: begin with the first")
            if at_least is not None and question.mode != "text":
                _require(answer.recall, at_least)
            made = replace(
                answer.recall,
                as_of=None if asked is None else basis.head,
                next=self._next(question, basis, answer, as_of=asked is not None),
            )
            if not receipt:
                return made
            event = receipt_of(question, made, page=basis.page, model=self._answered_with(views, basis, made))
            return replace(made, receipt=self._log.transact(lambda tx: tx.append(RECALLS_STREAM, event)).position)

    def today(self, question: Question, page: Page) -> Recall:
        """Return a page of what a question is answered with now."""
        views, newest = self._projections.caught_up()
        return self.answer(question, Basis(newest, page), views=views).recall

    def _at_the_head(self, question: Question, basis: Basis, views: Views) -> tuple[Answer, Basis]:
        """Answer as of the basis' head, or of a later one where others go on recording meanwhile."""
        for _ in range(MOVES_MAX):
            try:
                return self.answer(question, basis, views=views, settled=False), basis
            except MovedOn:
                basis = basis._replace(head=views.position())
        return self._at(question, basis, views)

    def _at(self, question: Question, basis: Basis, views: Views) -> tuple[Answer, Basis]:
        return self.answer(question, basis, views=views), basis

    def answer(self, question: Question, basis: Basis, *, views: Views | None = None, settled: bool = True) -> Answer:
        """Answer from a basis. Raises `UnknownSession`, `OutsideSession`, and where the basis fixes what the vectors
        must say, what keeps them from it.
        """
        views = self._projections.current_views() if views is None else views
        spans = None
        if question.session is not None:
            spans = self._sessions.spans_at(question.session, basis.head, hidden=question.hidden)
        source = Source(
            views=views,
            vectors=lambda: self._leg(views, basis),
            filters=question.filters(spans if question.lineage else None),
            head=basis.head,
            fixed=basis.fixed,
            reranker=self._projections.reranker,
            timed=nullcontext if self._telemetry is NO_TELEMETRY else partial(timed_leg, self._telemetry),
            settled=settled,
        )
        return recall(
            source,
            question.query,
            page=basis.page,
            mode=question.mode,
            neighbours=question.neighbours,
            weights=question.weights,
        )

    def _leg(self, views: Views, basis: Basis) -> Leg:
        return self._projections.indexing.leg(self._vectors(views, basis))

    def _vectors(self, views: Views, basis: Basis) -> Vectors:
        models = self._projections.models
        if basis.model is None:
            with views.database.reading() as connection:
                return models.answering(queries.active_model(connection, upto=basis.head))
        if models.own is None:
            return models.answering(None)
        return models.find(basis.model)

    def _loaded(self, views: Views, basis: Basis) -> bool:
        """Whether the vectors need nothing to be loaded: either they answer at once, or they say why they cannot."""
        try:
            return self._vectors(views, basis).loaded
        except errors.MnemologError:
            return True

    def _answered_with(self, views: Views, basis: Basis, answer: Recall) -> Vectors | None:
        return None if answer.model is None else self._vectors(views, basis)

    def _cover(self, views: Views, question: Question, basis: Basis, at_least: int, timeout_s: float) -> None:
        """Have the vectors cover a position. Raises `InvalidInput` for one past the offset, `ProjectionBehind`."""
        upto = checked_offset("at_least", at_least, head=basis.head)
        if question.mode != "text":
            self._projections.indexing.cover(self._vectors(views, basis), upto, timeout_s=timeout_s)

    def _fitting(self, found: Cursor, question: Question, *, newest: Position, as_of: int | None) -> Cursor:
        if found.log_id != self._log.log_id or found.head > newest:
            raise cursors.refused("it belongs to another log, or to more of this one than there is")
        if not found.is_for(question.digest()):
            raise cursors.refused("it belongs to another question, or to other filters")
        if as_of is not None and as_of != found.head:
            raise cursors.refused(f"it goes on as of {found.head}, not of {as_of}")
        return found

    def _next(self, question: Question, basis: Basis, answer: Answer, *, as_of: bool) -> str | None:
        if not answer.ranking.more:
            return None
        passed_over = basis.page.passed_over + basis.page.k
        made, last = answer.recall, answer.ranking
        return cursors.encode(
            Cursor(
                log_id=self._log.log_id,
                question=cursors.shortened(question.digest()),
                head=basis.head,
                as_of=as_of,
                passed_over=passed_over,
                candidates=basis.page.offered(question.mode),
                order=cursors.shortened(last.digest(passed_over)),
                vectors_to=made.vectors_to,
                model=made.model,
            )
        )


def _continued(found: Cursor, question: Question) -> Basis:
    page = Page(question.k, found.passed_over, found.candidates)
    return Basis(found.head, page, Fixed(found.vectors_to, found.model))


def _require(answer: Recall, at_least: int) -> None:
    """Raise `ProjectionBehind` unless the vectors covered a position: the query was refused, or they were lost."""
    reached = answer.vectors_to or 0
    if answer.vectors_to is None or reached < at_least:
        why = answer.not_answering.get(VECTOR) or answer.vectors_lag or "they were replaced meanwhile"
        raise errors.ProjectionBehind("vectors", behind_events=at_least - reached, why=why)
