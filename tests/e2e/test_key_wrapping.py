"""A key for the content keys: beside the log they open nothing by themselves."""

import secrets
import shutil

import pytest

from mnemolog import MemoryStore, errors, restore_backup
from mnemolog.adapters.support.store_access import log_of
from mnemolog.infra.keys.keyring import VARIABLE, id_of
from mnemolog.infra.log.postgres.address import known_identity
from mnemolog.operations.copies import wrap_keys
from tests.postgres import connect, put_log_in_postgres

pytestmark = pytest.mark.local


@pytest.fixture
def key_file(tmp_path, monkeypatch):
    """A key file that the environment names."""
    path = tmp_path / "elsewhere.key"
    path.write_text(secrets.token_hex(32) + "\n")
    monkeypatch.setenv(VARIABLE, str(path))
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def filled(folder, request):
    """The folder of a store with two turns in a session, its keys in either database."""
    if request.param == "postgres":
        put_log_in_postgres(folder, url := request.getfixturevalue("postgres_url"))
        with connect(url) as driver:  # As an earlier version made it.
            driver.execute("ALTER TABLE mnemolog_keys.meta DROP COLUMN IF EXISTS wrapped_with")
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("trip")
        session.record("user", "The ferry leaves at noon.")
        session.record("user", "My passport number is 123.")
    return folder


def texts(folder):
    with MemoryStore.open(folder, model=None) as store:
        assert store.verify(contents=True).sound
        return [turn.text for turn in store.turns("trip")]


def rows_of_keys(folder, request):
    """The material and the secret as they are stored."""
    if (folder / "keys.db").exists():
        log = log_of(store := MemoryStore.open(folder, model=None, read_only=True))
        with log.keyring.engine._driver() as driver:
            rows = driver.execute("SELECT material FROM nodes UNION ALL SELECT secret FROM keys_meta").fetchall()
        store.close()
    else:
        with connect(request.getfixturevalue("postgres_url")) as driver:
            of = "WHERE log_id = %s"
            query = f"SELECT material FROM mnemolog_keys.nodes {of} UNION SELECT secret FROM mnemolog_keys.meta {of}"
            rows = driver.execute(query, (known_identity(folder).log_id,) * 2).fetchall()
    return {bytes(row[0]) for row in rows}


def test_wrapped_keys_open_nothing_without_the_key_file(filled, key_file, monkeypatch, request):
    """Neither a word of content, nor can anything be recorded; with the key all is as before."""
    clear = rows_of_keys(filled, request)
    report = wrap_keys(filled)
    assert (report.before, report.wiped, report.key_file) == (None, True, (report.wrapped_with,))
    wrapped = rows_of_keys(filled, request)
    assert {len(row) for row in wrapped} == {40}
    assert not [row for row in clear if any(row in other for other in wrapped)]
    if (filled / "keys.db").exists():
        assert not [row for row in clear if row in b"".join(path.read_bytes() for path in filled.glob("keys.db*"))]
    assert texts(filled) == ["The ferry leaves at noon.", "My passport number is 123."]
    monkeypatch.delenv(VARIABLE)
    with MemoryStore.open(filled, model=None) as store, pytest.raises(errors.KeysMissing, match="no key file is named"):
        store.record("trip", "user", "more")


def test_every_command_says_which_key_is_needed_and_which_was_given(filled, run, key_file, tmp_path):
    """That is no damage: the key file of then is missing. A key that fits and opens nothing is damage."""
    needed = wrap_keys(filled).wrapped_with
    with MemoryStore.open(filled, model=None) as store:
        store.backup(tmp_path / "backup", keys=tmp_path / "keys")
        store.audit.export(tmp_path / "log.jsonl")
    fitting, newer = key_file.read_text(), secrets.token_hex(32)
    key_file.write_text(newer)
    restored, given = tmp_path / "restored", id_of(bytes.fromhex(newer))
    for command in (
        ("show", filled, "trip"),
        ("record", filled, "trip", "more"),
        ("keys", filled),
        ("verify", filled),
        ("doctor", filled),
        ("backup", filled, tmp_path / "new", "--keys", tmp_path / "new-keys"),
        ("restore", tmp_path / "backup", restored, "--keys", tmp_path / "keys"),
        ("restore", tmp_path / "backup", restored, "--keys", filled),
        ("import", restored, tmp_path / "log.jsonl", "--keys", tmp_path / "keys"),
    ):
        said = "".join(run(*command).exited(3)[1:])
        assert f"wrapped with the key {needed}; the key file {key_file} has {given}" in said, command
        assert ("ive the key file that has it" in said, "amaged" in said) == (True, False), command
        assert not restored.exists()
    key_file.write_text(fitting)
    with MemoryStore.open(filled, model=None) as store, (engine := store.parts.log.keyring.engine).writing():
        engine.rewrite(lambda _: bytes(40), wrapped_with=needed)
    assert f"it is damaged: the key {needed}" in run("show", filled, "trip").exited(3).stderr


