"""A store of N turns of real messages, and what it costs: time, memory and bytes, and how they grow with the store.

    python -m benchmarks.scale --turns 1000000 DATA [--folder FOLDER] [--json FILE] [--page docs/reports/bench-scale.md]

DATA is a folder with `bulk/*.jsonl.gz` (see `bulk.py`); if it also has `locomo-dev/`, that is measured with the real
model. Vectors of the bulk data come from hashed words: what is measured is the store, not a model. The store is
measured whenever it has reached one of the sizes, each task in a process of its own (`scale_children.py`).

With --folder a run that was interrupted goes on where it was; without, the store is in a temporary folder.

Examples:

    make bench-scale N=1000000 DATA=path/to/data
    python -m benchmarks.scale --turns 100000 path/to/data --folder /tmp/scale
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec
from pysqlite3 import dbapi2

from benchmarks import scale_children as children
from benchmarks.bulk import QUESTIONS, Bulk, record
from benchmarks.hashed_words import HashedWords
from benchmarks.quality.plot import COLOURS, panels
from benchmarks.scale_children import WHOLE, Asked, Plan, opened
from mnemolog import MemoryStore
from mnemolog.cli.command import Phase, phases

SIZES: Final = (100_000, 250_000, 520_000, 1_000_000)
"""Turns at which a store that grows is measured, and at the end."""
MIDDLE: Final = 520_000
"""The size that most goals were set for."""
OPENINGS: Final = 5
SCOPES: Final = {"one": "scope of 1 %", "ten": "scope of 10 %", "forty": "scope of 40 %"}
HALF: Final = "as of half the log"
TEXT_ONLY, VECTORS_ONLY = "text only", "vectors only"
ONE_LEG: Final = (TEXT_ONLY, VECTORS_ONLY)
CONVERSATIONS: Final = "locomo-dev"
"""The folder of conversations with questions (`quality/shapes.py`) in the data."""

INTRODUCTION: Final = f"""# Speed and size at scale

Written by `make bench-scale N=1000000 DATA=…` (`benchmarks/scale.py`). A store of real messages, chat rooms and short
dialogs, encrypted as stores are by default; once all 521,000 are used, they come again with one more word. Vectors are
those of hashed words, {HashedWords.dimension} components; the vector of a question is prepared, so that no model is
measured. *Conversations* are LoCoMo's, with the real model. Every task runs in a process of its own; the pages it needs
have been read before. Times on shared machines are noisy: read the ratio, or the CPU time, which counts no waiting.
"""


LIMITS: Final = """## What limits it

- **Recall without a filter**: vectors of hashed words have hardly any near neighbours, so FAISS reads all of its codes,
  64 bytes a turn ([ADR 62](../adr/0062-codes-of-three-components.md)). The rest is spread: 1,200 vectors, a read
  for each and together a fifth of the time, the words of some 600 turns around the hits, the features of their scores.
- **Bytes per turn**: 580 are the vector with 12 bits a component ([ADR 36](../adr/0036-vectors-once.md)), 360 the log,
  300 the tables and the text index. Fewer bits change the order of answers.
- **Views rebuilt**: of 55 us a turn, 18 are reading and decrypting the log, 10 blocks and bitmaps, 6 each stems and
  rows, 5 the text index.
- **Vectors rebuilt**: nearly all of it is building the index of FAISS.
- **Open to first recall, `status`**: `views.db` is compared with its checksum, 0.1 s for a million turns; the guarantee
  is worth more. `status` imports for 0.4 s, half of it SQLAlchemy.
- **The question, texts embedded**: three quarters of the time are products of matrices with weights
  ([ADR 52](../adr/0052-a-question-without-torch.md)). Texts are sorted by length, and each processor computes a part of
  them. The products are as fast as those of large matrices, 100 GFLOPS a processor, so little is left to gain.
