"""A preview says what the change then does, refuses what it refuses, and writes nothing."""

import pytest

from mnemolog import SessionAlreadyEnded, UnknownSession
from mnemolog.domain.errors import UnknownCheckpoint
from tests.support import append, in_thread, nothing_written, once, read_all, start, texts_of, wait_for_queue


def test_a_rehearsal_gives_the_result_and_leaves_no_trace(log):
    """Nothing is appended, and what is appended next gets the position that the rehearsal gave out."""
    log.appends.transact(start("s"))
    with nothing_written(log):
        assert log.appends.rehearse(append("s", "a", "b", keys=["k1", "k2"])) == [2, 3]
    assert log.appends.transact(append("s", "c", keys=["k1"])) == [2]


def test_a_rehearsal_raises_what_the_work_raises(log):
    """As `transact` would."""

    def work(_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        log.appends.rehearse(work)


def test_a_rehearsal_within_a_group_undoes_itself_alone(log):
    """Those before and behind it in the queue are written, at positions without a hole."""
    log.appends.transact(start("s"))
    calls = [
        lambda: log.appends.transact(append("s", "a")),
        lambda: log.appends.rehearse(append("s", "not written")),
        lambda: log.appends.transact(append("s", "b")),
    ]
    outcomes = []

    def queue_up():
        for call in calls:
            outcomes.append(in_thread(call))
            wait_for_queue(log, 1 + len(outcomes))

    log.appends.transact(once(queue_up))
    assert [outcome.result() for outcome in outcomes] == [[2], [3], [3]]
    assert texts_of(read_all(log)) == ["a", "b"]


def test_previews_write_nothing_and_say_what_follows(store):
    """The same numbers, events and changes."""
    session = store.switch("s", reason="new", title="trip")
    session.set("k", 1, ttl=10)
    session.note("one")
    checkpoint = session.checkpoint("c")
    session.set("new", None)
    session.delete("k")
    session.clear_notes()
    session.note("two")
    for n in range(3):
        session.record("user", f"turn {n}")
    before = store.head()

    preview = session.restore("c", dry_run=True)
    assert preview.checkpoint == checkpoint
    assert [(change.key, change.change, change.after) for change in preview.values] == [
        ("k", "added", 1),
        ("new", "removed", None),
    ]
    assert ([n.text for n in preview.notes_removed], [n.text for n in preview.notes_added]) == (["two"], ["one"])
    assert (preview.task_changes, preview.turns_hidden) == (False, 3)
    assert session.rewind(turns=2, dry_run=True) == 2
    planned = store.preview_switch("b", reason="branch", session="s", at=checkpoint.position)
    assert store.head() == before
    assert session.all() == {"new": None}

    store.switch("b", reason="branch", session="s", at=checkpoint.position)
    appended = [(e.position, e.stream, e.event) for e in store.events(after=before.position)]
    assert [(e.position, e.stream, e.event) for e in planned.events] == appended
    assert (planned.left, planned.parent, planned.branched_at) == ("s", "s", checkpoint.position)
    assert session.rewind(turns=2) == 2
    session.restore("c")
    assert (session.all(), session.notes(), session.turns()) == ({"k": 1}, ["one"], [])


def test_a_value_that_has_expired_does_not_come_back_in_a_preview_either(store, clock):
    """It is there neither before nor after."""
    session = store.start_session("trip")
    session.set("k", 1, ttl=10)
    session.checkpoint("c")
    session.delete("k")
    clock.advance(seconds=11)
    assert session.restore("c", dry_run=True).values == ()


def test_a_preview_refuses_what_the_change_would(store):
    """With the same errors."""
    session = store.start_session("s", title="trip")
    with pytest.raises(UnknownCheckpoint):
        session.restore("c", dry_run=True)
    with pytest.raises(UnknownSession):
        store.preview_switch("nope", reason="resume")
    session.end()
    with pytest.raises(SessionAlreadyEnded):
        session.rewind(turns=1, dry_run=True)
    with pytest.raises(SessionAlreadyEnded):
        session.restore("c", dry_run=True)
