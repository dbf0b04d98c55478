"""What the usual calls of a store cost, beside another checkout of the project: python -m benchmarks.reads BEFORE

The calls of both checkouts run in turns, each in processes of its own, in CPU time: medians, and the median of the
ratios of the pairs. The model is made of hashed words: no time of a model is in it. The machine has to be idle.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[1]
WORDS = ["ferry", "castle", "river", "museum", "garden", "market", "tower", "bridge", "harbour", "station"]
SESSIONS, TURNS, FACTS = 50, 100, 200


def main() -> None:
    """Make a store, measure it from both checkouts, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--measure", type=Path, metavar="STORE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        print(json.dumps(measured(given.measure)))
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        store = Path(folder, "store")
        made(store)
        pairs = [(in_checkout(given.before, store), in_checkout(HERE, store)) for _ in range(given.pairs)]
    print("| call | before | now | ratio |\n| --- | ---: | ---: | ---: |")
    for name in pairs[0][0]:
        before, now = (median(pair[at][name] for pair in pairs) * 1e6 for at in (0, 1))
        ratio = median(pair[1][name] / pair[0][name] for pair in pairs)
        print(f"| {name} | {before:,.1f} µs | {now:,.1f} µs | {ratio:.2f} |")


def in_checkout(root: Path, store: Path) -> dict[str, float]:
    """Measure in a process with the code of a checkout."""
    command = [sys.executable, Path(__file__), root, "--measure", store]
    environment = os.environ | {"PYTHONPATH": f"{root.absolute() / 'src'}:{root.absolute()}"}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, cwd=root)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def made(path: Path) -> None:
    """Make the store: about 5,500 events."""
    from benchmarks.hashed_words import HashedWords
    from mnemolog import MemoryStore

    with MemoryStore.open(path, model=HashedWords(), background=False) as store:
        for number in range(SESSIONS):
            chat = store.start_session(f"s{number}")
            for turn in range(TURNS):
                first, second = WORDS[turn % 10], WORDS[(turn * 7 + number) % 10]
                chat.record("user", f"In {first} number {turn} of {number} we saw the {second} at nine.")
        for number in range(FACTS):
            store.assert_fact(f"user/f{number}", f"value {number}")
        store.recall("ferry")
        store.admin.catch_up_vectors()


def measured(kept: Path) -> dict[str, float]:
    """Return the CPU seconds of each call, the median of many, on a copy of a store."""
    from benchmarks.hashed_words import HashedWords
    from mnemolog import MemoryStore

    def timed(call: Callable[[], object], times: int) -> float:
        call()
        spent = []
        for _ in range(times):
            began = time.process_time()
            call()
            spent.append(time.process_time() - began)
        return median(spent)

    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        path = Path(shutil.copytree(kept, Path(folder, "store")))

        def opened() -> MemoryStore:
            return MemoryStore.open(path, model=HashedWords(), background=False)

        found = {"open and close": timed(lambda: opened().close(), 30)}
        with opened() as store:
            chat = store.session("s1")
            for name, call, times in (
                ("recall by words", lambda: store.recall("ferry castle", mode="text"), 60),
                ("hybrid recall", lambda: store.recall("ferry castle", mode="hybrid"), 60),
                ("recall by vectors", lambda: store.recall("ferry castle", mode="vector"), 60),
                ("context of 1,000 tokens", lambda: store.context("ferry castle", 1_000), 40),
                ("the last 50 turns", lambda: chat.turns(last=50), 200),
                ("200 facts", store.facts, 100),
                ("rebuild of the views", lambda: store.rebuild("views"), 7),
                ("replay", store.replay, 11),
                ("export", lambda: store.audit.export(io.BytesIO()), 11),
                ("record", lambda: chat.record("user", "We take the ferry at nine in the morning."), 1_000),
            ):
                found[name] = timed(call, times)
    return found


if __name__ == "__main__":
    main()
