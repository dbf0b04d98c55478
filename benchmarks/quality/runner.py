"""Asking every question of a corpus in every setting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from benchmarks.quality.ablation import LEFT_OUT, SHIPPED
from benchmarks.quality.encoder import Remembering, add_to_ledger
from benchmarks.quality.intervals import intervals
from benchmarks.quality.metrics import CUT, METRICS, scores
from benchmarks.quality.relevance import Graded, Relevance, measure
from benchmarks.quality.results import LEVELS, BudgetResult, DatasetResult, Figures, Level, SettingResult, Times
from benchmarks.quality.shapes import Corpus, Question, reason_against
from mnemolog import MemoryStore, Recall
from mnemolog.adapters.importers import import_files
from mnemolog.cli.command import bar

DEPTH: Final = 100
"""Turns asked for, so that they come from ten sessions where there are as many."""
STRANGERS_MAX: Final = 200
"""Off-topic questions that are asked of a set."""
PACKED_MAX: Final = 250
"""Questions of a set for which contexts are made, evenly from all."""

AGENT: Final = "bench"


class Packed(NamedTuple):
    """What the context of a question holds: shares of the evidence turns, of the answer's words and of the budget."""

    gold: float
    words: float
    used: float


Pack = Callable[[MemoryStore, Question, int], Packed]
"""Makes a context of so many tokens for a question, and measures it."""


class Ranking(NamedTuple):
    """What a recall answered."""

    turns: list[str]
    sessions: list[str]
    relevance: list[float]

    def graded(self, evidence: frozenset[str]) -> Graded:
        """Return the first ten hits with their relevance, and whether each is evidence."""
        return Graded(tuple(self.relevance[:CUT]), tuple(key in evidence for key in self.turns[:CUT]))


class _Asked(NamedTuple):
    """The answers in one setting."""

    rankings: dict[Question, Ranking]
    values: dict[str, np.ndarray[Any, Any]]
    """The measures of every question, by level."""
    times: Times


