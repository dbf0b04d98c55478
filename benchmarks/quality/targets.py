"""What recall is to reach, by the name of the data, with weights that have not seen it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from benchmarks.quality.intervals import Interval
from benchmarks.quality.results import DatasetResult

OFF_TOPIC: Final = "off-topic AUROC"
WORDS: Final = "words of the answer in {:,} tokens"
TARGETS: Final[dict[str, dict[str, float]]] = {
    "assistant-dev": {
        **{"hit@1": 0.60, "hit@5": 0.93, "hit@10": 0.97, "evidence recall@10": 0.93, OFF_TOPIC: 0.97},
        **{WORDS.format(500): 0.76, WORDS.format(1_000): 0.86, WORDS.format(2_000): 0.92},
    },
    "longmemeval-pool": {"hit@1": 0.76, "hit@5": 0.90, "hit@10": 0.93, OFF_TOPIC: 0.97},
    "qmsum-dev": {"hit@1": 0.52, "hit@5": 0.78, "hit@10": 0.89, OFF_TOPIC: 0.97},
    "locomo-dev": {"hit@1": 0.52, "hit@5": 0.83, "hit@10": 0.885, OFF_TOPIC: 0.97},
}


class Verdict(NamedTuple):
    """A target and what was reached of it."""

    metric: str
    wanted: float
    measured: float

    @property
    def holds(self) -> bool:
        """Whether the mean, not the upper end of its interval, reaches the target."""
        return self.measured >= self.wanted


def verdicts(dataset: DatasetResult) -> Iterator[Verdict]:
    """Yield the targets of a data set that were measured, in its first setting."""
    reached: dict[str, Interval] = dict(dataset.settings[0].levels["turn"].overall.metrics)
    if dataset.relevance.off_topic is not None:
        reached[OFF_TOPIC] = dataset.relevance.off_topic
    reached |= {WORDS.format(item.tokens): item.words for item in dataset.budgets}
    for metric, wanted in TARGETS.get(dataset.name, {}).items():
        if metric in reached:
            yield Verdict(metric, wanted, reached[metric].mean)
