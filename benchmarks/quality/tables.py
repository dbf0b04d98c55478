"""The tables of a report, for the terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.quality.ablation import LEFT_OUT, SHIPPED
from benchmarks.quality.intervals import Interval
from benchmarks.quality.metrics import METRICS
from benchmarks.quality.results import DatasetResult, Figures
from benchmarks.quality.targets import verdicts

WHOLE = (LEFT_OUT, SHIPPED)
"""The settings that are measured at every level."""
LEG_METRICS = ("hit@1", "hit@10", "NDCG@10")
NONE = "-"
"""A cell without a figure."""


class Table(NamedTuple):
    """A table with a title. Cells of the first column are names, the others figures."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def as_markdown(self) -> str:
        """Return the table as a part of a page."""
        lines = [
            f"| {' | '.join(self.columns)} |",
            f"| --- |{' ---: |' * (len(self.columns) - 1)}",
            *(f"| {' | '.join(row)} |" for row in self.rows),
        ]
        heading = [f"### {self.title}", ""] if self.title else []
        return "\n".join([*heading, *([self.note, ""] if self.note else []), *lines])


def overall(datasets: Sequence[DatasetResult], level: str) -> Table:
    """Return the measures of every set, each with the weights that have not seen it first."""
    rows = [
        _row(f"{dataset.name}, {setting.name}", setting.levels[level].overall)
        for dataset in datasets
        for setting in dataset.settings
        if setting.name in WHOLE
    ]
    return Table(f"By {level}", ("set, weights", "questions", *METRICS), rows)


def legs(datasets: Sequence[DatasetResult]) -> Table:
    """Return each set by both legs, with weights that have not seen it, and by each leg alone."""
    rows = []
    for dataset in datasets:
        for setting in (dataset.settings[0], dataset.setting("text only"), dataset.setting("vector only")):
            if setting is not None:
                turns = setting.levels["turn"]
                kinds = [figures.metrics["NDCG@10"].mean for figures in turns.categories.values()]
                name = f"{dataset.name}, {setting.name if setting.name.endswith('only') else 'both'}"
                hits = [f"{turns.overall.metrics[metric].mean:.3f}" for metric in LEG_METRICS]
                rows.append((name, str(turns.overall.questions), *hits, f"{sum(kinds) / len(kinds):.3f}"))
    return Table("By leg", ("set, legs", "questions", *LEG_METRICS, "NDCG@10, mean of categories"), rows)


def targets(datasets: Sequence[DatasetResult]) -> Table | None:
    """Return what was to be reached and what was; None where nothing was to be."""
    rows = [
        (
            f"{dataset.name}, {verdict.metric}",
            f"{verdict.measured:.3f}",
            f"≥ {verdict.wanted:.3f}",
            "holds" if verdict.holds else "**missed**",
        )
        for dataset in datasets
        for verdict in verdicts(dataset)
    ]
    return Table("What was to be reached", ("set, measure", "measured", "wanted", ""), rows) if rows else None


def categories(dataset: DatasetResult) -> Iterator[Table]:
    """Yield the measures of a set by category, and by group, in each whole setting."""
    for setting in dataset.settings:
        turns = setting.levels["turn"]
        parts = turns.categories if len(turns.categories) > 1 else {}
        named = [*parts.items(), *(turns.groups.items() if len(turns.groups) > 1 else ())]
        if setting.name in WHOLE and named:
            rows = [_row(name, figures) for name, figures in named]
            yield Table(f"{dataset.name}, {setting.name}", ("category", "questions", *METRICS), rows)


def calibration(datasets: Sequence[DatasetResult]) -> Table:
    """Return how relevance and share of evidence agree."""
    rows = [
        (
            dataset.name,
            f"{sum(part.hits for part in found.bins):,}",
            f"{found.calibration_error:.3f}",
            f"{found.brier:.3f}",
            _optional(found.right),
        )
        for dataset in datasets
        if (found := dataset.relevance)
    ]
    return Table("", ("set", "hits", "calibration error", "Brier score", "AUROC: the best hit is evidence"), rows)