def strangers_of(corpus: Corpus, corpora: Sequence[Corpus]) -> list[Question]:
    """Return questions of other sources, evenly from each, each to be asked in one of this corpus's conversations."""
    others = [
        [item for item in other.questions if item.turns and not item.refused]
        for other in corpora
        if other.source != corpus.source
    ]
    if not others:
        return []
    each = STRANGERS_MAX // len(others)
    chosen = [item for items in others for item in items[:: max(1, len(items) // each)][:each]]
    here = cycle(sorted({item.conversation for item in corpus.questions}))
    return [msgspec.structs.replace(item, conversation=next(here)) for item in chosen]


def run(
    corpus: Corpus,
    folder: Path,
    *,
    model: Any,
    settings: Mapping[str, Mapping[str, Any]],
    left_out: Callable[[], AbstractContextManager[None]] | None = None,
    strangers: Sequence[Question] = (),
    pack: Pack | None = None,
    budgets: Iterable[int] = (),
    depth: int = DEPTH,
    **options: Any,
) -> DatasetResult:
    """Import a corpus into a store below `folder`, or find it there, and ask all its questions.

    As shipped, in the other `settings`, and first of all, if given, while `left_out` has recall use weights that have
    not seen the corpus. `strangers` are questions of other sets, `pack` makes a context for each of `budgets`.
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
            import_files(store, corpus.file, fields=corpus.fields, agent=AGENT, progress=progress)
        store.admin.catch_up_views()
        import_s = perf_counter() - started
        try:
            with bar("embed") as progress:
                store.admin.catch_up_vectors(progress=progress)
        finally:
            cost = add_to_ledger(folder / "encoder.json", store.parts.projections.vectors().fingerprint, encoder.corpus)
        encoder.ask()
        found: dict[str, _Asked] = {}
        with nullcontext() if left_out is None else left_out():
            first = SHIPPED if left_out is None else LEFT_OUT
            found[first] = _ask(store, encoder, corpus, first, {}, depth=depth)
            relevance = _relevance(store, corpus, found[first], strangers)
            packed = tuple(_packed(store, corpus, tokens, pack) for tokens in budgets) if pack is not None else ()
        if SHIPPED not in found:
            found[SHIPPED] = _ask(store, encoder, corpus, SHIPPED, {}, depth=depth)
        for name, arguments in settings.items():
            found[name] = _ask(store, encoder, corpus, name, arguments, depth=CUT)
        shallow = {name: _shallow(store, item.rankings) for name, item in found.items()}
    return DatasetResult(
        name=corpus.name,
        source=corpus.source,
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
        settings=tuple(
            SettingResult(
                name=name,
                arguments=msgspec.to_builtins(dict(settings.get(name, {}))),
                levels={level: _level(corpus, level, values) for level, values in item.values.items()},
                differences={}
                if name == SHIPPED
                else dict(zip(METRICS, intervals(item.values["turn"] - found[SHIPPED].values["turn"]), strict=True)),
                times=item.times,
                shallow=shallow[name] if len(item.values) > 1 else 0,
            )
            for name, item in found.items()
        ),
        relevance=relevance,
        budgets=packed,
    )


def asked(corpus: Corpus, level: str) -> list[Question]:
    """Return the questions that a level asks."""
    return [item for item in corpus.questions if reason_against(item, level) is None]


def _ask(
    store: MemoryStore, encoder: Remembering, corpus: Corpus, name: str, arguments: Mapping[str, Any], *, depth: int
) -> _Asked:
    """Ask every question. With a depth of more than ten, ask again for ten, for the time that takes."""
    levels = LEVELS if depth > CUT else LEVELS[:1]
    questions = [item for item in corpus.questions if any(reason_against(item, level) is None for level in levels)]
    rankings: dict[Question, Ranking] = {}
    durations: list[float] = []
    with bar(f"{corpus.name}: {name}") as progress:
        for number, item in enumerate(questions, 1):
            if depth > CUT:
                rankings[item] = _ranking(_recall(store, item, arguments, depth))
            started = perf_counter()
            answer = _recall(store, item, arguments, CUT)
            durations.append(1e3 * (perf_counter() - started))
            rankings.setdefault(item, _ranking(answer))
            progress(number, len(questions))
    values = {
        "turn": [scores(rankings[item].turns, item.turns) for item in asked(corpus, "turn")],
        "session": [scores(rankings[item].sessions, item.sessions) for item in asked(corpus, "session")]
        if depth > CUT
        else [],
    }
    p50, p95 = np.quantile(durations, [0.5, 0.95])
    model = np.quantile([*encoder.question_ms.values()] or [np.nan], [0.5, 0.95])
    return _Asked(
        rankings,
        {level: np.array(values[level]) for level in levels},
        Times(
            recall_p50_ms=round(float(p50), 2),
            recall_p95_ms=round(float(p95), 2),
            model_p50_ms=None if np.isnan(model[0]) else round(float(model[0]), 2),
            model_p95_ms=None if np.isnan(model[1]) else round(float(model[1]), 2),
        ),
    )


def _recall(store: MemoryStore, item: Question, arguments: Mapping[str, Any], k: int) -> Recall:
    return store.recall(item.text, k=k, scope=item.conversation, min_relevance=0, **arguments)


def _ranking(answer: Recall) -> Ranking:
    """Return the best hits first, also where a request for an order has its answer in order of time."""
    hits = sorted(answer, key=lambda hit: -hit.relevance)
    return Ranking(
        [str(hit.key) for hit in hits],
        list(dict.fromkeys(hit.session for hit in hits)),
        [hit.relevance for hit in hits],
    )


def _shallow(store: MemoryStore, rankings: Mapping[Question, Ranking]) -> int:
    there = {item.conversation: 0 for item in rankings}
    for summary in store.sessions():
        if summary.scope in there:
            there[summary.scope] += 1
    return sum(len(found.sessions) < min(CUT, there[item.conversation]) for item, found in rankings.items())


def _relevance(store: MemoryStore, corpus: Corpus, found: _Asked, strangers: Sequence[Question]) -> Relevance:
    """Measure the relevance of answers, of off-topic questions and of those that nothing answers."""
    own = [found.rankings[item].graded(item.turns) for item in asked(corpus, "turn")]
    refused = [item for item in corpus.questions if item.refused]
    others = []
    for kind in (strangers, refused):
        with bar(f"{corpus.name}: without an answer") as progress:
            graded = []
            for number, item in enumerate(kind, 1):
                graded.append(_ranking(_recall(store, item, {}, CUT)).graded(frozenset()))
                progress(number, len(kind))
        others.append(graded)
    return measure(own, *others)


def _packed(store: MemoryStore, corpus: Corpus, tokens: int, pack: Pack) -> BudgetResult:
    with bar(f"{corpus.name}: {tokens} tokens") as progress:
        rows = []
        questions = asked(corpus, "turn")
        questions = questions[:: -(-len(questions) // PACKED_MAX)]
        for number, item in enumerate(questions, 1):
            rows.append(pack(store, item, tokens))
            progress(number, len(questions))
    gold, words, used = intervals(rows)
    return BudgetResult(tokens=tokens, gold=gold, words=words, used=used.mean)


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