"""


class Checkpoint(msgspec.Struct):
    """A store when it had so many turns."""

    turns: int
    record_per_s: float
    views_per_s: float
    embed_per_s: float
    """Turns per second from hashed words to segments."""
    ways: dict[str, Asked]
    bytes_per_turn: dict[str, float]
    first_ms: list[float]
    """From opening the store to the first answer, in processes that have loaded the model."""
    first_cpu_ms: list[float]
    resident_mb: float
    of_files_mb: float
    status_s: list[float]
    status_cpu_s: list[float]
    rebuilt: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    """What `scale_children.rebuild` reports of the views and of the vectors."""


class Conversations(msgspec.Struct):
    """Conversations with the real model."""

    turns: int
    ways: dict[str, Asked]
    bytes_per_turn: dict[str, float]
    texts_per_s: float
    question: dict[str, float]
    """What `scale_children.question_times` reports."""


class Results(msgspec.Struct):
    """Everything that a run measured, as its JSON holds it."""

    machine: str
    checkpoints: list[Checkpoint] = msgspec.field(default_factory=list)
    conversations: Conversations | None = None
    seconds: float = 0.0
    """How long it took in all."""

    def at(self, turns: int) -> Checkpoint:
        """Return the largest checkpoint with at most so many turns, or else the smallest."""
        return max((item for item in self.checkpoints if item.turns <= turns), key=_size, default=self.checkpoints[0])


class Figure(NamedTuple):
    """One line of the report."""

    what: str
    turns: int
    measured: float
    unit: str
    goal: float
    at_least: bool = False

    @property
    def holds(self) -> bool:
        """Whether the goal is reached."""
        return self.measured >= self.goal if self.at_least else self.measured <= self.goal


def _size(item: Checkpoint) -> int:
    return item.turns


def grow(folder: Path, bulk: Bulk, turns: int, phase: Phase) -> tuple[float, float, float]:
    """Record turns until a store has so many. Return per second what was recorded, read into the views and embedded."""
    label = f"{turns:,} turns"
    with opened(folder, HashedWords()) as store:
        before = sum(scope.turns for scope in store.scopes())
        steps: list[Callable[[], Any]] = [
            lambda: record(store, bulk, turns, progress=phase(f"record {label}")),
            lambda: store.admin.catch_up_views(progress=phase(f"views of {label}")),
            lambda: store.admin.catch_up_vectors(progress=phase(f"vectors of {label}")),
        ]
        seconds = [_seconds(step) for step in steps]
        (folder / "plan.json").write_bytes(msgspec.json.encode(Plan(bulk.questions, ways_of(store, bulk, turns))))
    first, second, third = ((turns - before) / took for took in seconds)
    return first, second, third


def _seconds(step: Callable[[], Any]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def ways_of(store: MemoryStore, bulk: Bulk, turns: int) -> dict[str, dict[str, Any]]:
    """Return the ways of asking, with their filters."""
    first, last = bulk.span
    half = store.head().position // 2
    largest = max(store.sessions(), key=lambda item: item.turns)
    ways: dict[str, dict[str, Any]] = {WHOLE: {}}
    ways |= {label: {"scope": scope} for scope, label in SCOPES.items()}
    ways[HALF] = {"as_of": half}
    ways[f"{HALF}, scope of 10 %"] = {"as_of": half, "scope": "ten"}
    ways["the largest session"] = {"session": largest.session}
    ways["said in the middle half of the time"] = {
        "since": first + (last - first) / 4,
        "until": last - (last - first) / 4,
    }
    ways["one role"] = {"roles": ["assistant"]}
    ways["one speaker"] = {"speakers": [bulk.most_frequent_speaker(turns)]}
    ways |= {TEXT_ONLY: {"mode": "text"}, VECTORS_ONLY: {"mode": "vector"}}
    return ways


def measure(
    folder: Path, turns: int, grown: tuple[float, float, float], *, rebuilt: bool, openings: int, phase: Phase
) -> Checkpoint:
    """Measure a store as it is now."""
    steps = 1 + openings + (2 if rebuilt else 0)
    done, progress = 0, phase(f"measure {turns:,} turns")

    def ran(task: str, *arguments: object) -> Any:
        nonlocal done
        found = children.run(task, folder, *arguments)
        progress(done := done + 1, steps)
        return found

    ways = msgspec.convert(ran("recall"), type=dict[str, Asked])
    first = [ran("first") for _ in range(openings)]
    statuses = [status_times(folder) for _ in range(openings)]
    return Checkpoint(
        turns,
        *grown,
        ways,
        bytes_per_turn(folder / "store", turns),
        [item["first_ms"] for item in first],
        [item["cpu_ms"] for item in first],
        max(item["resident_mb"] for item in first),
        max(item["of_files_mb"] for item in first),
        [wall for wall, _ in statuses],
        [cpu for _, cpu in statuses],
        {what: ran("rebuild", what) for what in ("views", "vectors")} if rebuilt else {},
    )


def status_times(folder: Path) -> tuple[float, float]:
    """Return the seconds that a process `mnemolog status` takes, on the clock and of CPU."""
    command = [sys.executable, "-m", "mnemolog", "status", str(folder / "store")]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=children.compiled())
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bytes_per_turn(store: Path, turns: int) -> dict[str, float]:
    """Return the bytes that a closed store takes for each turn, by file; the files of the vectors by their names."""
    found: dict[str, int] = {}
    for path in store.rglob("*"):
        if path.is_file():
            name = path.name if "vectors" in path.parts else str(path.relative_to(store))
            found[name] = found.get(name, 0) + path.stat().st_size
    each = {name: round(size / turns, 1) for name, size in sorted(found.items(), key=lambda item: -item[1])}
    return {name: size for name, size in each.items() if size >= 1}


def measure_conversations(folder: Path, data: Path, phase: Phase) -> Conversations:
    """Measure conversations with the real model."""
    progress = phase(f"measure {data.name}")
    where = folder / data.name
    shutil.rmtree(where, ignore_errors=True)  # What an interrupted run embedded would be missing from the time.
    where.mkdir()
    found = children.run("conversations", where, data)
    progress(1, 1)
    return Conversations(
        found["turns"],
        msgspec.convert(found["ways"], type=dict[str, Asked]),
        bytes_per_turn(where / "store", found["turns"]),
        found["texts_per_s"],
        found["question"],
    )


def run(
    folder: Path, data: Path, sizes: Sequence[int], *, questions: int = QUESTIONS, openings: int = OPENINGS
) -> Results:
    """Measure everything that the folder's `results.json` does not have yet."""
    file = folder / "results.json"
    results = msgspec.json.decode(file.read_bytes(), type=Results) if file.exists() else Results("")
    missing = [size for size in sizes if size not in map(_size, results.checkpoints)]
    began, spent = time.perf_counter(), results.seconds

    def keep() -> None:
        results.machine = (
            f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, "
            f"SQLite {dbapi2.sqlite_version}, load {os.getloadavg()[0]:.1f} at the end"
        )
        results.seconds = spent + time.perf_counter() - began
        file.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")

    with phases() as phase:
        if missing:
            phase("read the data")
            bulk = Bulk(sources_in(data), questions=questions)
        for size in missing:
            grown = grow(folder, bulk, size, phase)
            rebuilt = size in (MIDDLE, sizes[-1])
            results.checkpoints.append(measure(folder, size, grown, rebuilt=rebuilt, openings=openings, phase=phase))
            keep()
        if results.conversations is None and (data / CONVERSATIONS).is_dir():
            results.conversations = measure_conversations(folder, data / CONVERSATIONS, phase)
            keep()
    return results


