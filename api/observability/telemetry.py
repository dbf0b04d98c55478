"""What a store measures, the port that receives it, and how the two are connected. A server has one for Prometheus.

Without telemetry nothing is wrapped or measured, so appends cost nothing extra. Measurements hold no content and no
labels of the application: only names defined by mnemolog, numbers, and classes of errors.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Final, Literal, NamedTuple, Protocol

from mnemolog.domain import errors
from mnemolog.domain.request import as_it_is
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.sqlite import wal_checkpointer
from mnemolog.projections.ports import Timed, untimed
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.quarantine import Quarantine

Facts = Mapping[str, str]
Observed = Iterable[tuple[float, Facts]]
"""Values, each with its attributes."""
Gauges = Mapping[str, Callable[[], Observed]]
"""Callbacks by instrument name, called at each collection."""


class Instrument(NamedTuple):
    """A quantity that is measured."""

    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    means: str


APPENDS: Final = "mnemolog.appends"
APPEND_SECONDS: Final = "mnemolog.append.duration"
GROUP_SIZE: Final = "mnemolog.append.group_size"
RECALL_SECONDS: Final = "mnemolog.recall.duration"
LEG_SECONDS: Final = "mnemolog.recall.leg.duration"
HEAD: Final = "mnemolog.log.head"
DAMAGED: Final = "mnemolog.log.damaged"
WAL_BYTES: Final = "mnemolog.log.wal.size"
LAG: Final = "mnemolog.projection.lag"
QUARANTINE_ITEMS: Final = "mnemolog.quarantine.items"
QUARANTINE_BYTES: Final = "mnemolog.quarantine.size"

INSTRUMENTS: Final[dict[str, Instrument]] = {
    APPENDS: Instrument("counter", "{call}", "Calls that append, by `outcome`: `ok`, or the class of the error."),
    APPEND_SECONDS: Instrument("histogram", "s", "Time from such a call to its commit, by `outcome`."),
    GROUP_SIZE: Instrument("histogram", "{call}", "Calls that shared one commit."),
    RECALL_SECONDS: Instrument("histogram", "s", "Time of a recall, by `mode` and `outcome`."),
    LEG_SECONDS: Instrument("histogram", "s", "Time of one leg of it, by `leg` and `outcome`: did it answer?"),
    HEAD: Instrument("gauge", "{event}", "Position of the last event in the log."),
    DAMAGED: Instrument("gauge", "1", "1 if the log has lost events, or a read has met damage of it; else 0."),
    WAL_BYTES: Instrument("gauge", "By", "Size of the log's write-ahead log."),
    LAG: Instrument("gauge", "{event}", "Events that a projection has not read yet, by `projection`."),
    QUARANTINE_ITEMS: Instrument("gauge", "{item}", "Things in quarantine."),
    QUARANTINE_BYTES: Instrument("gauge", "By", "Bytes in quarantine."),
}


class Telemetry(Protocol):
    """Receives what a store measures. Must be thread-safe and fast, and never raise."""

    def measure(self, name: str, value: float, facts: Facts) -> None:
        """Record a value of a counter or histogram of `INSTRUMENTS`."""

    def watch(self, gauges: Gauges) -> None:
        """Call these at each collection, until `unwatch`."""

    def unwatch(self, gauges: Gauges) -> None:
        """Undo `watch`."""


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
    return lambda name, **facts: timed(telemetry, seconds[name], **facts)


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

    def lag() -> Observed:
        end = log.head().position
        reached = {"views": projections.views_position(), "vectors": projections.projector_status().position}
        for name, position in reached.items():
            if position is not None:
                yield max(0, end - position), of | {"projection": name}

    asked: dict[str, Callable[[], Observed]] = {
        HEAD: lambda: [(log.head().position, of)],
        DAMAGED: lambda: [(int(bool(log.engine.seen.lost or log.engine.seen.warnings)), of)],
        WAL_BYTES: lambda: [(wal_checkpointer.size_bytes(log.path), of)],
        LAG: lag,
        QUARANTINE_ITEMS: lambda: [(Quarantine(layout.own_quarantine).status().items, of)],
        QUARANTINE_BYTES: lambda: [(Quarantine(layout.own_quarantine).status().bytes, of)],
    }
    return {name: _answering(ask) for name, ask in asked.items()}


def _answering(ask: Callable[[], Observed]) -> Callable[[], Observed]:
    def answer() -> Observed:
        try:
            with as_it_is():
                return list(ask())
        except (errors.MnemologError, OSError):
            return ()

    return answer
