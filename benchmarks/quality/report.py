"""A run as a page, and on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.quality.results import LEVELS, DatasetResult, Results
from benchmarks.quality.tables import tables

MEASURES = """\
Every question searches the conversation it belongs to, for {depth} turns. **hit@k**: a turn with evidence is
among the first k. **evidence recall@10**: the share of all evidence that is among the first ten. **NDCG@10**
(Järvelin and Kekäläinen, 2002) compares with the ideal order of the whole conversation: all evidence first, found or
not. **Turn level** ranks turns. **Session level** ranks sessions by their first turn in that ranking; their
evidence is the sessions that contain it. In brackets: 95 % intervals by bootstrap (Efron, 1979; percentiles of
{resamples:,} resamples of the questions, seed {seed}). They show the effect of another choice of questions, not of
other conversations."""


def as_page(results: Results, *, targets: bool, plot: Path | None = None) -> str:
    """Return the page."""
    lines = [
        "# Quality of recall",
        "",
        "Written by `make bench-recall`, which is",
        "",
        f"    {results.command}",
        "",
        f"Model {results.model}, {_reranker(results)}. {results.machine}.",
        "",
        MEASURES.format(depth=results.depth, resamples=results.resamples, seed=results.seed),
        "",
        tuning(results),
    ]
    for dataset in results.datasets:
        lines += ["", f"## {dataset.name}", "", *about(dataset)]
        if plot is not None and dataset is results.datasets[0] and len(dataset.settings) > 1:
            lines += ["", f"![Ablation on {dataset.name}]({plot.name})"]
        for table in tables(dataset, targets=targets):
            lines += ["", table.as_markdown()]
    return "\n".join(lines) + "\n"


def tuning(results: Results) -> str:
    """Say which figures are optimistic."""
    if results.tuned_on is None:
        return "No data is named as what the ranking was tuned on."
    here = any(dataset.name == results.tuned_on for dataset in results.datasets)
    said = "Its figures are optimistic." if here else "It is not part of this run."
    return f"Named as the data that the ranking was tuned on: **{results.tuned_on}**. {said}"


def about(dataset: DatasetResult) -> Iterator[str]:
    """Yield what is in a data set and what of it is not asked."""
    yield (
        f"{dataset.turns:,} turns in {dataset.sessions:,} sessions of {dataset.conversations:,} conversations, "
        f"{dataset.questions:,} questions ({dataset.shape}). Left out:"
    )
    yield ""
    for level in LEVELS:
        reasons = dataset.left_out[level]
        said = ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "none"
        asked = dataset.questions - sum(reasons.values())
        yield f"- {level} level: {said}; {asked} questions are left."
    if dataset.unknown_evidence:
        yield f"- {dataset.unknown_evidence} names of evidence that is no turn of its conversation."
    if shallow := max(setting.shallow for setting in dataset.settings):
        yield f"- {shallow} questions, at most, whose ranking came to fewer sessions than the ten that are looked at."


def show(results: Results, *, targets: bool) -> None:
    """Print the tables."""
    console = Console()
    # Where nobody watches, lines are as long as they need to be.
    if not console.is_terminal:
        console = Console(width=240)
    console.print(tuning(results).replace("**", ""))
    for dataset in results.datasets:
        console.print(f"\n{dataset.name}", style="bold")
        for line in about(dataset):
            console.print(line, highlight=False)
        for table in tables(dataset, targets=targets):
            console.print(f"\n{table.title}", style="bold")
            shown = RichTable(*table.columns, box=box.SIMPLE_HEAD)
            for column in shown.columns[1:]:
                column.justify = "right"
            for row in table.rows:
                shown.add_row(*(cell.replace("**", "").replace("[", "\\[") for cell in row))
            console.print(shown)


def _reranker(results: Results) -> str:
    return f"reranker {results.reranker}" if results.reranker else "no reranker"
