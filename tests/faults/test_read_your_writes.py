"""Recall that covers a position: exactly that, or an error that says how far it is and why."""

import threading
import time

import pytest

from mnemolog import MemoryStore, ModelUnavailable
from mnemolog.domain.errors import ProjectionBehind
from tests.e2e.test_projector import PROMPT_S, Failing, record
from tests.support import WAIT_S, HashEncoder, Picky, StuckEncoder, in_thread

pytestmark = pytest.mark.promise("P11")
THREADS = 4


@pytest.mark.timeout(7200)
@pytest.mark.promise("P11", "recalls of each thread")
@pytest.mark.parametrize("background", [True, False])
def test_recalls_under_writing_are_never_older_than_asked(folder, tries, record_property, background):
    """Hundreds from each of four threads, with a projector that does the same work and without."""
    record_property("tried", THREADS * tries)
    with MemoryStore.open(
        folder, model=HashEncoder(dimension=16), background=background, synchronous="NORMAL"
    ) as store:
        sessions = [store.start_session(f"s{n}") for n in range(THREADS)]
        ended, more = threading.Event(), threading.Semaphore(0)

        def write():
            while not ended.is_set():
                more.acquire(timeout=WAIT_S)
                sessions[0].record("user", "something else that is said meanwhile")

        def ask(session):
            for n in range(tries):
                position = session.record("user", f"tea {session.id} {n}").position
                by = session if n % 2 else store
                answer = by.recall(f"tea {n}", k=1, mode="vector", min_position=position, timeout_s=WAIT_S)
                assert position <= answer.vectors_cover <= answer.head
                more.release(2)

        writer = in_thread(write)
        askers = [in_thread(lambda session=session: ask(session)) for session in sessions]
        try:
            for asker in askers:
                asker.result(timeout_s=7_200)
        finally:
            ended.set()
            more.release()
        writer.result()


def test_more_texts_than_one_recall_embeds_are_embedded_on_request(store):
    """In steps, up to the position and no further than the last of them."""
    positions = record(store, *(f"tea {n}" for n in range(300)))
    assert store.recall("tea").vectors_cover < positions[-1]
    assert store.recall("tea 299", mode="vector", min_position=positions[-1]).hits[0].position == positions[-1]


def test_text_always_covers_the_head(store, encoder):
    """So nothing is embedded for it, and no model is needed."""
    (position,) = record(store, "tea")
    assert store.recall("tea", mode="text", min_position=position).hits[0].position == position
    assert encoder.calls == []


def test_without_a_model_there_is_nothing_to_wait_for(bare):
    """Said at once."""
    (position,) = record(bare, "tea")
    with pytest.raises(ModelUnavailable):
        bare.recall("tea", min_position=position)


@pytest.mark.parametrize("mode", ["hybrid", "vector"])
def test_what_is_in_the_way_is_raised_at_once_with_the_distance(folder, mode):
    """Not after the time is over; what comes before the position does not matter behind it."""
    with MemoryStore.open(folder, model=Picky(), background=False) as store:
        good, bad = record(store, "tea", "poison")
        assert store.recall("tea", mode=mode, min_position=good).vectors_cover >= good
        with pytest.raises(ProjectionBehind, match="not this") as caught:
            store.recall("tea", mode=mode, min_position=bad, timeout_s=WAIT_S)
        assert caught.value.behind_events == bad - good
        assert f"position {bad}: " in caught.value.why
    failing = Failing(RuntimeError("out of luck"))
    with MemoryStore.open(folder.with_name("failing"), model=failing, background=False) as store:
        (position,) = record(store, "tea")
        with pytest.raises(ProjectionBehind, match="out of luck") as caught:
            store.recall("tea", mode=mode, min_position=position)
        assert caught.value.behind_events == position, "nothing is covered then"


def test_a_projector_that_is_stuck_is_not_waited_for_beyond_the_time(folder):
    """Here the model itself is stuck, so no process can do its work."""
    encoder = StuckEncoder("stuck")
    with MemoryStore.open(folder, model=encoder) as store:
        good, bad = record(store, "tea", "stuck")
        assert encoder.entered.wait(WAIT_S)
        began = time.monotonic()
        with pytest.raises(ProjectionBehind) as caught:
            store.recall("tea", min_position=bad, timeout_s=0.05)
        assert time.monotonic() - began < PROMPT_S
        assert caught.value.behind_events == bad - store.parts.projections.vectors().projection().covers
        assert "not there within 0.05 s" in caught.value.why
        encoder.free.set()
        assert store.recall("tea", min_position=bad, timeout_s=WAIT_S).vectors_cover == bad
        assert good < bad


def test_no_time_at_all_is_enough_where_everything_is_embedded(store):
    """A question rather than a wait."""
    (position,) = record(store, "tea")
    with pytest.raises(ProjectionBehind):
        store.recall("tea", min_position=position, timeout_s=0)
    store.admin.catch_up_vectors()
    assert store.recall("tea", min_position=position, timeout_s=0).vectors_cover == position