def told_apart(datasets: Sequence[DatasetResult]) -> Table:
    """Return how well relevance separates questions without an answer."""
    rows = [
        (
            dataset.name,
            f"{found.off_topic_questions}",
            _optional(found.off_topic),
            f"{found.near_miss_questions}",
            _optional(found.near_miss),
        )
        for dataset in datasets
        if (found := dataset.relevance)
    ]
    columns = ("set", "off-topic questions", "AUROC", "unanswerable ones about the set", "AUROC")
    return Table("", columns, rows)


def thresholds(dataset: DatasetResult) -> Table:
    """Return what a smallest relevance does to the answers of a set."""
    rows = [
        (f"{item.min_relevance:.2f}", f"{item.answered:.2f}", _figure(item.off_topic, 2), _figure(item.near_miss, 2))
        for item in dataset.relevance.thresholds
    ]
    columns = ("min_relevance", "evidence kept", "off-topic questions with a hit", "unanswerable ones with a hit")
    return Table(dataset.name, columns, rows)


def budgets(datasets: Sequence[DatasetResult]) -> Table:
    """Return what contexts of some sizes hold."""
    rows = [
        (
            f"{dataset.name}, {item.tokens:,} tokens",
            with_interval(item.gold),
            with_interval(item.words),
            f"{item.used:.2f}",
        )
        for dataset in datasets
        for item in dataset.budgets
    ]
    return Table("", ("set, budget", "evidence shown", "words of the answer shown", "budget used"), rows)


def ablation(dataset: DatasetResult) -> Table:
    """Return each setting of a set minus the shipped one, paired by question."""
    rows = [
        (setting.name, *(difference(setting.differences[metric]) for metric in METRICS))
        for setting in dataset.settings
        if setting.differences
    ]
    return Table(dataset.name, ("setting", *METRICS), rows)


def times(datasets: Sequence[DatasetResult]) -> Table:
    """Return what a recall takes beside its model."""
    rows = [
        (
            dataset.name,
            f"{dataset.turns:,}",
            f"{found.recall_p50_ms:.1f}",
            f"{found.recall_p95_ms:.1f}",
            _figure(found.model_p50_ms, 1),
            _figure(found.model_p95_ms, 1),
        )
        for dataset in datasets
        if (setting := dataset.setting(SHIPPED)) and (found := setting.times)
    ]
    columns = ("set", "turns", "recall p50 ms", "p95 ms", "model p50 ms", "p95 ms")
    return Table("", columns, rows)


def costs(datasets: Sequence[DatasetResult]) -> Table:
    """Return what the model read to embed the sets."""
    rows = [
        (
            dataset.name,
            f"{cost.texts:,}",
            f"{cost.texts / dataset.turns:.2f}",
            f"{cost.characters / dataset.characters:.2f}",
            f"{cost.seconds:,.0f}",
        )
        for dataset in datasets
        if (cost := dataset.corpus_cost)
    ]
    columns = ("set", "texts", "texts for each turn", "characters for each character said", "seconds")
    return Table("", columns, rows)


def with_interval(interval: Interval) -> str:
    """Return a mean with its interval."""
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def difference(interval: Interval) -> str:
    """Return a difference with its interval, in bold where that leaves out 0."""
    mean = f"{interval.mean:+.3f}"
    # Bold: more than the choice of questions explains.
    shown = f"**{mean}**" if interval.low > 0 or interval.high < 0 else mean
    return f"{shown} [{interval.low:+.3f}, {interval.high:+.3f}]"


def _row(name: str, figures: Figures) -> tuple[str, ...]:
    return name, str(figures.questions), *(with_interval(figures.metrics[metric]) for metric in METRICS)


def _optional(interval: Interval | None) -> str:
    return NONE if interval is None else with_interval(interval)


def _figure(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{value:.{digits}f}"
