"""What sessions and working memory cost, as ratios measured in one run: `make bench-sessions`.

The two sides of every figure take turns in blocks, so that a change in the machine's load meets both.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from speed import BARE_INSERT, TEXT, Bare, Figure, machine, scratch_store, table, timed

from mnemolog import MemoryStore, NewTurn, Session

VALUE = {"status": "open", "items": [1, 2, 3], "summary": "Ask again when the invoice has come; she is away in May."}
BARE_SELECT = "SELECT state FROM events WHERE stream = ? AND version = ?"
BLOCKS, BLOCK = 20, 50
GROWTH_MAX = 1.5
CHECKPOINT_BYTES_MAX = 400


def measure_turns(folder: Path, turns: int) -> list[Figure]:
    """A session of many turns in a log of its own, against one of 100."""
    figures = []
    with scratch_store(folder) as (big, first), scratch_store(folder) as (small, second):
        fill_turns(big, first, turns)
        fill_turns(small, second, 100)
        long, short = big.session(first), small.session(second)
        for session in (long, short):
            session.set("key", VALUE)
        for what, call in (
            ("record", lambda session, n: session.record("user", TEXT)),
            ("get", lambda session, n: session.get("key")),
            ("checkpoint", lambda session, n: session.checkpoint(f"c{n}")),
        ):
            a, b = alternated(partial(call, long), partial(call, short))
            figures.append(grown(f"{what}, {turns:,} turns against 100", a, b))
    return figures


def measure_checkpoints(folder: Path, keys: int) -> list[Figure]:
    """Checkpoint and restore of many keys, after so many earlier checkpoints against after none."""
    figures = []
    for earlier in (100, 1_000):
        with scratch_store(folder) as (one, first), scratch_store(folder) as (other, second):
            many, none = sides = one.session(first), other.session(second)
            for session in sides:
                fill_values(session, keys)
                session.checkpoint("first")
                session.restore("first")  # What a new process folds once is measured below.
            fill_checkpoints(many, range(1, earlier))
            a, b = alternated(*(partial(restore, side) for side in sides), *(partial(change, side) for side in sides))
            what = f"restore of {keys:,} keys, the first of {earlier:,} checkpoints against the only one"
            figures.append(grown(what, a, b))
            none.delete_checkpoint("first")
            a, b = alternated(*(partial(create, side) for side in sides), *(partial(drop, side) for side in sides))
            figures.append(grown(f"checkpoint of {keys:,} keys, after {earlier:,} against after none", a, b))
    return figures


def measure_old_checkpoint(folder: Path, keys: int) -> Figure:
    """Restore of the first of 2,000 checkpoints, whose state is no longer kept, against the last one."""
    with scratch_store(folder) as (store, session_id):
        session = store.session(session_id)
        fill_values(session, keys)
        session.checkpoint("first")
        session.get("key0")
        fill_checkpoints(session, range(1, 2_000))
        session.get("key0")
        a, b = [], []
        for _ in range(9):
            for name, durations in (("first", a), ("number 1999", b)):
                session.restore(name)  # The next call folds the one before, so that is to be of the same kind.
                durations += timed(partial(session.restore, name), 10)
    a_ms, b_ms = median(a) * 1e3, median(b) * 1e3
    what = f"restore of {keys:,} keys, the first of 2,000 checkpoints against the last"
    return Figure(what, a_ms, b_ms, "ms", a_ms / b_ms, "", True)


def measure_checkpoint_bytes(folder: Path, keys: int) -> Figure:
    """How many bytes the pages of the log grow by for a checkpoint of many keys, indexes included."""
    with scratch_store(folder) as (store, session_id):
        session = store.session(session_id)
        fill_values(session, keys)
        before = store.status().log_bytes
        for n in range(1_000):
            session.checkpoint(f"before step {n}")
        size = (store.status().log_bytes - before) / 1_000
    what = f"log for each of 1,000 checkpoints of {keys:,} keys"
    wanted = f"< {CHECKPOINT_BYTES_MAX} bytes"
    return Figure(what, size, CHECKPOINT_BYTES_MAX, "bytes", size / CHECKPOINT_BYTES_MAX, wanted, size < 400)


def measure_calls(folder: Path) -> list[Figure]:
    """Single calls as multiples of one INSERT or one SELECT through pysqlite3 on the same table."""
    figures = []
    with scratch_store(folder) as (store, session_id):
        session, bare = store.session(session_id), Bare(store, session_id)
        session.set_task("answer the mail", step=0, total=1 << 40)
        session.set("key", VALUE)
        steps = iter(range(1 << 40))
        stream = f"session/{session_id}"

        def insert(_: int) -> None:
            bare.connection.execute(BARE_INSERT, bare.row())

        def select(n: int) -> None:
            bare.connection.execute(BARE_SELECT, (stream, 1 + n % 500)).fetchone()

        for what, call, least in (
            ("set", lambda n: session.set(f"key{n % 100}", VALUE), insert),
            ("update_task", lambda n: session.update_task(step=next(steps)), insert),
            ("note", lambda n: session.note("she is away in May"), insert),
            ("get", lambda n: session.get("key"), select),
        ):
            a, b = alternated(call, least)
            figures.append(Figure(what, a * 1e6, b * 1e6, "us", a / b, "", True))
    return figures


def measure_opening(folder: Path, keys: int) -> Figure:
    """The first `get` in a newly opened store, from a snapshot against from the beginning."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        path, snapshots = Path(name) / "store", Path(name) / "snapshots"
        with MemoryStore.open(path, model=None) as store:
            session_id = store.start_session("bench").id
            fill_values(store.session(session_id), keys)
            store.session(session_id).get("key0")
        shutil.copytree(path / "projections", snapshots)

        def opened(*, with_snapshot: bool) -> float:
            shutil.rmtree(path / "projections")
            if with_snapshot:
                shutil.copytree(snapshots, path / "projections")
            with MemoryStore.open(path, model=None) as store:
                return timed(lambda: store.session(session_id).get("key0"), 1)[0]

        pairs = [(opened(with_snapshot=True), opened(with_snapshot=False)) for _ in range(9)]
    a, b = (median(side) * 1e3 for side in zip(*pairs, strict=True))
    return Figure(f"first read of {keys:,} values, from a snapshot against from zero", a, b, "ms", a / b, "", True)


