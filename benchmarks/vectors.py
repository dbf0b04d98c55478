"""Speed of vectors as ratios to bare FAISS, measured in the same run: `make bench-vectors`.

Clustered synthetic vectors from a seed, and where a path to messages is given, real ones of the MiniLM model. What
is measured is the store's own way: a log of turns, an encoder that knows each turn's vector, segments on disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from mnemolog import MemoryStore, NewTurn
from mnemolog.projections.vectors.projection import VectorProjection

DIMENSION, SEED = 384, 20260101
CLUSTERS, NOISE = 2_000, 0.6
QUERIES, K = 200, 10
SESSIONS, TURNS_TOGETHER = 100, 5_000
FILTER_SHARE = 0.01
OPENINGS = 5

Array = np.ndarray[Any, np.dtype[np.float32]]


class Figure(NamedTuple):
    """One line of the report."""

    what: str
    ours: float
    unit: str
    bare: float | None
    """The same of bare FAISS, where there is such a thing."""
    wanted: str
    holds: bool


class Known:
    """An encoder that looks a text's vector up: `turn 12` and `query 3`."""

    name, dimension = "known", DIMENSION

    def __init__(self, rows: Array, queries: Array, *, fingerprint: str) -> None:
        self.rows, self.queries, self.fingerprint = rows, queries, fingerprint

    def encode(self, texts: Sequence[str]) -> Array:
        """Return the vectors of texts."""
        found = [(kind, int(number)) for kind, number in (text.split() for text in texts)]
        return np.stack([(self.rows if kind == "turn" else self.queries)[number] for kind, number in found])


def unit(rows: Array) -> Array:
    """Scale rows to length 1."""
    scaled: Array = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def clustered(count: int) -> tuple[Array, Array]:
    """Return rows around cluster centres, and queries that are fresh points of the same clusters."""
    random = np.random.default_rng(SEED)
    centres = unit(random.standard_normal((CLUSTERS, DIMENSION), dtype=np.float32))

    def points(number: int) -> Array:
        near = centres[random.integers(CLUSTERS, size=number)]
        noise = unit(random.standard_normal((number, DIMENSION), dtype=np.float32))
        return unit(near + NOISE * noise)

    return points(count), points(QUERIES)


def fill(store: MemoryStore, count: int) -> None:
    """Record `turn 0` and so on."""
    for number in range(SESSIONS):
        store.start_session(f"s{number}", scope=f"org/{number}")
    for start in range(0, count, TURNS_TOGETHER):
        numbers = range(start, min(count, start + TURNS_TOGETHER))
        store.record_many([NewTurn(session=f"s{n % SESSIONS}", role="user", text=f"turn {n}") for n in numbers])


def exact(rows: Array, query: Array, k: int, allowed: Any = None) -> Any:
    """Return the best rows by looking at all of them."""
    scores = rows @ query if allowed is None else rows[allowed] @ query
    best = np.argpartition(-scores, k)[:k]
    return best if allowed is None else allowed[best]


def p50_ms(calls: Sequence[Callable[[], Any]]) -> float:
    """Return the median time of calls, after a round that brings in the pages and checks the blocks they need."""
    for call in calls:
        call()
    times = []
    for call in calls:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * median(times)


class Searched(NamedTuple):
    """How a projection answers."""

    p50_ms: float
    recall: float
    filtered_p50_ms: float
    filtered_recall: float
    bare_p50_ms: float


