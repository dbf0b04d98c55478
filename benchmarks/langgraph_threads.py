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
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

from mnemolog.adapters.langgraph import MnemologSaver

BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
WORDS_MAX, VOCABULARY, READS = 60, 4_000, 20


class Figures(NamedTuple):
    """What one saver did. Times are in milliseconds."""

    bytes: int
    total_ms: float
    step_ms: float
    """Median of the last tenth of the thread: put and put_writes together."""
    newest_ms: float
    """Median, with the store just opened."""
    last_ten_ms: float
    """Median, with the store just opened."""


Opener = Callable[[Path], Any]


def messages(count: int) -> list[Any]:
    """Return messages as of a chat: words that come again, no two messages alike."""
    chance = random.Random(7)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(VOCABULARY)]
    kinds = (HumanMessage, AIMessage)
    return [
        kinds[n % 2](" ".join(chance.choices(words, k=chance.randint(5, WORDS_MAX))), id=f"m{n}") for n in range(count)
    ]


def steps(saver: Any, said: list[Any]) -> Iterator[float]:
    """Put a checkpoint and a write for each message; yield how long each step took."""
    config: Any = {"configurable": {"thread_id": "chat", "checkpoint_ns": ""}}
    version: Any = None
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
        yield 1_000 * (time.perf_counter() - start)


def timed(read: Callable[[], Any]) -> float:
    """Return how long it takes."""
    start = time.perf_counter()
    read()
    return 1_000 * (time.perf_counter() - start)


def measure(openers: dict[str, Opener], folder: Path, count: int) -> dict[str, Figures]:
    """Fill a thread of each saver, step by step in turn, so that a busy machine hits all alike; then read."""
    said, newest = messages(count), {"configurable": {"thread_id": "chat", "checkpoint_ns": ""}}
    with ExitStack() as opened:
        savers = [opened.enter_context(open_saver(folder / name)) for name, open_saver in openers.items()]
        taken = list(zip(*(steps(saver, said) for saver in savers), strict=True))
    reads: dict[str, list[tuple[float, float]]] = {name: [] for name in openers}
    for _ in range(READS):
        for name, open_saver in openers.items():
            with open_saver(folder / name) as saver:
                one = timed(partial(saver.get_tuple, newest))
            with open_saver(folder / name) as saver:
                ten = timed(lambda saver=saver: list(saver.list(newest, limit=10)))
                assert saver.get_tuple(newest).checkpoint["channel_values"]["messages"] == said
            reads[name].append((one, ten))
    found = {}
    for name, times in zip(openers, zip(*taken, strict=True), strict=True):
        size = sum(path.stat().st_size for path in (folder / name).rglob("*") if path.is_file())
        middle = [statistics.median(values) for values in zip(*reads[name], strict=True)]
        found[name] = Figures(size, sum(times), statistics.median(times[-max(1, count // 10) :]), *middle)
    return found


@contextmanager
def their_saver(folder: Path) -> Iterator[Any]:
    """Open LangGraph's saver on SQLite, as it is by default."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    folder.mkdir(exist_ok=True)
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver:
        saver.setup()
        yield saver
        saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def table(counts: list[int], folder: Path | None) -> str:
    """Return the figures of both savers as a table."""
    openers: dict[str, Opener] = {"mnemolog": MnemologSaver.open}
    if find_spec("langgraph.checkpoint.sqlite") is not None:
        openers["langgraph-checkpoint-sqlite"] = their_saver
    lines = [
        "| checkpoints | saver | MB on disk | whole thread s | a step at the end ms | newest ms | last ten ms |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for count in counts:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            for name, found in measure(openers, Path(place), count).items():
                stored = f"{found.bytes / 1e6:.2f} | {found.total_ms / 1e3:.1f} | {found.step_ms:.1f}"
                lines.append(f"| {count:,} | {name} | {stored} | {found.newest_ms:.1f} | {found.last_ten_ms:.0f} |")
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
