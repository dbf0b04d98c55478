"""Metrics: what is measured of a run, and that nothing is wrapped without telemetry."""

import re
from pathlib import Path

import pytest

import mnemolog
from mnemolog import MemoryStore, NewTurn
from mnemolog.domain.errors import ModelWarning
from mnemolog.observability.telemetry import INSTRUMENTS
from tests.support import HashEncoder

pytestmark = pytest.mark.local

SECRET = "quokka"


class Collected:
    """Keeps what stores measure: as `(name, value, facts)`."""

    def __init__(self):
        self.measured, self.watched = [], []

    def measure(self, name, value, facts):
        self.measured.append((name, value, dict(facts)))

    def watch(self, gauges):
        self.watched.append(gauges)

    def unwatch(self, gauges):
        self.watched.remove(gauges)

    def values(self, name, **facts):
        """The values of an instrument with these facts."""
        gauges = [(name, *point) for gauges in self.watched if name in gauges for point in gauges[name]()]
        return [
            value for of, value, about in [*self.measured, *gauges] if of == name and facts.items() <= about.items()
        ]


@pytest.fixture
def collected():
    return Collected()


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
    """Appends with their outcomes, groups, recalls with their legs, gauges when they are collected; no content."""
    for store in run(folder, collected):
        values = collected.values
        assert len(values("mnemolog.appends", outcome="ok")) == 7
        assert len(values("mnemolog.appends", outcome="DuplicateKey")) == 1
        assert len(values("mnemolog.append.duration", outcome="ok")) == 7
        assert sum(values("mnemolog.append.group_size")) >= 8
        for mode in ("hybrid", "text"):
            assert len(values("mnemolog.recall.duration", mode=mode, outcome="ok")) == 1
        assert len(values("mnemolog.recall.leg.duration", leg="text", outcome="ok")) == 2
        assert len(values("mnemolog.recall.leg.duration", leg="vector", outcome="ok")) == 1
        assert values("mnemolog.log.head") == [store.head().position]
        assert values("mnemolog.projection.lag", projection="views") == [0]
        assert values("mnemolog.quarantine.items") == [0]
        (gauges,) = collected.watched
        assert {*gauges, *(name for name, _, _ in collected.measured)} == set(INSTRUMENTS)
        store.record("trip", "user", "one more")
        assert values("mnemolog.projection.lag", projection="views") == [1]
    assert collected.watched == []
    assert not re.search(f"{SECRET}|trip", repr(collected.measured))


def test_a_leg_that_does_not_answer_is_counted_by_its_error(folder, collected):
    """The recall itself is answered from the text."""
    with MemoryStore.open(folder, model="./no-model", telemetry=collected, background=False) as store:
        store.start_session("trip").record("user", "tea")
        with pytest.warns(ModelWarning):
            assert store.recall("tea").legs == ("text",)
    assert len(collected.values("mnemolog.recall.leg.duration", leg="vector", outcome="ModelUnavailable")) == 1
    assert len(collected.values("mnemolog.recall.duration", mode="hybrid", outcome="ok")) == 1


def test_one_telemetry_serves_several_stores(tmp_path, collected):
    """Each gauge has a point of each store."""
    stores = [MemoryStore.open(tmp_path / str(n), model=None, telemetry=collected) for n in range(2)]
    stores[0].start_session("trip")
    try:
        assert sorted(collected.values("mnemolog.log.head")) == [0, 1]
    finally:
        for store in stores:
            store.close()
    assert collected.watched == []


def test_without_telemetry_nothing_is_wrapped(store):
    """The append goes the way it goes without all this."""
    assert store.parts.log.appends._around_append is store.parts.log.appends._on_commit is None


def test_the_page_lists_every_instrument_as_the_code_has_it():
    page = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()
    for name, item in INSTRUMENTS.items():
        assert f"| `{name}` | {item.kind} | `{item.unit}` | {item.means} |" in page


def test_the_page_lists_every_event_that_is_logged():
    """Found in the source: what is told and not listed, or listed and not told."""
    root = Path(__file__).parents[2]
    sources = [
        p
        for layer in ("adapters", "api", "cli", "domain", "infra", "projections", "server")
        for p in (root / layer).rglob("*.py")
    ]
    told = {name for p in sources for name in re.findall(r'structured_log\.\w+\(\s*"([a-z_.]+)"', p.read_text())}
    page = (root / "docs" / "observability.md").read_text()
    listed = set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| (?:debug|info|warning|error)", page, re.MULTILINE))
    assert told == listed