def searched(leg: VectorProjection, rows: Array, queries: Array, *, first: int) -> Searched:
    """Measure searches. Row n is the turn at position `first` + n."""
    import faiss

    random = np.random.default_rng(SEED)
    bare = faiss.IndexFlatIP(DIMENSION)
    bare.add(rows)  # type: ignore[call-arg]
    allowed = [
        np.sort(random.choice(len(rows), int(len(rows) * FILTER_SHARE), replace=False)) for _ in range(len(queries))
    ]
    positions = [(some + first).tolist() for some in allowed]

    def ask(number: int, only: list[Any] | None = None) -> list[int]:
        leg.refresh()
        answer = leg.answer(f"query {number}", k=K, allowed=None if only is None else only[number])
        return [position - first for position, _ in answer.found]

    numbers = range(len(queries))
    plain = p50_ms([lambda n=n: ask(n) for n in numbers])  # type: ignore[misc]
    filtered = p50_ms([lambda n=n: ask(n, positions) for n in numbers])  # type: ignore[misc]
    flat = p50_ms([lambda n=n: bare.search(queries[n : n + 1], K) for n in list(numbers)[:60]])  # type: ignore[misc]
    found = np.mean([np.isin(exact(rows, queries[n], K), ask(n)).mean() for n in numbers])
    some = np.mean([np.isin(exact(rows, queries[n], K, allowed[n]), ask(n, positions)).mean() for n in numbers])
    return Searched(plain, float(found), filtered, float(some), flat)


@contextmanager
def store_of(folder: Path, rows: Array, queries: Array, name: str) -> Iterator[MemoryStore]:
    """Give a store of one turn for each row."""
    encoder = Known(rows, queries, fingerprint=f"bench/{name}")
    with MemoryStore.open(folder, model=encoder, synchronous="NORMAL", background=False) as store:
        fill(store, len(rows))
        yield store


def measure_synthetic(root: Path, rows_many: int, rows_few: int) -> list[Figure]:
    """Measure searches among many and few rows, rebuilding, opening, memory."""
    rows, queries = clustered(rows_many)
    with store_of(root / "few", rows[:rows_few], queries, "few") as store:
        store.rebuild("vectors")
        few = searched(store.parts.projections.vectors().projection(), rows[:rows_few], queries, first=SESSIONS + 1)
    with store_of(root / "many", rows, queries, "many") as store:
        store.admin.catch_up_vectors()
        start = time.perf_counter()
        store.rebuild("vectors")
        rate = rows_many / (time.perf_counter() - start)
        many = searched(store.parts.projections.vectors().projection(), rows, queries, first=SESSIONS + 1)
        indexed = _bare_build_rate(rows)
    np.save(root / "queries.npy", queries)
    opened = [_opened(root) for _ in range(OPENINGS)]
    first_ms = min(item["first_ms"] for item in opened)
    resident = max(item["resident_mb"] for item in opened)
    growth = many.p50_ms / few.p50_ms
    bare_growth = many.bare_p50_ms / few.bare_p50_ms
    n, m = f"{rows_many:,}", f"{rows_few:,}"
    return [
        Figure(f"search {n}, p50", many.p50_ms, "ms", many.bare_p50_ms, "<= 3 ms", many.p50_ms <= 3),
        Figure(f"search {n}, recall@{K}", many.recall, "", 1.0, ">= 0.99", many.recall >= 0.99),
        Figure(f"search {m}, p50", few.p50_ms, "ms", few.bare_p50_ms, "", True),
        Figure(f"search {m}, recall@{K}", few.recall, "", 1.0, ">= 0.99", few.recall >= 0.99),
        Figure(f"growth from {m} to {n}", growth, "x", bare_growth, "<= 3 x", growth <= 3),
        Figure(f"filter of 1 % of {n}, p50", many.filtered_p50_ms, "ms", None, "<= 5 ms", many.filtered_p50_ms <= 5),
        Figure("the same, recall", many.filtered_recall, "", None, "1, exact", many.filtered_recall == 1.0),
        Figure("rebuild from the cache", rate, "vectors/s", indexed, ">= 20,000", rate >= 20_000),
        Figure("open to first vector search", first_ms, "ms", None, "<= 300 ms", first_ms <= 300),
        Figure("resident memory after 200 searches", resident, "MB", None, "< 500 MB", resident < 500),
    ]


