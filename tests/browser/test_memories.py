"""The memories that the console is looked at with."""

from __future__ import annotations

from datetime import date

from examples import five_weeks
from mnemolog import MemoryStore
from tests.browser import long_memory, screenshots


def test_the_long_memory_has_20_000_turns_and_everything_that_a_page_can_show(made_memory, tmp_path):
    """Switches for every reason, hidden turns, an erasure, receipts and hostile text are in it."""
    with long_memory.open_memory(made_memory, read_only=True, background=False) as store:
        sessions = store.sessions()
        assert sum(item.turns + item.forgotten_turns for item in sessions) == long_memory.TURNS
        kinds = {event.event.topic for event in store.events()}
        assert {"turn.recorded.v1", "session.switched.v1", "model.activated.v1"} <= kinds
        reasons = {event.event.reason for event in store.events() if event.event.topic == "session.switched.v1"}
        assert reasons == {"new", "branch", "resume", "compress", "rewind", "reset"}
        story = store.find_session(long_memory.STORY)
        assert len(story.turns(hidden=True)) > len(story.turns())
        assert len(store.audit.erasures()) == 1
        assert len(store.find(long_memory.SECRET)) == 12
        assert not store.find(long_memory.GONE)
        assert len(store.find("alert(")) > 1


def test_the_sample_memory_answers_differently_as_of_an_earlier_day(tmp_path):
    """What she wants to be written by changed on 2026-04-09. Nothing was recorded at another time than it is about."""
    five_weeks.make(tmp_path / "memory", model=long_memory.encoder())
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        then = store.recall("text messages from now on", 1, as_of=five_weeks.BEFORE_SHE_CHANGED_HER_MIND)
        now = store.recall("text messages from now on", 1)
        assert "text messages from now on" in now.hits[0].text
        assert not then.hits or "text messages" not in then.hits[0].text
        times = [store.status().created_at, *(moment.at for moment in store.audit.timeline())]
        assert (times[0].date(), times[-1].date()) == (date(2026, 3, 2), date(2026, 4, 9))
        assert times == sorted(times)


def test_the_pictures_of_the_documentation_are_small():
    """Under 200 kB each."""
    for name in screenshots.IN_DOCS:
        size = (screenshots.DOCS / f"console-{name}.png").stat().st_size
        assert 10_000 < size < 200_000
