"""A store of another user: what may not be read or written is named in one sentence, and nothing of it is changed."""

import gc
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

import mnemolog
from mnemolog import MemoryStore
from mnemolog.cli.entry import run

pytestmark = pytest.mark.promise("P13")

OWNER, NOBODY = 12_345, 65_534
TEXTS = ["tea in Porto", "a train at nine"]


class Rights(NamedTuple):
    """What others may do with the files of a store."""

    folders: int
    files: int
    private: str = ""
    """The one path that its owner alone may open."""
    named: str = "."
    """The path that is named to who wants to read what was said; empty if nothing is in the way."""


CASES = {
    "a private folder": Rights(0o700, 0o600),
    "a folder that may be listed alone": Rights(0o744, 0o644),
    "private files": Rights(0o755, 0o600, named="log.db"),
    "a private log": Rights(0o755, 0o644, "log.db", named="log.db"),
    "private keys": Rights(0o755, 0o644, "keys.db", named="keys.db"),
    "private projections": Rights(0o755, 0o644, "projections", named="projections"),
    "private views": Rights(0o755, 0o644, "projections/views.db", named="projections/views.db"),
    "a folder that may be read": Rights(0o755, 0o644, named=""),
}
COMMANDS = {
    "status": ["status"],
    "sessions": ["sessions"],
    "record": ["record", "trip", "not allowed"],
    "backup": ["backup", "TARGET"],
    "doctor": ["doctor"],
    "export": ["export", "TARGET"],
}


def command(name, folder, target):
    """Run a command line in this process. Return its exit code."""
    first, *others = COMMANDS[name]
    try:
        return run([first, str(folder), *(str(target) if each == "TARGET" else each for each in others)])
    except SystemExit as end:
        return end.code


def contents(folder):
    """Return owner, mode and digest of everything in a folder."""
    return {
        path: (path.stat().st_uid, path.stat().st_mode, path.is_file() and hashlib.sha256(path.read_bytes()).digest())
        for path in sorted([folder, *folder.rglob("*")])
    }


@pytest.fixture(scope="module")
def of_the_owner():
    """A folder that everybody may enter, with a closed store. Commands and a recall have imported what they need."""
    base = Path(tempfile.mkdtemp())
    base.chmod(0o755)
    with MemoryStore.open(base / "memory", model=None, background=False) as store:
        for text in TEXTS:
            store.session("trip").record("user", text)
        store.rebuild()
        store.recall("tea")
    shutil.copytree(base / "memory", base / "warm")
    for name in COMMANDS:
        command(name, base / "warm", base / f"warm {name}")
    yield base
    shutil.rmtree(base)


@pytest.fixture(params=CASES)
def foreign(request, of_the_owner):
    """A store of another user, a folder to write into, and the rights; tried as who has no others."""
    rights, folder, own = CASES[request.param], of_the_owner / "foreign", of_the_owner / "own"
    shutil.copytree(of_the_owner / "memory", folder)
    own.mkdir()
    for path in sorted([folder, *folder.rglob("*")], reverse=True):
        os.chown(path, OWNER, OWNER)
        path.chmod(rights.folders if path.is_dir() else rights.files)
    if rights.private:
        (folder / rights.private).chmod(0o700 if (folder / rights.private).is_dir() else 0o600)
    os.chown(own, NOBODY, NOBODY)
    yield folder, own, rights
    shutil.rmtree(folder)
    shutil.rmtree(own)


@pytest.fixture
def as_nobody():
    """Act as a user that owns nothing."""
    gc.collect()  # Semaphores of earlier tests may only be removed by their owner.
    groups = os.getgroups()

    def act(work):
        os.setgroups([])
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        try:
            return work()
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)

    return act


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@needs_root
@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_of_another_user_is_opened_as_far_as_it_may_be_read_and_never_changed(foreign, as_nobody, read_only):
    """Through the library: one error that names the path; read-only, all of it where all may be read."""
    folder, _, rights = foreign
    before = contents(folder)

    def work():
        with MemoryStore.open(folder, model=None, background=False, read_only=read_only) as store:
            return [turn.text for turn in store.turns("trip")] + [hit.text for hit in store.recall("tea").hits]

    if read_only and not rights.named:
        assert as_nobody(work) == [*TEXTS, TEXTS[0]]
    else:
        with pytest.raises(mnemolog.errors.StoreNotWritable) as caught:
            as_nobody(work)
        says = str(caught.value)
        if rights.named and (read_only or rights.named in (".", "projections")):
            assert says == f"cannot read {folder / rights.named}: Permission denied"
        else:
            assert says == f"cannot write to {folder}: this process may not write into the folder"
            assert ("read_only=True" in caught.value.hint) == (rights.named != "log.db")
    assert contents(folder) == before


@needs_root
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_for_a_store_of_another_user_says_one_sentence_and_changes_nothing(foreign, as_nobody, capsys, name):
    """What reads answers where it may; all else is an error and a hint."""
    folder, own, rights = foreign
    before = contents(folder)
    capsys.readouterr()
    code = as_nobody(lambda: command(name, folder, own / "target"))
    said = capsys.readouterr()
    assert contents(folder) == before
    assert "Traceback" not in said.err
    if code == 0:
        assert name != "record"
        assert not rights.named or (rights.named == "keys.db" and name in ("sessions", "export"))
        return
    first, second = said.err.strip().splitlines()
    assert first.startswith(("error: cannot read ", "error: cannot write to ")), first
    assert str(folder / rights.named) in first or (name == "record" and str(folder) in first)
    assert "cannot read" in first or name == "record"
    assert second.startswith("hint: ")
    assert not list(own.iterdir()), "nothing is half there"
    assert code == 1
