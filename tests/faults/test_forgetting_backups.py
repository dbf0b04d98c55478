"""P37: a backup that is made while others forget cannot read what was forgotten before it ended."""

from functools import partial
from pathlib import Path

import pytest

from mnemolog import MemoryStore, copy_store, restore_backup
from mnemolog.infra.keys.sqlite_keys import SqliteKeys
from mnemolog.infra.log.event_log import EventLog
from mnemolog.operations import backup_files, copies
from tests.postgres import put_log_in_postgres

STEPS = (
    *((copies, name) for name in ("_write_manifest", "verify_copy", "publish_keys", "remember_backup", "publish")),
    *((backup_files, name) for name in ("check", "replace_file")),
    *((EventLog, "copy_to"), (SqliteKeys, "wipe")),
)
"""Functions that a backup calls, with keys to copy."""


def forgotten_within(store, other, sessions, monkeypatch, times, back_up):
    """Forget sessions by another handle, before and after each step. Return those, and the report."""
    left, gone = list(sessions), []

    def forget(at):
        if at:
            at.pop()
            gone.append(left.pop())
            assert other.forget(session=gone[-1]).complete

    def between(real):
        before, after = [1] * times(), [1] * times()

        def step(*given, **options):
            if given and getattr(given[0], "path", None) == store.path / "keys.db":  # A step of `forget` itself.
                return real(*given, **options)
            forget(before)
            try:
                return real(*given, **options)
            finally:
                forget(after)

        return step

    for of, name in STEPS:
        monkeypatch.setattr(of, name, between(getattr(of, name)))
    made = back_up()
    monkeypatch.undo()
    return gone, made


@pytest.mark.timeout(7_200)
@pytest.mark.promise("P37", "backups")
@pytest.mark.parametrize("where", ["a folder", "PostgreSQL"])
def test_what_is_forgotten_before_a_backup_ends_cannot_be_read_from_it(
    folder, tmp_path, monkeypatch, request, rng, tries, where
):
    """Forgotten at every step, and again when the keys are copied again; after the first backup at some of them."""
    keys = tmp_path / "keys"
    if where == "PostgreSQL":
        put_log_in_postgres(folder, request.getfixturevalue("postgres_url"))
    for number in range(tries):
        here = tmp_path / str(number)
        here.mkdir()
        sessions = [f"s{number}-{n}" for n in range(4 * len(STEPS))]
        with MemoryStore.open(folder, model=None) as store, MemoryStore.open(folder, model=None) as other:
            for session in (*sessions, "stays"):
                store.session(session).record("user", f"the quokka of {session} sleeps")
            times = partial(rng.randint, 0, 2) if number else lambda: 2
            back_up = partial(store.backup, here / "b", keys=keys)
            gone, made = forgotten_within(store, other, sessions, monkeypatch, times, back_up)
        assert number or len(gone) >= 2 * len(STEPS)
        assert [path.name for path in keys.glob("*.db")] == [Path(made.keys).name]
        restore_backup(here / "b", here / "r", keys=keys)
        with MemoryStore.open(here / "r", model=None) as again:
            there = {session for session in sessions if again.turns(session)}
            assert there == set(sessions) - set(gone)
            assert again.verify(contents=True).sound
        found = b"".join(path.read_bytes() for path in (here / "r").rglob("*") if path.is_file())
        readable = [session for session in ("stays", *gone) if f"the quokka of {session} sleeps".encode() in found]
        assert readable == ["stays"]


@pytest.mark.promise("P37", "copies and restores")
@pytest.mark.parametrize("what", ["a copy", "a restore"])
def test_what_is_forgotten_while_a_copy_is_verified_cannot_be_read_from_it(folder, tmp_path, monkeypatch, tries, what):
    """A copy of a store, and a restore with the keys of a store that is in use."""
    for number in range(tries):
        here = tmp_path / str(number)
        here.mkdir()
        gone, text = f"gone-{number}", f"the quokka of {number} sleeps"
        with MemoryStore.open(folder, model=None) as store:
            store.session(gone).record("user", text)
            store.session(f"stays-{number}").record("user", "it stays")
            store.backup(here / "b", keys=here / "keys")
            real = copies.verify_copy

            def verified(*given, real=real, store=store, gone=gone, **options):
                found = real(*given, **options)
                assert store.forget(session=gone).complete
                return found

            monkeypatch.setattr(copies, "verify_copy", verified)
            if what == "a copy":
                copy_store(folder, here / "r")
            else:
                restore_backup(here / "b", here / "r", keys=folder)
            monkeypatch.undo()
        with MemoryStore.open(here / "r", model=None) as copied:
            assert not copied.turns(gone)
            assert [turn.text for turn in copied.turns(f"stays-{number}")] == ["it stays"]
