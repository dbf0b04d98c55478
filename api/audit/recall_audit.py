"""Audit receipts of recalls: repeat each as of its head, and as of now."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Unpack

from mnemolog.application.visible_events import VisibleEvents
from mnemolog.audit.receipt_audit import (
    AuditedReceipt,
    Chosen,
    Gone,
    ReceiptAudit,
    Verdict,
    audited_receipts,
    listed,
    repeated,
    with_today,
)
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.events import Forgotten, RecallServed, RecordedEvent
from mnemolog.domain.position import Position
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.recall.answer import Hit, Recall
from mnemolog.projections.recall.ranking import Page
from mnemolog.projections.recall.receipts import question_of, question_today
from mnemolog.projections.recall.service import Basis, Recalls, basis_of

SCORES_DIFFER_MAX: Final = 0.002
"""How much a score of a recall with vectors may differ when it is repeated: other code or another processor rounds the
vector of a question otherwise."""


class AuditedRecall(AuditedReceipt, frozen=True, kw_only=True):
    """A receipt of a recall and the result of repeating it."""

    hits: tuple[Position, ...]
    """The turns in the answer, best first."""
    model: str | None
    """Fingerprint of the model that answered; None if no vectors did."""


class RecallAudit(ReceiptAudit, frozen=True, kw_only=True):
    """The results for receipts of recalls, in the order they were recorded."""

    recalls: tuple[AuditedRecall, ...]


def audit_recalls(visible: VisibleEvents, recalls: Recalls, **which: Unpack[Chosen]) -> RecallAudit:
    """Repeat receipts of recalls."""
    audited, tally = audited_receipts(visible, RecallServed, partial(_audited, visible.log, recalls), **which)
    return RecallAudit(recalls=audited, **tally)


def recall_today(recalls: Recalls, served: RecallServed, as_of: Position | None = None) -> Recall:
    """Return the answer that the question of a receipt has today, or has as of a position. Raises as a recall does."""
    page = Page(served.k, served.passed_over, served.candidates)
    return recalls.answer(question_today(served), Basis(as_of, page)).recall


def _audited(
    log: EventLog, recalls: Recalls, recorded: RecordedEvent, served: RecallServed, gone: Gone
) -> AuditedRecall:
    def again() -> tuple[Recall, str]:
        answer = recalls.answer(question_of(served), basis_of(served))
        return answer.recall, _difference(served, answer.recall.hits, answer.scores)

    def today() -> tuple[Recall, list[Position], bool]:
        answer = recall_today(recalls, served)
        now = [hit.position for hit in answer.hits]
        return answer, now, now != served.hits

    verdict, why = repeated(served, again)
    if verdict is Verdict.DIFFERS and (lost := _lost(log, served, gone)):
        verdict, why = Verdict.UNKNOWN, f"{lost}: {why}"
    found = AuditedRecall(
        position=recorded.position,
        served_at=to_datetime(recorded.recorded_at),
        query=served.query,
        actor=served.actor,
        head=Position(served.head),
        hits=tuple(Position(position) for position in served.hits),
        model=served.model,
        verdict=verdict,
        why=why,
    )
    return with_today(found, served, served.hits, today)


def _lost(log: EventLog, served: RecallServed, gone: Gone) -> str:
    """Return what was forgotten of the turns behind a receipt, in words; empty if nothing was."""
    hits = [at for at in served.hits if (found := log.event_at(Position(at))) and isinstance(found.event, Forgotten)]
    if hits:
        return f"turns in its answer were forgotten since ({listed(hits)})"
    if gone.first_turn is not None and gone.first_turn <= served.head:
        return "turns that it was ranked among were forgotten since"
    return ""


def _difference(served: RecallServed, hits: Sequence[Hit], scores: Sequence[float]) -> str:
    """Return in words how an answer differs from its receipt; empty if it does not."""
    now = [hit.position for hit in hits]
    came = [position for position in now if position not in set(served.hits)]
    went = [position for position in served.hits if position not in set(now)]
    if came or went:
        return f"came: {listed(came)}; went: {listed(went)}"
    if now != served.hits:
        return f"another order: {listed(now)} instead of {listed(served.hits)}"
    legs = {leg for hit in hits for leg in hit.ranks} | served.ranks.keys()
    for leg in sorted(legs):
        ranks = [hit.ranks.get(leg, 0) for hit in hits]
        if ranks != served.ranks.get(leg, [0] * len(hits)):
            return f"the same turns, at other ranks in the {leg} leg"
    # Words are counted: their scores are equal or wrong. A vector depends a little on the processor and the libraries.
    tolerance = 0.0 if served.vectors_to is None else SCORES_DIFFER_MAX
    same = all(abs(one - other) <= tolerance for one, other in zip(scores, served.scores, strict=True))
    return "" if same else "the same turns, with other scores"
