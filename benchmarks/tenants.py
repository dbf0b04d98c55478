"""What a tenant costs in a database of many, and a simulation of ten million tenants in 300 databases.

    python -m benchmarks.tenants [--logs 10000] [--json FILE] [--page docs/reports/bench-tenants.md]

The first part is measured, on a PostgreSQL server of its own with `fsync` on: 10,000 logs with 20 events each, written
in turn, in one table and in 16 HASH partitions. The second part calculates with those figures: tenants are placed
on databases ("cells"), their load is skewed (Zipf), cells that are too busy give tenants away, a cell is lost, cells
are added. What is assumed rather than measured is a constant with the word "assumed" beside it.

Examples:

    make bench-tenants
    python -m benchmarks.tenants --logs 1000
"""

from __future__ import annotations

import argparse
import heapq
import os
import platform
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from mnemolog.domain.values import Micros
from mnemolog.infra.log.engine import LogIdentity, StagedRow
from mnemolog.infra.log.postgres import schema
from mnemolog.infra.log.postgres.engine import PostgresConnection, PostgresReader
from mnemolog.infra.postgres import Settings
from tests.postgres import connect, database_on, own_server

EVENTS: Final = 20
"""Events of each log."""
STATE_BYTES: Final = 400
PLAIN: Final = "one table"
PARTITIONS: Final = 16
NOWHERE: Final = Path("benchmark")
"""Nothing is noted there."""
APPENDS: Final = 2_000
"""Appends that a median is taken of."""
WRITERS: Final = 4
WRITING_S: Final = 5.0
GROUP: Final = 100
GROUPS: Final = 100

TENANTS: Final = 10_000_000
CELLS: Final = 300
EVENTS_A_DAY: Final = 200
"""Of the average tenant, assumed."""
PEAK: Final = 5
"""The busiest time of the day against the average, assumed."""
HISTORY_DAYS: Final = 30
"""Days of events that a log holds on average, assumed. Nobody has fewer events than `EVENTS`."""
FULL: Final = 0.8
"""A cell above this part of what it can write gives tenants away."""
SKEWS: Final = (0.8, 1.0, 1.2)
"""Exponents of Zipf's law: the load of the tenant of rank r is in proportion to r ** -skew."""
PROMOTION_S: Final = 30.0
"""Until a standby answers, assumed."""
RESTORE_BYTES_S: Final = 200e6
"""How fast a base backup is read and replayed, assumed."""
CELL_PRICE: Final = 200.0
"""Dollars a month for a machine of this size with a standby and backups, assumed."""
DAY_S: Final = 24 * 3600
HEAVY: Final = 10_000
"""So many tenants of a lost cell are placed one by one, the others evenly."""


class Layout(msgspec.Struct):
    """What one layout of the table costs."""

    idle_bytes: float = 0
    """Of a log without events."""
    log_bytes: float = 0
    event_bytes: float = 0
    index_bytes: dict[int, float] = msgspec.field(default_factory=dict)
    """Of one event, by the number of events in the table."""
    random_ms: float = 0
    same_ms: float = 0
    read_ms: float = 0
    hot: float = 0
    """The part of the updates of head rows that touched no index."""
    vacuum_head_s: float = 0
    vacuum_events_s: float = 0


class Measured(msgspec.Struct):
    """What was measured."""

    logs: int
    machine: str
    layouts: dict[str, Layout] = msgspec.field(default_factory=dict)
    cell_appends_s: float = 0
    """Appends of one event to random logs, by several processes."""
    log_events_s: float = 0
    """Events of one log, by one process in groups."""
    copied_events_s: float = 0


class AnyLog(PostgresConnection):
    """Appends to one log after another through one connection, as a server of many tenants does."""

    def __init__(self, url: str) -> None:
        super().__init__(Settings(url), log=0, identity=LogIdentity("", 1, Micros(0)), path=NOWHERE)
        self._heads: dict[int, tuple[int, bytes]] = {}

    def prepare(self, log: int) -> None:
        """Remember the head of a log."""
        position, digest, *_ = self.reader(log).head_row()
        self._heads[log] = position, bytes(digest)

    def reader(self, log: int) -> PostgresReader:
        """Return the queries of a log."""
        return PostgresReader(self.driver, log, b"")

    def append_to(self, log: int, count: int = 1) -> None:
        """Append events to a log whose head is known."""
        position, digest = self._heads[log]
        rows = made_rows(position, count)
        self._log = log
        if not self.append(rows, head=position, head_digest=digest):
            raise RuntimeError(f"log {log} was written by somebody else")
        self._heads[log] = rows[-1][0], bytes(rows[-1][6])