def sources_in(data: Path) -> list[Path]:
    """Return the files of messages in the folder of data."""
    if not (found := sorted((data / "bulk").glob("*.jsonl.gz"))):
        raise SystemExit(f"{data} has no bulk/*.jsonl.gz: pass the folder that has the folder bulk")
    return found


def figures_of(results: Results) -> list[Figure]:
    """Return the figures that have goals."""
    first, middle, last = results.checkpoints[0], results.at(MIDDLE), results.checkpoints[-1]
    whole = middle.ways[WHOLE]
    figures = [
        Figure("recall without a filter, p50", middle.turns, whole.p50_ms, "ms", 10),
        Figure("recall without a filter, p95", middle.turns, whole.p95_ms, "ms", 20),
    ]
    for name, asked in middle.ways.items():
        if name not in (WHOLE, *ONE_LEG):
            ratio = asked.p50_ms / whole.p50_ms
            figures.append(
                Figure(f"{name}, p50 against no filter", middle.turns, ratio, "x", 1.5 if HALF in name else 1.2)
            )
    growth = last.ways[WHOLE].p50_ms / first.ways[WHOLE].p50_ms
    figures += [
        Figure(f"growth of recall from {first.turns:,} turns, p50", last.turns, growth, "x", 2),
        Figure("bytes per turn", middle.turns, sum(middle.bytes_per_turn.values()), "bytes", 1_200),
        *rebuilt_figures(results),
        Figure("resident memory after 200 recalls", last.turns, last.resident_mb, "MB", 500),
        Figure("open to first recall", last.turns, median(last.first_ms), "ms", 300),
        Figure("`status` process", last.turns, median(last.status_s), "s", 0.5),
    ]
    if (talk := results.conversations) is not None:
        asked, question = talk.ways["in its conversation"], talk.question
        figures += [
            Figure("conversations: recall minus the model, p50", talk.turns, asked.p50_ms, "ms", 4),
            Figure("conversations: bytes per turn", talk.turns, sum(talk.bytes_per_turn.values()), "bytes", 1_800),
            Figure("conversations: question embedded, p50", talk.turns, question["idle_p50_ms"], "ms", 4),
            Figure("the same beside a busy process, p95", talk.turns, question["busy_p95_ms"], "ms", 15),
            Figure("conversations: texts embedded", talk.turns, talk.texts_per_s, "/s", 300, at_least=True),
        ]
    return figures


