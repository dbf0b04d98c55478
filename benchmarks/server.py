"""What a server costs beside the library: requests recorded and recalled over loopback, and idle followers.

    python -m benchmarks.server [--seconds 5] [--folder /dev/shm] [--json FILE] [--page docs/reports/bench-server.md]

1, 8 and 64 clients send one request after the other, from processes of their own (`benchmarks.server_clients`); the
library does the same in as many threads of one process, in the same run. The server runs as `mnemolog serve` does, with
all that it measures and logs. Turns are found by words: a model costs the same on both sides.

Examples:

    make bench-server
    python -m benchmarks.server --seconds 2
    python -m benchmarks.server --mixed 600 --page docs/reports/bench-server-mixed.md

With --mixed, 64 clients record and recall at the same time for so long: on a store in a folder, and on a log in
PostgreSQL with two nodes. Afterwards every turn that was answered has to be there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from benchmarks.postgres import server as database
from benchmarks.server_clients import KINDS, WARM_UP_S
from mnemolog import MemoryStore, NewTurn
from mnemolog.infra.log.postgres.engine import prepare

CLIENTS: Final = (1, 8, 64)
PROCESSES: Final = 2
"""Of the clients."""
TURNS: Final = 10_000
"""Turns in the store when it is recalled."""
WORDS: Final = 4_000
FOLLOWERS: Final = 1_000

RECORD_MS, RECORDS_PER_S, RECALL_MS, FOLLOWERS_MB = 3.0, 1_500, 3.0, 300


class Row(NamedTuple):
    """What was measured of one kind of call with so many clients."""

    what: str
    clients: int
    per_s: float
    p50_ms: float
    p99_ms: float
    library_per_s: float
    library_p50_ms: float
    library_p99_ms: float


class Goal(NamedTuple):
    """A goal and whether it was met."""

    what: str
    goal: str
    measured: str
    holds: bool


def percentiles(times_us: list[float], seconds: float) -> tuple[float, float, float]:
    """Return calls per second, and the median and the 99th percentile in milliseconds."""
    times_us.sort()
    return (
        len(times_us) / seconds,
        times_us[len(times_us) // 2] / 1e3,
        times_us[min(len(times_us) - 1, int(len(times_us) * 0.99))] / 1e3,
    )


def fill(store: MemoryStore) -> None:
    """Record turns of random words, and start the sessions of the clients."""
    words = [f"w{number}" for number in range(WORDS)]
    chosen = random.Random(1)
    for session in range(100):
        store.session(f"s{session}")
        store.record_many(
            [
                NewTurn(session=f"s{session}", role="user", text=" ".join(chosen.choices(words, k=12)))
                for _ in range(TURNS // 100)
            ]
        )
    for client in range(max(CLIENTS)):
        store.session(f"client{client}")
    store.recall("w1 w2")


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, int]]:
    """Serve the store: gives the URL and the id of the process."""
    command = [sys.executable, "-m", "mnemolog", "serve", str(folder), "--model", "none", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.match(r"console (\S+)/ ", process.stdout.readline())
        assert found is not None
        try:
            yield found[1], process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0


def through_server(url: str, kind: str, clients: int, seconds: float) -> list[float]:
    """Return the times of all requests, in microseconds."""
    processes = min(PROCESSES, clients)
    bounds = [clients * number // processes for number in range(processes + 1)]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.server_clients", url, kind, str(first), str(end), str(seconds)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for first, end in pairwise(bounds)
    ]
    outputs = [process.communicate()[0] for process in started]
    return [took for output in outputs for took in json.loads(output)["times"]]


class Mixed(NamedTuple):
    """What was measured of clients that record and recall at the same time."""

    what: str
    record: tuple[float, float, float]
    """Calls per second, median and 99th percentile in milliseconds."""
    recall: tuple[float, float, float]
    memory_mb: tuple[float, float]
    """Resident memory of a server at the beginning, and the most."""
    descriptors: tuple[int, int]
    recorded: int
    lost: int
    """Turns that were answered and are not in the store."""


def mixed(what: str, folders: Sequence[Path], clients: int, seconds: float) -> Mixed:
    """Serve the folders, and record and recall by half of the clients each, evenly spread over the servers."""
    with MemoryStore.open(folders[0], model=None) as store:
        before = turns_in(store)
    with ExitStack() as stack:
        servers = [stack.enter_context(served(folder)) for folder in folders]
        start = [used(pid) for _, pid in servers]
        command, each, running = [sys.executable, "-m", "benchmarks.server_clients"], clients // len(servers) // 2, []
        for number, (url, _) in enumerate(servers):
            for kind in KINDS:
                bounds = map(str, (number * each, (number + 1) * each))
                output = folders[0].parent / f"{number}-{kind}"
                client = [*command, url, kind, *bounds, str(seconds)]
                stack.enter_context(subprocess.Popen(client, stdout=stack.enter_context(output.open("w"))))
                running.append((kind, output))
        most, end = start, time.perf_counter() + WARM_UP_S + seconds
        while time.perf_counter() < end:
            time.sleep(1)
            now = [used(pid) for _, pid in servers]
            most = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(most, now, strict=True)]
        stack.pop_all().close()
        outputs = [(kind, json.loads(output.read_text())) for kind, output in running]
    answered = sum(found["answered"] for kind, found in outputs if kind == "record")
    with MemoryStore.open(folders[0], model=None) as store:
        lost = before + answered - turns_in(store)
    of = {kind: [took for own, found in outputs if own == kind for took in found["times"]] for kind in KINDS}
    times = {kind: percentiles(took, seconds) for kind, took in of.items()}
    (memory, descriptors), (memory_most, descriptors_most) = max(start), max(most)
    return Mixed(
        what,
        times["record"],
        times["recall"],
        (memory, memory_most),
        (descriptors, descriptors_most),
        answered,
        lost,
    )


def turns_in(store: MemoryStore) -> int:
    """Return how many turns a store has."""
    return sum(scope.turns for scope in store.scopes())


def used(pid: int) -> tuple[float, int]:
    """Return the resident memory of a process in MB, and its open descriptors."""
    return resident_mb(pid), len(list(Path(f"/proc/{pid}/fd").iterdir()))


def in_both(folder: Path, seconds: float) -> Iterator[Mixed]:
    """Measure a store in a folder, then a log in PostgreSQL with two nodes."""
    (folder / "file").mkdir()
    with MemoryStore.open(folder / "file" / "store", model=None) as store:
        fill(store)
    yield mixed("a folder, one server", [folder / "file" / "store"], max(CLIENTS), seconds)
    with database(folder) as url:
        prepare(url)
        nodes = [folder / "one", folder / "two"]
        for node in nodes:
            with MemoryStore.open(url, log="bench", local=node, model=None) as store:
                if node == nodes[0]:
                    fill(store)
                store.admin.catch_up_views()
        yield mixed("PostgreSQL, two nodes with a server each", nodes, max(CLIENTS), seconds)


def mixed_page(rows: Sequence[Mixed], seconds: float, machine: str) -> str:
    """Return the figures as a page."""
    return "\n".join(
        [
            "# A server that is written to and read at once",
            "",
            f"Written by `python -m benchmarks.server --mixed {seconds:g} --page docs/reports/bench-server-mixed.md`.",
            f"{max(CLIENTS)} clients, half of them recording and half recalling by words, each one request after the",
            f"other, on a store that began with {TURNS:,} turns. Server, clients and PostgreSQL share the processors",
            "of a machine that other work keeps busy: compare the rows, not the times. Memory and descriptors are",
            "those of one server, at the beginning and the most. Lost are turns whose request was answered and that",
            "are not in the store.",
            "",
            machine,
            "",
            "| | record/s | p50 ms | p99 ms | recall/s | p50 ms | p99 ms | memory MB | descriptors | recorded | lost |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            *(
                f"| {row.what} | {' | '.join(f'{number:,.0f}' for number in (*row.record, *row.recall))} "
                f"| {row.memory_mb[0]:.0f} → {row.memory_mb[1]:.0f} | {row.descriptors[0]} → {row.descriptors[1]} "
                f"| {row.recorded:,} | {row.lost} |"
                for row in rows
            ),
            "",
        ]
    )


def through_library(store: MemoryStore, kind: str, clients: int, seconds: float) -> list[float]:
    """Return the times of all calls of as many threads, in microseconds."""
    calls: dict[str, Callable[[str, dict[str, Any]], object]] = {
        "record": lambda path, said: store.record(path.split("/")[3], **said),
        "recall": lambda path, said: store.recall(**said),
    }
    times: list[float] = []
    begin = time.perf_counter() + WARM_UP_S

    def work(client: int) -> None:
        for path, said in KINDS[kind](client):
            before = time.perf_counter()
            if before > begin + seconds:
                return
            calls[kind](path, said)
            if before >= begin:
                times.append((time.perf_counter() - before) * 1e6)

    threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def measured(folder: Path, seconds: float) -> Iterator[Row]:
    """Measure each kind with each number of clients: the server, then the library, on a store with the same turns."""
    ours, theirs = folder / "server", folder / "library"
    for path in (ours, theirs):
        with MemoryStore.open(path, model=None) as store:
            fill(store)
    with MemoryStore.open(theirs, model=None) as store, served(ours) as (url, _):
        for kind in ("recall", "record"):
            for clients in CLIENTS:
                by_server = percentiles(through_server(url, kind, clients, seconds), seconds)
                by_library = percentiles(through_library(store, kind, clients, seconds), seconds)
                yield Row(kind, clients, *by_server, *by_library)


def followers(folder: Path) -> tuple[float, float]:
    """Return the resident memory of a server that so many clients follow, before and with them, in MB."""
    path = folder / "followed"
    with MemoryStore.open(path, model=None) as store:
        fill(store)
    with served(path) as (url, pid), ExitStack() as open_:
        through_server(url, "recall", 1, 0.1)
        before, where = resident_mb(pid), urlsplit(url)
        made = []
        for _ in range(FOLLOWERS):
            follower = open_.enter_context(socket.create_connection((where.hostname, where.port)))
            follower.sendall(f"GET /v1/tail HTTP/1.1\r\nhost: {where.netloc}\r\n\r\n".encode())
            made.append(follower)
        for follower in made:
            received = follower.recv(4_096)
            assert received.startswith(b"HTTP/1.1 200"), received
        with_them = resident_mb(pid)
        through_server(url, "record", 1, 0.1)
        for follower in made:
            assert follower.recv(64)
        return before, with_them


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1_000


def goals(rows: list[Row], followed_mb: float) -> list[Goal]:
    """Return each goal and whether it was met."""
    of = {(row.what, row.clients): row for row in rows}
    record, many = of["record", 1], of["record", max(CLIENTS)]
    more_ms = of["recall", 1].p50_ms - of["recall", 1].library_p50_ms
    return [
        Goal("record, 1 client, p50", f"≤ {RECORD_MS:g} ms", f"{record.p50_ms:.2f} ms", record.p50_ms <= RECORD_MS),
        Goal(
            f"record, {max(CLIENTS)} clients",
            f"≥ {RECORDS_PER_S:,}/s",
            f"{many.per_s:,.0f}/s",
            many.per_s >= RECORDS_PER_S,
        ),
        Goal("recall, 1 client, p50", f"≤ library + {RECALL_MS:g} ms", f"+ {more_ms:.2f} ms", more_ms <= RECALL_MS),
        Goal(
            f"{FOLLOWERS:,} idle followers, resident memory",
            f"< {FOLLOWERS_MB} MB",
            f"{followed_mb:.0f} MB",
            followed_mb < FOLLOWERS_MB,
        ),
    ]


def page(rows: list[Row], checked: list[Goal], memory_mb: tuple[float, float], machine: str) -> str:
    """Return the figures as a page."""
    lines = [
        "# Speed of the server",
        "",
        "Written by `make bench-server` (`benchmarks/server.py`). Clients in processes of their own record and recall",
        f"over loopback, each one request after the other; the store has {TURNS:,} turns when it is recalled.",
        "Beside each figure stands the library in the same run: as many threads of one process. Server, clients and",
        "library share the processors: times are this machine's, read the differences.",
        "",
        machine,
        "",
        "| | clients | server/s | p50 ms | p99 ms | library/s | p50 ms | p99 ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {row.what} | {row.clients} | {row.per_s:,.0f} | {row.p50_ms:.2f} | {row.p99_ms:.2f} "
            f"| {row.library_per_s:,.0f} | {row.library_p50_ms:.2f} | {row.library_p99_ms:.2f} |"
            for row in rows
        ),
        "",
        f"A server without followers has {memory_mb[0]:.0f} MB of resident memory,",
        f"with {FOLLOWERS:,} idle followers of `/v1/tail` {memory_mb[1]:.0f} MB.",
        "",
        "| goal | | measured | |",
        "| --- | --- | --- | --- |",
        *(f"| {g.what} | {g.goal} | {g.measured} | {'holds' if g.holds else '**missed**'} |" for g in checked),
        "",
    ]
    return "\n".join(lines)


def machine_now() -> str:
    """Say what the times were measured on, and how busy it was."""
    where = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    return f"{where}, load {os.getloadavg()[0]:.1f} at the end."


def main() -> int:
    """Measure, write the figures down, and return 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the stores lie while measuring")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each number of clients is measured")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--page", type=Path, help="write them to this Markdown file")
    parser.add_argument("--mixed", type=float, metavar="SECONDS", help="record and recall at once for so long instead")
    arguments = parser.parse_args()
    if arguments.mixed:
        with tempfile.TemporaryDirectory(dir=arguments.folder, ignore_cleanup_errors=True) as made:
            both = list(in_both(Path(made), arguments.mixed))
        written = mixed_page(both, arguments.mixed, machine_now())
        print(written)
        if arguments.page:
            arguments.page.write_text(written)
        return int(any(row.lost for row in both))
    rows = []
    with tempfile.TemporaryDirectory(dir=arguments.folder, ignore_cleanup_errors=True) as made:
        for row in measured(Path(made), arguments.seconds):
            rows.append(row)
            print(row, flush=True)
        memory_mb = followers(Path(made))
    checked = goals(rows, memory_mb[1])
    machine = machine_now()
    for goal in checked:
        print(goal, flush=True)
    if arguments.json:
        found = {
            "machine": machine,
            "rows": [row._asdict() for row in rows],
            "followers_mb": {"before": memory_mb[0], "with": memory_mb[1]},
            "goals": [goal._asdict() for goal in checked],
        }
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    if arguments.page:
        arguments.page.write_text(page(rows, checked, memory_mb, machine))
    return 0 if all(goal.holds for goal in checked) else 1


if __name__ == "__main__":
    sys.exit(main())
