"""Fit the ranking of recall on conversations whose evidence is known.

    python -m benchmarks.fit_recall FOLDER_OR_FILE... [--store FOLDER] [--write FILE]

The data are those of `benchmarks.recall_quality`. The fit reads the features of the candidates of each question, as a
recall computes them, and maximises the probability that one of the evidence turns is drawn when turns are drawn in
proportion to exp(score): ListNet's loss for the first place (Cao et al., ICML 2007), with an L2 penalty. Every source
counts the same. Then slope and offset are fitted so that the score of a hit among the first ten is the log-odds that it
is evidence (Platt, 1999).

The file also says how good the ranking is on each source when it was fitted without that source, and holds these fits.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from benchmarks.quality.metrics import auroc
from benchmarks.quality.shapes import Corpus, Question, read_set
from mnemolog import MemoryStore
from mnemolog.adapters.importers import import_files
from mnemolog.cli.command import bar
from mnemolog.domain.values import Position
from mnemolog.projections.recall.question import RANKING, question
from mnemolog.projections.recall.ranking import Page
from mnemolog.projections.recall.scoring import FEATURES, Coefficients, Fitted, features_of
from mnemolog.projections.recall.service import Basis

VECTOR_FEATURES: Final = ("meaning", "meaning_near")
WITH_VECTORS: Final = tuple(FEATURES)
WITHOUT_VECTORS: Final = tuple(name for name in FEATURES if name not in VECTOR_FEATURES)
PENALTY: Final = 1e-3
LESS_PENALTY: Final = {"date": 0.02, "speaker": 0.2}
"""Factors for features that few questions have: the usual penalty would keep them small."""
OFF_TOPIC_SHARE: Final = 0.3
"""What questions of other sources count where relevance is fitted. Most questions are about what a memory holds."""
OFF_TOPIC: Final = 120
"""How many questions of other sources are asked of each set, to see whether they are told apart."""
CUT: Final = 10
NOT_FITTED: Final = ("order", "summary")
"""Categories that are kept to measure how requests are read."""
DIGITS: Final = 3
"""Digits of the coefficients in the file."""

Array = NDArray[np.float64]


class Asked(NamedTuple):
    """A question and its candidates."""

    features: Array
    """Shape (rows, features)."""
    evidence: NDArray[np.bool_]
    """Shape (rows,)."""
    positions: NDArray[np.int64]
    all_evidence: int
    """How many turns are evidence, found or not."""
    category: str


class Table(NamedTuple):
    """The questions of one set."""

    name: str
    source: str
    own: list[Asked]
    unanswerable: list[Asked]
    off_topic: list[Asked]


class Report(msgspec.Struct, frozen=True):
    """How good a ranking is on one set."""

    questions: int
    hit_at_1: float
    hit_at_5: float
    hit_at_10: float
    evidence_recall_at_10: float
    off_topic_auroc: float | None
    """Own questions against those of other sources, by the first hit's relevance."""
    categories: dict[str, tuple[int, float, float, float]]
    """Questions, hit@1, hit@5 and hit@10."""


class File(msgspec.Struct, frozen=True):
    """What is written: `Fitted`, and how it came about."""

    ranking: str
    with_vectors: Coefficients
    without_vectors: Coefficients
    vectors_alone: Coefficients
    fitted_on: dict[str, str]
    """The sets and their sources."""
    without_the_source: dict[str, Report]
    """By set: the ranking fitted without its source."""
    with_all: dict[str, Report]
    left_out: dict[str, Fitted]
    """By source: the fit without it."""


