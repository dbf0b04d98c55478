"""The tables of a report, for the terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.quality.results import LEVELS, DatasetResult, Figures
from benchmarks.quality.targets import verdicts
from mnemolog.evaluation.bootstrap import Interval
from mnemolog.evaluation.metrics import METRICS

ABLATION = (*(("turn", metric) for metric in METRICS), ("session", "hit@5"), ("session", "evidence recall@10"))


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
        return "\n".join([f"### {self.title}", "", *([self.note, ""] if self.note else []), *lines])


def tables(dataset: DatasetResult, *, targets: bool) -> Iterator[Table]:
    """Yield all tables about a data set."""
    yield _overall(dataset)
    if targets and (found := list(verdicts(dataset))):
        rows = [
            (f"{v.level}, {v.metric}", f"{v.measured:.3f}", f">= {v.wanted:.2f}", "holds" if v.holds else "missed")
            for v in found
        ]
        yield Table("Targets", ("what", "measured", "wanted", ""), rows)
    first = dataset.settings[0]
    for level in LEVELS:
        categories = first.levels[level].categories
        if len(categories) > 1:
            yield Table(
                f"By category, {level} level",
                ("category", "questions", *METRICS),
                [_row(name, figures) for name, figures in categories.items()],
            )
    if first.levels["session"].groups:
        yield _groups(dataset)
    if len(dataset.settings) > 1:
        yield _ablation(dataset)
        yield _differences(dataset)
    yield _times(dataset)
    yield _cost(dataset)


def _overall(dataset: DatasetResult) -> Table:
    rows = [
        _row(f"{level}, {setting.name}", setting.levels[level].overall)
        for level in LEVELS
        for setting in dataset.settings[:1]
    ]
    return Table("All questions", ("level, setting", "questions", *METRICS), rows)


def _groups(dataset: DatasetResult) -> Table:
    rows = []
    for level in LEVELS:
        for name, figures in dataset.settings[0].levels[level].groups.items():
            reached = round(figures.metrics["hit@5"].mean * figures.questions)
            rows.append((*_row(f"{name}, {level}", figures), f"{reached} of {figures.questions}"))
    return Table("Official questions", ("group, level", "questions", *METRICS, "questions with hit@5 = 1"), rows)


def _ablation(dataset: DatasetResult) -> Table:
    rows = [
        (setting.name, *(with_interval(setting.levels[level].overall.metrics[metric]) for level, metric in ABLATION))
        for setting in dataset.settings
    ]
    return Table("Ablation", ("setting", *_ablation_columns()), rows)


def _differences(dataset: DatasetResult) -> Table:
    first, *others = dataset.settings
    rows = [
        (setting.name, *(difference(setting.differences[level][metric]) for level, metric in ABLATION))
        for setting in others
    ]
    note = f'Each setting minus "{first.name}", paired by question. In bold where the interval leaves out 0.'
    return Table("Ablation, differences", ("setting", *_ablation_columns()), rows, note)


def _times(dataset: DatasetResult) -> Table:
    rows = [
        (
            setting.name,
            f"{times.recall_p50_ms:.1f}",
            f"{times.recall_p95_ms:.1f}",
            f"{times.with_question_p50_ms:.1f}",
            f"{times.with_question_p95_ms:.1f}",
            f"{times.questions_encoded}",
        )
        for setting in dataset.settings
        if (times := setting.times)
    ]
    columns = ("setting", "p50 ms", "p95 ms", "p50 ms, question embedded too", "p95 ms", "questions through the model")
    return Table("Time of a recall of ten turns, in its conversation", columns, rows)


def _cost(dataset: DatasetResult) -> Table:
    cost = dataset.corpus_cost
    rows = [
        ("texts", f"{cost.texts:,}", f"{dataset.turns:,}", f"{cost.texts / dataset.turns:.2f}"),
        (
            "characters",
            f"{cost.characters:,}",
            f"{dataset.characters:,}",
            f"{cost.characters / dataset.characters:.2f}",
        ),
        ("seconds", f"{cost.seconds:,.0f}", "", ""),
    ]
    note = (
        f"What the model read to embed the corpus, beside one text for every turn ({dataset.encoded_now:,} texts in "
        "this run; the others were kept from an earlier one). A text said twice is read once, a long one in "
        "overlapping pieces."
    )
    return Table("Cost of embedding", ("", "through the model", "one text a turn", "ratio"), rows, note)


def _ablation_columns() -> list[str]:
    return [metric if level == "turn" else f"{level} {metric}" for level, metric in ABLATION]


def _row(name: str, figures: Figures) -> tuple[str, ...]:
    return name, str(figures.questions), *(with_interval(figures.metrics[metric]) for metric in METRICS)


def with_interval(interval: Interval) -> str:
    """Return a mean with its interval."""
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def difference(interval: Interval) -> str:
    """Return a difference with its interval, in bold where that leaves out 0."""
    mean = f"{interval.mean:+.3f}"
    shown = f"**{mean}**" if interval.leaves_out_zero else mean
    return f"{shown} [{interval.low:+.3f}, {interval.high:+.3f}]"
