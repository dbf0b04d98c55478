"""The import of an encrypted export, with the keys of the log."""

import pytest

from mnemolog import InvalidInput, MemoryStore, import_log

pytestmark = pytest.mark.local


@pytest.fixture
def exported(store, tmp_path):
    """The export of a store with two sessions, one of them without turns, and a forgotten turn."""
    first = store.start_session("a", title="the harbour")
    for text in ("I moved to Lisbon in March.", "Olá, Inês! ☕", "This is to be forgotten."):
        first.record("user", text)
    store.forget(positions=[first.turns()[-1].position])
    store.start_session("b", title="nothing was said here").set("city", {"name": "Lisbon"})
    store.audit.export(tmp_path / "log.jsonl")
    return tmp_path / "log.jsonl"


def test_an_import_with_the_keys_of_the_source_answers(store, exported, tmp_path, run):
    """From the store itself, which is open, or from a copy of its keys; by the library and by the command."""
    store.backup(tmp_path / "backup", keys=tmp_path / "keys")
    for number, keys in enumerate((store.path, tmp_path / "keys")):
        copy = tmp_path / f"copy{number}"
        done = import_log(exported, copy, keys=keys)
        assert (done.needs_keys, done.head) == (False, store.head())
        assert sorted(path.name for path in copy.iterdir()) == ["keys.db", "log.db"]
        with MemoryStore.open(copy, model=None, create=False) as again:
            assert again.verify(contents=True).sound
            assert again.replay() == store.replay()
            assert again.session("b").get("city") == {"name": "Lisbon"}
            wanted = store.recall("Lisbon", mode="text").hits[0]
            assert again.recall("Lisbon", mode="text").hits[0].text == wanted.text
    assert not run("import", tmp_path / "copy2", exported, "--keys", store.path, "--json").json["needs_keys"]


def test_wrong_keys_are_refused_and_leave_nothing_behind(store, exported, tmp_path, run):
    """Of another log, damaged, too old, missing; the message names the folder."""
    other = tmp_path / "other"
    MemoryStore.open(other, model=None, background=False).close()
    damaged, old, none = tmp_path / "damaged", tmp_path / "old", tmp_path / "none"
    for folder in (damaged, none):
        folder.mkdir()
    (damaged / "keys.db").write_bytes(b"no database at all")
    store.backup(tmp_path / "backup", keys=old)
    store.start_session("later").record("user", "this takes another key")
    store.audit.export(tmp_path / "later.jsonl")
    before = sorted(path.name for path in tmp_path.iterdir())
    for keys, export in ((other, exported), (damaged, exported), (none, exported), (old, tmp_path / "later.jsonl")):
        with pytest.raises(InvalidInput, match=str(keys)):
            import_log(export, tmp_path / "copy", keys=keys)
        assert run("import", tmp_path / "copy", export, "--keys", keys).returncode == 2
        assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert "with `--keys FOLDER`" in run("import", tmp_path / "copy", exported).stdout


def test_keys_are_refused_where_there_are_none_to_give(store, exported, tmp_path, run):
    """For a log in clear text, and for conversations."""
    with MemoryStore.open(tmp_path / "plain", model=None, background=False, encrypt=False) as plain:
        plain.session("a").record("user", "hello")
        plain.audit.export(tmp_path / "plain.jsonl")
    with pytest.raises(InvalidInput, match="not encrypted"):
        import_log(tmp_path / "plain.jsonl", tmp_path / "copy", keys=store.path)
    (tmp_path / "said.jsonl").write_text('{"session": "s", "role": "user", "text": "hello"}\n')
    ran = run("import", tmp_path / "copy", tmp_path / "said.jsonl", "--keys", store.path).exited(2)
    assert "--keys needs an exported log" in ran.stderr
    assert not (tmp_path / "copy").exists()
