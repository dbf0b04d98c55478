"""The checksum over views that nobody has open: every byte counts, and only what was closed is judged."""

import shutil
from contextlib import suppress

import numpy as np
import pytest

from mnemolog import MemoryStore, NewTurn
from mnemolog.projections.sql import database as sealing
from mnemolog.projections.sql.conversation_views import TURNS
from tests.support import HashEncoder, projections_of

FLIPS = 300


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a store with a few hundred turns, closed; and what it answers."""
    folder = tmp_path_factory.mktemp("made") / "memory"
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        session = store.start_session("s", scope="acme")
        for n in range(0, 300, 50):
            texts = [f"the ferry number{m} leaves at {m % 24} o'clock" for m in range(n, n + 50)]
            session.record_many([NewTurn(session=session, role="user", text=text) for text in texts])
        store.admin.catch_up_vectors()
        return folder, answers(store)


@pytest.fixture
def closed(made, tmp_path):
    """A copy of that store, and what it answers."""
    folder, told = made
    return shutil.copytree(folder, tmp_path / "memory"), told


def answers(store):
    return (
        store.recall("number7 ferry", mode="text", k=20).hits,
        store.recall("number3", k=20).hits,
        store.sessions(),
    )


def views_of(folder):
    return folder / "projections" / "views.db"


def test_no_flipped_bit_of_closed_views_changes_an_answer(closed, tmp_path):
    """SQLite would see some, answer wrongly with others, and never notice most."""
    folder, told = closed
    random, size = np.random.default_rng(11), views_of(folder).stat().st_size
    pristine = views_of(folder).read_bytes()
    for at, bit in random.integers((size, 8), size=(FLIPS, 2)).tolist():
        data = bytearray(pristine)
        data[at] ^= 1 << bit
        views_of(folder).write_bytes(data)
        assert sealing.why_not_as_sealed(views_of(folder)) is not None
    copy = tmp_path / "copy"
    for at in random.integers(size, size=4).tolist():
        data = bytearray(pristine)
        data[at] ^= 1
        shutil.copytree(folder, copy)
        views_of(copy).write_bytes(data)
        with MemoryStore.open(copy, model=HashEncoder(), background=False) as store:
            assert store.status().views.state == "damaged"
            assert answers(store) == told
            assert store.status().quarantine.items == 1
        assert sealing.why_not_as_sealed(views_of(copy)) is None
        shutil.rmtree(copy)


def test_views_that_are_sealed_are_opened_as_they_are(closed):
    """Also by one who changes nothing, and the seal stays."""
    folder, told = closed
    before = sealing.seal_of(views_of(folder)).read_bytes()
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        assert store.status().views.state == "current"
        assert answers(store) == told
        assert store.status().quarantine.items == 0
    assert sealing.seal_of(views_of(folder)).read_bytes() == before


def test_a_writer_breaks_the_seal_and_renews_it_at_the_end(closed):
    """Before the commit: at no moment is there a seal of other bytes."""
    folder, _ = closed
    before = sealing.seal_of(views_of(folder)).read_bytes()
    with MemoryStore.open(folder, model=None) as store:
        store.session("s").record("user", "one more")
        assert store.recall("more", mode="text").hits
        assert not sealing.seal_of(views_of(folder)).exists()
        assert store.status().views.state == "current"
    assert sealing.seal_of(views_of(folder)).read_bytes() != before
    assert sealing.why_not_as_sealed(views_of(folder)) is None


def test_a_write_that_fails_leaves_views_without_a_seal_and_not_accused(closed):
    """Nothing was committed, but that is not known to who comes after a kill."""
    folder, told = closed
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        views = projections_of(store).current_views()
        with suppress(RuntimeError), views.database.writing() as connection:
            connection.execute(TURNS.delete())
            assert not sealing.seal_of(views_of(folder)).exists()
            raise RuntimeError
        assert sealing.why_not_as_sealed(views_of(folder)) is None
        assert answers(store) == told
    assert sealing.seal_of(views_of(folder)).exists()


def test_who_closes_while_another_writes_does_not_seal(closed):
    """The other does, when it closes."""
    folder, _ = closed
    with MemoryStore.open(folder, model=None) as one:
        one.session("s").record("user", "one more")
        one.recall("more", mode="text")
        with projections_of(one).current_views().database.writing(), MemoryStore.open(folder, model=None) as two:
            assert two.recall("ferry", mode="text").hits
        assert not sealing.seal_of(views_of(folder)).exists()
    assert sealing.seal_of(views_of(folder)).exists()
    assert sealing.why_not_as_sealed(views_of(folder)) is None


def test_very_large_views_and_an_unreadable_seal_are_not_judged(closed, monkeypatch):
    """A seal only ever says that a file was whole once."""
    folder, told = closed
    sealing.seal_of(views_of(folder)).write_bytes(b"\xff")
    assert sealing.why_not_as_sealed(views_of(folder)) is None
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        assert answers(store) == told
        monkeypatch.setattr(sealing, "SEALED_BYTES_MAX", 1_000)
        store.session("s").record("user", "one more")
        assert store.recall("more", mode="text").hits
    assert not sealing.seal_of(views_of(folder)).exists()
