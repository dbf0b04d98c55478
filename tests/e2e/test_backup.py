"""Backups and restores: what is in them, what is refused, and what is never left half done."""

import json
import os
import shutil
import stat
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from pysqlite3 import dbapi2

import mnemolog
from mnemolog import MemoryStore, restore_backup
from mnemolog.domain.display import Bytes
from mnemolog.forgetting.history import read_erasures
from mnemolog.infra import sqlite as copying
from mnemolog.operations import backup_files, copies
from mnemolog.operations.backup_files import last_backup
from mnemolog.projections.sql import checked_json
from tests.support import HashEncoder

pytestmark = pytest.mark.local


@pytest.fixture
def filled(folder):
    """A store with turns, views, vectors and snapshots, open."""
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        session = store.start_session("trip")
        for number in range(20):
            session.record("user", f"we saw lighthouse number {number}")
        session.checkpoint("there")
        store.recall("lighthouse")
        store.admin.catch_up_vectors()
        yield store


def material_in(keys):
    """The keys in a copy of `keys.db` that nobody has open."""
    connection = dbapi2.connect(str(keys))
    try:
        return {bytes(row[0]) for row in connection.execute("SELECT material FROM nodes")}
    finally:
        connection.close()


def below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def nothing_left(parent, *names):
    return {path.name for path in parent.iterdir()} <= set(names)


def test_a_restored_backup_is_the_store_as_it_was(filled, tmp_path):
    """What was recorded later is not in it. `backup.json` names the log; both are their owner's alone."""
    before, seen, was = filled.head(), [], os.umask(0)
    try:
        made = filled.backup(tmp_path / "b", keys=tmp_path / "keys", progress=lambda *so_far: seen.append(so_far))
    finally:
        os.umask(was)
    assert len(seen) >= 2
    assert [type(total) for _, total in seen] == [*[Bytes] * (len(seen) - 1), int]  # Copied, then verified as events.
    assert seen[:-1] == sorted(seen[:-1])
    assert seen[-1] == (made.head, made.head)
    said = json.loads((tmp_path / "b" / "backup.json").read_bytes())["manifest"]
    assert said["head"] == made.head
    assert [item["path"] for item in said["files"]] == ["log.db"]
    assert below(tmp_path / "b") == ["backup.json", "log.db"]
    for path in [tmp_path / "b", *(tmp_path / "b").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    filled.record("trip", "user", "this came later")
    restored = restore_backup(tmp_path / "b", tmp_path / "r", keys=tmp_path / "keys")
    assert (made.head, made.digest) == (restored.head, restored.digest) == (before.position, before.digest)
    assert made.notes == () == restored.notes
    with MemoryStore.open(tmp_path / "r", model=HashEncoder(), background=False) as again:
        assert again.head() == before
        found = again.recall("lighthouse number 7", mode="vector", k=1)
        assert found.hits[0].text == "we saw lighthouse number 7"
        assert again.session("trip").record("user", "on it goes").position == before.position + 1
        assert again.verify().sound
    assert nothing_left(tmp_path, "memory", "b", "keys", "r")


def test_a_backup_that_was_changed_is_refused_and_nothing_is_left(filled, tmp_path):
    """Whatever was changed; the check of the history comes on top."""
    made = filled.backup(tmp_path / "b")
    log, manifest = (tmp_path / "b" / "log.db").read_bytes(), (tmp_path / "b" / "backup.json").read_bytes()
    other_head = msgspec.structs.replace(backup_files.read_manifest(tmp_path / "b"), head=made.head + 1)
    unusable, middle = mnemolog.errors.BackupUnusable, len(log) // 2
    for name, content, wanted in (
        ("log.db", log[:middle] + bytes([log[middle] ^ 1]) + log[middle + 1 :], unusable),
        ("log.db", log[:-1], unusable),
        ("log.db", None, unusable),
        ("backup.json", manifest.replace(made.digest.encode(), made.digest[::-1].encode()), unusable),
        ("backup.json", None, unusable),
        ("backup.json", checked_json.encode(other_head), mnemolog.LogDamaged),
    ):
        shutil.copytree(tmp_path / "b", tmp_path / "changed")
        (tmp_path / "changed" / name).unlink()
        if content is not None:
            (tmp_path / "changed" / name).write_bytes(content)
        with pytest.raises(wanted) as caught:
            restore_backup(tmp_path / "changed", tmp_path / "r")
        assert caught.value.hint
        assert nothing_left(tmp_path, "memory", "b", "changed")
        shutil.rmtree(tmp_path / "changed")


def test_a_history_that_does_not_hold_is_refused(filled, tmp_path):
    """A chain that was broken before the backup was made has the checksums of a good file."""
    filled.backup(tmp_path / "b")
    log = tmp_path / "b" / "log.db"
    with closing(dbapi2.connect(str(log), isolation_level=None)) as connection:
        name, sql = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE name = 'events_refuse_update'"
        ).fetchone()
        connection.execute(f"DROP TRIGGER {name}")
        connection.execute("UPDATE events SET recorded_at = recorded_at + 1 WHERE position = 3")
        connection.execute(sql)
    files = (backup_files.described(log),)
    as_made = msgspec.structs.replace(backup_files.read_manifest(tmp_path / "b"), files=files)
    (tmp_path / "b" / "backup.json").write_bytes(checked_json.encode(as_made))
    with pytest.raises(mnemolog.LogDamaged) as caught:
        restore_backup(tmp_path / "b", tmp_path / "r")
    assert caught.value.position == 3
    assert nothing_left(tmp_path, "memory", "b")


