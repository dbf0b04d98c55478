"""What recall is to reach, by the name of the data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from benchmarks.quality.results import DatasetResult

TARGETS: Final[dict[str, dict[tuple[str, str], float]]] = {
    "locomo-dev": {
        ("turn", "hit@1"): 0.45,
        ("turn", "hit@5"): 0.78,
        ("turn", "hit@10"): 0.87,
        ("turn", "evidence recall@10"): 0.81,
        ("session", "evidence recall@10"): 0.95,
    }
}


class Verdict(NamedTuple):
    """A target and what was reached of it."""

    level: str
    metric: str
    wanted: float
    measured: float

    @property
    def holds(self) -> bool:
        """Whether the mean, not the upper end of its interval, reaches the target."""
        return self.measured >= self.wanted


def verdicts(dataset: DatasetResult) -> Iterator[Verdict]:
    """Yield the targets of a data set, measured in its first setting."""
    for (level, metric), wanted in TARGETS.get(dataset.name, {}).items():
        mean = dataset.settings[0].levels[level].overall.metrics[metric].mean
        yield Verdict(level, metric, wanted, mean)
