"""Metrics and traces: what OpenTelemetry is told of a run, and that nothing is there for who does not ask."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import mnemolog
from mnemolog import MemoryStore, NewTurn
from mnemolog.domain.errors import ModelWarning
from mnemolog.observability.otel import OpenTelemetry
from mnemolog.observability.telemetry import INSTRUMENTS, SPANS
from tests.support import HashEncoder

pytestmark = pytest.mark.local

SECRET = "quokka"


class Collected:
    """An OpenTelemetry with its readers."""

    def __init__(self):
        self.reader, self.exporter = InMemoryMetricReader(), InMemorySpanExporter()
        self.meters, tracers = MeterProvider([self.reader]), TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = OpenTelemetry(meters=self.meters, tracers=tracers)

    def points(self):
        """Points by name of the instrument; of gauges, counters and histograms."""
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        metrics = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        return {metric.name: list(metric.data.data_points) for metric in metrics}

    def spans(self):
        return self.exporter.get_finished_spans()


@pytest.fixture
def collected():
    collected = Collected()
    yield collected
    collected.meters.shutdown()


def values(points, **facts):
    """Value, or count of a histogram, of the points with these attributes."""
    found = [p for p in points if facts.items() <= dict(p.attributes).items()]
    return [getattr(p, "value", None) if hasattr(p, "value") else p.count for p in found]


def run(folder, telemetry):
    with MemoryStore.open(folder, model=HashEncoder(), telemetry=telemetry, background=False) as store:
        session = store.start_session("trip", title=f"trip {SECRET}")
        for number in range(5):
            session.record("user", f"turn {number} {SECRET}", key=f"k{number}")
        store.record_many([NewTurn(session="trip", role="user", text="many")])
        with pytest.raises(mnemolog.DuplicateKey):
            session.record("user", f"another {SECRET}", key="k0")
        store.preview_switch("trip2", reason="new", session="trip")  # A rehearsal is no append.
        store.recall(f"where is the {SECRET}")
        store.recall("turn", mode="text")
        store.rebuild("all")
        store.backup(folder.with_name("backup"))
        yield store


def test_a_run_is_measured(folder, collected):
    """Appends with how they ended, groups, recalls with their legs, gauges as they are when somebody collects."""
    for store in run(folder, collected.telemetry):
        points = collected.points()
        assert set(points) == set(INSTRUMENTS)
        assert values(points["mnemolog.appends"], outcome="ok") == [7]
        assert values(points["mnemolog.appends"], outcome="DuplicateKey") == [1]
        assert values(points["mnemolog.append.duration"], outcome="ok") == [7]
        assert sum(values(points["mnemolog.append.group_size"])) >= 8
        assert values(points["mnemolog.recall.duration"], mode="hybrid", outcome="ok") == [1]
        assert values(points["mnemolog.recall.duration"], mode="text", outcome="ok") == [1]
        assert values(points["mnemolog.recall.leg.duration"], leg="text", outcome="ok") == [2]
        assert values(points["mnemolog.recall.leg.duration"], leg="vector", outcome="ok") == [1]
        assert values(points["mnemolog.log.head"]) == [store.head().position]
        assert values(points["mnemolog.projection.lag"], projection="views") == [0]
        assert values(points["mnemolog.quarantine.items"]) == [0]
        store.record("trip", "user", "one more")
        assert values(collected.points()["mnemolog.projection.lag"], projection="views") == [1]
    assert "mnemolog.log.head" not in collected.points()  # Who is closed is asked no more.


def test_a_leg_that_does_not_answer_is_counted_by_its_error(folder, collected):
    """The recall itself is answered from the text."""
    with MemoryStore.open(folder, model="./no-model", telemetry=collected.telemetry, background=False) as store:
        store.start_session("trip").record("user", "tea")
        with pytest.warns(ModelWarning):
            assert store.recall("tea").legs == ("text",)
        points = collected.points()
    assert values(points["mnemolog.recall.leg.duration"], leg="vector", outcome="ModelUnavailable") == [1]
    assert values(points["mnemolog.recall.duration"], mode="hybrid", outcome="ok") == [1]


def test_spans_show_what_a_call_was_made_of_and_no_content(folder, collected):
    """A leg lies inside its recall; an error is there by its class."""
    for _ in run(folder, collected.telemetry):
        pass
    spans = collected.spans()
    assert {span.name for span in spans} == set(SPANS)
    recalls = {span.context.span_id for span in spans if span.name == "mnemolog.recall"}
    assert all(span.parent.span_id in recalls for span in spans if span.name == "mnemolog.recall.leg")
    failed = [span for span in spans if not span.status.is_ok and span.status.description]
    assert "DuplicateKey" in {span.status.description for span in failed}
    told = "".join(span.to_json() for span in spans) + repr(collected.points())
    assert SECRET not in told
    assert "trip" not in told


def test_one_telemetry_serves_several_stores(tmp_path, collected):
    """Each gauge has a point of each store."""
    stores = [MemoryStore.open(tmp_path / str(n), model=None, telemetry=collected.telemetry) for n in range(2)]
    stores[0].start_session("trip")
    try:
        assert sorted(values(collected.points()["mnemolog.log.head"])) == [0, 1]
    finally:
        for store in stores:
            store.close()
    assert collected.telemetry._watched == []


def test_who_does_not_ask_imports_nothing_and_wraps_nothing(folder):
    """The append goes the way it goes without all this."""
    script = (
        "import sys; from mnemolog import MemoryStore\n"
        f"with MemoryStore.open({str(folder)!r}, model=None) as store:\n"
        "    store.start_session('s').record('user', 'tea'); store.recall('tea', mode='text')\n"
        "    assert store.parts.log.appends._around_append is store.parts.log.appends.writer._on_commit is None\n"
        "print(sorted(name for name in sys.modules if name.startswith('opentelemetry')))"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


def test_the_page_lists_every_instrument_as_the_code_has_it():
    page = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()
    for name, item in INSTRUMENTS.items():
        assert f"| `{name}` | {item.kind} | `{item.unit}` | {item.means} |" in page
    for name in SPANS:
        assert f"`{name}`" in page


def test_the_page_lists_every_event_that_is_logged():
    """Found in the source: what is told and not listed, or listed and not told."""
    root = Path(__file__).parents[2]
    sources = [
        p
        for layer in ("adapters", "api", "cli", "domain", "infra", "projections", "server")
        for p in (root / layer).rglob("*.py")
    ]
    told = {name for p in sources for name in re.findall(r'structured_log\.\w+\(\s*"([a-z_.]+)"', p.read_text())}
    listed = set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| (?:debug|info|warning|error)", _page(), re.MULTILINE))
    assert told == listed


def _page():
    return (Path(__file__).parents[2] / "docs" / "observability.md").read_text()