def test_folders_that_are_not_free_are_refused_and_left_as_they_are(filled, tmp_path):
    """Targets with files in them, inside the store, or a file."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for target in (tmp_path / "full", tmp_path / "file", filled.path / "b", filled.path):
        with pytest.raises(mnemolog.errors.BackupRefused):
            filled.backup(target)
    (tmp_path / "empty").mkdir()
    filled.backup(tmp_path / "empty")
    for target in (tmp_path / "full", tmp_path / "file", filled.path):
        with pytest.raises(mnemolog.errors.BackupRefused):
            restore_backup(tmp_path / "empty", target)
    assert (tmp_path / "full" / "mine").read_text() == (tmp_path / "file").read_text() == "mine"
    assert nothing_left(tmp_path, "memory", "full", "file", "empty")
    assert filled.verify().sound


def test_an_earlier_backup_is_replaced_on_request(filled, tmp_path):
    """Once the new one is whole. One of another log never is, nor what is no backup or was changed."""
    target = tmp_path / "backup"
    filled.backup(target, replace=True)
    filled.record("trip", "user", "later")
    with pytest.raises(mnemolog.errors.BackupRefused):
        filled.backup(target)
    made = filled.backup(target, replace=True)
    assert restore_backup(target, tmp_path / "restored").head == made.head == filled.head().position
    assert nothing_left(tmp_path, "memory", "backup", "restored")
    other = MemoryStore.open(tmp_path / "other", model=None, background=False)
    with other, pytest.raises(mnemolog.errors.BackupRefused, match="of another log"):
        other.backup(target, replace=True)
    (target / "backup.json").write_text("{}")
    with pytest.raises(mnemolog.errors.BackupUnusable):
        filled.backup(target, replace=True)
    (target / "backup.json").unlink()
    with pytest.raises(mnemolog.errors.BackupRefused):
        filled.backup(target, replace=True)


def test_a_backup_that_cannot_take_its_place_leaves_the_earlier_one(filled, tmp_path, monkeypatch):
    """Whichever rename it is that fails."""
    target = tmp_path / "backup"
    before = filled.backup(target).head
    filled.record("trip", "user", "later")
    rename, calls = Path.rename, []

    def fails(path, to):
        calls.append(path)
        if len(calls) == failing:
            raise OSError(5, "a failing disk")
        return rename(path, to)

    for failing in (1, 2):
        calls.clear()
        with monkeypatch.context() as patched:
            patched.setattr(backup_files.Path, "rename", fails)
            with pytest.raises(mnemolog.errors.StoreNotWritable):
                filled.backup(target, replace=True)
        assert len(calls) >= failing
        assert restore_backup(target, tmp_path / "restored", dry_run=True).head == before
        assert nothing_left(tmp_path, "memory", "backup")


def test_the_keys_are_never_in_the_backup_and_only_the_newest_copy_is_kept(filled, tmp_path):
    """A key that was destroyed since must not live on in an older copy beside the newer one."""
    left = filled.backup(tmp_path / "b0")
    assert (left.keys, len(left.notes)) == (None, 1)
    assert "can never be read" in left.notes[0]
    one = filled.backup(tmp_path / "b1", keys=tmp_path / "keys")
    first = material_in(one.keys)
    filled.start_session("later").record("user", "this takes another key")
    two = filled.backup(tmp_path / "b2", keys=tmp_path / "keys")
    assert one.notes == two.notes == ()
    assert [path.name for path in (tmp_path / "keys").glob("*.db")] == [Path(two.keys).name]
    later = material_in(two.keys)
    assert first < later
    for name in ("b0", "b1", "b2"):
        for path in (tmp_path / name).rglob("*"):
            assert path.name != "keys.db"
            assert path.is_dir() or not any(key in path.read_bytes() for key in later)
    note = restore_backup(tmp_path / "b1", tmp_path / "r0")
    assert not note.keys
    assert note.notes
    assert not (tmp_path / "r0" / "keys.db").exists()
    assert restore_backup(tmp_path / "b1", tmp_path / "r1", keys=tmp_path / "keys").keys
    assert material_in(tmp_path / "r1" / "keys.db") == later


def test_keys_of_another_log_or_in_the_same_place_are_refused(filled, tmp_path):
    """The wrong keys would be read as: everything was forgotten."""
    for keys in (tmp_path / "b", tmp_path / "b" / "keys", tmp_path, filled.path / "keys"):
        with pytest.raises(mnemolog.errors.BackupRefused):
            filled.backup(tmp_path / "b", keys=keys)
    filled.backup(tmp_path / "b", keys=tmp_path / "keys")
    with MemoryStore.open(tmp_path / "other", model=None) as other:
        with pytest.raises(mnemolog.errors.BackupRefused):
            other.backup(tmp_path / "b2", keys=tmp_path / "keys")
        other.backup(tmp_path / "b2", keys=tmp_path / "keys2")
    with pytest.raises(mnemolog.errors.BackupUnusable):
        restore_backup(tmp_path / "b", tmp_path / "r", keys=tmp_path / "keys2")
    with pytest.raises(mnemolog.errors.BackupUnusable):
        restore_backup(tmp_path / "b", tmp_path / "r", keys=tmp_path / "nothing")
    assert nothing_left(tmp_path, "memory", "b", "keys", "other", "b2", "keys2")


@pytest.mark.log_file
def test_a_backup_that_fails_anywhere_leaves_no_backup(filled, tmp_path, monkeypatch):
    """At the log, at the keys."""
    real, calls = copying.copy_database, []

    def failing(fail_at):
        calls.clear()

        def copy(source, target, **options):
            calls.append(source.name)
            if len(calls) == fail_at:
                raise mnemolog.StorageFull(target)
            real(source, target, **options)

        monkeypatch.setattr(copying, "copy_database", copy)

    for number in (1, 2):
        failing(number)
        with pytest.raises(mnemolog.StorageFull):
            filled.backup(tmp_path / "b", keys=tmp_path / "keys")
        assert not (tmp_path / "b").exists()
        assert nothing_left(tmp_path, "memory", "keys")
    assert calls == ["log.db", "keys.db"]  # Behind it: no key that it needs is missing.


def test_a_restore_that_fails_anywhere_leaves_no_store(filled, tmp_path, monkeypatch):
    """Seen by who looks at the folder: nothing, or everything."""
    filled.backup(tmp_path / "b")

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    for name in ("counting", "_verify"):
        with monkeypatch.context() as patched:
            patched.setattr(copies, name, fail)
            with pytest.raises(mnemolog.StorageFull):
                restore_backup(tmp_path / "b", tmp_path / "r")
        assert nothing_left(tmp_path, "memory", "b")


@pytest.mark.log_file
def test_commits_of_others_do_not_make_a_copy_begin_again(filled, tmp_path, monkeypatch):
    """One commit between any two steps: the copy is of the moment it began, and it ends."""
    monkeypatch.setattr(copying, "PAGES_PER_STEP", 1)
    steps, before = [], filled.head().position

    def commit(_):
        steps.append(filled.record("trip", "user", "meanwhile").position)
        assert len(steps) < 1_000

    copying.copy_database(filled.path / "log.db", tmp_path / "copy.db", moved=commit)
    assert len(steps) > 3
    with closing(dbapi2.connect(str(tmp_path / "copy.db"))) as copied:
        assert copied.execute("SELECT max(position) FROM events").fetchone() == (before,)


def test_the_command_line_backs_up_and_restores(filled, tmp_path, run):
    """JSON on request, a refusal with exit status 1, a damaged history with 3."""
    assert run("backup", filled.path, tmp_path / "b", "--json").json["head"] == filled.head().position
    again = run("backup", filled.path, tmp_path / "b")
    assert (again.returncode, "an earlier backup" in again.stderr, "--replace" in again.stderr) == (1, True, True)
    assert "would restore" in run("restore", tmp_path / "b", tmp_path / "r", "--dry-run").exited().stdout
    assert nothing_left(tmp_path, "memory", "b")
    assert run("restore", tmp_path / "b", tmp_path / "r", "--json").json["digest"] == filled.head().digest
    with MemoryStore.open(tmp_path / "r", model=None) as store:
        assert store.verify().sound


def test_what_was_forgotten_since_is_forgotten_in_what_is_restored(tmp_path, run):
    """From a backup, and keys, that are older than the forgetting: nothing of it is in any file."""
    with MemoryStore.open(tmp_path / "store", model=None) as store:
        store.start_session("s1", title="trip", agent="ada").record("user", "the zebra is to be forgotten")
        store.start_session("s2", title="other", agent="ada").record("user", "this stays")
        store.backup(tmp_path / "backup", keys=tmp_path / "keys")
        store.forget(session="s1", reason="asked for")
    told = run("forgotten", tmp_path / "store", "--erasures")
    (tmp_path / "erasures.json").write_text(told.stdout)
    options = ("--keys", tmp_path / "keys", "--erasures", tmp_path / "erasures.json")
    assert run("restore", tmp_path / "backup", tmp_path / "back", *options, "--json").json["erasures"] == 1
    files = [path for path in (tmp_path / "back").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"zebra" in path.read_bytes()]
    with MemoryStore.open(tmp_path / "back", model=None) as again:
        assert again.verify().sound
        assert [turn.text for turn in again.turns("s2")] == ["this stays"]
        assert again.turns("s1") == []
    without = run("restore", tmp_path / "backup", tmp_path / "no", "--erasures", tmp_path / "erasures.json")
    assert (without.returncode, (tmp_path / "no").exists()) == (2, False)
    (tmp_path / "erasures.json").write_text("no json")
    assert "does not hold erasures" in run("restore", tmp_path / "backup", tmp_path / "no", *options).exited(2).stderr
    assert not (tmp_path / "no").exists()


def test_a_token_that_was_revoked_since_the_backup_stays_revoked(tmp_path, run):
    """With the erasures; else the restore names the tokens that are valid again, and revokes them on request.

    Also for a store without encryption, and by a file of erasures as it was before tokens were in it.
    """
    for name, encrypt in (("sealed", True), ("plain", False)):
        here = tmp_path / name
        with MemoryStore.open(here / "store", model=None, encrypt=encrypt) as store:
            store.session("trip").record("user", "this stays")
            kept, stolen = (store.admin.create_token(actor).token for actor in ("alice", "mallory"))
            store.backup(here / "backup", keys=here / "keys" if encrypt else None)
            store.admin.revoke_token(stolen.id)
            late = store.admin.create_token("late").token.id
            store.admin.revoke_token(late)
            told = store.audit.erasures()
        assert [(item.token, item.targets) for item in told] == [(stolen.id, ()), (late, ())]
        (here / "erasures.json").write_text(run("forgotten", here / "store", "--erasures").stdout)
        assert read_erasures(here / "erasures.json") == told
        keys = ("--keys", here / "keys") if encrypt else ()
        for number, (given, valid, revoked) in enumerate(
            (
                ((), [kept, stolen], 0),
                (("--erasures", here / "erasures.json"), [kept], 1),
                (("--revoke-tokens",), [], 2),
                (("--revoke-tokens", "--erasures", here / "erasures.json"), [], 2),
            )
        ):
            place = here / f"r{number}"
            shown = run("restore", here / "backup", place, *keys, *given, "--dry-run")
            assert all(f"valid: token {token.id} of {token.actor}" in shown.stdout for token in valid), shown.stdout
            assert ("valid again" in shown.stdout) == (given == ())
            said = run("restore", here / "backup", place, *keys, *given, "--json").json
            assert ([token["id"] for token in said["tokens"]], said["revoked"]) == ([t.id for t in valid], revoked)
            with MemoryStore.open(place, model=None) as again:
                assert [token.id for token in again.admin.tokens() if not token.revoked_at] == [t.id for t in valid]
                assert again.verify().sound
                if not given:
                    assert again.admin.reapply_erasures(told).revoked == 1
    earlier = json.dumps([{"request": "1", "requested_at": "2026-03-16T09:30:00Z", "reason": "", "targets": []}])
    (tmp_path / "earlier.json").write_text(earlier)
    assert [(item.request, item.token) for item in read_erasures(tmp_path / "earlier.json")] == [("1", "")]


def test_a_store_knows_its_newest_backup_that_is_still_there(filled, tmp_path):
    """So that the message about a damaged log can name the backup to restore. It knows of ten, of each once."""
    assert last_backup(filled.path) is None
    first = filled.backup(tmp_path / "first", keys=tmp_path / "keys")
    known = last_backup(filled.path)
    assert (known.path, known.keys) == (str(tmp_path / "first"), str(tmp_path / "keys"))
    assert (known.head.position, known.head.digest, known.created_at) == (first.head, first.digest, first.created_at)
    filled.backup(tmp_path / "drill")
    assert last_backup(filled.path).path == str(tmp_path / "drill")
    assert last_backup(filled.path).keys is None
    shutil.rmtree(tmp_path / "drill")
    assert last_backup(filled.path) == known
    shutil.rmtree(tmp_path / "first")
    assert last_backup(filled.path) is None
    for number in range(12):
        filled.backup(tmp_path / f"b{number}")
    filled.backup(tmp_path / "b7", replace=True)
    paths = [item["path"] for item in json.loads((filled.path / "backups.json").read_bytes())["manifest"]]
    assert [Path(path).name for path in paths] == ["b7", "b11", "b10", "b9", "b8", "b6", "b5", "b4", "b3", "b2"]


def test_a_damaged_note_of_backups_knows_of_none_and_the_next_backup_writes_it_again(filled, tmp_path):
    """It is a note and no part of the store: a backup is also made where none can be written."""
    note = filled.path / "backups.json"
    for number, content in enumerate((b"", b"{}", b'{"sha256": "0", "manifest": []}', b"\xff" * 2_000_000, None)):
        if content is not None:
            note.write_bytes(content)
        assert last_backup(filled.path) is None
        filled.backup(tmp_path / f"b{number}")
        assert last_backup(filled.path).path == str(tmp_path / f"b{number}")
        note.unlink()
    note.mkdir()
    filled.backup(tmp_path / "b")
    assert (tmp_path / "b" / "backup.json").exists()
    assert last_backup(filled.path) is None


WORDS = (
    *("Quokkaturn", "wombattitle", "echidnavalue", "numbatnote"),
    *("bilbymeta", "possumtask", "dingocheck", "kowariquery"),
)
"""One word for each place that content can be in."""


def hits_below(folder, words=WORDS):
    """The files below a folder that hold one of the words, in UTF-8 or UTF-16, as written or as a token."""
    forms = [form for word in words for form in (word, word.lower(), word.upper())]
    wanted = {form.encode(encoding) for form in forms for encoding in ("utf-8", "utf-16-le", "utf-16-be")}
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.relative_to(folder).as_posix() for path in files if any(word in path.read_bytes() for word in wanted)]


def test_a_backup_holds_no_clear_text_and_answers_everything_with_its_keys_only(filled, tmp_path):
    """Whoever has only the folder reads nothing of what was said. Projections are rebuilt."""
    handle = filled.start_session("private", title="wombattitle")
    for number in range(5):
        handle.record("user", f"Quokkaturn number {number}", speaker="wombattitle", metadata={"m": "bilbymeta"})
    handle.set("key", "echidnavalue")
    handle.note("numbatnote")
    handle.set_task("possumtask")
    handle.checkpoint("dingocheck")
    filled.recall("kowariquery Quokkaturn", session="private", receipt=True)
    filled.admin.catch_up_vectors()
    assert hits_below(filled.path)
    made = filled.backup(tmp_path / "b", keys=tmp_path / "keys")
    assert hits_below(tmp_path / "b") == []
    assert below(tmp_path / "b") == ["backup.json", "log.db"]
    assert restore_backup(tmp_path / "b", tmp_path / "closed").notes
    with MemoryStore.open(tmp_path / "closed", model=None, background=False) as restored:
        assert restored.verify().sound
        assert restored.status().head == made.head
        with pytest.raises(mnemolog.errors.KeysMissing):
            restored.recall("Quokkaturn")
    assert hits_below(tmp_path / "closed") == []
    restore_backup(tmp_path / "b", tmp_path / "r", keys=tmp_path / "keys")
    with MemoryStore.open(tmp_path / "r", model=HashEncoder(), background=False) as restored:
        assert restored.verify(contents=True).sound
        assert restored.status().views.state in ("missing", "current")
        assert [hit.text for hit in restored.recall("Quokkaturn number 3", k=1).hits] == ["Quokkaturn number 3"]
        restored.admin.catch_up_vectors()
        assert restored.status().warnings == ()
        assert restored.recall("lighthouse number 7", mode="vector", k=1).hits[0].text == "we saw lighthouse number 7"


def contents_of(*folders):
    """The bytes of every file below folders."""
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def damage_log(store):
    data = bytearray((store / "log.db").read_bytes())
    data[2 * 4_096 : 3 * 4_096] = bytes(4_096)
    (store / "log.db").write_bytes(data)


def damage_state(store):
    """A flipped bit within what was said: every page is sound to SQLite."""
    path = store / "log.db"
    with closing(dbapi2.connect(str(path))) as connection:
        state = bytes(connection.execute("SELECT state FROM events WHERE position = 5").fetchone()[0])
    data = bytearray(path.read_bytes())
    data[data.index(state) + len(state) - 1] ^= 1
    path.write_bytes(data)


def damage_key(store):
    """A flipped bit within a key: every page is sound to SQLite."""
    path = store / "keys.db"
    data = bytearray(path.read_bytes())
    for material in material_in(path):
        data[data.index(material)] ^= 1
    path.write_bytes(data)


def damage_secret(store):
    path = store / "keys.db"
    with closing(dbapi2.connect(str(path))) as connection:
        secret = bytes(connection.execute("SELECT secret FROM keys_meta").fetchone()[0])
    path.write_bytes(path.read_bytes().replace(secret, secret[::-1]))


def damage_keys_file(store):
    (store / "keys.db").write_bytes(b"no database at all")


def put_keys_of_another_log(store):
    MemoryStore.open(store.with_name("other"), model=None, background=False).close()
    shutil.copy(store.with_name("other") / "keys.db", store / "keys.db")
    shutil.rmtree(store.with_name("other"))


def cut_the_tail(store):
    """The last event, as if it had never been: nothing within the file tells."""
    with closing(dbapi2.connect(str(store / "log.db"), isolation_level=None)) as connection:
        name, sql = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE name = 'events_refuse_delete'"
        ).fetchone()
        connection.execute(f"DROP TRIGGER {name}")
        connection.execute("DELETE FROM events WHERE position = (SELECT max(position) FROM events)")
        connection.execute("UPDATE sqlite_sequence SET seq = (SELECT max(position) FROM events)")
        connection.execute(sql)


@pytest.mark.log_file
@pytest.mark.parametrize(
    "damage",
    [damage_log, damage_state, damage_key, damage_secret, damage_keys_file, put_keys_of_another_log, cut_the_tail],
)
def test_a_backup_never_replaces_a_good_one_by_a_bad_one_and_a_bad_copy_never_becomes_a_backup(
    filled, tmp_path, run, damage
):
    """Nor a good copy of the keys by a bad one: exit status 3, and both are as they were. Nothing half made is left."""
    filled.backup(tmp_path / "b", keys=tmp_path / "keys")
    filled.close()
    before = contents_of(tmp_path / "b", tmp_path / "keys")
    damage(filled.path)
    with MemoryStore.open(filled.path, model=None, create=False, background=False) as damaged:
        with pytest.raises(mnemolog.LogDamaged):
            damaged.backup(tmp_path / "b", keys=tmp_path / "keys", replace=True)
        for keys in (tmp_path / "other keys", None) if damage is not damage_secret else ():
            with pytest.raises(mnemolog.LogDamaged, match="lost event" if damage is cut_the_tail else None):
                damaged.backup(tmp_path / "b2", keys=keys)
        assert damage is not cut_the_tail or not damaged.verify().sound
    run("backup", filled.path, tmp_path / "b", "--keys", tmp_path / "keys", "--replace").exited(3)
    assert contents_of(tmp_path / "b", tmp_path / "keys") == before
    assert nothing_left(tmp_path, "memory", "b", "keys", "other keys")
    assert below(tmp_path / "other keys") == []
    restore_backup(tmp_path / "b", tmp_path / "r", keys=tmp_path / "keys")


@pytest.mark.log_file
def test_a_store_that_lost_its_keys_is_backed_up_without_them_only(filled, tmp_path):
    """The log is worth keeping: a copy of the keys may be found."""
    filled.backup(tmp_path / "b", keys=tmp_path / "keys")
    filled.close()
    (filled.path / "keys.db").unlink()
    with MemoryStore.open(filled.path, model=None, create=False, background=False) as store:
        with pytest.raises(mnemolog.LogDamaged, match="keys"):
            store.backup(tmp_path / "b", keys=tmp_path / "keys", replace=True)
        made = store.backup(tmp_path / "b2")
        assert "can never be read" in made.notes[0]
    assert backup_files.read_manifest(tmp_path / "b2").needs_keys
    restore_backup(tmp_path / "b2", tmp_path / "r", keys=tmp_path / "keys")


def test_older_keys_do_not_replace_a_copy_that_another_backup_needs(filled, tmp_path):
    """A store restored with older keys lacks those of later sessions."""
    filled.backup(tmp_path / "early", keys=tmp_path / "keys")
    shutil.copytree(tmp_path / "keys", tmp_path / "early keys")
    filled.start_session("later").record("user", "this takes another key")
    filled.backup(tmp_path / "late", keys=tmp_path / "keys")
    restore_backup(tmp_path / "early", tmp_path / "old", keys=tmp_path / "early keys")
    with MemoryStore.open(tmp_path / "old", model=None, background=False) as old:
        with pytest.raises(mnemolog.LogDamaged, match="name another folder"):
            old.backup(tmp_path / "b", keys=tmp_path / "keys")
        old.backup(tmp_path / "b", keys=tmp_path / "other keys")
    restore_backup(tmp_path / "late", tmp_path / "r", keys=tmp_path / "keys")


def test_a_restore_opens_the_content_with_the_keys(filled, tmp_path):
    """Keys that lack a later session are found before the store gets its name."""
    filled.backup(tmp_path / "early", keys=tmp_path / "early keys")
    filled.start_session("later", title="a title of its own")
    filled.backup(tmp_path / "late", keys=tmp_path / "keys")
    with pytest.raises(mnemolog.LogDamaged, match="nothing was restored"):
        restore_backup(tmp_path / "late", tmp_path / "r", keys=tmp_path / "early keys")
    assert not (tmp_path / "r").exists()
    assert restore_backup(tmp_path / "late", tmp_path / "r", keys=tmp_path / "keys").notes == ()


def test_an_event_that_cannot_be_decoded_is_backed_up_and_restored_as_it_was_recorded(filled, tmp_path):
    """Its digest proves the copy: a store that works can be backed up."""
    filled.parts.log.appends.transact(lambda tx: tx.append_stored("session/other", "turn.recorded.v99", b"\x80"))
    assert not filled.verify().sound
    filled.backup(tmp_path / "b", keys=tmp_path / "keys")
    assert restore_backup(tmp_path / "b", tmp_path / "r", keys=tmp_path / "keys").head == filled.head().position


def test_a_copy_of_keys_that_a_killed_backup_left_is_deleted_by_the_next(filled, tmp_path):
    """It would keep content readable that is forgotten later. That of a running backup stays."""
    filled.backup(tmp_path / "b", keys=tmp_path / "keys")
    left, running = (
        tmp_path / "keys" / f".keys.{2**22 + 1}.0011aabb",
        tmp_path / "keys" / f".keys.{os.getpid()}.0011aabb",
    )
    for path in (left, running):
        path.write_bytes(b"a copy of keys")
    filled.backup(tmp_path / "b", keys=tmp_path / "keys", replace=True)
    assert (left.exists(), running.exists()) == (False, True)


@pytest.mark.log_file
def test_a_backup_with_damaged_keys_says_how_to_put_the_newest_copy_back(filled, tmp_path, run):
    """Also where the newest backup was made without keys."""
    copied = filled.backup(tmp_path / "b", keys=tmp_path / "keys")
    filled.backup(tmp_path / "b2")
    filled.close()
    damage_keys_file(filled.path)
    said = run("backup", filled.path, tmp_path / "b3")
    assert (said.returncode, "no backup was made" in said.stderr) == (3, True)
    assert f"cp {copied.keys} " in said.stderr
