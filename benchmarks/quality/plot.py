"""The ablation as a picture: `python -m benchmarks.quality.plot RESULTS.json PICTURE.svg`.

Bars are means, whiskers their 95 % intervals, the line is the first setting. The same JSON gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

PANELS: Final = (
    ("turn", "hit@1"),
    ("turn", "hit@5"),
    ("turn", "hit@10"),
    ("turn", "evidence recall@10"),
    ("session", "evidence recall@10"),
)
FIRST, OTHER, LINE = "#1f5a7a", "#a9c5d6", "#444444"


def draw(dataset: dict[str, Any], path: Path) -> None:
    """Draw the settings of a data set, a panel for each measure."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    settings = dataset["settings"]
    names = [setting["name"] for setting in settings]
    # Without a salt the ids in the file are random, and without a family the text depends on what is installed.
    options: dict[Any, Any] = {
        "svg.hashsalt": "mnemolog",
        "svg.fonttype": "none",
        "font.family": "DejaVu Sans",
        "font.size": 8,
    }
    with pyplot.rc_context(options):
        height = 0.9 + 0.24 * len(settings)
        figure, axes = pyplot.subplots(1, len(PANELS), sharey=True, figsize=(11, height), layout="constrained")
        for panel, (level, metric) in zip(axes, PANELS, strict=True):
            found = [setting["levels"][level]["overall"]["metrics"][metric] for setting in settings]
            means = [interval["mean"] for interval in found]
            whiskers = [
                [max(0.0, interval["mean"] - interval["low"]) for interval in found],
                [max(0.0, interval["high"] - interval["mean"]) for interval in found],
            ]
            colours = [FIRST, *[OTHER] * (len(settings) - 1)]
            panel.barh(names, means, color=colours, height=0.7)
            panel.errorbar(means, names, xerr=whiskers, fmt="none", ecolor=LINE, elinewidth=0.8, capsize=1.5)
            panel.axvline(means[0], color=FIRST, linewidth=0.8, linestyle=":")
            panel.set_title(f"{level}: {metric}", fontsize=8)
            panel.set_xlim(0, 1)
            panel.spines[["top", "right"]].set_visible(False)
        axes[0].invert_yaxis()
        questions = settings[0]["levels"]["turn"]["overall"]["questions"]
        figure.suptitle(f"{dataset['name']}, {questions} questions, 95 % intervals", fontsize=9)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def main() -> None:
    """Draw the first data set of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="what recall_quality.py wrote with --json")
    parser.add_argument("picture", type=Path, help="the SVG to write")
    arguments = parser.parse_args()
    draw(json.loads(arguments.results.read_text(encoding="utf-8"))["datasets"][0], arguments.picture)


if __name__ == "__main__":
    main()