def rebuilt_figures(results: Results) -> Iterator[Figure]:
    """Yield the figures of rebuilding, at the middle size where there is one."""
    at = max((item for item in results.checkpoints if item.rebuilt and item.turns <= MIDDLE), key=_size, default=None)
    at = at or next(item for item in results.checkpoints if item.rebuilt)
    peak = max(found["peak_mb"] for found in at.rebuilt.values())
    yield Figure("peak memory of a rebuild", at.turns, peak, "MB", 400)
    yield Figure("views rebuilt", at.turns, at.rebuilt["views"]["per_s"], "turns/s", 30_000, at_least=True)
    yield Figure("vectors rebuilt from stored ones", at.turns, at.rebuilt["vectors"]["per_s"], "turns/s", 60_000, True)


def as_page(results: Results, before: Results | None, picture: str) -> str:
    """Return the report as a page."""
    earlier = {figure.what: figure for figure in figures_of(before)} if before else {}
    lines = [
        INTRODUCTION,
        f"{results.machine}. The run took {results.seconds / 60:.0f} minutes.",
        "",
        f"| what | turns | {'before | ' if before else ''}measured | goal | |",
        f"| --- | ---: | {'---: | ' if before else ''}---: | ---: | --- |",
    ]
    for figure in figures_of(results):
        old = earlier.get(figure.what)
        column = "" if not before else f"{shown(old.measured, old.unit) if old else ''} | "
        sign, holds = "≥" if figure.at_least else "≤", "holds" if figure.holds else "**missed**"
        lines.append(
            f"| {figure.what} | {figure.turns:,} | {column}{shown(figure.measured, figure.unit)} "
            f"| {sign} {shown(figure.goal, figure.unit)} | {holds} |"
        )
    return "\n".join(
        [*lines, "", *growth_tables(results), f"![Growth with the number of turns]({picture})", "", LIMITS]
    )


def shown(number: float, unit: str) -> str:
    """Return a number with its unit, with as many digits as say something."""
    digits = f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
    return f"{digits} {unit}"


