"""Speed of recall among real messages, as ratios to a bare FTS5 query of the same words in the same run.

    python -m benchmarks.recall_speed MESSAGES.jsonl.gz --model all-MiniLM-L6-v2 [--write docs/reports/bench-recall.md]

Messages are JSON Lines {conversation, turn_id, time, speaker, text}. Queries are messages of the same source that
are not in the store. Their vectors are known beforehand: what is measured is recall, not the model. Without a model the
vectors come from hashed words: they crowd less than those of a model, and an index has to look at nearly all of them.
All ways of asking take turns query by query, so that a change in the machine's load meets them all.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from pysqlite3 import dbapi2

from benchmarks.hashed_words import HashedWords
from benchmarks.quality.encoder import Remembering
from mnemolog import MemoryStore
from mnemolog.adapters.importers import import_files
from mnemolog.cli.command import bar
from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder

FIELDS: Final = "text=text,session=conversation,scope=conversation,speaker=speaker,key=turn_id,time=time"
QUERIES, ROUNDS, K = 200, 2, 10
SIZES: Final = {3_000: 8.0, 100_000: 15.0}
"""Turns of the store, and what the median of a hybrid recall may take, in milliseconds."""
LENGTH_MIN, LENGTH_MAX = 20, 500
BARE: Final = "bare FTS5"
BARE_TERMS_MAX: Final = 64
# The words that bare FTS5 is not asked for. Here and not the store's own, so that the yardstick stays as it is when
# the store's ranking changes.
STOP_WORDS: Final = frozenset(
    """a about after all also am an and any are as at be because been before being but by can could did do
    does doing for from had has have having he her here hers him his how i if in into is it its just me more
    most my no not of on or our out over own she so some such than that the their them then there these they
    this those to too under until up very was we were what when where which while who whom why will with
    would you your""".split()  # noqa: SIM905
)


class Measured(NamedTuple):
    """One way of asking."""

    turns: int
    what: str
    p50_ms: float
    p95_ms: float
    bare_p50_ms: float
    bare_p95_ms: float
    wanted_ms: float | None

    @property
    def verdict(self) -> str:
        """Return whether the target holds, where there is one."""
        if self.wanted_ms is None:
            return ""
        return "holds" if self.p50_ms <= self.wanted_ms else "**missed**"


def read_messages(path: Path, count: int) -> list[dict[str, Any]]:
    """Return the first messages of a source that have something to say."""
    found: list[dict[str, Any]] = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            message = json.loads(line)
            if len(message.get("text") or "") >= LENGTH_MIN:
                found.append(message | {"text": message["text"][:LENGTH_MAX]})
            if len(found) == count:
                return found
    raise ValueError(f"{path.name} has only {len(found):,} messages, {count:,} are needed")


def bare_expression(query: str) -> str:
    """Return the words of a query as an FTS5 expression: any of them."""
    words = list(dict.fromkeys(re.findall(r"\w+", query.lower())))
    telling = [word for word in words if word not in STOP_WORDS] or words
    return " OR ".join(f'"{word}"' for word in telling[:BARE_TERMS_MAX]) or '""'


@contextmanager
def bare_index(messages: Sequence[dict[str, Any]]) -> Iterator[Any]:
    """Give a connection to an FTS5 table of the same texts and nothing else, in a file as the store's."""
    with tempfile.TemporaryDirectory() as folder:
        connection = dbapi2.connect(str(Path(folder) / "bare.db"), isolation_level=None)
        connection.execute(
            "CREATE VIRTUAL TABLE bare USING fts5(body, content='', tokenize=\"porter unicode61 remove_diacritics 2\")"
        )
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO bare (rowid, body) VALUES (?, ?)",
            [(number, f"{message['speaker']}: {message['text']}") for number, message in enumerate(messages, 1)],
        )
        connection.execute("COMMIT")
        try:
            yield connection
        finally:
            connection.close()


def measure(
    folder: Path, messages: Sequence[dict[str, Any]], queries: Sequence[str], *, model: str | None, scoped: str
) -> list[Measured]:
    """Measure recalls in a store of these messages. `scoped` is the conversation that is also asked by itself."""
    source = folder / "messages.jsonl"
    source.write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")
    encoder = Remembering(HashedWords() if model is None else SentenceTransformerEncoder(model))
    options: dict[str, Any] = {"model": encoder, "synchronous": "NORMAL", "background": False}
    with MemoryStore.open(folder / "store", **options) as store, bare_index(messages) as bare:
        with bar("import") as progress:
            import_files(store, [source], fields=[FIELDS], progress=progress)
        store.admin.catch_up_views()
        with bar("embed") as progress:
            store.admin.catch_up_vectors(progress=progress)
        encoder.ask()
        ways: dict[str, Callable[[str], Any]] = {
            "hybrid": lambda query: store.recall(query, k=K),
            "text": lambda query: store.recall(query, k=K, mode="text"),
            "vector": lambda query: store.recall(query, k=K, mode="vector"),
            f"hybrid, in a scope of {_turns_of(messages, scoped):,} turns": lambda query: store.recall(
                query, k=K, scope=scoped
            ),
            BARE: lambda query: bare.execute(
                "SELECT rowid FROM bare WHERE bare MATCH ? ORDER BY bm25(bare) LIMIT ?", (bare_expression(query), K)
            ).fetchall(),
        }
        times = timed(ways, queries)
    wanted = SIZES.get(len(messages))
    bare_p50, bare_p95 = np.quantile(times[BARE], [0.5, 0.95])
    return [
        Measured(
            len(messages),
            what,
            float(np.quantile(took, 0.5)),
            float(np.quantile(took, 0.95)),
            float(bare_p50),
            float(bare_p95),
            wanted if what == "hybrid" else None,
        )
        for what, took in times.items()
    ]


