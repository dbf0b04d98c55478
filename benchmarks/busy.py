"""What a store's work costs on a busy machine: `make bench-busy`.

    python -m benchmarks.busy [MESSAGES.jsonl.gz] [--rounds 3] [--only index recall] [--json FILE] [--page PAGE]

Each task runs alone, and beside 1, 2 and 8 times as many busy processes as there are cores. Its CPU time (all threads
of the process) beside them is divided by that alone, and by what the same does to a plain loop of numpy in the same
round: work that waits by spinning costs many times more there, other work about 1.0. Busy processes run that loop.

MESSAGES are JSON Lines {conversation, turn_id, time, speaker, text}: the store has the first of them with the vectors
of the default model. Without them, it has clustered vectors from a seed. With `--store` the store is kept, and with
`--json` figures are added to those in FILE: both are for machines that are yours for minutes only.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.embedding import read
from benchmarks.recall_speed import read_messages
from benchmarks.vectors import Known, clustered
from mnemolog import MemoryStore
from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder
from mnemolog.infra.embedding.model_files import MINILM

ROWS, RECALLS, RECORDS, TEXTS = 9_000, 200, 2_000, 400
QUESTIONS: Final = 5_000
"""Asked in turn: the vectors of the latest are kept."""
TOGETHER: Final = 5_000
LEVELS: Final = (0, 1, 2, 8)
"""Busy processes for each core."""
WANTED: Final = 1.15
"""The most that a task may grow beside what the plain loop does."""
TAIL_S: Final = 0.1
"""A thread that spins after its work does so for less."""
PLAIN: Final = "plain loop of numpy"
PYTHON: Final = "plain loop of Python"
"""Not what is compared with: it shows what is lost with the caches of a core whenever another process runs there."""
LOOP: Final = """
import numpy as np
rows = np.ones((64, 384), dtype=np.float32)
def loop(times):
    for _ in range(times):
        np.multiply(rows, rows, out=rows)