def growth_tables(results: Results) -> Iterator[str]:
    """Yield the lines of the tables that show every size."""
    sizes = [f"{item.turns:,}" for item in results.checkpoints]
    head = [f"| | {' | '.join(sizes)} |", f"| --- |{' ---: |' * len(sizes)}"]

    def row(name: str, of: Callable[[Checkpoint], str]) -> str:
        return f"| {name} | {' | '.join(of(item) for item in results.checkpoints)} |"

    yield from ("A recall of ten turns, p50 / p95 / p50 of CPU time, in ms:", "", *head)
    for name in results.checkpoints[0].ways:
        yield row(name, lambda item: _times(item.ways[name]))  # noqa: B023
    yield from ("", "Bytes per turn on disk:", "", *head)
    for name in dict.fromkeys(name for item in results.checkpoints for name in item.bytes_per_turn):
        yield row(f"`{name}`", lambda item: f"{item.bytes_per_turn.get(name, 0):,.0f}")  # noqa: B023
    yield row("in all", lambda item: f"{sum(item.bytes_per_turn.values()):,.0f}")
    yield from ("", "Work:", "", *head)
    yield row("recorded, turns/s", lambda item: f"{item.record_per_s:,.0f}")
    yield row("read into the views, turns/s", lambda item: f"{item.views_per_s:,.0f}")
    yield row("vectors made by hashed words, turns/s", lambda item: f"{item.embed_per_s:,.0f}")
    for what in ("views", "vectors"):
        yield row(f"{what} rebuilt, turns/s", lambda item: _of_rebuild(item, what, "per_s"))  # noqa: B023
        yield row("CPU seconds of that", lambda item: _of_rebuild(item, what, "cpu_s"))  # noqa: B023
        yield row("peak memory of that, MB", lambda item: _of_rebuild(item, what, "peak_mb"))  # noqa: B023
    yield row(
        "open to first recall, ms / CPU ms",
        lambda item: f"{median(item.first_ms):.0f} / {median(item.first_cpu_ms):.0f}",
    )
    yield row("resident memory after 200 recalls, MB", lambda item: f"{item.resident_mb:,.0f}")
    yield row("of it pages of files, MB", lambda item: f"{item.of_files_mb:,.0f}")
    yield row(
        "`status` process, s / CPU s", lambda item: f"{median(item.status_s):.2f} / {median(item.status_cpu_s):.2f}"
    )
    yield ""


def _times(asked: Asked) -> str:
    return f"{asked.p50_ms:.1f} / {asked.p95_ms:.1f} / {asked.cpu_p50_ms:.1f}"


def _of_rebuild(item: Checkpoint, what: str, name: str) -> str:
    return f"{item.rebuilt[what][name]:,.0f}" if item.rebuilt else ""


def draw(results: Results, path: Path) -> None:
    """Draw how recall, bytes and memory grow with the turns."""
    turns = [item.turns / 1_000 for item in results.checkpoints]
    with panels(path, 3, height=3.0, sharey=False) as (times, sizes, memory):
        names = [name for name in results.checkpoints[0].ways if name not in ONE_LEG]
        for name, colour in zip(names, COLOURS * 2, strict=False):
            marks = {"color": colour, "marker": ".", "linestyle": "-" if names.index(name) < len(COLOURS) else ":"}
            times.plot(turns, [item.ways[name].p50_ms for item in results.checkpoints], label=name, **marks)
        times.set_title("p50 of a recall, in ms")
        times.legend(fontsize=5)
        files = [name for name, _ in sorted(results.checkpoints[-1].bytes_per_turn.items(), key=lambda pair: -pair[1])]
        stacked = [[item.bytes_per_turn.get(name, 0) for item in results.checkpoints] for name in files[: len(COLOURS)]]
        sizes.stackplot(turns, stacked, labels=files[: len(COLOURS)], colors=COLOURS)
        sizes.set_title("bytes per turn on disk")
        sizes.legend(fontsize=5, loc="lower left")
        for label, name in (("resident", "resident_mb"), ("of it pages of files", "of_files_mb")):
            memory.plot(turns, [getattr(item, name) for item in results.checkpoints], marker=".", label=label)
        memory.set_title("memory after 200 recalls, in MB")
        memory.legend(fontsize=6)
        for panel in (times, sizes, memory):
            panel.set_ylim(bottom=0)
            panel.set_xlabel("thousand turns")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a folder with bulk/*.jsonl.gz, and perhaps locomo-dev/")
    parser.add_argument("--turns", type=int, default=SIZES[-1], help="turns of the store at the end")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=list(SIZES), help="turns at which it is measured on the way"
    )
    parser.add_argument("--folder", type=Path, help="where the store is kept, so that a run can go on later")
    parser.add_argument("--before", type=Path, help="the JSON of an earlier run, to be shown beside this one")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--page", type=Path, help="write the page there, and its picture beside it")
    arguments = parser.parse_args()
    sizes = sorted({size for size in arguments.sizes if size < arguments.turns} | {arguments.turns})
    before = msgspec.json.decode(arguments.before.read_bytes(), type=Results) if arguments.before else None
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        results = run(folder, arguments.data, sizes)
    picture = (arguments.page or Path("bench-scale.md")).with_suffix(".svg")
    page = as_page(results, before, picture.name)
    print(page)
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    if arguments.page:
        arguments.page.write_text(page, encoding="utf-8")
        draw(results, picture)


if __name__ == "__main__":
    main()
