"""The memories that the console is looked at with."""

from datetime import date

from examples import five_weeks
from mnemolog import MemoryStore
from tests.browser import long_memory


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
