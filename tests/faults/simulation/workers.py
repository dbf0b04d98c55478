"""Scripts in several processes, some of which may die."""

import faulthandler
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from tests.faults.simulation.running import Failure, told, work_below

Play = Callable[[str], Failure | None]
"""Plays the script of a seed, in any process."""

FAILURES_MAX = 5
"""After so many that fail there is enough to look at."""
TOGETHER = 5
"""Scripts that a worker is given at once."""
LIFE = 500
"""Scripts after which the workers make room for others."""
AMID = "amid-"


def play_all(seeds: list[str], folder: str, play: Play, *, workers: int) -> tuple[int, list[str]]:
    """Play the scripts of all seeds in some processes. Return how many were played, and what is told of failures.

    It is told on stderr as well, at once. A process that dies, as of a fault in native code, ends the run: what it was
    at is among what is told.
    """
    done, failures = 0, list[str]()
    began = time.monotonic()
    for at in range(0, len(seeds), LIFE):
        try:
            for played, failed in _played(seeds[at : at + LIFE], folder, play, workers):
                done += played
                for failure in failed:
                    failures.append(told(failure))
                    print(failures[-1], file=sys.stderr, flush=True)
                if len(failures) >= FAILURES_MAX:
                    return done, failures
        except BrokenProcessPool:
            amid = sorted(path.read_text() for path in Path(folder).glob(f"{AMID}*"))
            return done, [*failures, f"a process died amid one of these: {', '.join(amid)}"]
        rate = done / (time.monotonic() - began)
        print(f"{done} of {len(seeds)} scripts, {rate:.1f} each second", file=sys.stderr, flush=True)
    return done, failures


def _played(seeds: list[str], folder: str, play: Play, workers: int) -> Iterator[tuple[int, list[Failure]]]:
    """Yield how many scripts were played, and those that failed, round after round in processes that end with it."""
    # Not `multiprocessing.Pool`: it waits for ever for what a process was at that has died.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (folder,)) as pool:
        rounds = [seeds[at : at + TOGETHER] for at in range(0, len(seeds), TOGETHER)]
        try:
            for ended in as_completed([pool.submit(_play_some, some, folder, play) for some in rounds]):
                yield ended.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(folder: str) -> None:
    faulthandler.enable()  # What native code does to a process is told with the line of Python that it was called from.
    work_below(folder)


def _play_some(seeds: list[str], folder: str, play: Play) -> tuple[int, list[Failure]]:
    """Play scripts one after the other, noting in the folder which, for the case that this process dies."""
    amid = Path(folder, f"{AMID}{os.getpid()}")
    found = []
    for seed in seeds:
        amid.write_text(seed)
        found.append(play(seed))
    amid.unlink()
    return len(seeds), [failure for failure in found if failure is not None]
