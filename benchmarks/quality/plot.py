"""The pictures of the page: `python -m benchmarks.quality.plot RESULTS.json FOLDER`.

One picture for each question that the page answers. The same JSON gives the same bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.quality.ablation import LEFT_OUT, SHIPPED
from benchmarks.quality.intervals import Interval
from benchmarks.quality.metrics import METRICS
from benchmarks.quality.relevance import BINS
from benchmarks.quality.results import DatasetResult, Results

COLOURS: Final = ("#1f5a7a", "#c8702a", "#4d7d3a", "#8a4f9e", "#b03a48", "#666666")
"""One for each set."""
PANELS_MAX: Final = 5
FIRST, OTHER, LINE = "#1f5a7a", "#a9c5d6", "#444444"
OPTIONS: Final[dict[Any, Any]] = {
    # Without a salt the ids in the file are random, and without a family the text depends on what is installed.
    "svg.hashsalt": "mnemolog",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
}


def draw_all(results: Results, folder: Path) -> list[Path]:
    """Draw the pictures for which there are figures; return their files."""
    pictures: dict[str, Callable[[tuple[DatasetResult, ...], Path], bool]] = {
        "recall-sets.svg": draw_sets,
        "recall-categories.svg": draw_categories,
        "recall-calibration.svg": draw_calibration,
        "recall-off-topic.svg": draw_off_topic,
        "recall-budget.svg": draw_budgets,
        "recall-ablation.svg": draw_ablation,
        "recall-times.svg": draw_times,
    }
    return [folder / name for name, draw in pictures.items() if draw(results.datasets, folder / name)]


def draw_sets(datasets: tuple[DatasetResult, ...], path: Path) -> bool:
    """Draw the hits of every set, with weights that have not seen it and with those that are shipped."""
    metrics = METRICS[:4]
    names = [dataset.name for dataset in datasets]
    with panels(path, len(metrics), height=0.8 + 0.5 * len(names)) as axes:
        for panel, metric in zip(axes, metrics, strict=True):
            for shift, name, colour in ((-0.2, LEFT_OUT, FIRST), (0.2, SHIPPED, OTHER)):
                found = [(place, setting) for place, item in enumerate(datasets) if (setting := item.setting(name))]
                figures = [setting.levels["turn"].overall.metrics[metric] for _, setting in found]
                _bars(panel, [place + shift for place, _ in found], figures, colour, height=0.36, label=name)
            panel.set_title(metric)
            panel.set_xlim(0, 1)
        axes[0].set_yticks(range(len(names)), names)
        axes[0].invert_yaxis()
        axes[-1].legend(loc="lower left", fontsize=7)
    return True


def draw_categories(datasets: tuple[DatasetResult, ...], path: Path) -> bool:
    """Draw the evidence recall of every category, worst first in each set."""
    bars: list[tuple[str, Interval, str]] = []
    for number, dataset in enumerate(datasets):
        categories = dataset.settings[0].levels["turn"].categories
        found = sorted(categories.items(), key=lambda item: item[1].metrics["evidence recall@10"].mean)
        for name, figures in found if len(found) > 1 else ():
            label = f"{dataset.name}: {name} ({figures.questions})"
            bars.append((label, figures.metrics["evidence recall@10"], COLOURS[number % len(COLOURS)]))
    if not bars:
        return False
    with panels(path, 1, height=0.7 + 0.2 * len(bars), width=7) as (panel,):
        for place, (_, interval, colour) in enumerate(bars):
            _bars(panel, [place], [interval], colour)
        panel.set_yticks(range(len(bars)), [label for label, *_ in bars])
        panel.invert_yaxis()
        panel.set_xlim(0, 1)
        panel.set_title("evidence recall@10, questions in parentheses")
    return True


def draw_calibration(datasets: tuple[DatasetResult, ...], path: Path) -> bool:
    """Draw the share of evidence among hits of each tenth of relevance, and how many hits that are."""
    with panels(path, len(datasets), height=2.6) as axes:
        for panel, dataset, colour in zip(axes, datasets, COLOURS * len(datasets), strict=False):
            bins = dataset.relevance.bins
            most = max((part.hits for part in bins), default=1)
            panel.plot([0, 1], [0, 1], color=LINE, linewidth=0.8, linestyle=":")
            sizes = [10 + 90 * part.hits / most for part in bins]
            panel.plot([part.relevance for part in bins], [part.evidence for part in bins], color=colour, linewidth=0.8)
            panel.scatter([part.relevance for part in bins], [part.evidence for part in bins], s=sizes, color=colour)
            panel.set_title(f"{dataset.name} ({dataset.relevance.calibration_error:.2f} off)")
            panel.set_xlim(0, 1)
            panel.set_ylim(0, 1)
            panel.set_xlabel("relevance")
        axes[0].set_ylabel("share that is evidence")
    return True


def draw_off_topic(datasets: tuple[DatasetResult, ...], path: Path) -> bool:
    """Draw how relevant the best hit is, of questions with an answer and of those without."""
    kinds = (("own", FIRST), ("off-topic", "#c8702a"), ("near miss", "#999999"))
    places = [(number + 0.5) / BINS for number in range(BINS)]
    with panels(path, len(datasets), height=2.4) as axes:
        for panel, dataset in zip(axes, datasets, strict=True):
            for kind, colour in kinds:
                counts = dataset.relevance.best[kind]
                if total := sum(counts):
                    panel.plot(places, [count / total for count in counts], color=colour, marker=".", label=kind)
            off = dataset.relevance.off_topic
            panel.set_title(dataset.name if off is None else f"{dataset.name} (AUROC {off.mean:.3f})")
            panel.set_xlim(0, 1)
            panel.set_xlabel("relevance of the best hit")
        axes[0].set_ylabel("share of the questions")
        axes[0].legend(fontsize=7)
    return True


def draw_budgets(datasets: tuple[DatasetResult, ...], path: Path) -> bool:
    """Draw what contexts of some sizes hold."""
    if not any(dataset.budgets for dataset in datasets):
        return False
    with panels(path, 2, height=2.6, width=7) as axes:
        for panel, what, title in zip(axes, ("gold", "words"), ("evidence shown", "words of the answer"), strict=True):
            for dataset, colour in zip(datasets, COLOURS * len(datasets), strict=False):
                tokens = [item.tokens for item in dataset.budgets]
                means = [getattr(item, what).mean for item in dataset.budgets]
                panel.plot(tokens, means, color=colour, marker=".", label=dataset.name)
            panel.set_title(title)
            panel.set_ylim(0, 1)
            panel.set_xlabel("tokens")
        axes[0].legend(fontsize=7, loc="lower right")
    return True


def draw_ablation(datasets: tuple[DatasetResult, ...], path: Path) -> bool:
    """Draw each setting minus the shipped one, a panel for each set."""
    if not any(setting.name not in (LEFT_OUT, SHIPPED) for dataset in datasets for setting in dataset.settings):
        return False
    names = [setting.name for setting in datasets[0].settings if setting.differences]
    with panels(path, len(datasets), height=0.9 + 0.26 * len(names)) as axes:
        for panel, dataset in zip(axes, datasets, strict=True):
            found = [setting.differences["hit@5"] for setting in dataset.settings if setting.differences]
            _bars(panel, [*range(len(found))], found, FIRST)
            panel.axvline(0, color=LINE, linewidth=0.8)
            panel.set_title(dataset.name)
            panel.set_xlabel("hit@5 minus shipped")
        axes[0].set_yticks(range(len(names)), names)
        axes[0].invert_yaxis()
    return True


def draw_times(datasets: tuple[DatasetResult, ...], path: Path) -> bool:
    """Draw the time of a recall and that of its model."""
    found = [(dataset.name, setting.times) for dataset in datasets if (setting := dataset.setting(SHIPPED)) is not None]
    with panels(path, 1, height=0.8 + 0.4 * len(found), width=7) as (panel,):
        for place, (_, item) in enumerate(found):
            model = item.model_p50_ms or 0.0
            panel.barh(place, item.recall_p50_ms, color=FIRST, height=0.6, label=None if place else "recall")
            panel.barh(place, model, left=item.recall_p50_ms, color=OTHER, height=0.6, label=None if place else "model")
        panel.set_yticks(range(len(found)), [name for name, _ in found])
        panel.invert_yaxis()
        panel.set_title("median time of a recall of ten turns, in ms")
        panel.legend(fontsize=7)
    return True


def _bars(
    panel: Any, places: list[Any], figures: list[Interval], colour: str, *, height: float = 0.7, label: str = ""
) -> None:
    means = [interval.mean for interval in figures]
    whiskers = [
        [max(0.0, interval.mean - interval.low) for interval in figures],
        [max(0.0, interval.high - interval.mean) for interval in figures],
    ]
    panel.barh(places, means, color=colour, height=height, label=label or None)
    panel.errorbar(means, places, xerr=whiskers, fmt="none", ecolor=LINE, elinewidth=0.8, capsize=1.5)


@contextmanager
def panels(path: Path, count: int, *, height: float, width: float = 11, sharey: bool = True) -> Iterator[Any]:
    """Yield panels, up to `PANELS_MAX` beside one another in rows of a height, and write the picture."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    columns = min(count, PANELS_MAX)
    rows = -(-count // columns)
    with pyplot.rc_context(OPTIONS):
        figure, grid = pyplot.subplots(
            rows, columns, sharey=sharey, figsize=(width, rows * height), layout="constrained", squeeze=False
        )
        for panel in grid.flat:
            panel.spines[["top", "right"]].set_visible(False)
        for panel in grid.flat[count:]:
            panel.set_axis_off()
        yield grid.flat[:count]
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def main() -> None:
    """Draw a run that was written as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    draw_all(msgspec.json.decode(arguments.results.read_bytes(), type=Results), arguments.folder)


if __name__ == "__main__":
    main()
