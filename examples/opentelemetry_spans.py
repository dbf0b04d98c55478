"""Spans of OpenTelemetry for memories, named as its conventions for generative AI name them: docs/observability.md."""

import json
from functools import partialmethod
from time import time_ns

from opentelemetry import trace

from mnemolog import MemoryStore, Session

OPERATIONS = {"recall": "search_memory", "record": "create_memory", "record_many": "create_memory"}
OPERATIONS |= {"assert_fact": "upsert_memory", "retract_fact": "update_memory", "forget": "delete_memory"}
TRACER = trace.get_tracer("mnemolog")


class MemorySpans:
    """The `telemetry=` of one store: names the store in the span of a call, and adds a span for each timed part."""

    def measure(self, name, value, facts):  # Called in the context of the call that was measured.
        if (span := trace.get_current_span()).is_recording() and name.endswith(".duration"):
            span.set_attribute("gen_ai.memory.store.id", self.store_id)
            TRACER.start_span(name[:-9], start_time=time_ns() - int(value * 1e9), attributes=facts).end()

    def watch(self, gauges):
        self.store_id = next(about["log"] for _, about in gauges["mnemolog.log.head"]())

    def unwatch(self, gauges): ...


def instrument(*, texts=False):
    """Make a span of each of these calls, of `AsyncMemoryStore` too; with texts on request, and no error's message."""
    for owner in (MemoryStore, Session):
        for name in OPERATIONS.keys() & vars(owner).keys():
            setattr(owner, name, partialmethod(_call, getattr(owner, name), OPERATIONS[name], texts))


def _call(of, method, operation, texts, *given, **how):
    with TRACER.start_as_current_span(operation, record_exception=False, set_status_on_exception=False) as span:
        span.set_attribute("gen_ai.operation.name", operation)
        try:
            result = method(of, *given, **how)
        except Exception as error:
            span.set_attribute("error.type", type(error).__name__)
            raise
        items = getattr(result, "hits", result if isinstance(result, list) else [result])
        if operation == "update_memory":
            items = [*given, how.get("fact")][:1]
        elif operation == "delete_memory":  # The positions of what was forgotten, as ranges.
            items = [at for a, b in getattr(result.certificate, "positions", ()) for at in range(a, b + 1)]
        ids = [str(getattr(item, "position", item)) for item in items]
        span.set_attribute("gen_ai.memory.record.count", len(ids))
        if len(ids) == 1:
            span.set_attribute("gen_ai.memory.record.id", ids[0])
        if texts:
            said = [getattr(item, "text", getattr(item, "value", None)) for item in items]
            records = [{"id": at, "content": text} for at, text in zip(ids, said, strict=True)]
            span.set_attribute("gen_ai.memory.records", json.dumps(records))
        if texts and operation == "search_memory":
            span.set_attribute("gen_ai.memory.query.text", result.query)
        return result
