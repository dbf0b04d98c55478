"""What a store measures, and the port that receives it. A server implements it for Prometheus.

Without telemetry nothing is wrapped or measured, so appends cost nothing extra. Measurements hold no content and no
labels of the application: only names defined by mnemolog, numbers, and classes of errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, NamedTuple, Protocol

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
    WAL_BYTES: Instrument("gauge", "By", "Size of the log's write-ahead log."),
    LAG: Instrument("gauge", "{event}", "Events that a projection has not read yet, by `projection`."),
    QUARANTINE_ITEMS: Instrument("gauge", "{item}", "Things in quarantine."),
    QUARANTINE_BYTES: Instrument("gauge", "By", "Bytes in quarantine."),
}


class Telemetry(Protocol):
    """Receives what a store measures. Must be thread-safe and fast, and never raise."""

    def measure(self, name: str, value: float, facts: Facts) -> None:
        """Record a value of a counter or histogram of `INSTRUMENTS`."""
        ...

    def watch(self, gauges: Gauges) -> None:
        """Call these at each collection, until `unwatch`."""
        ...

    def unwatch(self, gauges: Gauges) -> None:
        """Undo `watch`."""
        ...
