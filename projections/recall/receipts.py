"""Convert a recall to a receipt event, and a receipt back to its question."""

from __future__ import annotations

from typing import cast

import msgspec

from mnemolog.domain.choices import Activation
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import ContextServed, RecallServed
from mnemolog.domain.position import Micros, Position, checked_by
from mnemolog.domain.scope import Scope, Scopes
from mnemolog.domain.structured_log import TRACEPARENT
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.question import (
    MODES,
    RANKING,
    About,
    Asked,
    Order,
    Question,
    Superseded,
    Weights,
    one_of,
    stored_weights,
)
from mnemolog.projections.recall.ranking import Page
from mnemolog.projections.vectors.model_vectors import Vectors


def receipt_of(
    question: Question, answer: Recall, *, scores: list[float], page: Page, model: Vectors | None, moment: Micros
) -> RecallServed:
    """Return the receipt of an answer, whose hits have these scores. At `moment` it was judged what holds.

    `model` is that of the vectors that answered; None if none did.
    """
    return RecallServed(
        query=question.query,
        k=question.k,
        mode=question.mode,
        head=answer.head,
        moment=moment,
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
        passed_over=page.passed_over,
        candidates=page.offered(question.mode),
        ranking=RANKING,
        weights=msgspec.to_builtins(question.weights),
        reranker=answer.reranker or "",
        vectors_to=answer.vectors_cover,
        model=answer.model,
        model_name="" if model is None else model.encoder.name,
        hits=[hit.position for hit in answer.hits],
        scores=scores,
        ranks={leg: [hit.ranks.get(leg, 0) for hit in answer.hits] for leg in answer.legs},
        around=sorted({turn.position for hit in answer.hits for turn in hit.others}),
        traceparent=TRACEPARENT.get(),
    )


def question_of(served: RecallServed) -> Question:
    """Return the question of a receipt. Raises `InvalidInput` if it was ranked by another ranking than today's."""
    return _question(served, stored_weights(served.ranking, served.weights))


def question_today(served: RecallServed) -> Question:
    """Return the question of a receipt with today's ranking and the receipt's weights.

    Raises `InvalidInput` if the receipt has weights of its own for another ranking: today's has no such weights.
    """
    if served.ranking != RANKING and served.weights.keys() - {"distinct"}:
        why = f"the receipt has weights of {served.ranking}, and today's ranking is {RANKING}"
        raise InvalidInput("weights", why)
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


def model_of(served: RecallServed) -> Activation | None:
    """Return the model that answered; None if no vectors did."""
    if served.model is None:
        return None
    return Activation(
        position=Position(served.head),
        fingerprint=served.model,
        model=served.model_name,
        dimension=0,
    )