def measure_real(root: Path, messages: Path, count: int) -> list[Figure]:
    """Measure searches among real embeddings of chat messages; each query is a message that is not among them."""
    import gzip

    from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder

    texts: list[str] = []
    with gzip.open(messages, "rt") as lines:
        for line in lines:
            text = str(json.loads(line).get("text") or "")
            if len(text) >= 20:
                texts.append(text[:500])
            if len(texts) == count + QUERIES:
                break
    encoder = SentenceTransformerEncoder("all-MiniLM-L6-v2")
    made = encoder.encode([pieces[0] for pieces in encoder.chunks(texts)])
    rows, queries = made[: len(texts) - QUERIES], made[len(texts) - QUERIES :]
    with store_of(root / "real", rows, queries, "real") as store:
        store.rebuild("vectors")
        real = searched(store.parts.projections.vectors().projection(), rows, queries, first=SESSIONS + 1)
    n = f"{len(rows):,} messages"
    return [
        Figure(f"search {n}, p50", real.p50_ms, "ms", real.bare_p50_ms, "", True),
        Figure(f"search {n}, recall@{K}", real.recall, "", 1.0, ">= 0.99", real.recall >= 0.99),
    ]


def _bare_build_rate(rows: Array) -> float:
    """Return how many vectors a second FAISS takes into the same index, from memory."""
    import faiss

    from mnemolog.projections.vectors import ann_index

    start = time.perf_counter()
    index: Any = faiss.index_factory(DIMENSION, ann_index.factory_for(len(rows), DIMENSION), faiss.METRIC_INNER_PRODUCT)
    index.train(rows[:: max(1, len(rows) // (index.nlist * ann_index.TRAINED_WITH_MAX))])
    index.add(rows)
    return len(rows) / (time.perf_counter() - start)


def _opened(root: Path) -> dict[str, float]:
    """Open the large store in a process of its own."""
    ran = subprocess.run([sys.executable, __file__, "--open", str(root)], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def open_and_search(root: Path) -> None:
    """Print how long a new process takes to its first vector search, and its memory after more of them."""
    queries = np.load(root / "queries.npy")
    encoder = Known(queries, queries, fingerprint="bench/many")
    start = time.perf_counter()
    with MemoryStore.open(root / "many", model=encoder, background=False) as store:
        leg = store.parts.projections.vectors().projection()
        leg.answer("query 0", k=K, allowed=None)
        first_ms = 1e3 * (time.perf_counter() - start)
        for number in range(len(queries)):
            leg.answer(f"query {number}", k=K, allowed=None)
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    print(json.dumps({"first_ms": first_ms, "resident_mb": resident}))


def as_page(figures: Sequence[Figure]) -> str:
    """Return the report as a page."""
    lines = [
        "# Speed of vectors",
        "",
        'Written by `make bench-vectors`. Clustered synthetic vectors from a seed, 384 components; "bare" is FAISS\'',
        "`IndexFlatIP` for searches, and its IVF index filled from memory for the rebuild. Times on shared machines",
        "are noisy: read the ratio.",
        "",
        f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f} at the end.",
        "",
        "| what | measured | bare FAISS | ratio | wanted | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for item in figures:
        bare = "" if item.bare is None else f"{item.bare:,.3g} {item.unit}"
        ratio = "" if not item.bare else f"{item.ours / item.bare:.2f}"
        measured = f"{item.ours:,.0f}" if item.ours >= 1_000 else f"{item.ours:.3g}"
        holds = "" if not item.wanted else "holds" if item.holds else "**missed**"
        lines.append(f"| {item.what} | {measured} {item.unit} | {bare} | {ratio} | {item.wanted} | {holds} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--few", type=int, default=30_000)
    parser.add_argument("--gitter", type=Path, help="JSON Lines of chat messages, gzipped, with a field `text`")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where to put the stores, a file system in memory for instance")
    parser.add_argument("--write", type=Path, help="write the report there")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.open:
        open_and_search(arguments.open)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as where:
        figures = measure_synthetic(Path(where), arguments.rows, arguments.few)
        if arguments.gitter:
            figures += measure_real(Path(where), arguments.gitter, arguments.messages)
    page = as_page(figures)
    print(json.dumps([figure._asdict() for figure in figures], indent=2) if arguments.json else page)
    if arguments.write:
        arguments.write.write_text(page)


if __name__ == "__main__":
    main()