"""
BUSY: Final = LOOP + 'print("busy", flush=True)\nwhile True:\n    loop(1_000)\n'
PLAIN_TIMES, PYTHON_TIMES = 300_000, 3_000
Work = Callable[[], Any]


class Measured(NamedTuple):
    """One run of a task: the CPU time of the whole process, and how long each of its calls took."""

    cpu_s: float
    calls_ms: Sequence[float]


Figures = dict[str, dict[str, dict[str, list[Any]]]]
"""Of each task, at each level: the runs of the task and of the plain loop just before it."""


class Stores(NamedTuple):
    """What the tasks work on."""

    indexed: MemoryStore
    """A store of `ROWS` turns with their vectors."""
    recorded: MemoryStore
    """A store without vectors, for what is recorded."""
    questions: Sequence[str]
    texts: Sequence[str]
    """Of `TEXTS` turns."""


def tasks_on(stores: Stores) -> dict[str, Callable[[], list[float]]]:
    """Return the tasks by name. Each returns how long its calls took, in milliseconds."""
    encoder = SentenceTransformerEncoder(MINILM)
    encoder.load()
    names: dict[str, Any] = {}
    exec(LOOP, names)
    session = stores.recorded.session("busy")

    questions = cycle(stores.questions)

    def encode_texts() -> None:
        for _ in range(PYTHON_TIMES):
            json.loads(json.dumps(stores.texts))

    def records(count: int) -> list[Work]:
        return [partial(session.record, "user", text) for text in islice(cycle(stores.texts), count)]

    def by_four() -> list[float]:
        with ThreadPoolExecutor(4) as pool:
            return [ms for found in pool.map(timed, [records(RECORDS // 4)] * 4) for ms in found]

    def embed() -> None:
        encoder.encode([piece for pieces in encoder.chunks(stores.texts) for piece in pieces])

    return {
        PLAIN: lambda: timed([partial(names["loop"], PLAIN_TIMES)]),
        PYTHON: lambda: timed([encode_texts]),
        f"index of {ROWS:,} vectors": lambda: timed([partial(stores.indexed.rebuild, "vectors")]),
        f"{RECALLS} recalls": lambda: timed(
            [partial(stores.indexed.recall, asked) for asked in islice(questions, RECALLS)]
        ),
        f"{RECORDS} records": lambda: timed(records(RECORDS)),
        f"{RECORDS} records, four threads": by_four,
        f"embedding of {TEXTS} turns": lambda: timed([embed]),
    }


def timed(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Return how long each call takes, in milliseconds."""
    found = []
    for call in calls:
        began = time.perf_counter()
        call()
        found.append(1e3 * (time.perf_counter() - began))
    return found


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Run so many busy processes."""
    with ExitStack() as stack:
        for _ in range(processes):
            process = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            if process.stdout is not None:
                process.stdout.readline()
        yield


@contextmanager
def opened(folder: Path, messages: Path | None) -> Iterator[Stores]:
    """Give the stores in a folder, filled if it is new."""
    if messages is None:
        rows, queries = clustered(ROWS)
        model: Any = Known(rows, queries, fingerprint="bench/busy")
        questions, (_, texts) = [f"query {n}" for n in range(RECALLS)], read(None)
        said = [f"turn {n}" for n in range(ROWS)]
    else:
        model = MINILM
        found = [message["text"] for message in read_messages(messages, ROWS + QUESTIONS + TEXTS)]
        said, questions, texts = found[:ROWS], found[ROWS : ROWS + QUESTIONS], found[-TEXTS:]
    options: dict[str, Any] = {"background": False}
    with (
        MemoryStore.open(folder / "indexed", model=model, **options) as indexed,
        MemoryStore.open(folder / "recorded", model=None, **options) as recorded,
    ):
        if not indexed.sessions():
            session = indexed.session("said")
            for start in range(0, ROWS, TOGETHER):
                indexed.record_many(
                    [{"role": "user", "text": text} for text in said[start : start + TOGETHER]], session
                )
        indexed.admin.catch_up_views()
        indexed.admin.catch_up_vectors()
        yield Stores(indexed, recorded, questions, texts[:TEXTS])


def measured(work: Callable[[], list[float]]) -> Measured:
    """Run a task once."""
    began = time.process_time()
    calls_ms = work()
    time.sleep(TAIL_S)
    return Measured(time.process_time() - began, calls_ms)


def run(stores: Stores, only: Sequence[str], kept: Figures) -> None:
    """Run each task once at each level, after the plain loop, and add what was measured to `kept`."""
    tasks = tasks_on(stores)
    wanted = [
        name for name in tasks if name not in (PLAIN, PYTHON) and (not only or any(part in name for part in only))
    ]
    cores = len(os.sched_getaffinity(0))
    for name in wanted:
        tasks[name]()
        for level in LEVELS:
            with busy(level * cores):
                for each in (PLAIN, PYTHON, name):
                    found = measured(tasks[each])
                    kept.setdefault(name, {}).setdefault(str(level), {}).setdefault(each, []).append(found)
                    print(f"{name}, {level} x: {each}: {found.cpu_s:.2f} s of CPU, {sum(found.calls_ms):,.0f} ms")


def as_page(kept: Figures) -> str:
    """Return the report."""
    rows, waits = [], []
    settings = [f"{name}={value}." for name, value in os.environ.items() if name.endswith("_NUM_THREADS")]
    for name, levels in kept.items():
        by_level = {
            level: {each: median(run[0] for run in runs) for each, runs in of.items()} for level, of in levels.items()
        }
        alone, cells = by_level["0"], []
        for level in LEVELS[1:]:
            there = by_level[str(level)]
            grown = (there[name] / alone[name]) / (there[PLAIN] / alone[PLAIN])
            cells.append(f"{grown:.2f}" if grown <= WANTED else f"**{grown:.2f}**")
        rows.append((name, f"{alone[name]:.2f} s", *cells))
        calls = [np.concatenate([run[1] for run in levels[str(level)][name]]) for level in LEVELS]
        if len(calls[0]) > RECALLS // 2:
            waits.append((name, *(f"{np.median(some):.1f}, {np.percentile(some, 99):.1f}" for some in calls)))
    for loop in (PLAIN, PYTHON):
        took = [median(run[0] for of in kept.values() for run in of[str(level)][loop]) for level in LEVELS]
        rows.append((loop, f"{took[0]:.2f} s", *(f"x {there / took[0]:.2f}" for there in took[1:])))
    return "\n".join(
        [
            "# A store on a busy machine",
            "",
            f"Written by `make bench-busy`. {platform.machine()}, {os.cpu_count()} cores; medians of all rounds: "
            f"{max(len(of['0'][PLAIN]) for of in kept.values())}. {' '.join(settings)}".strip(),
            "",
            "CPU time of the whole process alone; then how many times more it is beside busy processes, 1, 2 and 8 for",
            f"each core, divided by how many times more a plain loop of numpy takes there. Wanted: at most {WANTED}.",
            "",
            f"| | alone | {' | '.join(f'{level} x' for level in LEVELS[1:])} |",
            "| --- | ---: | ---: | ---: | ---: |",
            *(f"| {' | '.join(row)} |" for row in rows),
            "",
            "How long a call takes in milliseconds, median and 99th percentile. Busy processes take their share of the",
            "cores: beside 8 for each, a call waits for them most of the time.",
            "",
            f"| | alone | {' | '.join(f'{level} x' for level in LEVELS[1:])} |",
            "| --- | ---: | ---: | ---: | ---: |",
            *(f"| {' | '.join(row)} |" for row in waits),
            "",
        ]
    )


def main() -> None:
    """Measure and print the report, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("messages", nargs="?", type=Path, help="messages, gzipped; else vectors from a seed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=(), help="tasks with one of these words in their names")
    parser.add_argument("--store", type=Path, help="keep the stores in this folder")
    parser.add_argument("--json", type=Path, help="add the figures to this file, and report all that it has")
    parser.add_argument("--page", type=Path, help="write the report there")
    arguments = parser.parse_args()
    kept: Figures = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    with ExitStack() as stack:
        folder = arguments.store or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stores = stack.enter_context(opened(folder, arguments.messages))
        for _ in range(arguments.rounds):
            run(stores, arguments.only, kept)
            if arguments.json:
                arguments.json.write_text(json.dumps(kept))
    page = as_page(kept) if kept else ""
    if arguments.page:
        arguments.page.write_text(page)
    else:
        print(page)


if __name__ == "__main__":
    main()
