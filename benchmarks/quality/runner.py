"""Asking every question of a corpus in every setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from benchmarks.quality.encoder import Remembering, add_to_ledger
from benchmarks.quality.results import LEVELS, DatasetResult, Figures, Level, SettingResult, Times
from benchmarks.quality.shapes import FIELDS, Corpus, Question, reason_against
from mnemolog import MemoryStore
from mnemolog.adapters.importers import import_files
from mnemolog.cli.progress import bar
from mnemolog.evaluation.bootstrap import intervals
from mnemolog.evaluation.metrics import CUT, METRICS, scores, session_ranking

DEPTH: Final = 100
"""Turns asked for, so that they come from ten sessions where there are as many."""

AGENT: Final = "bench"


class Ranking(NamedTuple):
    """What a recall answered."""

    turns: list[str]
    sessions: list[str]


def run(
    corpus: Corpus,
    folder: Path,
    *,
    model: Any,
    settings: Mapping[str, Mapping[str, Any]],
    depth: int = DEPTH,
    **options: Any,
) -> DatasetResult:
    """Import a corpus into a store below `folder`, or find it there, and ask all its questions in every setting.

    `options` are further ones of `MemoryStore.open`.
    """
    for level in LEVELS:
        if not asked(corpus, level):
            raise ValueError(f"no question of {corpus.name} has an evidence {level}")
    encoder = Remembering(model)
    folder.mkdir(parents=True, exist_ok=True)
    with MemoryStore.open(folder / "store", model=encoder, background=False, **options) as store:
        started = perf_counter()
        with bar("import") as progress:
            import_files(store, [corpus.path / "turns.jsonl"], fields=[FIELDS], agent=AGENT, progress=progress)
        store.admin.catch_up_views()
        import_s = perf_counter() - started
        try:
            with bar("embed") as progress:
                store.admin.catch_up_vectors(progress=progress)
        finally:
            cost = add_to_ledger(folder / "encoder.json", store.parts.projections.vectors().fingerprint, encoder.corpus)
        encoder.ask()
        results: list[SettingResult] = []
        first: dict[str, np.ndarray[Any, Any]] = {}
        for name, arguments in settings.items():
            values, shallow, times = _ask(store, encoder, corpus, name, arguments, depth=depth)
            first = first or values
            results.append(
                SettingResult(
                    name=name,
                    arguments=msgspec.to_builtins(dict(arguments)),
                    levels={level: _level(corpus, level, values[level]) for level in LEVELS},
                    differences={
                        level: dict(zip(METRICS, intervals(values[level] - first[level]), strict=True))
                        for level in (LEVELS if results else ())
                    },
                    times=times,
                    shallow=shallow,
                )
            )
    return DatasetResult(
        name=corpus.name,
        shape=corpus.shape,
        turns=corpus.turns,
        characters=corpus.characters,
        conversations=corpus.conversations,
        sessions=corpus.sessions,
        questions=len(corpus.questions),
        left_out=corpus.left_out(),
        unknown_evidence=corpus.unknown_evidence,
        import_s=round(import_s, 2),
        encoded_now=encoder.corpus.texts,
        corpus_cost=cost,
        settings=tuple(results),
    )


def asked(corpus: Corpus, level: str) -> list[Question]:
    """Return the questions that a level asks."""
    return [item for item in corpus.questions if reason_against(item, level) is None]


def _ask(
    store: MemoryStore,
    encoder: Remembering,
    corpus: Corpus,
    name: str,
    arguments: Mapping[str, Any],
    *,
    depth: int,
) -> tuple[dict[str, np.ndarray[Any, Any]], int, Times]:
    """Return the measures of every question level by level, how many rankings are too short, and the times."""
    questions = [item for item in corpus.questions if any(reason_against(item, level) is None for level in LEVELS)]
    rankings: dict[Question, Ranking] = {}
    durations: list[float] = []
    encoder.asked_for.clear()
    with bar(name) as progress:
        for number, item in enumerate(questions, 1):
            hits = store.recall(item.text, k=depth, scope=item.conversation, **arguments).hits
            rankings[item] = Ranking([str(hit.key) for hit in hits], session_ranking(hit.session for hit in hits))
            progress(number, 2 * len(questions))
        # Again, as deep as one asks otherwise: by now the question's vector is remembered, and the pages are read.
        for number, item in enumerate(questions, 1):
            started = perf_counter()
            store.recall(item.text, k=CUT, scope=item.conversation, **arguments)
            durations.append(1e3 * (perf_counter() - started))
            progress(len(questions) + number, 2 * len(questions))
    values = {
        "turn": [scores(rankings[item].turns, item.turns) for item in asked(corpus, "turn")],
        "session": [scores(rankings[item].sessions, item.sessions) for item in asked(corpus, "session")],
    }
    there = {item.conversation: 0 for item in questions}
    for summary in store.sessions():
        if summary.scope in there:
            there[summary.scope] += 1
    shallow = sum(len(rankings[item].sessions) < min(CUT, there[item.conversation]) for item in questions)
    return (
        {level: np.array(rows).reshape(-1, len(METRICS)) for level, rows in values.items()},
        shallow,
        _times(encoder, questions, durations),
    )


def _times(encoder: Remembering, questions: Sequence[Question], durations: Sequence[float]) -> Times:
    # A question costs the same to embed in every setting. It was measured when it came up first.
    whole = [
        took + (encoder.question_ms[item.text] if item.text in encoder.asked_for else 0.0)
        for item, took in zip(questions, durations, strict=True)
    ]
    (p50, p95), (whole_p50, whole_p95) = np.quantile(durations, [0.5, 0.95]), np.quantile(whole, [0.5, 0.95])
    return Times(
        recall_p50_ms=round(float(p50), 2),
        recall_p95_ms=round(float(p95), 2),
        with_question_p50_ms=round(float(whole_p50), 2),
        with_question_p95_ms=round(float(whole_p95), 2),
        questions_encoded=len(encoder.asked_for),
    )


def _level(corpus: Corpus, level: str, values: np.ndarray[Any, Any]) -> Level:
    questions = asked(corpus, level)

    def figures(wanted: Sequence[bool]) -> Figures:
        return Figures(
            questions=sum(wanted), metrics=dict(zip(METRICS, intervals(values[np.array(wanted)]), strict=True))
        )

    categories = sorted({item.category for item in questions})
    groups = sorted({group for item in questions for group in item.groups})
    return Level(
        overall=figures([True] * len(questions)),
        categories={name: figures([item.category == name for item in questions]) for name in categories},
        groups={name: figures([name in item.groups for item in questions]) for name in groups},
    )
