"""A span of OpenTelemetry for each request, below that of the caller if it sent one (`traceparent`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from mnemolog.domain.extras import install_command
from mnemolog.infra.version import this_version

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
except ImportError as error:
    raise ImportError(f"OpenTelemetry is not installed: {install_command('otel')}") from error

NAME: Final = "mnemolog.http"


class Tracing:
    """Makes the spans of requests. Without a provider the program's global one is used."""

    def __init__(self, *, tracers: trace.TracerProvider | None = None) -> None:
        self._tracer = (tracers or trace.get_tracer_provider()).get_tracer(NAME, this_version())

    @contextmanager
    def request(self, scope: Any) -> Iterator[RequestSpan]:
        """Put a span around a request. It holds its method, the template of its route and the status."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with self._tracer.start_as_current_span(
            scope["method"],
            # Not below what runs now: a connection remembers the context of an earlier request.
            context=propagate.extract(headers, Context()),
            kind=trace.SpanKind.SERVER,
            attributes={"http.request.method": scope["method"]},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield RequestSpan(span, scope["method"])


class RequestSpan:
    """The span of a request."""

    def __init__(self, span: trace.Span, method: str) -> None:
        self._span, self._method = span, method

    def answered(self, route: str, status: int) -> None:
        """Note how the request was answered."""
        self._span.update_name(f"{self._method} {route}")
        self._span.set_attributes({"http.route": route, "http.response.status_code": status})
        if status >= 500:
            self._span.set_status(trace.Status(trace.StatusCode.ERROR))