def alternated(
    ours: Callable[[int], Any],
    theirs: Callable[[int], Any],
    after_ours: Callable[[int], Any] | None = None,
    after_theirs: Callable[[int], Any] | None = None,
) -> tuple[float, float]:
    """Return p50 of both in seconds. They take turns, in blocks; what comes after a call is not measured."""
    sides: list[tuple[Callable[[int], Any], Callable[[int], Any] | None, list[float]]]
    sides = [(ours, after_ours, []), (theirs, after_theirs, [])]
    for block in range(BLOCKS):
        for call, after, durations in sides:
            for n in range(block * BLOCK, (block + 1) * BLOCK):
                durations += timed(partial(call, n), 1)
                if after is not None:
                    after(n)
    return median(sides[0][2]), median(sides[1][2])


def create(session: Session, _: int) -> None:
    session.checkpoint("c")


def drop(session: Session, _: int) -> None:
    session.delete_checkpoint("c")


def restore(session: Session, _: int) -> None:
    session.restore("first")


def change(session: Session, n: int) -> None:
    session.set(f"key{n}", "changed")


def grown(what: str, a: float, b: float) -> Figure:
    """Return how much more `a` is than `b`, both in seconds."""
    return Figure(what, a * 1e6, b * 1e6, "us", a / b, f"<= {GROWTH_MAX}", a / b <= GROWTH_MAX)


def fill_turns(store: MemoryStore, session: str, turns: int) -> None:
    for start in range(0, turns, 10_000):
        count = min(10_000, turns - start)
        store.record_many([NewTurn(session=session, role="user", text=f"{TEXT} {start + n}") for n in range(count)])


def fill_values(session: Session, keys: int) -> None:
    for n in range(keys):
        session.set(f"key{n}", VALUE)


def fill_checkpoints(session: Session, numbers: range) -> None:
    for n in numbers:
        session.set(f"key{n}", n)
        session.checkpoint(f"number {n}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="write the figures to this Markdown file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--folder", type=Path, help="where the files lie while measuring; in memory no disk hides a growth"
    )
    parser.add_argument("--turns", type=int, default=100_000, help="turns of the long session")
    parser.add_argument("--keys", type=int, default=10_000, help="keys of the full working memory")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        growing = [
            *measure_turns(folder, arguments.turns),
            *measure_checkpoints(folder, arguments.keys),
            measure_old_checkpoint(folder, arguments.keys),
            measure_checkpoint_bytes(folder, arguments.keys),
            measure_opening(folder, arguments.keys),
        ]
        calls = measure_calls(folder)
    report(growing, calls, arguments)


def report(growing: list[Figure], calls: list[Figure], arguments: argparse.Namespace) -> None:
    """Print the figures, and write them where that was asked for."""
    first = table(growing, ours="the first", bare="the second")
    second = table(calls, bare="bare SQLite")
    everything = [figure._asdict() for figure in (*growing, *calls)]
    print(json.dumps(everything, indent=2) if arguments.json else f"{first}\n\n{second}")
    if arguments.write:
        where = (
            "memory (/dev/shm), so that no disk hides a growth" if in_memory(arguments.folder) else "a disk's folder"
        )
        arguments.write.write_text(
            "# Speed of sessions and working memory\n\nWritten by `make bench-sessions` (`benchmarks/sessions.py`):"
            f" p50, synchronous=FULL, {machine()}, files in {where}. Absolute numbers are this machine's; the ratios"
            f" are what counts.\n\nWhat must not grow: the first beside the second.\n\n{first}\n\nBytes of the log are"
            " pages, indexes included, beside the limit. The first read of a process, as measured without a snapshot,"
            " also writes the next one.\n\nSingle calls beside bare SQLite: one INSERT in autocommit into the same"
            " table, or for `get` one SELECT of a row by stream and version, through pysqlite3 on one"
            " open connection. `get` reads"
            " the head of the session's stream each time, because another process may have written.\n\n"
            f"{second}\n"
        )


def in_memory(folder: Path | None) -> bool:
    return folder is not None and folder.is_relative_to("/dev/shm")


if __name__ == "__main__":
    main()
