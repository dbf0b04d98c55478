"""Plots of turns over time, with the real matplotlib, without a screen."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import pytest

from mnemolog import MemoryStore

pytestmark = pytest.mark.local

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


@pytest.fixture
def talks(folder):
    """Two sessions of two roles, at known times."""
    with MemoryStore.open(folder, model=None) as store:
        trip, other = store.session("trip", title="Trip for $5 to $9"), store.session("other")
        for day in range(3):
            trip.record("user", "hello", said_at=START + timedelta(days=day))
            trip.record("assistant", "hi", said_at=START + timedelta(days=day, hours=1))
        other.record("user", "hello", said_at=START)
        yield store


def test_a_replay_is_plotted_as_turns_over_time(talks, pyplot, tmp_path):
    """A row for each session, a colour for each role, at the time when it was said."""
    axes = talks.replay().plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == [r"trip (Trip for \$5 to \$9)", "other"]
    assert axes.get_legend_handles_labels()[1] == ["user", "assistant"]
    users, assistants = (drawn.get_offsets() for drawn in axes.collections)
    assert (len(users), len(assistants)) == (4, 3)
    assert sorted(place for _, place in users) == [0, 0, 0, 1]
    assert assistants[0][0] - users[0][0] == pytest.approx(1 / 24)
    axes.figure.savefig(tmp_path / "turns.png")
    assert (tmp_path / "turns.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_is_drawn_into_given_axes(talks, pyplot):
    """Beside other plots of the reader's own."""
    _, (left, _) = pyplot.subplots(1, 2)
    assert talks.replay(session="trip").plot(left) is left
    assert len(left.get_yticklabels()) == 1


def test_of_many_sessions_those_with_the_most_turns_are_plotted(store, pyplot):
    """The title counts the others. Without turns the plot is empty, and not refused."""
    assert store.replay().plot().get_title() == "turns over time"
    for number in range(45):
        session = store.session(f"s{number}")
        for _ in range(1 + (number >= 5)):
            session.record("user", "hello")
    axes = store.replay().plot()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [f"s{number}" for number in range(5, 45)]
    assert axes.get_title() == "turns over time (5 more sessions)"


def test_without_matplotlib_a_plot_says_what_to_install(talks, monkeypatch):
    """Nothing else needs it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="a plot needs matplotlib, which is not installed: pip install matplotlib"):
        talks.replay().plot()
