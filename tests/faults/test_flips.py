"""Random bits of a log file are flipped: every flip is noticed, or lies where nothing is said.

"Noticed" is a finding of `verify`, or a store that does not open. "Where nothing is said" is proved, not assumed: the
file still tells the same by every table and every index, and SQLite finds it whole.
"""

import pytest
from pysqlite3 import dbapi2

from mnemolog import LogDamaged, MemoryStore, MnemologError, restore_backup
from mnemolog.adapters.support.store_access import log_of
from mnemolog.domain.errors import KeysMissing
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.infra.sqlite import MARKED_READ_ONLY
from tests.faults.tamper import copy_store
from tests.support import forbid_writing

pytestmark = pytest.mark.promise("P6")

SAID = {
    "identity": "SELECT * FROM log",
    "counter": "SELECT * FROM sqlite_sequence",
    "events": "SELECT * FROM events NOT INDEXED ORDER BY position",
    "by stream": "SELECT stream, version, position FROM events INDEXED BY sqlite_autoindex_events_1 ORDER BY 1, 2",
    "by key": "SELECT stream, key, position FROM events INDEXED BY events_key WHERE key IS NOT NULL ORDER BY 1, 2",
    "not turns": "SELECT stream, version, position FROM events INDEXED BY events_sparse "
    "WHERE topic <> 'turn.recorded.v1' ORDER BY 1, 2",
    "layout": "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name",
    "application": "PRAGMA application_id",
    "whole": "PRAGMA integrity_check",
}


@pytest.fixture
def file(store, tmp_path):
    """The bytes of a log with long and short turns, keys, several streams, and pages that were freed."""
    for name in ("a", "b"):
        store.start_session(name, scope=f"acme/{name}")
    for n in range(40):
        text = "long text " * 1_500 if n % 13 == 0 else f"turn {n} of the history"
        store.record("ab"[n % 2], "user", text, key=f"k{n}" if n % 3 else None)
    store.session("a").set("city", "Lisbon")
    store.switch("c", reason="branch", session="a")
    folder = copy_store(log_of(store), tmp_path / "original")
    return folder / LOG_FILE


def said(path):
    """What a log file tells, by whichever way it is read."""
    connection = dbapi2.connect(f"file:{path}?mode=rw", uri=True)
    connection.text_factory = bytes
    found = {name: connection.execute(query).fetchall() for name, query in SAID.items()}
    connection.close()
    return found


def noticed(folder):
    """Whether a store says that something is wrong: by not opening, or when it is verified."""
    try:
        with MemoryStore.open(folder, model=None, create=False) as store:
            return not store.verify().sound
    except MnemologError:
        return True


def undetected(file, folder, bits):
    """Flip each of `bits` in a copy of its own; return how many said nothing. One that says something else fails."""
    whole, expected, silent = file.read_bytes(), said(file), 0
    assert expected["whole"] == [(b"ok",)]
    folder.mkdir()
    for bit in bits:
        for left in folder.iterdir():
            left.unlink()
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        (folder / LOG_FILE).write_bytes(data)
        if not noticed(folder):
            assert said(folder / LOG_FILE) == expected, f"byte {bit // 8}, bit {bit % 8}"
            silent += 1
    return silent


@pytest.mark.timeout(7_200)
@pytest.mark.promise("P6", "flips of the log")
def test_every_flipped_bit_of_the_file_is_noticed_or_says_nothing(file, tmp_path, rng, tries):
    """None is undetected, wherever in the file it is."""
    bits = [rng.randrange(8 * file.stat().st_size) for _ in range(tries)]
    silent = undetected(file, tmp_path / "flipped", bits)
    assert silent < len(bits) / 2, "most of a file is not unused: somebody looks away"


@pytest.mark.promise("P6", "flips of its header")
def test_every_bit_of_the_header_of_the_file_is_noticed_or_says_nothing(file, tmp_path, rng, tries):
    """The first 100 bytes decide how all others are read. SQLite's own bookkeeping may change."""
    undetected(file, tmp_path / "flipped", rng.sample(range(800), tries))


def test_a_log_made_unwritable_by_its_header_is_damaged_and_its_backup_is_not(file, tmp_path):
    """What is in it can be read, and nothing is lost."""
    forbid_writing(file)
    with MemoryStore.open(file.parent, model=None, create=False) as store:
        head = store.head()
        with pytest.raises(LogDamaged, match=r"log\.db: byte 18 of its header .* nothing was written"):
            store.record("a", "user", "one more")
        assert store.head() == head
        assert store.recall("history", mode="text").hits
        (found,) = store.verify().findings
        assert (found.kind, MARKED_READ_ONLY in found.detail) == ("file", True)
        store.backup(tmp_path / "backup", keys=tmp_path / "keys")
    restore_backup(tmp_path / "backup", tmp_path / "restored", keys=tmp_path / "keys")
    with MemoryStore.open(tmp_path / "restored", model=None, create=False) as store:
        assert store.head() == head
        store.record("a", "user", "one more")
        assert store.verify(contents=True).sound


def test_keys_made_unwritable_by_their_header_have_to_be_restored(file):
    """What they can open stays readable; what is to be forgotten is on record, and their turn comes."""
    path = file.with_name("keys.db")
    whole = path.read_bytes()
    forbid_writing(path)
    with MemoryStore.open(file.parent, model=None, create=False) as store:
        with pytest.raises(KeysMissing, match=r"keys\.db: byte 18 of its header"):
            store.start_session("new")
        assert store.recall("history", mode="text").hits
        with pytest.raises(KeysMissing, match=r"byte 18 of its header"):
            store.forget(session="a")
    path.write_bytes(whole)
    with MemoryStore.open(file.parent, model=None, create=False) as store:
        assert store.forget(session="a").complete  # Nothing of it is left.
        assert store.turns("a") == []
        assert store.verify(contents=True).sound


def test_every_letter_of_the_layout_in_the_other_case_is_noticed(file, tmp_path, rng, scale, record_property):
    """SQLite reads names in either case, so that this bit of its first page changes what the file says and no more."""
    page = file.read_bytes()[:4096]
    bits = [8 * at + 5 for at, byte in enumerate(page) if at >= 100 and chr(byte).isalpha()]
    bits = bits if scale == "nightly" else rng.sample(bits, 200)
    assert undetected(file, tmp_path / "flipped", bits) < len(bits) / 10
    record_property("tried", len(bits))
