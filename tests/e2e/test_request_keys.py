"""Each write of a session made under the key of a request: a retry finds what was written, and writes nothing."""

import pytest

from mnemolog.domain import errors
from mnemolog.domain.request import request_key
from tests.support import nothing_written

pytestmark = pytest.mark.local


@pytest.fixture
def trip(store):
    """A session with turns, a value, a task and a checkpoint."""
    session = store.session("trip")
    for text in ("one", "two", "three"):
        session.record("user", text)
    session.set("city", "Porto")
    session.set_task("book a train", total=3)
    session.checkpoint("booked")
    session.note("window seat")
    return session


WRITES = {
    "record": lambda store, trip: trip.record("user", "four").text,
    "record_many": lambda store, trip: [
        turn.text for turn in trip.record_many([{"role": "user", "content": text} for text in "ab"])
    ],
    "set": lambda store, trip: trip.set("city", "Lisbon"),
    "delete": lambda store, trip: trip.delete("city"),
    "clear": lambda store, trip: trip.clear(),
    "set_task": lambda store, trip: trip.set_task("book a bus").description,
    "update_task": lambda store, trip: trip.update_task(step=1).step,
    "note": lambda store, trip: trip.note("aisle seat"),
    "clear_notes": lambda store, trip: trip.clear_notes(),
    "checkpoint": lambda store, trip: trip.checkpoint("paid"),
    "restore": lambda store, trip: trip.restore("booked"),
    "delete_checkpoint": lambda store, trip: trip.delete_checkpoint("booked"),
    "rewind": lambda store, trip: trip.rewind(turns=2),
    "branch": lambda store, trip: trip.branch().id,
    "end": lambda store, trip: trip.end(),
    "start_session": lambda store, trip: store.start_session().id,
    "start a named session": lambda store, trip: store.start_session("boat").id,
    "session": lambda store, trip: store.session().id,
    "switch": lambda store, trip: store.switch(reason="reset", session=trip).id,
    "switch in place": lambda store, trip: store.switch(reason="rewind", session=trip, turns=1).id,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_retry_with_the_key_of_its_request_writes_nothing(store, trip, write):
    """It returns what the first try returned, at once and after other events."""
    with request_key("r1"):
        first = write(store, trip)
    for between in (False, True):
        if between:
            store.session("other").record("user", "meanwhile")
            if not trip.at(store.head().position).ended:
                trip.record("user", "meanwhile, here")
        with nothing_written(store), request_key("r1"):
            assert write(store, trip) == first


def test_another_key_is_another_write(store, trip):
    """Two notes of the same words, wanted twice, are two notes."""
    for key in ("r1", "r2", "r2"):
        with request_key(key):
            trip.note("again")
    assert trip.notes() == ["window seat", "again", "again"]


def test_a_key_of_ones_own_comes_before_that_of_the_request(store, trip):
    """A turn keeps the key that its caller gave."""
    with request_key("r1"):
        assert trip.record("user", "four", key="mine").key == "mine"
        with pytest.raises(errors.DuplicateKey):
            trip.record("user", "five", key="mine")


def test_a_refused_write_takes_no_key(store, trip):
    """The same request may succeed later."""
    with request_key("r1"), pytest.raises(errors.CheckpointExists):
        trip.checkpoint("booked")
    trip.delete_checkpoint("booked")
    with request_key("r1"):
        assert trip.checkpoint("booked").name == "booked"


def test_a_retry_retracts_no_fact_that_came_later(store, trip):
    """It answers how many the first try retracted."""

    def undo(key):
        with request_key(key):
            return store.retract_facts(maker="extractor/1", reason="bad prompt")

    for n in range(3):
        trip.assert_fact(f"k/{n}", n, maker="extractor/1")
    assert undo("r1") == 3
    later, head = trip.assert_fact("k/4", 4, maker="extractor/1"), store.head()
    assert (undo("r1"), store.head()) == (3, head)
    assert undo("r2") == 4
    assert store.fact_history("k/4", scope="")[0].retracted > later.position


@pytest.mark.parametrize("name", ["set", "set_task", "note", "checkpoint"])
def test_a_retry_of_what_was_forgotten_is_refused(store, trip, name):
    """It would be written again."""
    with request_key("r1"):
        WRITES[name](store, trip)
    store.forget(session=trip)
    with request_key("r1"), pytest.raises(errors.ContentForgotten):
        WRITES[name](store, trip)
