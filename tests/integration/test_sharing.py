"""Stores shared within a process: one for all who ask alike, closed with the last of them."""

import os

import pytest

from mnemolog import MemoryStore, NotAStore, StoreClosed
from mnemolog.adapters.support.outbox import acquire, release
from tests.children.forking import in_child
from tests.support import HashEncoder, in_thread, shared_stores


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Of any test."""
    assert shared_stores() == 0
    yield
    assert shared_stores() == 0


def test_callers_with_equal_options_share_a_store_until_the_last_releases_it(folder):
    """A relative path is the same folder."""
    encoder = HashEncoder()
    first = acquire(folder, model=encoder, background=False)
    second = acquire(os.path.relpath(folder), background=False, model=encoder)
    assert first is second
    release(first)
    assert second.head().position == 0
    release(second)
    with pytest.raises(StoreClosed):
        second.head()


def test_callers_with_other_options_get_another_store(folder):
    """Another model is another store, and so is another folder."""
    models = None, HashEncoder(), HashEncoder()
    stores = [acquire(folder, model=model, background=False) for model in models]
    stores.append(acquire(folder.with_name("other"), model=None, background=False))
    assert len({id(store) for store in stores}) == shared_stores() == 4
    for store in stores:
        release(store)


def test_one_that_is_broken_is_closed_for_all_and_the_next_has_another(folder):
    """Those who have it still may release it as well."""
    first, second = (acquire(folder, model=None, background=False) for _ in range(2))
    release(first, broken=True)
    with pytest.raises(StoreClosed):
        second.head()
    third = acquire(folder, model=None, background=False)
    assert third is not first
    release(second, broken=True)
    assert third.head().position == 0
    release(third)


def test_one_that_is_not_shared_is_closed(folder):
    """Whoever releases needs not know."""
    store = MemoryStore.open(folder, model=None, background=False)
    release(store)
    with pytest.raises(StoreClosed):
        store.head()


def test_a_store_that_cannot_be_opened_is_not_kept(folder):
    """The next tries again."""
    folder.mkdir()
    (folder / "other.txt").write_text("not a store")
    with pytest.raises(NotAStore):
        acquire(folder, model=None)
    (folder / "other.txt").unlink()
    release(acquire(folder, model=None, background=False))


def test_threads_that_ask_at_the_same_time_have_one_store(folder):
    """Opened once."""
    threads = [in_thread(lambda: acquire(folder, model=None, background=False)) for _ in range(8)]
    stores = [thread.result() for thread in threads]
    assert len({id(store) for store in stores}) == 1
    for store in stores:
        release(store)


def test_a_forked_child_has_none_of_them(folder):
    """It opens its own."""
    store = acquire(folder, model=None, background=False)

    def child():
        own = acquire(folder, model=None, background=False)
        own.start_session("child")
        release(own)
        return shared_stores()

    assert in_child(child) == 0
    assert [session.session for session in store.sessions()] == ["child"]
    release(store)
