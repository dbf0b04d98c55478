"""Writes that wait for a store: in their order, once, whatever is wrong with it."""

import logging
from contextlib import closing

import pytest

from mnemolog import DuplicateKey, LimitExceeded, LogBusy, MemoryStore, NewTurn, NotAStore, UnknownSession
from mnemolog.adapters.support import outbox
from mnemolog.adapters.support.outbox import Outbox
from mnemolog.domain.errors import LogWriteFailed
from tests.children.forking import in_child
from tests.support import in_thread, open_files


@pytest.fixture
def reported():
    return []


@pytest.fixture
def box(folder, reported):
    """One for a store of its own."""
    with closing(Outbox(lambda: MemoryStore.open(folder, model=None, background=False), reported.append)) as box:
        box.put(lambda store: store.start_session("trip"))
        yield box


def saying(text):
    """A write that is safe to be called again."""
    return lambda store: store.record_many([NewTurn(session="trip", role="user", text=text, key=text)])


def said(box):
    return [turn.text for turn in box.ask(lambda store: store.turns("trip"))]


def test_what_is_put_is_written_when_that_returns(box, folder):
    """Durable, for any other process."""
    box.put(saying("one"))
    with MemoryStore.open(folder, model=None, background=False) as other:
        assert [turn.text for turn in other.turns("trip")] == ["one"]
    assert len(box) == 0


@pytest.mark.parametrize("error", [LogBusy(waited_s=5), LogWriteFailed("a failing disk")], ids=["busy", "unknown"])
def test_what_cannot_be_written_waits_and_all_that_follows_behind_it(box, reported, error):
    """And is written once, in order, also where nobody knows whether it was written."""
    failing = [error, error, None]

    def fails(store):
        if isinstance(error, LogWriteFailed):
            saying("one")(store)
        if problem := failing.pop(0):
            raise problem
        saying("one")(store)

    with pytest.raises(type(error)):
        box.put(fails)
    with pytest.raises(type(error)):
        box.put(saying("two"))
    assert len(box) == 2
    assert len(reported) == 1  # The same again is not news.
    box.put(saying("three"))
    assert said(box) == ["one", "two", "three"]


def test_an_entry_that_is_always_refused_does_not_block_later_ones(box, reported, caplog):
    """It is raised, reported with its hint, logged, and gone."""
    with caplog.at_level(logging.WARNING), pytest.raises(UnknownSession):
        box.put(lambda store: store.record("nowhere", "user", "hello"))
    assert len(box) == 0
    assert reported[0].startswith("mnemolog: it was not recorded: ")
    assert UnknownSession("nowhere").hint in reported[0]
    assert "nowhere" in caplog.text
    box.put(saying("one"))
    with pytest.raises(DuplicateKey):
        box.put(lambda store: store.record("trip", "user", "something else", key="one"))
    assert len(box) == 0
    assert said(box) == ["one"]


def test_a_store_that_cannot_be_opened_is_tried_again_with_every_call(folder, reported):
    """What is put meanwhile waits."""
    folder.mkdir()
    (folder / "other.txt").write_text("not a store")
    with closing(Outbox(lambda: MemoryStore.open(folder, model=None, background=False), reported.append)) as box:
        for name in ("one", "two"):
            with pytest.raises(NotAStore):
                box.put(lambda store, name=name: store.start_session(name))
        with pytest.raises(NotAStore):
            box.ask(MemoryStore.head)
        assert len(reported) == 1
        (folder / "other.txt").unlink()
        box.flush()
        assert [session.session for session in box.ask(MemoryStore.sessions)] == ["one", "two"]


def test_it_is_bounded(box, monkeypatch):
    """What waits stays, what is one too many is refused."""
    monkeypatch.setattr(outbox, "WAITING_MAX", 1)

    def busy(store):
        raise LogBusy(waited_s=5)

    with pytest.raises(LogBusy):
        box.put(busy)
    with pytest.raises(LimitExceeded, match="2 writes, the limit is 1"):
        box.put(saying("one"))
    assert len(box) == 1
    box._waiting.clear()


def test_a_store_that_others_have_closed_is_reopened(box):
    """For writes and for questions."""
    box.ask(MemoryStore.close)
    box.put(saying("one"))
    box.ask(MemoryStore.close)
    assert said(box) == ["one"]


def test_what_is_put_after_the_end_is_written_and_the_store_is_not_left_open(box, folder):
    """Whoever comes late is heard."""
    box.close()
    box.put(saying("late"))
    assert said(box) == ["late"]
    assert open_files(folder) == []


def test_threads_may_put_at_the_same_time(box):
    """Each write is whole."""
    threads = [in_thread(lambda name=name: [box.put(saying(f"{name} {n}")) for n in range(20)]) for name in "abc"]
    for thread in threads:
        thread.result()
    for name in "abc":
        assert [text for text in said(box) if text.startswith(name)] == [f"{name} {n}" for n in range(20)]


def test_a_forked_child_continues_with_a_store_of_its_own(box):
    """Even if another thread of the parent was writing, and has the lock."""
    box.put(saying("before"))
    with box._lock:
        in_child(lambda: in_thread(lambda: box.put(saying("in the child"))).result())
    box.put(saying("after"))
    assert said(box) == ["before", "in the child", "after"]
