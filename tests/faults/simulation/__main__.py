"""Runs scripts: python -m tests.faults.simulation --seed 1 --scripts 1000, or one from a file with --script.

Prints what failed, with the shortest script that still fails, and ends with 1 then.
"""

import argparse
import functools
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.simulation.running import run, run_seed, seeds_of, work_below
from tests.faults.simulation.script import STEPS, read
from tests.faults.simulation.workers import play_all

GOLDEN = Path(__file__).parents[2] / "golden"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--scripts", type=int, default=100)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", help="one script of many, by the seed that was printed, as 17/230")
    parser.add_argument("--script", type=Path, nargs="+", help="scripts from files, as they were printed")
    asked = parser.parse_args()
    # In memory: no script asks whether what was synced survives a power cut.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="mnemolog-", dir=memory, ignore_cleanup_errors=True) as folder:
        return simulate(asked, folder)


def simulate(asked: argparse.Namespace, folder: str) -> int:
    """Run what was asked for with stores below a folder; return the exit status."""
    if asked.script is not None:
        work_below(folder)
        failures = [failure for path in asked.script if (failure := why_it_fails(path)) is not None]
        print("\n".join(failures) or "store and model agree")
        return int(bool(failures))
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    seeds = seeds_of(seed, asked.scripts) if asked.only is None else [asked.only]
    began = time.monotonic()
    play = functools.partial(
        run_seed, steps=asked.steps, starts=sorted(path.parent for path in GOLDEN.glob("*/**/log.db"))
    )
    done, failures = play_all(seeds, folder, play, workers=asked.workers)
    for failure in failures:
        print(failure)
    seconds = time.monotonic() - began
    print(f"{done} scripts of {asked.steps} steps, {len(failures)} failed; seed {seed}; {seconds:.0f} s")
    return int(bool(failures))


def why_it_fails(path: Path) -> str | None:
    """Play the script in a file, whose first line may be `from STORE`: a golden one to begin with."""
    text, start = path.read_text(), None
    if text.startswith("from "):
        first, _, text = text.partition("\n")
        start = GOLDEN / first.removeprefix("from ")
    why = run(read(text), start=start)
    return None if why is None else f"{path.name}: {why}"


if __name__ == "__main__":
    sys.exit(main())
