"""Ctrl-C while recording: the process that goes on after it has a store that goes on too."""

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.support.store_access import log_of
from tests.children.workers import append_under_interrupts, messages
from tests.support import read_all, texts_of

pytestmark = pytest.mark.promise("P1")


@pytest.mark.timeout(7200)
@pytest.mark.promise("P1", "interrupts")
@pytest.mark.parametrize("helpers", [0, 3])
def test_interrupts_leave_a_store_that_records_on(processes, folder, rng, seed, tries, helpers):
    """Thousands of interrupts: no thread hangs, nothing acknowledged is missing, nothing is recorded twice."""
    pipe = processes.start(append_under_interrupts, str(folder), rng.randrange(2**32), tries, helpers)[1]
    (answer,) = messages(pipe)
    assert isinstance(answer, tuple), f"{answer}, seed {seed}"
    acknowledged, failures, last = answer
    assert failures == [], f"seed {seed}"
    with MemoryStore.open(folder, model=None) as store:
        events = read_all(log_of(store))
        texts = texts_of(events)
        assert len(texts) == len(set(texts)), f"recorded twice: {sorted({t for t in texts if texts.count(t) > 1})[:5]}"
        by_position = {event.position: event.event.text for event in events[1:]}
        assert {by_position.get(position) for position in acknowledged.values()} == acknowledged.keys(), f"seed {seed}"
        assert events[-1].position == last
        assert sum(text.startswith("helper") for text in texts) == helpers * tries, f"seed {seed}"
        assert store.verify().findings == (), f"seed {seed}"
