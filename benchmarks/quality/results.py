"""What a run found, as it is written to JSON."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from benchmarks.quality.encoder import EncoderCost
from benchmarks.quality.intervals import Interval
from benchmarks.quality.relevance import Relevance

LEVELS: Final = ("turn", "session")


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Measures over some questions."""

    questions: int
    metrics: dict[str, Interval]


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """Measures of rankings of turns, or of sessions."""

    overall: Figures
    categories: dict[str, Figures]
    groups: dict[str, Figures]


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """What a recall of ten turns takes: by itself, with the question embedded already, and the model alone."""

    recall_p50_ms: float
    recall_p95_ms: float
    model_p50_ms: float | None
    """What the model takes to embed a question; None where no question went through it."""
    model_p95_ms: float | None


class SettingResult(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of recall."""

    name: str
    arguments: dict[str, Any]
    levels: dict[str, Level]
    """By level; parts of the ablation have the turn level only."""
    differences: dict[str, Interval]
    """Of turns: this setting minus the shipped one, paired by question. Empty for the shipped one."""
    times: Times
    shallow: int
    """Questions whose ranking of turns came to fewer sessions than the session measures look at and there are."""


class BudgetResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a context of so many tokens still holds."""

    tokens: int
    gold: Interval
    """The share of the evidence turns of which a part is shown."""
    words: Interval
    """The share of the answer's words that is shown."""
    used: float
    """The mean share of the budget that the context uses."""


class DatasetResult(msgspec.Struct, frozen=True, kw_only=True):
    """All settings on one set of conversations."""

    name: str
    source: str
    shape: str
    turns: int
    characters: int
    conversations: int
    sessions: int
    questions: int
    left_out: dict[str, dict[str, int]]
    """Level by level, by reason."""
    unknown_evidence: int
    import_s: float
    encoded_now: int
    """Texts that the model was called for in this run. 0 where the store was kept."""
    corpus_cost: EncoderCost
    """What all vectors of the store did cost, in whichever runs."""
    settings: tuple[SettingResult, ...]
    """The first is the one to believe: with weights that have not seen the set, if such weights were given."""
    relevance: Relevance
    """Of the first setting."""
    budgets: tuple[BudgetResult, ...]
    """Likewise."""

    def setting(self, name: str) -> SettingResult | None:
        """Return a setting by its name."""
        return next((item for item in self.settings if item.name == name), None)


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A run."""

    command: str
    model: str
    reranker: str | None
    machine: str
    depth: int
    resamples: int
    seed: int
    datasets: tuple[DatasetResult, ...]
