"""Ask questions whose answers are known, and measure what recall returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import ClassVar

import numpy as np

from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.evaluation.intervals import Interval, auroc_interval, intervals
from mnemolog.evaluation.metrics import metric_names, scores
from mnemolog.evaluation.questions import KnownQuestion
from mnemolog.projections.ports import Progress
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.question import Mode
from mnemolog.projections.recall.service import Recalls


class Scores(Result, frozen=True, kw_only=True):
    """What the answers to some questions are worth."""

    questions: int
    metrics: dict[str, Interval]
    """`hit@1`, `hit@5`, `hit@10`: the share of questions with evidence among the first hits. `evidence recall@10`: the
    share of the evidence among the first ten. `NDCG@10`: how near the order is to the ideal one. 10 is `k`."""


class AskedQuestion(Result, frozen=True, kw_only=True):
    """One question and what recall returned."""

    _columns: ClassVar[tuple[str, ...]] = ("question", "category", "evidence", "ranks", "relevance", "took_ms")

    question: str
    category: str
    evidence: tuple[Position, ...]
    """Turns that answer it; empty if nothing does."""
    ranks: tuple[int | None, ...]
    """The rank of each of them in the answer, from 1; None where it was not found."""
    hits: tuple[Position, ...]
    """What recall returned, best first."""
    relevance: float
    """The relevance of the best hit; 0 without hits."""
    took_ms: float

    @property
    def is_missed(self) -> bool:
        """Whether there is evidence and none of it was found."""
        return bool(self.evidence) and not any(self.ranks)


class Evaluation(Result, frozen=True, kw_only=True):
    """How well recall answers questions whose answers are known."""

    k: int
    """How many hits were asked for."""
    mode: Mode
    model: str | None
    """Fingerprint of the model that embedded the questions; None if no vectors answered."""
    head: Position
    """The position that the last answer refers to."""
    vectors_cover: Position | None
    """How far its vectors reached."""
    unavailable_legs: dict[str, str]
    """Why a leg did not answer, by leg."""
    left_out: dict[str, int]
    """How many judged receipts were not asked, by reason."""
    answerable: int
    unanswerable: int
    overall: Scores | None
    """Over all questions with evidence; None without any."""
    categories: dict[str, Scores]
    """The same by category, if there are several."""
    auroc: Interval | None
    """The chance that the best hit of a question with an answer is more relevant than that of one without (area under
    the ROC curve): 1 tells them apart, 0.5 is chance. None unless there are both."""
    p50_ms: float
    """Half of the recalls took so long or less, the model included."""
    p95_ms: float
    asked: tuple[AskedQuestion, ...]
    """Every question, in the order given."""

    @property
    def missed(self) -> tuple[AskedQuestion, ...]:
        """The questions with evidence of which none was found."""
        return tuple(item for item in self.asked if item.is_missed)

    def _rows(self) -> Sequence[Result]:
        return self.asked


def evaluate(
    recalls: Recalls,
    questions: Sequence[KnownQuestion],
    *,
    k: int,
    mode: Mode,
    left_out: Mapping[str, int],
    progress: Progress | None,
) -> Evaluation:
    """Ask every question once and measure the answers. There is at least one question."""
    _ask(recalls, questions[0])  # Loads the model, so that no question pays for it.
    asked: list[AskedQuestion] = []
    for number, item in enumerate(questions, 1):
        started = perf_counter()
        answer = _ask(recalls, item)
        asked.append(_measured(item, answer, took_ms=1e3 * (perf_counter() - started)))
        if progress is not None:
            progress(number, len(questions))
    answerable = [item for item in asked if item.evidence]
    unanswerable = [item.relevance for item in asked if not item.evidence]
    categories = sorted({item.category for item in answerable})
    p50, p95 = np.quantile([item.took_ms for item in asked], [0.5, 0.95])
    return Evaluation(
        k=k,
        mode=mode,
        model=answer.model,
        head=answer.head,
        vectors_cover=answer.vectors_cover,
        unavailable_legs=answer.unavailable_legs,
        left_out=dict(left_out),
        answerable=len(answerable),
        unanswerable=len(unanswerable),
        overall=_scores(answerable, k) if answerable else None,
        categories={
            name: _scores([item for item in answerable if item.category == name], k)
            for name in (categories if len(categories) > 1 else ())
        },
        auroc=auroc_interval([item.relevance for item in answerable], unanswerable)
        if answerable and unanswerable
        else None,
        p50_ms=round(float(p50), 2),
        p95_ms=round(float(p95), 2),
        asked=tuple(asked),
    )


def _ask(recalls: Recalls, item: KnownQuestion) -> Recall:
    return recalls.ask(item.question, as_of=item.as_of, receipt=False).recall


def _measured(item: KnownQuestion, answer: Recall, *, took_ms: float) -> AskedQuestion:
    ranks = {hit.position: rank for rank, hit in enumerate(answer, 1)}
    evidence = tuple(sorted(item.evidence))
    return AskedQuestion(
        question=item.question.query,
        category=item.category,
        evidence=evidence,
        ranks=tuple(map(ranks.get, evidence)),
        hits=tuple(ranks),
        relevance=answer[0].relevance if answer else 0.0,
        took_ms=round(took_ms, 2),
    )


def _scores(asked: Sequence[AskedQuestion], k: int) -> Scores:
    rows = [scores(item.hits, frozenset(item.evidence), cut=k) for item in asked]
    return Scores(questions=len(asked), metrics=dict(zip(metric_names(k), intervals(rows), strict=True)))
