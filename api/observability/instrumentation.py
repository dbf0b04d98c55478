"""Connects telemetry, if given, to the parts of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import Final

from mnemolog.domain import errors
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.sqlite import wal_checkpointer
from mnemolog.observability.telemetry import (
    APPEND_SECONDS,
    APPENDS,
    GROUP_SIZE,
    HEAD,
    LAG,
    LEG_SECONDS,
    QUARANTINE_BYTES,
    QUARANTINE_ITEMS,
    RECALL_SECONDS,
    WAL_BYTES,
    Gauges,
    Observed,
    Telemetry,
)
from mnemolog.projections.ports import Timed, untimed
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.quarantine import Quarantine

OK: Final = "ok"


@contextmanager
def timed(telemetry: Telemetry, name: str, **facts: str) -> Iterator[None]:
    """Measure the duration and the outcome of the block."""
    outcome, began = OK, perf_counter()
    try:
        yield
    except BaseException as error:
        outcome = type(error).__name__
        raise
    finally:
        telemetry.measure(name, perf_counter() - began, {**facts, "outcome": outcome})


def recall_timer(telemetry: Telemetry | None) -> Timed:
    """Return the timer of a recall and of each of its legs."""
    if telemetry is None:
        return untimed
    seconds = {"mnemolog.recall": RECALL_SECONDS, "mnemolog.recall.leg": LEG_SECONDS}

    def timed_recall(name: str, **facts: str) -> AbstractContextManager[None]:
        return timed(telemetry, seconds[name], **facts)

    return timed_recall


def measure_appends(log: EventLog, telemetry: Telemetry) -> None:
    """Measure every later append of `log`, and how many of them share a commit."""

    @contextmanager
    def measured() -> Iterator[None]:
        began, outcome = perf_counter(), OK
        try:
            yield
        except BaseException as error:
            # Not counted: an interrupt, and the exception that ends a rehearsal.
            outcome = type(error).__name__ if isinstance(error, errors.MnemologError) else ""
            raise
        finally:
            if outcome:
                telemetry.measure(APPENDS, 1, {"outcome": outcome})
                telemetry.measure(APPEND_SECONDS, perf_counter() - began, {"outcome": outcome})

    log.appends.observe(around_append=measured, on_commit=lambda callers: telemetry.measure(GROUP_SIZE, callers, {}))


def gauges_of(layout: StoreLayout, log: EventLog, projections: ProjectionSet) -> Gauges:
    """Return the gauges of a store, all cheap to read at any time. A gauge that fails reports nothing.

    The attribute `log` of each value is the log's id: one program may have several stores.
    """
    of = {"log": log.log_id}

    def head() -> Observed:
        yield log.head().position, of

    def wal_bytes() -> Observed:
        yield wal_checkpointer.size_bytes(log.path), of

    def lag() -> Observed:
        end = log.head().position
        reached = {"views": projections.views_position(), "vectors": projections.projector_status().position}
        for name, position in reached.items():
            if position is not None:
                yield max(0, end - position), of | {"projection": name}

    def items() -> Observed:
        yield Quarantine(layout.quarantine).status().items, of

    def size() -> Observed:
        yield Quarantine(layout.quarantine).status().bytes, of

    asked = {HEAD: head, WAL_BYTES: wal_bytes, LAG: lag, QUARANTINE_ITEMS: items, QUARANTINE_BYTES: size}
    return {name: _answering(ask) for name, ask in asked.items()}


def _answering(ask: Callable[[], Observed]) -> Callable[[], Observed]:
    def answer() -> Observed:
        try:
            return list(ask())
        except (errors.MnemologError, OSError):
            return ()

    return answer
