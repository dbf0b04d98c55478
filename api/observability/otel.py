"""OpenTelemetry, for programs that have it (the extra `otel`).

It uses the meters and tracers of the program; if that configures no SDK, OpenTelemetry's API does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from mnemolog.domain.extras import install_command
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.version import this_version
from mnemolog.observability.telemetry import INSTRUMENTS, Facts, Gauges

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, Observation
except ImportError as error:
    raise ImportError(f"OpenTelemetry is not installed: {install_command('otel')}") from error

_NAME = "mnemolog"


class OpenTelemetry:
    """Reports the measurements of a store to OpenTelemetry: `MemoryStore.open(..., telemetry=OpenTelemetry())`.

    One may serve several stores. Without providers the program's global ones are used.
    """

    def __init__(
        self, *, meters: metrics.MeterProvider | None = None, tracers: trace.TracerProvider | None = None
    ) -> None:
        meter = (meters or metrics.get_meter_provider()).get_meter(_NAME, this_version())
        self._tracer = (tracers or trace.get_tracer_provider()).get_tracer(_NAME, this_version())
        self._mutex = fork_guard.lock()
        self._watched: list[Gauges] = []
        self._take: dict[str, Callable[[float, Facts], None]] = {}
        for name, item in INSTRUMENTS.items():
            if item.kind == "counter":
                self._take[name] = meter.create_counter(name, item.unit, item.means).add
            elif item.kind == "histogram":
                self._take[name] = meter.create_histogram(name, item.unit, item.means).record
            else:
                meter.create_observable_gauge(name, [self._asking(name)], item.unit, item.means)

    def measure(self, name: str, value: float, facts: Facts) -> None:
        """Record a value."""
        self._take[name](value, facts)

    def span(self, name: str, facts: Facts) -> AbstractContextManager[object]:
        """Return a span. Of an error only the class is reported: its message may quote content."""
        return _Span(self._tracer, name, facts)

    def watch(self, gauges: Gauges) -> None:
        """Add callbacks for gauges."""
        with self._mutex:
            self._watched.append(gauges)

    def unwatch(self, gauges: Gauges) -> None:
        """Remove callbacks for gauges."""
        with self._mutex:
            self._watched = [item for item in self._watched if item is not gauges]

    def _asking(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def ask(_: CallbackOptions) -> Sequence[Observation]:
            with self._mutex:
                watched = list(self._watched)
            return [Observation(value, facts) for gauges in watched for value, facts in gauges[name]()]

        return ask


class _Span:
    """A current span that reports only the class of an error."""

    def __init__(self, tracer: trace.Tracer, name: str, facts: Facts) -> None:
        self._context = tracer.start_as_current_span(
            name, attributes=dict(facts), record_exception=False, set_status_on_exception=False
        )

    def __enter__(self) -> None:
        self._span = self._context.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace_: object) -> None:
        if kind is not None:
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, kind.__name__))
        self._context.__exit__(None, None, None)
