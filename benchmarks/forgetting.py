"""What forgetting costs: one turn, and a session, of stores of several sizes, with vectors of a model without weights.

python benchmarks/forgetting.py --turns 10000 100000
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from mnemolog import ForgetReport, MemoryStore, NewTurn

SESSIONS = 100
DIMENSION = 384


class Noise:
    """A model that gives each text a vector of its own, quickly."""

    name, fingerprint = "noise", "noise/1"

    def encode(self, texts: list[str]) -> Any:
        """Return vectors that depend on the text alone."""
        seeds = [int.from_bytes(text.encode()[-8:], "big") for text in texts]
        made = np.stack([np.random.default_rng(seed).standard_normal(DIMENSION) for seed in seeds])
        return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def timed(store: MemoryStore, **wish: Any) -> tuple[float, ForgetReport]:
    """Return how long a wish took, in seconds, and what became of it."""
    started = time.perf_counter()
    report = store.forget(**wish)
    return time.perf_counter() - started, report


def measure(folder: Path, turns: int) -> str:
    """Return a line of the table."""
    with MemoryStore.open(folder / str(turns), model=Noise(), background=False) as store:
        names = [store.start_session(f"s{n}").id for n in range(SESSIONS)]
        for start in range(0, turns, 5_000):
            store.record_many(
                [
                    NewTurn(session=names[n % SESSIONS], role="user", text=f"a turn of some words about topic {n:08}")
                    for n in range(start, min(turns, start + 5_000))
                ]
            )
        store.admin.catch_up_vectors()
        store.admin.catch_up_views()
        one_s, one = timed(store, positions=[store.turns("s7", limit=1)[0].position])
        many_s, many = timed(store, session="s9")
        assert one.complete
        assert many.complete
        size = sum(path.stat().st_size for path in (folder / str(turns)).rglob("*") if path.is_file())
        return f"| {turns:,} | {size / 1e6:,.0f} MB | {one_s:.2f} s | {many_s:.2f} s ({many.events:,} events) |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--folder", type=Path, help="where the files lie while measuring")
    arguments = parser.parse_args()
    print("| turns | store | one turn | a session |\n| ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        for turns in arguments.turns:
            print(measure(Path(name), turns), flush=True)


if __name__ == "__main__":
    main()
