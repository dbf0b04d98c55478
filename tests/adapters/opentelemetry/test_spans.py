"""The example of spans, against the SDK and its exporter in memory: names, ids, parents; no text unless on request."""

import json
import runpy

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mnemolog import AsyncMemoryStore, DuplicateKey, MemoryStore, Session
from tests.pages import ROOT, run_framework_block

EXAMPLE = ROOT / "examples" / "opentelemetry_spans.py"
SECRET = "quokka"
EXPORTER = InMemorySpanExporter()


@pytest.fixture
def example(monkeypatch, tmp_path):
    """The example's names; what it puts around methods is undone after each test. Spans go to `EXPORTER`."""
    for owner in (MemoryStore, Session):
        for name in (
            "recall",
            "record",
            "record_many",
            "assert_fact",
            *(["retract_fact", "forget"] * (owner is MemoryStore)),
        ):
            monkeypatch.setattr(owner, name, getattr(owner, name))
    if not isinstance(trace.get_tracer_provider(), TracerProvider):  # OpenTelemetry takes one in a process.
        trace.set_tracer_provider(TracerProvider())
        trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(EXPORTER))
    EXPORTER.clear()
    monkeypatch.chdir(tmp_path)
    return runpy.run_path(str(EXAMPLE))


@pytest.mark.parametrize("texts", [False, True])
def test_each_operation_is_a_span_with_the_ids_of_store_and_records(example, texts):
    """And with texts only where they were requested; an error has its class alone."""
    example["instrument"](texts=texts)
    with MemoryStore.open("m", model=None, telemetry=example["MemorySpans"]()) as store:
        trip = store.session("trip")
        turn = trip.record("user", f"The {SECRET} eats ferns.", key="k")
        fact = trip.assert_fact("animal/name", SECRET)
        store.recall(f"What eats the {SECRET}?")
        with pytest.raises(DuplicateKey):
            trip.record("user", f"Another {SECRET}.", key="k")
        store.retract_fact(fact)
        trip.record_many([{"role": "user", "content": SECRET}] * 2)
        store.forget(positions=turn.position, dry_run=True)
        log_id = store.forget(positions=turn.position).certificate.log_id
    spans = [dict(span.attributes) for span in EXPORTER.get_finished_spans() if "memory" in span.name]
    about = ("operation.name", "memory.store.id", "memory.record.id", "memory.record.count")
    assert [tuple(span.get(f"gen_ai.{name}") for name in about) for span in spans] == [
        ("create_memory", log_id, "2", 1),
        ("upsert_memory", log_id, "3", 1),
        ("search_memory", log_id, "2", 1),
        ("create_memory", log_id, None, None),
        ("update_memory", log_id, "3", 1),
        ("create_memory", log_id, None, 2),
        ("delete_memory", None, None, 0),
        ("delete_memory", log_id, "2", 1),
    ]
    assert [span["error.type"] for span in spans if "error.type" in span] == ["DuplicateKey"]
    assert spans[2].get("gen_ai.memory.query.text") == (f"What eats the {SECRET}?" if texts else None)
    written = [[{"id": "2", "content": f"The {SECRET} eats ferns."}], [{"id": "3", "content": SECRET}]]
    assert [json.loads(span.get("gen_ai.memory.records", "0")) for span in spans[:2]] == (written if texts else [0, 0])
    everything = "".join(span.to_json() for span in EXPORTER.get_finished_spans())
    assert (SECRET in everything, f"Another {SECRET}" in everything) == (texts, False)


async def test_a_span_is_a_child_of_that_of_its_caller_and_has_its_parts(example):
    """Through `AsyncMemoryStore`, whose calls run in threads."""
    example["instrument"]()
    async with AsyncMemoryStore.open("m", model=None, telemetry=example["MemorySpans"]()) as store:
        with trace.get_tracer("tests").start_as_current_span("agent"):
            await store.recall("ferns")
    spans = {span.name: span for span in EXPORTER.get_finished_spans()}
    for child, parent in (("search_memory", "agent"), ("mnemolog.recall.leg", "search_memory")):
        assert spans[child].parent.span_id == spans[parent].context.span_id
        assert spans[parent].start_time <= spans[child].start_time <= spans[child].end_time <= spans[parent].end_time


def test_the_block_of_the_page_runs_and_the_example_has_sixty_lines(example, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    run_framework_block("docs/observability.md", "MemorySpans")
    assert len(EXAMPLE.read_text().splitlines()) <= 60
