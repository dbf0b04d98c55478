"""What asyncio costs: records at once from coroutines against threads, one alone, and how long a loop is held up.

python benchmarks/async_store.py [FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import numpy as np

from mnemolog import AsyncMemoryStore, AsyncSession, MemoryStore, Session
from mnemolog.adapters.importers import import_files
from mnemolog.aio import wrappers

AT_ONCE = 100
ROUNDS = 40
WRITERS = (1, 4, 8, 16, 32, 64)
BEAT_S = 0.001


class Busy:
    """A model that holds the interpreter for `seconds` at each call: Python that does nothing but compute."""

    fingerprint, dimension = "busy/1", 8

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return the same for every text."""
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass
        return np.ones((len(texts), self.dimension), dtype=np.float32)


def from_threads(session: Session) -> float:
    """Record from threads that are there already; they begin together."""
    begin = threading.Barrier(AT_ONCE + 1)

    def record() -> None:
        begin.wait()
        session.record("user", "hello")

    threads = [threading.Thread(target=record) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    begin.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


async def from_tasks(session: AsyncSession) -> float:
    started = time.perf_counter()
    await asyncio.gather(*(session.record("user", "hello") for _ in range(AT_ONCE)))
    return time.perf_counter() - started


async def alone(session: AsyncSession) -> float:
    started = time.perf_counter()
    await session.record("user", "hello")
    return time.perf_counter() - started


def blocking(session: Session) -> float:
    started = time.perf_counter()
    session.record("user", "hello")
    return time.perf_counter() - started


async def records(folder: Path) -> dict[str, list[float]]:
    """All ways in turn, round by round: a disk that is slow for a while is so for each of them."""
    found: dict[str, list[float]] = {}
    sessions = {}
    stores = []
    for writers in WRITERS:
        wrappers.WRITERS_MAX = writers
        stores.append(await AsyncMemoryStore.open(folder / f"tasks-{writers}", model=None))
        sessions[writers] = await stores[-1].start_session("s")
    with MemoryStore.open(folder / "threads", model=None) as store:
        session = store.start_session("s")
        for _ in range(ROUNDS):
            found.setdefault(f"{AT_ONCE} threads", []).append(from_threads(session))
            for writers, of_tasks in sessions.items():
                key = f"{AT_ONCE} tasks, {writers} writers"
                found.setdefault(key, []).append(await from_tasks(of_tasks))
            found.setdefault("1 blocking call", []).extend(blocking(session) for _ in range(5))
            found.setdefault("1 awaited call", []).extend([await alone(sessions[WRITERS[-1]]) for _ in range(5)])
    for opened in stores:
        await opened.close()
    return found


async def longest_gap(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Return how long `work` took, and the longest time that the loop was held up meanwhile."""
    loop = asyncio.get_running_loop()
    gap, last = 0.0, time.perf_counter()
    task = asyncio.ensure_future(work())

    def beat() -> None:
        nonlocal gap, last
        now = time.perf_counter()
        gap, last = max(gap, now - last), now
        if not task.done():
            loop.call_later(BEAT_S, beat)

    started = time.perf_counter()
    beat()
    await task
    beat()
    return time.perf_counter() - started, gap


async def gaps(folder: Path) -> dict[str, tuple[float, float]]:
    lines = (json.dumps({"session": f"s{n % 50}", "role": "user", "text": f"hello {n} " * 20}) for n in range(50_000))
    (said := folder / "said.jsonl").write_text("\n".join(lines))
    with MemoryStore.open(folder / "gaps", model=None, background=False) as filled:
        import_files(filled, said)
    async with AsyncMemoryStore.open(folder / "gaps", model=Busy(2.0), background=False) as store:
        return {
            "nothing": await longest_gap(lambda: asyncio.sleep(2)),
            "catching up with 50,000 turns": await longest_gap(store.admin.catch_up_views),
            "a recall, 2 s of Python in the model": await longest_gap(lambda: store.recall("hello", mode="vector")),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=None)
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as folder:
        for name, times in asyncio.run(records(Path(folder))).items():
            low, middle, high = (1_000 * value for value in statistics.quantiles(times, n=4))
            print(f"{name:24} {middle:8.2f} ms  (quartiles {low:.2f} to {high:.2f})")
        for name, (took, gap) in asyncio.run(gaps(Path(folder))).items():
            print(f"{name:40} took {took:6.2f} s, the loop was held up for {1_000 * gap:6.1f} ms at most")


if __name__ == "__main__":
    main()