def made_rows(after: int, count: int) -> list[StagedRow]:
    """Events that follow a position. Their digests are random: nothing here reads them."""
    now = time.time_ns() // 1_000
    return [
        (
            n,
            "session/a",
            n,
            "Turn:1",
            bytearray(secrets.token_bytes(STATE_BYTES)),
            now,
            bytearray(os.urandom(32)),
            f"k{n}",
        )
        for n in range(after + 1, after + count + 1)
    ]


def fill(driver: Any, logs: int, layout: Layout, say: Callable[..., None]) -> None:
    """Create the logs, and write one event into each of them in turn, until all have theirs."""
    name = "md5(random()::text) || md5(random()::text)"
    empty = sizes(driver)
    driver.execute(
        f"INSERT INTO {schema.SCHEMA}.head (name, log_id, format, created_at, digest) "
        f"SELECT 'tenant ' || n, n::text || '-' || md5(random()::text), 1, 0, decode({name}, 'hex') "
        f"FROM generate_series(1, {logs}) n"
    )
    driver.execute(f"VACUUM ANALYZE {schema.SCHEMA}.head")
    layout.idle_bytes = (sizes(driver)["head"] - empty["head"]) / logs
    noise = " || ".join([f"decode({name}, 'hex')"] * -(-STATE_BYTES // 32))
    for n in range(1, EVENTS + 1):
        driver.execute(
            f"INSERT INTO {schema.SCHEMA}.events "
            "(log, position, stream, version, topic, state, recorded_at, digest, key) "
            f"SELECT log, {n}, 'session/a', {n}, 'Turn:1', substr({noise}, 1, {STATE_BYTES}), 0, digest, 'k{n}' "
            f"FROM {schema.SCHEMA}.head"
        )
        if n in (EVENTS // 4, EVENTS // 2, EVENTS):
            layout.index_bytes[n * logs] = sizes(driver)["indexes"] / (n * logs)
        say(f"{n * logs:,} events")
    driver.execute(f"UPDATE {schema.SCHEMA}.head SET position = {EVENTS}")
    driver.execute(f"VACUUM (FULL, ANALYZE) {schema.SCHEMA}.head")
    driver.execute(f"VACUUM ANALYZE {schema.SCHEMA}.events")
    driver.execute("CHECKPOINT")
    found = sizes(driver)
    layout.event_bytes = (found["events"] - empty["events"]) / (logs * EVENTS)
    layout.log_bytes = layout.idle_bytes + layout.event_bytes * EVENTS


def sizes(driver: Any) -> dict[str, int]:
    """Return bytes: of head rows and events with their indexes, and of the indexes of events."""
    query = (
        "SELECT sum(pg_{what}(c.oid))::bigint FROM pg_class c WHERE c.relnamespace = %s::regnamespace "
        "AND c.relkind = 'r' AND c.relname LIKE %s"
    )
    found = {}
    for name, what, table in (
        ("head", "total_relation_size", "head"),
        ("events", "total_relation_size", "events%"),
        ("indexes", "indexes_size", "events%"),
    ):
        found[name] = int(row_of(driver, query.format(what=what), schema.SCHEMA, table)[0])
    return found


def row_of(driver: Any, query: str, *parameters: object) -> Any:
    """Return the first row of a query."""
    return driver.execute(query, parameters or None).fetchone()


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds that one call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def compare(urls: Mapping[str, str], layouts: Mapping[str, Layout]) -> None:
    """Append to random logs and to one, and read logs: each layout in turn. Then vacuum."""
    with ExitStack() as stack:
        databases = {name: stack.enter_context(connect(url)) for name, url in urls.items()}
        connections = {name: stack.enter_context(opened(url)) for name, url in urls.items()}
        numbers = [log for (log,) in databases[PLAIN].execute(f"SELECT log FROM {schema.SCHEMA}.head").fetchall()]
        one, *others = random.Random(1).sample(numbers, min(len(numbers), APPENDS + 1))
        for name, connection in connections.items():
            databases[name].execute("SELECT pg_stat_reset()")
            for log in (one, *others):
                connection.prepare(log)
            for log in others[:100]:
                connection.append_to(log)
        times: dict[tuple[str, str], list[float]] = {}
        for log in others:
            for name, connection in connections.items():
                read = partial(connection.reader(log).stored, after=0, upto=EVENTS, limit=EVENTS)
                for what, work in (
                    ("random", partial(connection.append_to, log)),
                    ("same", partial(connection.append_to, one)),
                    ("read", read),
                ):
                    times.setdefault((name, what), []).append(1e3 * timed(work))
    time.sleep(1.5)  # Statistics of a session that ended are not there at once.
    for name, layout in layouts.items():
        layout.random_ms, layout.same_ms = median(times[name, "random"]), median(times[name, "same"])
        layout.read_ms = median(times[name, "read"])
        with connect(urls[name]) as driver:
            query = "SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'head'"
            hot, updated = row_of(driver, query)
            layout.hot = hot / updated
            layout.vacuum_head_s = timed(partial(driver.execute, f"VACUUM {schema.SCHEMA}.head"))
            layout.vacuum_events_s = timed(partial(driver.execute, f"VACUUM {schema.SCHEMA}.events"))


@contextmanager
def opened(url: str) -> Iterator[AnyLog]:
    """Give a connection, and close it."""
    connection = AnyLog(url)
    try:
        yield connection
    finally:
        connection.close()


def write_for_a_while(url: str, numbers: Sequence[int]) -> int:
    """Append one event after another to logs that nobody else writes. Return how many."""
    with opened(url) as connection:
        for log in numbers:
            connection.prepare(log)
        count, end = 0, time.monotonic() + WRITING_S
        while time.monotonic() < end:
            connection.append_to(random.choice(numbers))
            count += 1
    return count


def measure(logs: int, say: Callable[..., None]) -> Measured:
    """Measure both layouts, and on the first one what a cell can do."""
    found = Measured(logs=logs, machine="")
    with own_server(fsync=True) as server, connect(server) as driver:
        (version,), (fsync,) = row_of(driver, "SHOW server_version"), row_of(driver, "SHOW fsync")
        found.machine = f"{platform.machine()}, {os.cpu_count()} CPUs, PostgreSQL {version}, fsync {fsync}"
        with ExitStack() as stack:
            urls = {}
            for name, script in ((PLAIN, schema.script()), (f"HASH {PARTITIONS}", partitioned())):
                urls[name] = stack.enter_context(database_on(server))
                found.layouts[name] = Layout()
                with connect(urls[name]) as database:
                    database.execute(script, prepare=False)
                    fill(database, logs, found.layouts[name], partial(say, f"{name}:"))
            compare(urls, found.layouts)
            measure_cell(urls[PLAIN], server, found)
    return found


def measure_cell(url: str, server: str, found: Measured) -> None:
    """Append by several processes to random logs, in groups to one, and copy that one."""
    with connect(url) as driver:
        numbers = [n for (n,) in driver.execute(f"SELECT log FROM {schema.SCHEMA}.head ORDER BY log").fetchall()]
    parts = [numbers[n::WRITERS][:500] for n in range(WRITERS)]
    with ProcessPoolExecutor(WRITERS, mp_context=get_context("spawn")) as pool:
        list(pool.map(write_for_a_while, [url] * WRITERS, [part[:2] for part in parts]))  # They are started by now.
        found.cell_appends_s = sum(pool.map(write_for_a_while, [url] * WRITERS, parts)) / WRITING_S
    log = numbers[-1]
    with opened(url) as connection:
        connection.prepare(log)
        connection.append_to(log, GROUP)
        seconds = [timed(lambda: connection.append_to(log, GROUP)) for _ in range(GROUPS)]
        found.log_events_s = GROUP / median(seconds)
        found.copied_events_s = copied_per_second(connection, log, server)


def copied_per_second(source: AnyLog, log: int, server: str) -> float:
    """Copy a log into another database, page by page with its digests, as `mnemolog copy` does."""
    with database_on(server) as url:
        with connect(url) as driver:
            driver.execute(schema.script(), prepare=False)
            driver.execute(
                f"INSERT INTO {schema.SCHEMA}.head (name, log_id, format, created_at, digest) "
                "VALUES ('copy', 'copy', 1, 0, decode(repeat('00', 32), 'hex'))"
            )
            (copy,) = row_of(driver, f"SELECT log FROM {schema.SCHEMA}.head")
        reader = source.reader(log)
        upto = reader.last_given()
        with opened(url) as target:
            target._log = copy
            head, digest, begin = 0, bytes(32), time.perf_counter()
            while head < upto:
                rows = reader.staged_rows(after=head, upto=upto)
                if not target.append(rows, head=head, head_digest=digest):
                    raise RuntimeError("the copy was refused")
                head, digest = rows[-1][0], bytes(rows[-1][6])
            return upto / (time.perf_counter() - begin)


def partitioned() -> str:
    """Return the statements of the schema with the events in partitions by the number of their log."""
    end = "  CONSTRAINT events_version UNIQUE (log, stream, version)\n)"
    parts = "\n".join(
        f"CREATE TABLE {schema.SCHEMA}.events_{n} PARTITION OF {schema.SCHEMA}.events "
        f"FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {n});"
        for n in range(PARTITIONS)
    )
    script = schema.script()
    if end not in script:
        raise RuntimeError("the schema has another form")
    return script.replace(end, f"{end} PARTITION BY HASH (log);\n{parts}".removesuffix(";"), 1)


class Cells(NamedTuple):
    """Where the tenants are, and what that means. Loads are in events per second."""

    skew: float
    capped: int
    """Tenants whose load one log, or one cell, cannot take; they get what it can."""
    capped_part: float
    """The part of the whole load that they ask for and do not get."""
    average: float
    """The load of all cells as a part of what they can write."""
    busiest: float
    """The load of the busiest cell as a part of what it can write, where tenants are placed by chance."""
    history: float
    """Bytes of the average cell."""
    over: int
    """Cells that are then above `FULL`."""
    moved: int
    moved_bytes: float
    settled: float
    """The busiest cell after the moves."""
    moving_s: float
    """Until the last move is done, each cell giving or taking one tenant at a time."""
    lost_tenants: int
    lost_bytes: float
    spread_s: float
    """Until the tenants of a lost cell are copied from its backup into the others."""
    spread_busiest: float
    added_moved: int
    added_bytes: float
    """What moves when a tenth more cells are added and filled to the average."""


def simulate(measured: Measured, skew: float) -> Cells:
    """Place all tenants by chance, rebalance, lose a cell, add cells."""
    random_numbers = np.random.default_rng(20261123)
    layout = measured.layouts[PLAIN]
    capacity = measured.cell_appends_s
    wanted = np.arange(1, TENANTS + 1, dtype=np.float64) ** -skew
    wanted *= TENANTS * EVENTS_A_DAY / DAY_S * PEAK / wanted.sum()
    load = np.minimum(wanted, min(measured.log_events_s, FULL * capacity))
    history = np.maximum(EVENTS, load / PEAK * DAY_S * HISTORY_DAYS)
    size = layout.idle_bytes + history * layout.event_bytes
    seconds = history / measured.copied_events_s
    cell = random_numbers.integers(0, CELLS, TENANTS)
    loads = np.bincount(cell, weights=load, minlength=CELLS)
    before, over = loads.max() / capacity, int((loads > FULL * capacity).sum())
    moved = rebalance(cell, load, loads, limit=FULL * capacity)
    moving = np.zeros(CELLS)
    for tenant, (source, target) in moved.items():
        moving[source] += seconds[tenant]
        moving[target] += seconds[tenant]
    settled = loads.max() / capacity
    tenants = list(moved)
    gone = int(np.argsort(loads)[CELLS // 2])
    lost = np.flatnonzero(cell == gone)
    ranked = lost[np.argsort(-load[lost])]
    spread = loads + load[ranked[HEAVY:]].sum() / (CELLS - 1)
    for tenant in ranked[:HEAVY]:
        spread[gone] = np.inf
        spread[spread.argmin()] += load[tenant]
    spread[gone] = 0
    new = CELLS // 10
    goal = loads.sum() / (CELLS + new)
    given = [heaviest_above(cell, load, number, loads[number] - goal) for number in range(CELLS)]
    added = np.concatenate(given)
    return Cells(
        skew=skew,
        capped=int((wanted > load).sum()),
        capped_part=float((wanted - load).sum() / wanted.sum()),
        average=float(loads.sum() / capacity / CELLS),
        history=float(size.sum() / CELLS),
        busiest=float(before),
        over=over,
        moved=len(moved),
        moved_bytes=float(size[tenants].sum()) if tenants else 0.0,
        settled=float(settled),
        moving_s=float(moving.max()),
        lost_tenants=len(lost),
        lost_bytes=float(size[lost].sum()),
        spread_s=max(float(seconds[lost].max()), float(seconds[lost].sum()) / (CELLS - 1)),
        spread_busiest=float(spread.max() / capacity),
        added_moved=len(added),
        added_bytes=float(size[added].sum()),
    )


def rebalance(cell: Any, load: Any, loads: Any, *, limit: float) -> dict[int, tuple[int, int]]:
    """Move the heaviest tenants that fit from cells above the limit to the one with the least load.

    Changes `cell` and `loads`. Returns source and target of every tenant that moved.
    """
    free = [(float(value), number) for number, value in enumerate(loads) if value <= limit]
    heapq.heapify(free)
    moved: dict[int, tuple[int, int]] = {}
    for number in np.flatnonzero(loads > limit):
        mine = np.flatnonzero(cell == number)
        for tenant in mine[np.argsort(-load[mine])]:
            if loads[number] <= limit or not free:
                break
            value, target = free[0]
            if value + load[tenant] > limit:
                continue
            heapq.heapreplace(free, (value + float(load[tenant]), target))
            loads[target] += load[tenant]
            loads[number] -= load[tenant]
            cell[tenant] = target
            moved[int(tenant)] = int(number), target
    return moved


def heaviest_above(cell: Any, load: Any, number: int, excess: float) -> Any:
    """Return the tenants of a cell to give away: the heaviest whose loads add up to no more than the excess."""
    mine = np.flatnonzero(cell == number)
    ranked = mine[np.argsort(-load[mine])]
    fitting = ranked[load[ranked] <= max(0.0, excess)]
    return fitting[np.cumsum(load[fitting]) <= excess]


INTRODUCTION: Final = f"""# Many tenants

Written by `make bench-tenants` (`benchmarks/tenants.py`). One tenant is one log: one head row, one digest chain. The
first tables are measured on a PostgreSQL server of their own, with logs of {EVENTS} events of {STATE_BYTES} bytes
written in turn, so that no two events of a log are neighbours. The others are calculated with those figures for
{TENANTS:,} tenants on {CELLS} databases, *cells*. Why it is built so:
[ADR 43](../adr/0043-tenants-on-many-databases.md).
"""

ASSUMED: Final = f"""Assumed, not measured: the average tenant writes {EVENTS_A_DAY} events a day, {PEAK} times as
many at the busiest time, and keeps {HISTORY_DAYS} days of them; a standby answers after {PROMOTION_S:.0f} s; a base
backup is restored at {RESTORE_BYTES_S / 1e6:.0f} MB/s; a machine like the one measured costs {CELL_PRICE:.0f} dollars a
month with its standby. Load follows Zipf's law: the tenant of rank *r* asks for a share in proportion to *r* to the
power of minus *skew*. A cell above {FULL:.0%} of what it can write gives the heaviest tenants that fit to the cell with
the least load, one at a time. The cell that is lost has the median load."""


def page_of(found: Measured, cells: Sequence[Cells]) -> str:
    """Return the page."""
    plain = found.layouts[PLAIN]
    rows: list[tuple[str, Callable[[Layout], str]]] = [
        ("bytes of an idle log", lambda item: f"{item.idle_bytes:,.0f}"),
        (f"bytes of a log with {EVENTS} events", lambda item: f"{item.log_bytes:,.0f}"),
        ("bytes of an event", lambda item: f"{item.event_bytes:,.0f}"),
        *(
            (f"of them indexes, at {size:,} events", lambda item, size=size: f"{item.index_bytes[size]:,.0f}")
            for size in plain.index_bytes
        ),
        ("append to a random log, p50", lambda item: f"{item.random_ms:.3f} ms"),
        ("append to one log, p50, in turn with it", lambda item: f"{item.same_ms:.3f} ms"),
        ("read a whole log, p50", lambda item: f"{item.read_ms:.3f} ms"),
        ("updates of head rows that touch no index", lambda item: f"{item.hot:.0%}"),
        ("VACUUM of the head rows", lambda item: f"{item.vacuum_head_s:.2f} s"),
        ("VACUUM of the events", lambda item: f"{item.vacuum_events_s:.2f} s"),
    ]
    layouts = found.layouts.values()
    return "\n".join(
        (
            INTRODUCTION,
            f"{found.machine}. {found.logs:,} logs.\n",
            f"| | {' | '.join(found.layouts)} |",
            f"| --- |{' ---: |' * len(found.layouts)}",
            *(f"| {name} | {' | '.join(of(item) for item in layouts)} |" for name, of in rows),
            "",
            "What one such machine does, in one table:\n",
            "| | events/s |",
            "| --- | ---: |",
            f"| {WRITERS} processes, one event each time, random logs | {found.cell_appends_s:,.0f} |",
            f"| one log, one process, groups of {GROUP} | {found.log_events_s:,.0f} |",
            f"| copied into another database with its digests | {found.copied_events_s:,.0f} |",
            "",
            f"## {TENANTS:,} tenants on {CELLS} cells\n",
            ASSUMED,
            "",
            f"| | {' | '.join(f'skew {item.skew}' for item in cells)} |",
            f"| --- |{' ---: |' * len(cells)}",
            *(f"| {name} | {' | '.join(of(item) for item in cells)} |" for name, of in simulated_rows(found)),
            "",
            "Capacity and cost:\n",
            "| | |",
            "| --- | ---: |",
            *(f"| {name} | {value} |" for name, value in capacity_rows(found)),
            "",
        )
    )


def simulated_rows(found: Measured) -> list[tuple[str, Callable[[Cells], str]]]:
    """Return the rows of the table of the simulation."""

    def restored(item: Cells) -> str:
        return span(item.lost_bytes / RESTORE_BYTES_S)

    return [
        ("tenants that ask for more than one log or cell can take", lambda item: f"{item.capped:,}"),
        ("their part of all load that is refused", lambda item: f"{item.capped_part:.1%}"),
        ("load of the average cell at the busiest time", lambda item: f"{item.average:.0%}"),
        ("bytes of the average cell", lambda item: size_of(item.history)),
        ("busiest cell, tenants placed by chance", lambda item: f"{item.busiest:.0%}"),
        (f"cells above {FULL:.0%}", lambda item: f"{item.over}"),
        ("tenants moved until none is", lambda item: f"{item.moved:,}"),
        ("bytes moved", lambda item: size_of(item.moved_bytes)),
        ("time until the last one has moved", lambda item: span(item.moving_s)),
        ("busiest cell then", lambda item: f"{item.settled:.0%}"),
        ("a cell lost: tenants", lambda item: f"{item.lost_tenants:,}"),
        ("its log, bytes", lambda item: size_of(item.lost_bytes)),
        ("standby promoted", lambda item: span(PROMOTION_S)),
        ("without a standby: base backup restored", restored),
        ("without one: copied from the backup into all others", lambda item: span(item.spread_s)),
        ("busiest of the others then", lambda item: f"{item.spread_busiest:.0%}"),
        (f"{CELLS // 10} cells added: tenants moved", lambda item: f"{item.added_moved:,}"),
        ("bytes moved for that", lambda item: size_of(item.added_bytes)),
    ]


def capacity_rows(found: Measured) -> list[tuple[str, str]]:
    """Return the rows of the table of capacity."""
    layout = found.layouts[PLAIN]
    average = layout.idle_bytes + EVENTS_A_DAY * HISTORY_DAYS * layout.event_bytes
    by_load = found.cell_appends_s * FULL * DAY_S / PEAK / EVENTS_A_DAY
    return [
        (f"tenants on each of {CELLS} cells", f"{TENANTS // CELLS:,}"),
        ("bytes of the average tenant", size_of(average)),
        (f"average tenants that a cell can write for, at {FULL:.0%}", f"{by_load:,.0f}"),
        ("average tenants in 1 TB", f"{1e12 / average:,.0f}"),
        (f"idle tenants in 1 TB, {EVENTS} events each", f"{1e12 / layout.log_bytes:,.0f}"),
        ("dollars a tenant and month", f"{CELLS * CELL_PRICE / TENANTS:.4f}"),
        ("dollars a million events", f"{CELLS * CELL_PRICE / (TENANTS * EVENTS_A_DAY * 30) * 1e6:.2f}"),
    ]


def size_of(count: float) -> str:
    """Return bytes for people."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def span(seconds: float) -> str:
    """Return a duration for people."""
    if seconds >= 7200:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:,.1f} min" if seconds >= 120 else f"{seconds:,.1f} s"


def main() -> None:
    """Measure, simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=10_000)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep what was measured, or read it if the file exists"
    )
    parser.add_argument("--page", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    kept: Path | None = arguments.json
    if kept is not None and kept.exists():
        found = msgspec.json.decode(kept.read_bytes(), type=Measured)
    else:
        found = measure(arguments.logs, print)
        if kept is not None:
            kept.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    page = page_of(found, [simulate(found, skew) for skew in SKEWS])
    if arguments.page is None:
        print(page)
    else:
        arguments.page.write_text(page)


if __name__ == "__main__":
    main()
