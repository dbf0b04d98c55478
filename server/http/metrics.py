"""What a server measures, in the text format of Prometheus: its requests, and what its store reports.

Labels hold names that mnemolog chose, methods, templates of routes and statuses; never content, nor a name or an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from mnemolog.infra.runtime import fork_guard
from mnemolog.observability.telemetry import INSTRUMENTS, Facts, Gauges, Instrument

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
GROUP_SIZE_BUCKETS: Final = (1, 2, 4, 8, 16, 32)
_LABELS: Final = {
    "mnemolog.recall.duration": ("mode", "outcome"),
    "mnemolog.recall.leg.duration": ("leg", "outcome"),
    "mnemolog.appends": ("outcome",),
    "mnemolog.append.duration": ("outcome",),
}
_UNITS: Final = {"s": "_seconds", "By": "_bytes"}


class Metrics:
    """The metrics of one server, with a registry of their own. It is also the telemetry of the store."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # A second series for each: when it began.
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "mnemolog_http_requests", "Requests answered.", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "mnemolog_http_request_duration_seconds",
            "Time from the headers of a request to the end of its answer.",
            ("method", "route"),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._take: dict[str, Callable[[float, Facts], None]] = {
            name: self._instrument(name, item) for name, item in INSTRUMENTS.items() if item.kind != "gauge"
        }
        self._mutex = fork_guard.lock()
        self._watched: list[Gauges] = []
        self._registry.register(_Gauges(self._watched))

    def gauge(self, name: str, means: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read when metrics are collected."""
        Gauge(name, means, registry=self._registry).set_function(read)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self._registry)

    def measure(self, name: str, value: float, facts: Facts) -> None:
        """Record a value that the store measured."""
        self._take[name](value, facts)

    def watch(self, gauges: Gauges) -> None:
        """Read these gauges at each collection."""
        with self._mutex:
            self._watched.append(gauges)

    def unwatch(self, gauges: Gauges) -> None:
        """Undo `watch`."""
        with self._mutex:
            self._watched[:] = [item for item in self._watched if item is not gauges]

    def _instrument(self, name: str, item: Instrument) -> Callable[[float, Facts], None]:
        labels = _LABELS.get(name, ())
        if item.kind == "counter":
            counter = Counter(_named(name, item), item.means, labels, registry=self._registry)
            return lambda value, facts: _of(counter, labels, facts).inc(value)
        buckets = SECONDS if item.unit == "s" else GROUP_SIZE_BUCKETS
        histogram = Histogram(_named(name, item), item.means, labels, buckets=buckets, registry=self._registry)
        return lambda value, facts: _of(histogram, labels, facts).observe(value)


class _Gauges:
    """Collects the gauges of stores."""

    def __init__(self, watched: list[Gauges]) -> None:
        self._watched = watched

    def collect(self) -> Iterator[Any]:
        """Yield each gauge with its values."""
        for name, item in INSTRUMENTS.items():
            if item.kind != "gauge":
                continue
            values = [found for gauges in list(self._watched) for found in gauges[name]()]
            labels = sorted({label for _, facts in values for label in facts})
            family = GaugeMetricFamily(_named(name, item), item.means, labels=labels)
            for value, facts in values:
                family.add_metric([facts.get(label, "") for label in labels], value)
            yield family


def _of(metric: Any, labels: tuple[str, ...], facts: Facts) -> Any:
    return metric.labels(*(facts.get(label, "") for label in labels)) if labels else metric


def _named(name: str, item: Instrument) -> str:
    return name.replace(".", "_") + _UNITS.get(item.unit, "")
