"""Health probes, and what a server measures: its requests, and what its store reports, in the format of Prometheus.

Labels hold names that mnemolog chose, methods, templates of routes and statuses; never content, nor a name or an id.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mnemolog.adapters.support.agent_tools.tool import NO_MODEL, Memory
from mnemolog.adapters.support.store_access import with_pools
from mnemolog.domain.errors import MnemologError, OutsideScope
from mnemolog.infra.runtime import fork_guard
from mnemolog.observability.telemetry import INSTRUMENTS, Facts, Gauges, Instrument
from mnemolog.operations.backup_files import failed_commands, last_backup
from mnemolog.server.http.authentication import Caller, Callers
from mnemolog.server.http.problems import RequestRefused, problem_response

READY_TIMEOUT_S: Final = 8.0
"""Longer than a call waits for PostgreSQL to come back: afterwards it is known whether recalls are answered without."""
KEPT_S: Final = 1.0
"""How long an answer of `/readyz` is kept: it needs no token, and asks the log."""
LOG_AWAY: Final = "degraded: the log cannot be reached; recalls are answered from this node, nothing is recorded"
DAMAGED: Final = "degraded: something is wrong with the log; its status tells what"
LOADING: Final = "degraded: the model is being loaded; recalls search by words only"
NOT_LOADED: Final = "degraded: the model cannot be loaded; recalls search by words only"
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
        self._registry.register(self)

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

    def collect(self) -> Iterator[Any]:
        """Yield each gauge of the stores with its values, for the registry."""
        for name, item in INSTRUMENTS.items():
            if item.kind != "gauge":
                continue
            values = [found for gauges in list(self._watched) for found in gauges[name]()]
            labels = sorted({label for _, facts in values for label in facts})
            family = GaugeMetricFamily(_named(name, item), item.means, labels=labels)
            for value, facts in values:
                family.add_metric([facts.get(label, "") for label in labels], value)
            yield family

    def _instrument(self, name: str, item: Instrument) -> Callable[[float, Facts], None]:
        labels = _LABELS.get(name, ())
        if item.kind == "counter":
            counter = Counter(_named(name, item), item.means, labels, registry=self._registry)
            return lambda value, facts: _of(counter, labels, facts).inc(value)
        buckets = SECONDS if item.unit == "s" else GROUP_SIZE_BUCKETS
        histogram = Histogram(_named(name, item), item.means, labels, buckets=buckets, registry=self._registry)
        return lambda value, facts: _of(histogram, labels, facts).observe(value)


def _of(metric: Any, labels: tuple[str, ...], facts: Facts) -> Any:
    return metric.labels(*(facts.get(label, "") for label in labels)) if labels else metric


def _named(name: str, item: Instrument) -> str:
    return name.replace(".", "_") + _UNITS.get(item.unit, "")


def probes(memory: Memory, callers: Callers | None) -> dict[str, ASGIApp]:
    """Return what answers without a token: `/healthz` (the process is alive) and `/readyz` (it answers recalls).

    `callers` know whether tokens can be read; None where no request needs one.
    """
    return {"/healthz": PlainTextResponse("ok\n"), "/readyz": _Ready(memory, callers)}


def metrics_route(metrics: Metrics) -> Route:
    """Return the route of the metrics, for callers who may read those of the whole server."""

    async def answer(request: Request) -> Response:
        caller: Caller = request.state.caller
        caller.require("metrics", "/metrics")
        if caller.scopes:
            raise OutsideScope("the metrics are those of the whole server", scope=", ".join(caller.scopes))
        return Response(await asyncio.to_thread(metrics.text), media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", answer)


def watch_deadlines(metrics: Metrics, callers: Callers, store: Path) -> None:
    """Add the gauges of what must be done in time: backups and new tokens."""

    def backup_age() -> float:
        known = last_backup(store)
        return inf if known is None else (datetime.now(UTC) - known.created_at).total_seconds()

    metrics.gauge("mnemolog_backup_age_seconds", "Age of the last known backup; infinite without.", backup_age)
    failed = "Backups in a row, up to the last one, after which `--after-backup` failed."
    metrics.gauge("mnemolog_backup_command_failures", failed, lambda: failed_commands(store))
    metrics.gauge("mnemolog_http_tokens_ending", "Valid tokens that end within 14 days.", callers.ending)


class _Ready:
    """Whether recalls are answered, and what is degraded; if they are not, the class of the error."""

    def __init__(self, memory: Memory, callers: Callers | None) -> None:
        self._memory, self._callers = memory, callers
        self._until = 0.0
        self._asking: asyncio.Task[Response] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._asking is None or (self._asking.done() and monotonic() > self._until):
            self._asking = asyncio.create_task(self._asked())
        await (await asyncio.shield(self._asking))(scope, receive, send)

    async def _asked(self) -> Response:
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                if self._callers is not None:
                    await self._callers.read_now()
                # A start in the future: forces the views up to date, returns no rows.
                found = await self._memory.store.sessions(since=datetime.now(UTC) + timedelta(days=1))
                if found.stale is None:
                    await self._memory.store.head()
        except TimeoutError:
            return self._not_ready(f"the store did not answer within {READY_TIMEOUT_S:g} s")
        except (MnemologError, OSError) as error:
            return self._not_ready(type(error).__name__)
        finally:
            self._until = monotonic() + KEPT_S
        degraded = [] if found.stale is None else [LOG_AWAY]
        if with_pools(self._memory.store)[0].parts.log.engine.seen.warnings:
            degraded.append(DAMAGED)
        if self._memory.model not in ("ready", NO_MODEL):
            degraded.append(LOADING if self._memory.model == "loading" else NOT_LOADED)
        return PlainTextResponse("".join(f"{line}\n" for line in ("ready", *degraded)))

    def _not_ready(self, why: str) -> Response:
        return problem_response(
            RequestRefused("NotReady", 503, why, "the status of the store and the log of the server tell more")
        )
