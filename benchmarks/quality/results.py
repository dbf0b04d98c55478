"""What a run found, as it is written to JSON."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from benchmarks.quality.encoder import EncoderCost
from mnemolog.evaluation.bootstrap import Interval

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
    """What a recall of ten turns takes, with the question embedded already and with embedding it."""

    recall_p50_ms: float
    recall_p95_ms: float
    with_question_p50_ms: float
    with_question_p95_ms: float
    questions_encoded: int
    """Questions that went through the model."""


class SettingResult(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of recall."""

    name: str
    arguments: dict[str, Any]
    levels: dict[str, Level]
    differences: dict[str, dict[str, Interval]]
    """Level by level, this setting minus the first one, paired by question. Empty for the first."""
    times: Times
    shallow: int
    """Questions whose ranking of turns came to fewer sessions than the session measures look at and there are."""


class DatasetResult(msgspec.Struct, frozen=True, kw_only=True):
    """All settings on one set of conversations."""

    name: str
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


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A run."""

    command: str
    model: str
    reranker: str | None
    machine: str
    tuned_on: str | None
    """The data whose questions were looked at while the ranking was made."""
    depth: int
    resamples: int
    seed: int
    datasets: tuple[DatasetResult, ...]
