"""Bytes and time of a thread of LangGraph checkpoints, against `langgraph-checkpoint-sqlite` in the same run.

    .nox/langgraph/bin/python benchmarks/langgraph_threads.py [--checkpoints N ...] [--folder DIR] [--write PAGE]

A thread takes a message at each step, as a chat does: the channel of messages holds all of them so far. Each step is
one checkpoint and one write of a task, put as LangGraph's loop puts them. `make adapters ADAPTERS=langgraph` makes the
environment; without `langgraph-checkpoint-sqlite` only this store is measured.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

from mnemolog.adapters.langgraph import MnemologSaver

BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
WORDS_MAX, VOCABULARY, READS = 60, 4_000, 20


class Figures(NamedTuple):
    """What one saver did."""

    checkpoints: int
    bytes: int
    total_s: float
    put_ms: float
    """Median of the last tenth of the thread: put and put_writes together."""
    get_ms: float
    """Median, with the store just opened."""
    list_ms: float
    """The last ten, with the store just opened."""


def messages(count: int) -> list[Any]:
    """Return messages as of a chat: words that come again, no two messages alike."""
    chance = random.Random(7)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(VOCABULARY)]
    kinds = (HumanMessage, AIMessage)
    return [
        kinds[n % 2](" ".join(chance.choices(words, k=chance.randint(5, WORDS_MAX))), id=f"m{n}") for n in range(count)
    ]


def fill(saver: Any, said: list[Any]) -> tuple[float, list[float]]:
    """Put a checkpoint and a write for each message; return the whole time, and that of each step, in seconds."""
    config: Any = {"configurable": {"thread_id": "chat", "checkpoint_ns": ""}}
    version: Any = None
    steps, began = [], time.perf_counter()
    for number, message in enumerate(said):
        version = saver.get_next_version(version, None)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": said[: number + 1], "topic": "weather"}
        checkpoint["channel_versions"] = {"messages": version, "topic": 1}
        checkpoint["versions_seen"] = {"chat": {"messages": version}}
        changed = {"messages": version} if number else {"messages": version, "topic": 1}
        start = time.perf_counter()
        config = saver.put(config, checkpoint, {"source": "loop", "step": number, "run_id": "r"}, changed)
        saver.put_writes(config, [("messages", [message])], f"task-{number}", "~__pregel_pull, chat")
        steps.append(time.perf_counter() - start)
    return time.perf_counter() - began, steps


def measure(open_saver: Callable[[Path], Any], folder: Path, count: int) -> Figures:
    """Fill a thread, open the saver anew for each read, and count what lies on the disk."""
    said = messages(count)
    with open_saver(folder) as saver:
        total, steps = fill(saver, said)
    newest: Any = {"configurable": {"thread_id": "chat", "checkpoint_ns": ""}}
    gets, lists = [], []
    for _ in range(READS):
        with open_saver(folder) as saver:
            start = time.perf_counter()
            found = saver.get_tuple(newest)
            gets.append(time.perf_counter() - start)
            assert found.checkpoint["channel_values"]["messages"] == said
        with open_saver(folder) as saver:
            start = time.perf_counter()
            assert len(list(saver.list(newest, limit=10))) == min(10, count)
            lists.append(time.perf_counter() - start)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    last = steps[-max(1, count // 10) :]
    middle = [1_000 * statistics.median(values) for values in (last, gets, lists)]
    return Figures(count, size, total, *middle)


@contextmanager
def their_saver(folder: Path) -> Iterator[Any]:
    """Open LangGraph's saver on SQLite, as it is by default."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    folder.mkdir(exist_ok=True)
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver:
        saver.setup()
        yield saver
        saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def table(counts: list[int], folder: Path) -> str:
    """Return the figures of both savers as a table."""
    savers: dict[str, Callable[[Path], Any]] = {"mnemolog": MnemologSaver.open}
    try:
        import langgraph.checkpoint.sqlite  # noqa: F401

        savers["langgraph-checkpoint-sqlite"] = their_saver
    except ImportError:
        print("langgraph-checkpoint-sqlite is not installed", file=sys.stderr)
    lines = [
        "| saver | checkpoints | MB on disk | whole thread s | a step ms | newest ms | last ten ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for count in counts:
        for name, open_saver in savers.items():
            with tempfile.TemporaryDirectory(dir=folder) as place:
                found = measure(open_saver, Path(place) / "store", count)
            figures = (f"{found.bytes / 1e6:.2f}", f"{found.total_s:.1f}", f"{found.put_ms:.2f}")
            reads = (f"{found.get_ms:.1f}", f"{found.list_ms:.1f}")
            lines.append(f"| {name} | {count:,} | {' | '.join((*figures, *reads))} |")
            print(lines[-1], file=sys.stderr)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=int, nargs="+", default=[250, 500, 1_000])
    parser.add_argument("--folder", type=Path, default=None, help="where the stores are made")
    parser.add_argument("--write", type=Path, default=None, help="the page whose figures are replaced")
    asked = parser.parse_args()
    made = table(asked.checkpoints, asked.folder)
    print(made)
    if asked.write is not None:
        page = asked.write.read_text()
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        asked.write.write_text(f"{before}{BEGIN}\n{made}\n{END}{after}")


if __name__ == "__main__":
    main()