def main(argv: Sequence[str] | None = None, *, encoder: Any = None) -> None:
    """Run what the command line says. `encoder` replaces the model."""
    arguments = parser().parse_args(argv)
    corpora = [read_set(data) for data in arguments.data]
    with ExitStack() as stack:
        where = arguments.store or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tables = [table(corpus, corpora, where / corpus.name, encoder=encoder) for corpus in corpora]
    written = fit_all(tables)
    for name, report in written.without_the_source.items():
        hits = f"{report.hit_at_1:.3f} {report.hit_at_5:.3f} {report.hit_at_10:.3f} {report.evidence_recall_at_10:.3f}"
        print(f"{name:18} without its source: {hits}  off-topic AUROC {report.off_topic_auroc}")
    if arguments.write:
        arguments.write.write_bytes(msgspec.json.format(msgspec.json.encode(written)) + b"\n")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(
        prog="fit_recall", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("data", type=Path, nargs="+", help="folders, or files of conversations of our own")
    found.add_argument("--store", type=Path, help="keep the stores here: a second run embeds nothing")
    found.add_argument("--write", type=Path, metavar="FILE", help="write the ranking there")
    return found


def table(corpus: Corpus, corpora: Sequence[Corpus], folder: Path, *, encoder: Any = None) -> Table:
    """Import a set into a store in `folder`, or find it there, and read the candidates of its questions."""
    options = {} if encoder is None else {"model": encoder}
    folder.mkdir(parents=True, exist_ok=True)
    with MemoryStore.open(folder / "store", background=False, **options) as store:
        import_files(store, [corpus.file], fields=corpus.fields, agent="bench")
        store.admin.catch_up_views()
        with bar(f"embed {corpus.name}") as progress:
            store.admin.catch_up_vectors(progress=progress)
        key_of = {event.position: event.key for event in store.events()}
        own = [item for item in corpus.questions if item.turns and not item.refused and item.category not in NOT_FITTED]
        unanswerable = [item for item in corpus.questions if item.refused == "unanswerable"]
        scopes = sorted({item.conversation for item in corpus.questions})
        off_topic = [
            msgspec.structs.replace(item, conversation=scopes[number % len(scopes)], turns=frozenset())
            for number, item in enumerate(_others(corpus, corpora))
        ]
        read = _reader(store, key_of)
        with bar(f"ask {corpus.name}") as progress:
            asked = []
            for number, item in enumerate([*own, *unanswerable, *off_topic], 1):
                asked.append(read(item))
                progress(number, len(own) + len(unanswerable) + len(off_topic))
    first, second = len(own), len(own) + len(unanswerable)
    return Table(corpus.name, corpus.source, asked[:first], asked[first:second], asked[second:])


def _others(corpus: Corpus, corpora: Sequence[Corpus]) -> list[Question]:
    """Return questions of the other sources, evenly spread."""
    others = [other for other in corpora if other.source != corpus.source]
    found = []
    for other in others:
        items = [item for item in other.questions if item.turns and not item.refused]
        wanted = min(len(items), OFF_TOPIC // len(others))
        found += [items[n * len(items) // wanted] for n in range(wanted)]
    return found


def _reader(store: MemoryStore, key_of: Mapping[Position, str | None]) -> Callable[[Question], Asked]:
    recalls = store.parts.contexts.recalls

    def read(item: Question) -> Asked:
        found = recalls.answer(question(item.text, scope=item.conversation), Basis(None, Page(CUT))).found
        rows = found.rows
        if not rows.positions:
            none = np.zeros(0, dtype=np.int64)
            return Asked(np.zeros((0, len(FEATURES))), none > 0, none, len(item.turns), item.category)
        columns = features_of(found, item.text).columns
        hits, positions = np.array(rows.may_be_hits), np.array(rows.positions)
        blank = np.zeros(len(positions))
        # Rounded, because the last digits of a model's numbers differ between machines.
        values = np.round(np.stack([columns.get(name, blank) for name in FEATURES], axis=1), 4)
        evidence = np.array([key_of[position] in item.turns for position in rows.positions])
        return Asked(values[hits], evidence[hits], positions[hits], len(item.turns), item.category)

    return read


def fit_all(tables: Sequence[Table]) -> File:
    """Fit on all sets, and once without each source."""
    sources = {item.name: item.source for item in tables}
    fits = {
        left_out: fit([item for item in tables if sources[item.name] != left_out])
        for left_out in sorted(set(sources.values()))
        if set(sources.values()) != {left_out}
    }
    everything = fit(tables)
    return File(
        ranking=RANKING,
        with_vectors=everything.with_vectors,
        without_vectors=everything.without_vectors,
        vectors_alone=everything.vectors_alone,
        fitted_on=sources,
        without_the_source={
            item.name: report(item, fits[sources[item.name]].with_vectors)
            for item in tables
            if sources[item.name] in fits
        },
        with_all={item.name: report(item, everything.with_vectors) for item in tables},
        left_out=fits,
    )


def fit(tables: Sequence[Table]) -> Fitted:
    """Fit the three models on sets. Sources count the same, and the sets of a source."""
    of_source = [item.source for item in tables]
    shares = [1 / of_source.count(source) / len(set(of_source)) for source in of_source]
    models = []
    for names in (WITH_VECTORS, WITHOUT_VECTORS, ("meaning",)):
        used = np.array([name in names for name in FEATURES])
        weights = _listwise(tables, shares, used) if len(names) > 1 else used.astype(float)
        slope, offset = _calibration(tables, shares, weights)
        models.append(
            Coefficients(
                offset=round(offset, DIGITS),
                features={name: round(slope * float(weights[n]), DIGITS) for n, name in enumerate(FEATURES) if used[n]},
            )
        )
    return Fitted(RANKING, *models)


def _listwise(tables: Sequence[Table], shares: Sequence[float], used: NDArray[np.bool_]) -> Array:
    """Return weights of features. Shape (features,); 0 where not `used`."""
    lists: list[tuple[Array, NDArray[np.bool_], float]] = []
    for item, share in zip(tables, shares, strict=True):
        found = [asked for asked in item.own if asked.evidence.any()]
        lists += [(asked.features[:, used], asked.evidence, share / len(found)) for asked in found]
    penalties = PENALTY * np.array([LESS_PENALTY.get(name, 1.0) for name in FEATURES])[used]

    def loss(weights: Array) -> tuple[float, Array]:
        total, gradient = float(penalties @ weights**2), 2 * penalties * weights
        for features, evidence, share in lists:
            scores = features @ weights
            drawn = np.exp(scores - scores.max())
            drawn /= drawn.sum()
            right = float(drawn[evidence].sum()) + 1e-12
            total -= share * np.log(right)
            gradient -= share * (features.T @ (np.where(evidence, drawn, 0.0) / right - drawn))
        return total, gradient

    found = minimize(loss, np.zeros(int(used.sum())), jac=True, method="L-BFGS-B", options={"maxiter": 1_000})
    weights = np.zeros(len(FEATURES))
    weights[used] = found.x
    return weights


def _calibration(tables: Sequence[Table], shares: Sequence[float], weights: Array) -> tuple[float, float]:
    """Return the slope and the offset that make log-odds of the scores of the first ten hits.

    A hit counts by 1 / rank. The questions of other sources count `OFF_TOPIC_SHARE` of the own ones.
    """
    rows, evidence, counts = [], [], []
    for item, share in zip(tables, shares, strict=True):
        for group, weight in (([*item.own, *item.unanswerable], 1.0), (item.off_topic, OFF_TOPIC_SHARE)):
            for asked in group:
                best = _best(asked, weights)
                scores = asked.features[best] @ weights
                rows.append(np.stack([scores, np.ones(len(best))], axis=1))
                evidence.append(asked.evidence[best])
                counts.append(weight * share / len(group) / np.arange(1, len(best) + 1))
    x, y, n = np.concatenate(rows), np.concatenate(evidence).astype(float), np.concatenate(counts)

    def loss(line: Array) -> tuple[float, Array]:
        z = x @ line
        return float(n @ (np.logaddexp(0, z) - y * z)), x.T @ (n * (1 / (1 + np.exp(-z)) - y))

    options = {"maxiter": 1_000, "gtol": 1e-9, "ftol": 1e-14}
    slope, offset = minimize(loss, np.array([0.3, -4.0]), jac=True, method="L-BFGS-B", options=options).x.tolist()
    return slope, offset


def _best(asked: Asked, weights: Array) -> NDArray[np.int64]:
    return np.lexsort((asked.positions, -np.round(asked.features @ weights, 9)))[:CUT]


def report(item: Table, model: Coefficients) -> Report:
    """Measure a model on a set."""
    weights = np.array([model.features.get(name, 0.0) for name in FEATURES])
    rows, first = [], []
    for asked in item.own:
        found = asked.evidence[_best(asked, weights)]
        rows.append([found[:1].any(), found[:5].any(), found.any(), found.sum() / asked.all_evidence])
        first.append(_first(asked, weights))
    figures = np.array(rows, dtype=float)
    categories = {}
    for category in sorted({asked.category for asked in item.own}):
        those = figures[[asked.category == category for asked in item.own]]
        one, five, ten = np.round(those.mean(axis=0)[:3], 3).tolist()
        categories[category] = (len(those), one, five, ten)
    one, five, ten, recall = np.round(figures.mean(axis=0), 3).tolist()
    others = [_first(asked, weights) for asked in item.off_topic]
    off_topic_auroc = round(auroc(first, others), 4) if others else None
    return Report(len(rows), one, five, ten, recall, off_topic_auroc, categories)


def _first(asked: Asked, weights: Array) -> float:
    """Return the score of the first hit."""
    return float((asked.features @ weights).max()) if len(asked.features) else -np.inf


if __name__ == "__main__":
    main()
