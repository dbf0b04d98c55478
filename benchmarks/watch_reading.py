"""How quickly transcripts are read and recorded, in how much memory, and how soon a new line is in the log.

Run: python benchmarks/watch_reading.py [--megabytes 1000] [--text 20000] [--folder /dev/shm]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import tempfile
import threading
import time
from pathlib import Path

from mnemolog import MemoryStore
from mnemolog.adapters.watch import Watcher

SESSION = "aaaaaaaa-0000-4000-8000-000000000001"
WORDS = "the lid of the kettle is open and nobody knows why "
ROUNDS = 20


def line(number: int, text: str) -> str:
    """Return a line as Claude Code writes it."""
    role = "user" if number % 2 else "assistant"
    row = {"parentUuid": f"u{number - 1}" if number > 1 else None, "isSidechain": False, "cwd": "/home/ada/kettle"}
    row |= {"sessionId": SESSION, "version": "2.1.0", "type": role, "uuid": f"u{number}"}
    row |= {"timestamp": "2026-01-01T00:00:00.000Z", "message": {"role": role, "content": text}}
    return json.dumps(row) + "\n"


def write(path: Path, size: int, length: int) -> int:
    """Write a transcript of about `size` bytes; return how many lines it has."""
    words, number, written = (WORDS * (length // len(WORDS) + 1))[:length], 0, 0
    with path.open("w") as file:
        while written < size:
            number += 1
            written += file.write(line(number, f"{number} {words}"))
    return number


def peak_mb() -> int:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> None:
    """Measure, and print a row for the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1_000)
    parser.add_argument("--text", type=int, default=20_000, help="characters of a turn")
    parser.add_argument("--folder", default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        path = Path(folder, "projects", f"{SESSION}.jsonl")
        path.parent.mkdir()
        lines = write(path, asked.megabytes * 1_000_000, asked.text)
        with (
            MemoryStore.open(Path(folder, "memory"), model=None, background=False) as store,
            Watcher(store, [path.parent]) as watcher,
        ):
            before, started = peak_mb(), time.monotonic()
            recorded = watcher.catch_up().recorded
            took = time.monotonic() - started
            waits = latencies(watcher, path, lines)
    print(
        f"| {asked.megabytes:,} | {recorded:,} | {took:.1f} | {asked.megabytes / took:.1f} | {before} | {peak_mb()} |"
    )
    print(f"a new line: median {statistics.median(waits) * 1e3:.0f} ms, most {max(waits) * 1e3:.0f} ms of {len(waits)}")


def latencies(watcher: Watcher, path: Path, lines: int) -> list[float]:
    """Return how long each of some new lines took from being written to being in the log, in seconds."""
    told, waits = threading.Event(), []
    following = threading.Thread(target=watcher.follow, args=(lambda _: told.set(),))
    following.start()
    for number in range(lines + 1, lines + 1 + ROUNDS + 1):
        told.clear()
        started = time.monotonic()
        with path.open("a") as file:
            file.write(line(number, "hello"))
        told.wait()
        waits.append(time.monotonic() - started)
    watcher.stop.set()
    following.join()
    return waits[1:]  # With the first it is only being begun.


if __name__ == "__main__":
    main()
