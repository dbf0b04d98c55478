"""Speed as ratios against bare SQLite, measured in the same run: `make bench`.

Every figure is compared with the least code that moves the same bytes: the same table in a file beside the
store, through the same pysqlite3, with the same settings. The two sides take turns in blocks, so that a
change in the machine's load meets both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
from pysqlite3 import dbapi2

from mnemolog import MemoryStore, NewTurn
from mnemolog.domain.session import new_turn
from mnemolog.infra.log.event_codec import encode

TEXT = "I moved to Lisbon in March, and the dog came along; could you change the address on the invoice? " * 2
BLOCKS, BLOCK = 20, 100
FIRST_RECALL = "## From nothing to the first recall"
"""The section of the page that `first_recall.py` writes. It is kept."""
BARE_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


class Figure(NamedTuple):
    """One line of the report. `wanted` says what the ratio should be."""

    what: str
    ours: float
    bare: float
    unit: str
    ratio: float
    wanted: str
    holds: bool


class Bare:
    """A file with the store's own table of events, and nothing around it."""

    def __init__(self, store: MemoryStore, session: str) -> None:
        source = dbapi2.connect(str(store.path / "log.db"))
        tables = source.execute("SELECT sql FROM sqlite_master WHERE name LIKE 'events%' AND sql NOT NULL").fetchall()
        source.close()
        self.connection = dbapi2.connect(str(store.path.with_name("bare.db")), isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute("PRAGMA synchronous=FULL")
        for (sql,) in tables:
            if "TRIGGER" not in sql:
                self.connection.execute(sql)
        self._state = encode(new_turn(role="user", text=TEXT))
        self._stream, self._digest, self._at = f"session/{session}", os.urandom(32), 0

    def row(self) -> tuple[Any, ...]:
        """Return the columns of the next event: the same bytes that the store writes."""
        self._at += 1
        return (
            self._at,
            self._stream,
            self._at,
            "turn.recorded.v1",
            self._state,
            None,
            1_700_000_000_000_000,
            self._digest,
        )


def measure_single(folder: Path) -> Figure:
    """One turn appended, against one INSERT in autocommit: p50. Neither encrypts."""
    with scratch_store(folder, encrypt=False) as (store, session):
        bare = Bare(store, session)
        handle = store.session(session)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(BLOCKS):
            ours += timed(lambda: handle.record("user", TEXT), BLOCK)
            rows = iter([bare.row() for _ in range(BLOCK)])
            theirs += timed(lambda rows=rows: bare.connection.execute(BARE_INSERT, next(rows)), BLOCK)
    a, b = median(ours) * 1e6, median(theirs) * 1e6
    return Figure("one turn in the clear, synchronous=FULL, p50", a, b, "us", a / b, "<= 1.5", a / b <= 1.5)


def measure_batch(folder: Path) -> Figure:
    """Batches of 100 turns, against executemany in one transaction: turns per second. Neither encrypts."""
    with scratch_store(folder, encrypt=False) as (store, session):
        bare = Bare(store, session)
        turns = [NewTurn(session=session, role="user", text=TEXT) for _ in range(100)]
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(BLOCKS):
            ours += timed(lambda: store.record_many(turns), 5)
            for _ in range(5):
                rows = [bare.row() for _ in range(100)]
                theirs += timed(lambda rows=rows: insert_many(bare.connection, rows), 1)
    a, b = 100 / median(ours), 100 / median(theirs)
    return Figure("batches of 100 in the clear", a, b, "turns/s", a / b, ">= 0.5", a / b >= 0.5)


def measure_encryption(folder: Path) -> list[Figure]:
    """Turns appended to a store that encrypts, against one that does not: p50 of one, and batches of 100."""
    with scratch_store(folder) as sealed, scratch_store(folder, encrypt=False) as clear:
        stores = sealed, clear
        handles = [store.session(session) for store, session in stores]
        single: list[list[float]] = [[], []]
        batch: list[list[float]] = [[], []]
        for _ in range(BLOCKS):
            for (store, session), handle, ones, many in zip(stores, handles, single, batch, strict=True):
                ones += timed(lambda handle=handle: handle.record("user", TEXT), BLOCK)
                turns = [NewTurn(session=session, role="user", text=TEXT) for _ in range(100)]
                many += timed(lambda store=store, turns=turns: store.record_many(turns), 5)
    one, clear_one = (median(times) * 1e6 for times in single)
    many_s, clear_many_s = (100 / median(times) for times in batch)
    ratio = one / clear_one
    return [
        Figure("one turn encrypted, against in the clear, p50", one, clear_one, "us", ratio, "<= 1.2", ratio <= 1.2),
        Figure("batches of 100 encrypted", many_s, clear_many_s, "turns/s", many_s / clear_many_s, "", True),
    ]


def measure_threads(folder: Path) -> Figure:
    """8 threads recording one turn at a time, against one thread: turns per second."""
    with scratch_store(folder) as (store, session):
        handle = store.session(session)
        one: list[float] = []
        eight: list[float] = []
        for _ in range(5):
            one.append(rate_of_threads(handle.record, threads=1, calls=1_500))
            eight.append(rate_of_threads(handle.record, threads=8, calls=400))
    a, b = median(eight), median(one)
    return Figure("8 threads, against one thread", a, b, "turns/s", a / b, ">= 3", a / b >= 3)


def measure_verify(folder: Path, store: MemoryStore) -> list[Figure]:
    """Verification, against a bare loop over the same rows in the clear with SHA-256 and msgpack decode."""
    ours: list[float] = []
    opening: list[float] = []
    theirs: list[float] = []
    events = store.head().position
    with filled_store(folder, events - 100, encrypt=False) as clear:
        for _ in range(5):
            ours += timed(store.verify, 1)
            opening += timed(lambda: store.verify(contents=True), 1)
            theirs += timed(lambda: bare_verify(clear.path / "log.db"), 1)
    a, b, c = (events / median(times) for times in (ours, theirs, opening))
    return [
        Figure(f"verify, {events:,} events", a, b, "events/s", a / b, ">= 0.5", a / b >= 0.5),
        Figure("verify, everything encrypted opened too", c, b, "events/s", c / b, "", True),
    ]


def measure_status(folder: Path, store: MemoryStore) -> Figure:
    """`mnemolog status --json`, against `python -c 'import sqlalchemy'`: process time, both from bytecode."""
    command = [sys.executable, "-m", "mnemolog", "status", str(store.path), "--json"]
    plain = [sys.executable, "-c", "import sqlalchemy"]
    # An installed package has its bytecode. A checkout has none where the environment forbids Python to write
    # it, and would be compiled anew by every process, beside a SQLAlchemy that never is.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    run = partial(subprocess.run, check=True, stdout=subprocess.DEVNULL, env=environment)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(10):
        ours += timed(lambda: run(command), 1)
        theirs += timed(lambda: run(plain), 1)
    a, b = median(ours[1:]) * 1e3, median(theirs[1:]) * 1e3  # The first of each writes the bytecode.
    limit = 2 * b + 100
    return Figure("status of 100,000 turns", a, b, "ms", a / b, f"<= 2 x + 100 ms = {limit:.0f} ms", a <= limit)


def timed(call: Callable[[], Any], times: int) -> list[float]:
    """Return how long each of `times` calls took, in seconds."""
    durations = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        durations.append(time.perf_counter() - started)
    return durations


def insert_many(connection: Any, rows: list[tuple[Any, ...]]) -> None:
    """Insert rows in one transaction of bare SQLite."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(BARE_INSERT, rows)
    connection.execute("COMMIT")


def rate_of_threads(record: Callable[[str, str], Any], *, threads: int, calls: int) -> float:
    """Return calls per second of `threads` threads that make `calls` calls each."""
    work = [threading.Thread(target=lambda: [record("user", TEXT) for _ in range(calls)]) for _ in range(threads)]
    started = time.perf_counter()
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    return threads * calls / (time.perf_counter() - started)


def bare_verify(path: Path) -> int:
    """Read every row, hash its bytes, decode its state: the least that an audit could do."""
    connection = dbapi2.connect(str(path))
    count = 0
    for _, _, _, _, state, _, _, _ in connection.execute("SELECT * FROM events ORDER BY position"):
        sha256(state).digest()
        msgspec.msgpack.decode(state)
        count += 1
    connection.close()
    return count


@contextmanager
def scratch_store(folder: Path, *, encrypt: bool = True) -> Iterator[tuple[MemoryStore, str]]:
    """Give an empty store with one session, deleted afterwards."""
    with (
        tempfile.TemporaryDirectory(dir=folder) as inner,
        MemoryStore.open(Path(inner) / "store", model=None, encrypt=encrypt) as store,
    ):
        yield store, store.start_session("bench", scope="bench").id


def filled_store(folder: Path, turns: int, *, encrypt: bool = True) -> MemoryStore:
    """Return a store of so many turns in 100 sessions, its views caught up."""
    store = MemoryStore.open(folder / ("filled" if encrypt else "filled-in-the-clear"), model=None, encrypt=encrypt)
    sessions = [store.start_session(f"s{n}", scope=f"bench/{n % 10}").id for n in range(100)]
    for start in range(0, turns, 10_000):
        store.record_many(
            [NewTurn(session=sessions[n % 100], role="user", text=f"{TEXT} {n}") for n in range(start, start + 10_000)]
        )
    store.admin.catch_up_views()
    return store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="write the figures to this Markdown file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--folder", type=Path, help="where the files lie while measuring (a real disk)")
    parser.add_argument("--turns", type=int, default=100_000, help="turns of the filled store")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        figures = [measure_single(folder), measure_batch(folder), *measure_encryption(folder), measure_threads(folder)]
        with filled_store(folder, arguments.turns) as store:
            figures += [*measure_verify(folder, store), measure_status(folder, store)]
    report(figures, arguments)


def report(figures: list[Figure], arguments: argparse.Namespace) -> None:
    """Print the figures, and write them where that was asked for."""
    print(json.dumps([f._asdict() for f in figures], indent=2) if arguments.json else table(figures))
    if arguments.write:
        text = (
            "# Speed\n\nWritten by `make bench` (`benchmarks/speed.py`): each figure beside bare SQLite in the same"
            f" run. {machine()}. Absolute numbers are this machine's; the ratios are what counts.\n\n"
            f"{table(figures)}\n\n"
            "`bare` is, line by line: one INSERT in autocommit through pysqlite3 into the same table with"
            " synchronous=FULL; executemany of 100 rows in one transaction; a store with `encrypt=False`, twice; one"
            " thread of mnemolog; a loop over the rows, in the clear, with SHA-256 and msgpack decode, twice;"
            " `python -c 'import sqlalchemy'`; both from bytecode. What a sync takes decides the ratios of"
            " threads and of encryption: figures of a quicker disk are in"
            " [ADR 2](../adr/0002-our-recorder-on-sqlalchemy-core.md).\n"
        )
        _, heading, further = arguments.write.read_text().partition(FIRST_RECALL)
        arguments.write.write_text(text + (f"\n{heading}{further}" if heading else ""))


def table(figures: list[Figure], *, ours: str = "mnemolog", bare: str = "bare") -> str:
    """Return the figures as a Markdown table. Where nothing is wanted nothing is held or missed."""
    lines = [f"| what | {ours} | {bare} | ratio | wanted | |", "| --- | ---: | ---: | ---: | --- | --- |"]
    for f in figures:
        verdict = ("holds" if f.holds else "MISSED") if f.wanted else ""
        lines.append(
            f"| {f.what} | {f.ours:,.0f} {f.unit} | {f.bare:,.0f} {f.unit} | {f.ratio:.2f} | {f.wanted} | {verdict} |"
        )
    return "\n".join(lines)


def machine() -> str:
    """Say what the figures were measured on."""
    return f"Python {platform.python_version()}, SQLite {dbapi2.sqlite_version}, {os.cpu_count()} CPUs"


if __name__ == "__main__":
    main()
