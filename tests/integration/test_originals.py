"""Turns that keep what they were made of, and what a session sees of them as it is in the log."""

import threading
import zlib

import pytest

from mnemolog import (
    DuplicateKey,
    InvalidInput,
    LimitExceeded,
    LogDamaged,
    MemoryStore,
    NewTurn,
    SessionAlreadyEnded,
    UnknownSession,
)
from mnemolog.adapters.support.reconcile import reconcile
from mnemolog.adapters.support.store_access import sessions_of, switches_of, visible_of
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.limits import BLOB_BYTES_MAX
from mnemolog.domain.session import Original, new_turn, original_of
from mnemolog.domain.threads import Blob
from tests.support import nothing_written

FORM = "tests.bytes"


def turn(session, text, data=None, role="user"):
    original = None if data is None else Original(form=FORM, data=data)
    return NewTurn(session=session, role=role, text=text, original=original)


def texts(store, session, **how):
    return [recorded.event.text for recorded in visible_of(store).seen(session, **how)]


@pytest.mark.parametrize("data", [b"", b"\x00\xff", b"{}" * 100, bytes(range(256)) * 9_000], ids=len)
def test_an_original_comes_back_to_the_byte(data, folder):
    """Whatever it is, after the store was closed and opened again."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("s")
        store.record_many([turn("s", "said", data), turn("s", "said")])
    with MemoryStore.open(folder, model=None) as store:
        first, second = visible_of(store).seen("s")
        assert original_of(first.event) == Original(form=FORM, data=data)
        assert original_of(second.event) is None


def test_what_the_text_says_is_not_stored_twice(rng):
    """The text is the dictionary of the original."""
    text = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz 0123456789") for _ in range(20_000))
    data = f'{{"role":"user","content":"{text}"}}'.encode()
    made = new_turn(role="user", text=text, original=Original(form=FORM, data=data))
    assert len(made.original.data) < 400 < len(zlib.compress(data))
    assert original_of(made).data == data


def test_an_original_that_does_not_fit_its_turn_is_damage():
    """It is not given out as if it were whole."""
    for blob in (
        Blob(kind=FORM, data=b"none", packed=True),
        Blob(kind=FORM, data=zlib.compress(b"x")[2:-6], packed=True),
    ):
        with pytest.raises(LogDamaged):
            original_of(TurnRecorded(role="user", text="said", original=blob))


def test_what_cannot_be_an_original_is_refused_and_nothing_is_written(store):
    """Not even the turns before it."""
    store.start_session("s")
    with nothing_written(store):
        for original, error in (
            (Original(form="", data=b"x"), InvalidInput),
            (Original(form=FORM, data=bytes(BLOB_BYTES_MAX + 1)), LimitExceeded),
        ):
            with pytest.raises(error):
                store.record_many(
                    [turn("s", "said"), NewTurn(session="s", role="user", text="said", original=original)]
                )


def test_a_retry_with_another_original_is_another_turn(store):
    """A key stands for all of a turn."""
    store.start_session("s")
    once = NewTurn(session="s", role="user", text="said", key="k", original=Original(form=FORM, data=b"1"))
    first, again = store.record_many([once, once])
    assert first == again
    with pytest.raises(DuplicateKey):
        store.record_many([NewTurn(session="s", role="user", text="said", key="k")])


def test_reconcile_records_originals(store):
    """Those of new turns, as it does with everything else they have."""
    session = store.start_session("s")
    assert len(reconcile(session, [turn("s", "one", b"1"), turn("s", "two", b"2")])) == 2
    assert [original_of(found.event).data for found in visible_of(store).seen("s")] == [b"1", b"2"]


def test_the_last_turns_are_those_that_the_session_sees(store):
    """Through branches and rewinds, any number of them, in order."""
    root = store.start_session("root")
    store.record_many([turn("root", f"r{n}") for n in range(5)])
    branch = root.branch("branch", at=store.turns("root")[2].position)
    root.record("user", "later")
    store.record_many([turn("branch", f"b{n}") for n in range(4)])
    branch.rewind(turns=2)
    branch.record("user", "b4")
    branch.set("value", 1)
    seen = ["r0", "r1", "r2", "b0", "b1", "b4"]
    assert texts(store, "branch") == seen == [turn.text for turn in branch.turns()]
    for limit in range(8):
        assert texts(store, "branch", limit=limit) == seen[len(seen) - min(limit, len(seen)) :]
    assert texts(store, "root") == [*(f"r{n}" for n in range(5)), "later"]
    with pytest.raises(UnknownSession):
        visible_of(store).seen("nobody")


def test_forgotten_turns_are_not_seen_and_do_not_count(store):
    """Neither by who asks for the last ones nor by who takes one back."""
    session = store.start_session("s")
    made = store.record_many([turn("s", f"t{n}", b"x") for n in range(5)])
    store.forget(positions=[made[2].position, made[4].position])
    assert texts(store, "s", limit=2) == ["t1", "t3"]
    assert switches_of(store).take_back("s").event.text == "t3"
    assert [found.text for found in session.turns()] == ["t0", "t1"]


def test_a_turn_is_taken_back_by_one_caller_alone(store):
    """However many ask at the same time; and it is only hidden."""
    store.start_session("s")
    store.record_many([turn("s", f"t{n}") for n in range(40)])
    taken, lock = [], threading.Lock()

    def take():
        while (found := switches_of(store).take_back("s")) is not None:
            with lock:
                taken.append(found.event.text)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(f"t{n}" for n in range(40))
    assert texts(store, "s") == []
    assert len(store.turns("s")) == 40


def test_a_rewrite_is_there_as_a_whole_or_not_at_all(store):
    """Where one turn of it is refused the session sees what it saw."""
    session = store.start_session("s")
    store.record_many([turn("s", "old"), turn("s", "older")])
    with pytest.raises(UnknownSession):
        sessions_of(store).rewrite("s", [turn("s", "new"), turn("nobody", "new")])
    assert texts(store, "s") == ["old", "older"]
    sessions_of(store).rewrite("s", [turn("s", "new")])
    assert texts(store, "s") == ["new"]
    sessions_of(store).rewrite("s", [])
    assert texts(store, "s") == []
    session.end()
    with pytest.raises(SessionAlreadyEnded):
        sessions_of(store).rewrite("s", [turn("s", "new")])


def test_readers_see_a_rewrite_all_at_once(store):
    """Never what was there mixed with what has come."""
    store.start_session("s")
    store.record_many([turn("s", "0") for _ in range(3)])
    done = threading.Event()

    def rewrite():
        for number in range(1, 60):
            sessions_of(store).rewrite("s", [turn("s", str(number)) for _ in range(3)])
        done.set()

    thread = threading.Thread(target=rewrite)
    thread.start()
    last = 0
    while not done.is_set():
        seen = texts(store, "s")
        assert len(seen) == 3
        assert len(set(seen)) == 1, seen
        assert int(seen[0]) >= last
        last = int(seen[0])
    thread.join()
    assert texts(store, "s") == ["59"] * 3
