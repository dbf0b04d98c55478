"""P24: a backup of a damaged store is refused, or good; it never takes the place of a good one otherwise."""

import shutil

import pytest

from mnemolog import MemoryStore, MnemologError, restore_backup
from tests.children.backing_up import FORGOTTEN, WORDS, fill_and_die
from tests.support import WAIT_S

pytestmark = pytest.mark.promise("P24")

PAGE = 4_096
FILES = ("log.db", "log.db-wal", "keys.db", "keys.db-wal")
FORMS = [form for word in WORDS for form in (word, word.lower(), word.upper())]
SENTINELS = {form.encode(encoding) for form in FORMS for encoding in ("utf-8", "utf-16-le", "utf-16-be")}


@pytest.fixture
def place(tmp_path, processes):
    """A folder with a store that was open when its process died, a copy that was closed, and backups of both."""
    place = tmp_path / "made"
    place.mkdir()
    process, pipe = processes.start(fill_and_die, str(place))
    assert pipe.poll(WAIT_S)
    assert pipe.recv()
    process.join(WAIT_S)
    assert all((place / "store" / name).stat().st_size for name in FILES)
    shutil.copytree(place / "store", place / "closed")
    MemoryStore.open(place / "closed", model=None, background=False).close()
    restore_backup(place / "early", place / "older", keys=place / "early keys")
    return place


def texts_in(folder):
    """Every text that a store answers with, by session, and its head. What is forgotten at the end is left out."""
    with MemoryStore.open(folder, model=None, background=False) as store:
        assert store.verify(contents=True).sound
        turns = {item.session: store.turns(item.session) for item in store.sessions()}
        texts = {session: [turn.text for turn in turns[session] if turn.text not in FORGOTTEN] for session in turns}
        return store.head().position, texts


def contents_of(*folders):
    """The bytes of every file below folders."""
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def damage(store, older, rng):
    """Damage a file of a store; return what was done."""
    path = store / rng.choice([name for name in FILES if (store / name).exists()])
    how = rng.choice(["flip", "flip", "flip", "cut", "zero", "noise", "another page", "remove", "older"])
    data = bytearray(path.read_bytes())
    pages = max(1, len(data) // PAGE)
    start = rng.randrange(pages) * PAGE
    if how == "remove":
        path.unlink()
        return f"{path.name}: {how}"
    if how == "flip":
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del data[rng.randrange(len(data)) :]
    elif how == "zero":
        data[start : start + PAGE] = bytes(len(data[start : start + PAGE]))
    elif how == "noise":
        data[start : start + PAGE] = rng.randbytes(len(data[start : start + PAGE]))
    elif how == "another page":
        other = rng.randrange(pages) * PAGE
        data[start : start + PAGE] = data[other : other + PAGE]
    else:
        path = path.with_name(path.name.removesuffix("-wal"))
        path.with_name(f"{path.name}-wal").unlink(missing_ok=True)
        data = (older / path.name).read_bytes()
    path.write_bytes(data)
    return f"{path.name}: {how}"


@pytest.mark.timeout(1_800)
@pytest.mark.promise("P24", "sources")
def test_a_backup_of_a_damaged_store_is_refused_or_good_and_holds_no_clear_text(tmp_path, place, rng, tries):
    """A good backup and a good copy of the keys stay byte for byte, or what replaces them restores to no less."""
    good_head = restore_backup(place / "good", tmp_path / "r", keys=place / "good keys", dry_run=True).head
    truth, made = texts_in(place / "closed"), 0
    for number in range(tries):
        work = tmp_path / "work"
        source = place / rng.choice(["store", "closed"])
        shutil.copytree(source, work / "store")
        with_keys, first = rng.random() < 0.5, rng.random() < 0.2
        target, keys = work / "backup", work / "keys"
        if not first:
            shutil.copytree(place / "good", target)
            shutil.copytree(place / "good keys", keys)
        before, what = contents_of(target, keys), damage(work / "store", place / "older", rng)
        what = f"{number}: {source.name}, {what}, {with_keys=}, {first=}"
        try:
            with MemoryStore.open(work / "store", model=None, create=False, background=False) as store:
                store.backup(target, keys=keys if with_keys else None, replace=True)
        except MnemologError:
            assert contents_of(target, keys) == before, what
        else:
            made += 1
            _require_good(work, keys if with_keys else place / "closed", good_head, truth, what)
        assert {path.name for path in work.iterdir()} <= {"store", "backup", "keys", "restored"}, what
        shutil.rmtree(work)
    assert 0 < made < tries


def _require_good(work, keys, good_head, truth, what):
    held = b"".join(contents_of(work / "backup").values())
    assert not [word for word in SENTINELS if word in held], what
    assert restore_backup(work / "backup", work / "restored", keys=keys).head >= good_head, what
    head, found = texts_in(work / "restored")
    if head == truth[0]:
        assert found == truth[1], what
    for session, texts in found.items():
        assert texts == truth[1][session][: len(texts)], what
