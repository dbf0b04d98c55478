"""Terminal output of judgements and measurements of recall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mnemolog.audit.judgements import Judgement
from mnemolog.cli.output import console, note
from mnemolog.domain.display import counted, one_line

if TYPE_CHECKING:  # Imports numpy, which a judgement does not need.
    from mnemolog.evaluation.evaluation import Evaluation, Scores
    from mnemolog.evaluation.intervals import Interval

MISSED_MAX: Final = 10
"""Missed questions that are printed; the rest is counted."""


def show_judgement(judgement: Judgement) -> None:
    """Print what was recorded about an answer."""
    out = console()
    by = f" by {judgement.by}" if judgement.by else ""
    out.line(f"receipt @{judgement.receipt} judged{by}: {_verdict(judgement)}")
    out.line(f"   {one_line(judgement.query)}", style="dim")


def show_evaluation(answer: Evaluation) -> None:
    """Print the measures by category, then what was missed."""
    out = console()
    kinds = f"{counted(answer.answerable, 'question')} with an answer, {answer.unanswerable:,} that nothing answers"
    out.line((kinds, "bold"), f"; {counted(answer.k, 'hit')} each, {answer.mode}")
    if answer.overall is not None:
        names = [name.replace("evidence recall", "recall") for name in answer.overall.metrics]
        parts = [*answer.categories.items(), ("all", answer.overall)]
        out.rows(("category", "asked", *names), [_row(name or "(none)", scores) for name, scores in parts])
        out.line("in percent; in brackets where 95 % of other choices of questions would lie", style="dim")
    if answer.auroc is not None:
        low, mean, high = (f"{value:.2f}" for value in (answer.auroc.low, answer.auroc.mean, answer.auroc.high))
        why = "how often the best hit of a question with an answer is more relevant than that of one without"
        out.line(f"told apart: {mean} [{low}, {high}], {why}")
    out.line(f"time of a recall: half in {answer.p50_ms:.1f} ms, 95 % in {answer.p95_ms:.1f} ms, the model included")
    if missed := answer.missed:
        out.line(f"no evidence among the hits of {counted(len(missed), 'question')}:")
        for item in missed[:MISSED_MAX]:
            out.line(f"   {_places(item.evidence)} {one_line(item.question)}")
        if len(missed) > MISSED_MAX:
            out.line(f"   ... and {len(missed) - MISSED_MAX:,} more; --json lists them", style="dim")
    for reason, count in answer.left_out.items():
        note(f"{counted(count, 'judged receipt')} not asked: {reason}")
    for leg, why in answer.unavailable_legs.items():
        note(f"the {leg} leg did not answer: {why}")


def _row(name: str, scores: Scores) -> tuple[str, ...]:
    return one_line(name), f"{scores.questions:,}", *map(_percent, scores.metrics.values())


def _percent(interval: Interval) -> str:
    mean, low, high = (round(100 * value) for value in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}-{high}]"


def _verdict(judgement: Judgement) -> str:
    sides = [("good", judgement.good), ("bad", judgement.bad)]
    found = [f"{word} {_places(turns)}" for word, turns in sides if turns]
    return "; ".join([*found, *(["nothing answers it"] if judgement.nothing else [])])


def _places(turns: Sequence[int]) -> str:
    return ", ".join(f"@{turn}" for turn in turns)