def test_new_sessions_and_what_is_forgotten_are_wrapped_too(filled, key_file, request):
    """Keys that are made later, and those that are left where one was destroyed."""
    wrap_keys(filled)
    with MemoryStore.open(filled, model=None) as store:
        store.session("later").record("user", "It rains.")
        passport = store.find("passport")[0].position
        assert store.forget(positions=[passport]).complete
    assert {len(row) for row in rows_of_keys(filled, request)} == {40}
    assert texts(filled) == ["The ferry leaves at noon."]


def test_a_key_is_replaced_while_processes_have_the_store_open(filled, key_file, request):
    """The new key comes first in the file, the old one stays until the backups that need it are gone."""
    wrap_keys(filled)
    first = key_file.read_text()
    with MemoryStore.open(filled, model=None) as store:
        store.record("trip", "user", "before")
        key_file.write_text(secrets.token_hex(32) + "\n" + first)
        store.session("between").record("user", "It is wrapped with the key of all others.")
        report = wrap_keys(filled)
        assert report.before == report.key_file[1] != report.wrapped_with == report.key_file[0]
        store.session("after").record("user", "It is wrapped with the new key.")
        assert store.verify(contents=True).sound
    key_file.write_text(key_file.read_text().splitlines()[0])
    assert texts(filled)[-1] == "before"
    assert wrap_keys(filled, clear=True).wrapped_with is None
    key_file.unlink()
    assert {len(row) for row in rows_of_keys(filled, request)} == {32}
    assert texts(filled)[-1] == "before"


def test_a_backup_of_the_keys_is_wrapped_with_the_same_key(filled, key_file, tmp_path):
    """It restores where the key is. The copy of a later key replaces that of an earlier one."""
    wrap_keys(filled)
    with MemoryStore.open(filled, model=None) as store:
        store.backup(tmp_path / "backup", keys=tmp_path / "keys")
    restore_backup(tmp_path / "backup", tmp_path / "restored", keys=tmp_path / "keys")
    assert texts(tmp_path / "restored") == texts(filled)
    key_file.write_text(secrets.token_hex(32) + "\n" + key_file.read_text())
    wrap_keys(filled)
    with MemoryStore.open(filled, model=None) as store:
        store.backup(tmp_path / "backup", keys=tmp_path / "keys", replace=True)
    key_file.write_text(key_file.read_text().splitlines()[0])
    restore_backup(tmp_path / "backup", tmp_path / "again", keys=tmp_path / "keys")
    assert texts(tmp_path / "again") == texts(filled)


def test_the_command_says_how_the_keys_are_stored(filled, key_file, run):
    """Without --wrap nothing is changed. A key file beside the keys is refused."""
    assert "in the clear" in run("keys", filled).stdout
    assert "no key file is named" in run("keys", filled, "--wrap").exited(2).stderr
    assert run("--key-file", key_file, "keys", filled, "--wrap").returncode == 0
    said = run("--key-file", key_file, "keys", filled, "--json").json
    assert said["before"] == said["key_file"][0]
    assert run("--key-file", key_file, "verify", filled).returncode == 0
    shutil.copy(key_file, filled / "beside.key")
    refused = run("--key-file", filled / "beside.key", "keys", filled, "--wrap")
    assert "in the folder of the store" in refused.stderr
    key_file.write_text("not a key")
    assert "64 hexadecimal digits" in run("--key-file", key_file, "keys", filled).stderr
