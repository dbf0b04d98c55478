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


@pytest.fixture(scope="module")
def exporter():
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def example(exporter, monkeypatch):
    """The example's names; what it puts around methods is undone after each test."""
    for owner in (MemoryStore, Session):
        for name, value in dict(vars(owner)).items():
            if callable(value) and not name.startswith("__"):
                monkeypatch.setattr(owner, name, value)
    exporter.clear()
    return runpy.run_path(str(EXAMPLE))


def use(store):
    """Call each operation, and one that fails."""
    trip = store.session("trip")
    turn = trip.record("user", f"The {SECRET} eats ferns.", key="k")
    fact = trip.assert_fact("animal/name", SECRET)
    store.recall(f"What eats the {SECRET}?")
    with pytest.raises(DuplicateKey):
        trip.record("user", f"Another {SECRET}.", key="k")
    store.retract_fact(fact)
    trip.record_many([{"role": "user", "content": SECRET}] * 2)
    store.forget(positions=turn.position, dry_run=True)
    return store.forget(positions=turn.position).certificate.log_id


@pytest.mark.parametrize("texts", [False, True])
def test_each_operation_is_a_span_with_the_ids_of_store_and_records(example, exporter, tmp_path, texts):
    """And with texts only where they were requested; an error has its class alone."""
    example["instrument"](texts=texts)
    with MemoryStore.open(tmp_path / "m", model=None, telemetry=example["MemorySpans"]()) as store:
        log_id = use(store)
    spans = [dict(span.attributes) for span in exporter.get_finished_spans() if "memory" in span.name]
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
    queries = {span.get("gen_ai.memory.query.text") for span in spans}
    assert queries == {None, f"What eats the {SECRET}?"} if texts else {None}
    records = [json.loads(span["gen_ai.memory.records"]) for span in spans if "gen_ai.memory.records" in span]
    written = [[{"id": "2", "content": f"The {SECRET} eats ferns."}], [{"id": "3", "content": SECRET}]]
    assert records[:2] == (written if texts else [])
    everything = "".join(span.to_json() for span in exporter.get_finished_spans())
    assert (SECRET in everything) is texts
    assert f"Another {SECRET}" not in everything


async def test_a_span_is_a_child_of_that_of_its_caller_and_has_its_parts(example, exporter, tmp_path):
    """Through `AsyncMemoryStore`, whose calls run in threads."""
    example["instrument"]()
    async with AsyncMemoryStore.open(tmp_path / "m", model=None, telemetry=example["MemorySpans"]()) as store:
        with trace.get_tracer("tests").start_as_current_span("agent"):
            await store.recall("ferns")
    spans = {span.name: span for span in exporter.get_finished_spans()}
    parents = [
        ("search_memory", "agent"),
        ("mnemolog.recall", "search_memory"),
        ("mnemolog.recall.leg", "search_memory"),
    ]
    for child, parent in parents:
        assert spans[child].parent.span_id == spans[parent].context.span_id
        assert spans[parent].start_time <= spans[child].start_time <= spans[child].end_time <= spans[parent].end_time


def test_the_page_prints_spans_and_the_example_has_sixty_lines(example, tmp_path, monkeypatch):
    """The page sets a provider, which OpenTelemetry allows once: here the first one stays."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    monkeypatch.chdir(tmp_path)
    run_framework_block("docs/observability.md", "MemorySpans")
    assert len(EXAMPLE.read_text().splitlines()) <= 60