def timed(ways: dict[str, Callable[[str], Any]], queries: Sequence[str]) -> dict[str, list[float]]:
    """Return how long every query takes each way, in milliseconds, after a round that reads the pages in."""
    times: dict[str, list[float]] = {what: [] for what in ways}
    with bar("ask") as progress:
        for round_ in range(1 + ROUNDS):
            for number, query in enumerate(queries):
                for what, ask in ways.items():
                    started = time.perf_counter()
                    ask(query)
                    if round_:
                        times[what].append(1e3 * (time.perf_counter() - started))
                progress(round_ * len(queries) + number, (1 + ROUNDS) * len(queries))
    return times


def largest_conversation(messages: Sequence[dict[str, Any]], *, turns_max: int) -> str:
    """Return the largest conversation that is not larger than that, or else the smallest."""
    sizes: dict[str, int] = {}
    for message in messages:
        sizes[message["conversation"]] = sizes.get(message["conversation"], 0) + 1
    fitting = {name: size for name, size in sizes.items() if size <= turns_max}
    return max(fitting, key=lambda name: fitting[name]) if fitting else min(sizes, key=lambda name: sizes[name])


def _turns_of(messages: Sequence[dict[str, Any]], conversation: str) -> int:
    return sum(message["conversation"] == conversation for message in messages)


def as_page(figures: Sequence[Measured], *, model: str | None) -> str:
    """Return the report as a page."""
    lines = [
        "# Speed of recall",
        "",
        f"Written by `make bench` (`benchmarks/recall_speed.py`): {QUERIES} messages of the source that are not in the",
        f"store are the queries, each for {K} turns. Their vectors are prepared, so that no model is measured;",
        f"they are those of {'hashed words' if model is None else model}. Bare is FTS5's `bm25()` over the same texts",
        "with the same words of the query, through pysqlite3, in the same run. Times on shared machines are noisy:",
        "read the ratio.",
        "",
        f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, "
        f"SQLite {dbapi2.sqlite_version}, load {os.getloadavg()[0]:.1f} at the end.",
        "",
        "| turns | recall | p50 | p95 | p50 / bare | p95 / bare | wanted | |",
        "| ---: | --- | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for item in figures:
        wanted = "" if item.wanted_ms is None else f"p50 <= {item.wanted_ms:g} ms"
        lines.append(
            f"| {item.turns:,} | {item.what} | {item.p50_ms:.2f} ms | {item.p95_ms:.2f} ms "
            f"| {item.p50_ms / item.bare_p50_ms:.2f} | {item.p95_ms / item.bare_p95_ms:.2f} "
            f"| {wanted} | {item.verdict} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("messages", type=Path, help="JSON Lines of chat messages, gzipped")
    parser.add_argument("--turns", type=int, nargs="+", default=list(SIZES), help="sizes of the store")
    parser.add_argument("--model", help="a SentenceTransformer model; hashed words without one")
    parser.add_argument("--folder", type=Path, help="where to put the stores, a file system in memory for instance")
    parser.add_argument("--keep", action="store_true", help="leave the stores there, and take those that are")
    parser.add_argument("--write", type=Path, help="write the report there")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    messages = read_messages(arguments.messages, max(arguments.turns) + QUERIES)
    queries, messages = [message["text"] for message in messages[-QUERIES:]], messages[:-QUERIES]
    figures: list[Measured] = []
    for turns in arguments.turns:
        some = messages[:turns]
        with folder_for(turns, inside=arguments.folder, keep=arguments.keep) as where:
            scoped = largest_conversation(some, turns_max=turns // 10)
            figures += measure(where, some, queries, model=arguments.model, scoped=scoped)
    page = as_page(figures, model=arguments.model)
    print(json.dumps([item._asdict() for item in figures], indent=2) if arguments.json else page)
    if arguments.write:
        arguments.write.write_text(page, encoding="utf-8")


@contextmanager
def folder_for(turns: int, *, inside: Path | None, keep: bool) -> Iterator[Path]:
    """Give a folder for a store of so many turns, which is deleted afterwards unless it is kept."""
    if keep:
        kept = (inside or Path()) / f"recall-speed-{turns}"
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(dir=inside) as where:
        yield Path(where)


if __name__ == "__main__":
    main()
