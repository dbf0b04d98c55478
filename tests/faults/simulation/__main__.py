"""Runs scripts: python -m tests.faults.simulation --seed 1 --scripts 1000, or one from a file with --script.

Prints what failed, with the shortest script that still fails, and ends with 1 then.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.simulation.running import Failure, run, run_seed, seeds_of, told, work_below
from tests.faults.simulation.script import STEPS, read

GOLDEN = Path(__file__).parents[2] / "golden"
FAILURES_MAX = 5
"""After so many that fail there is enough to look at."""
TOGETHER = 5
"""Scripts that a worker is given at once."""
TOLD_EVERY_S = 30.0
LIFE = 200
"""Rounds of scripts after which a worker makes room for another."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--scripts", type=int, default=100)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", help="one script of many, by the seed that was printed, as 17/230")
    parser.add_argument("--script", type=Path, help="one script from a file, as it was printed")
    asked = parser.parse_args()
    # In memory: no script asks whether what was synced survives a power cut.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="mnemolog-", dir=memory, ignore_cleanup_errors=True) as folder:
        return simulate(asked, folder)


def simulate(asked: argparse.Namespace, folder: str) -> int:
    """Run what was asked for with stores below a folder; return the exit status."""
    if asked.script is not None:
        work_below(folder)
        why = run(read(asked.script.read_text()))
        print(why or "store and model agree")
        return int(why is not None)
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    seeds = seeds_of(seed, asked.scripts) if asked.only is None else [asked.only]
    began = time.monotonic()
    done, failures = run_all(seeds, folder, steps=asked.steps, workers=asked.workers)
    for failure in failures:
        print(told(failure))
    seconds = time.monotonic() - began
    print(f"{done} scripts of {asked.steps} steps, {len(failures)} failed; seed {seed}; {seconds:.0f} s")
    return int(bool(failures))


def run_all(seeds: list[str], folder: str, *, steps: int, workers: int) -> tuple[int, list[Failure]]:
    """Run the scripts of all seeds in some processes. Return how many were run, and which failed."""
    job = functools.partial(run_seed, steps=steps, starts=golden_stores())
    failures: list[Failure] = []
    began = told_at = time.monotonic()
    done = 0
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, initializer=work_below, initargs=(folder,), maxtasksperchild=LIFE) as pool:
        for done, failure in enumerate(pool.imap_unordered(job, seeds, chunksize=TOGETHER), 1):
            if failure is not None:
                failures.append(failure)
                if len(failures) >= FAILURES_MAX:
                    break
            if (now := time.monotonic()) - told_at > TOLD_EVERY_S:
                told_at = now
                rate = done * steps / (now - began)
                print(f"{done} of {len(seeds)} scripts, {rate:.0f} steps/s", file=sys.stderr, flush=True)
    return done, failures


def golden_stores() -> list[Path]:
    """The stores of earlier releases, if there are any."""
    return sorted(path.parent for path in GOLDEN.glob("*/**/log.db"))


if __name__ == "__main__":
    sys.exit(main())
