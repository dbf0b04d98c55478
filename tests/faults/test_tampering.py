"""History changed from outside is noticed, and where it was changed (on copies; with the triggers dropped).

Heads that are kept elsewhere are all asked; bits that are flipped in a log file are noticed, or say nothing.
"""

import json
import os
from contextlib import closing
from pathlib import Path

import pytest
from pysqlite3 import dbapi2
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect
from sqlalchemy.schema import CreateIndex

from mnemolog import LogDamaged, MemoryStore, MnemologError, NewTurn, StorageFull, restore_backup
from mnemolog.domain.chain import Kind
from mnemolog.domain.errors import KeysMissing, WitnessUnreadable
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.sqlite.engine import APPEND_ONLY_TRIGGERS, LOG_FILE
from mnemolog.infra.log.sqlite.engine import EVENTS as EVENTS_TABLE
from mnemolog.infra.sqlite import MARKED_READ_ONLY
from mnemolog.projections.history.verify import verify
from tests.faults.tamper import COLUMNS, Tampering, copy_store
from tests.support import FakeClock, HashEncoder, forbid_writing

pytestmark = pytest.mark.promise("P6")


EVENTS = 14
EDITED = 7


@pytest.fixture(scope="module")
def witnessed(tmp_path_factory):
    """A store of two sessions and twelve turns, with a segment that has seen all but the last two events."""
    folder = tmp_path_factory.mktemp("witnessed") / "memory"
    with MemoryStore.open(folder, model=HashEncoder(), clock=FakeClock(), background=False) as store:
        for name in ("a", "b"):
            store.start_session(name, scope=f"acme/{name}")
        turns = [
            NewTurn(session="ab"[n % 2], role="user", text=f"turn {n} of the history", key=f"k{n}" if n % 3 else None)
            for n in range(12)
        ]
        store.record_many(turns[:10])
        store.admin.catch_up_vectors()
        store.record_many(turns[10:])
        assert store.head().position == EVENTS
        assert store.verify().sound
        yield store


@pytest.fixture
def head(witnessed):
    """The head, noted down elsewhere before anybody tampers."""
    return str(witnessed.head())


@pytest.fixture
def copy(witnessed, tmp_path):
    """The folder of a copy that may be tampered with."""
    return copy_store(witnessed.parts.log, tmp_path / "copy")


@pytest.fixture
def tampering(copy):
    tampering = Tampering(copy / LOG_FILE)
    yield tampering
    tampering.close()


@pytest.fixture
def bare(tampering):
    """The log of the copy, to be verified without any witness."""
    log = open_log(tampering.path.parent, clock=FakeClock(), create=False)
    yield log
    log.close()


def findings(tampering, *, expect_head=None):
    """What an audit of the copied store finds once the triggers are back."""
    tampering.put_triggers_back()
    with MemoryStore.open(tampering.path.parent, model=HashEncoder(), create=False) as store:
        found = store.verify(expect_head=expect_head)
    assert found.sound == (not found.findings)
    return [(finding.kind, finding.position) for finding in found.findings]


def test_an_untouched_copy_is_sound(tampering, head):
    """The backup itself changes nothing, and its witnesses agree."""
    assert findings(tampering, expect_head=head) == []


RENUMBERED = "UPDATE events SET position = {1} WHERE position = {0}"
COPIED = "INSERT INTO events SELECT {}, {}, {}, topic, state, NULL, recorded_at, digest FROM events WHERE position = 1"
CHANGES = {
    "another state": (f"UPDATE events SET state = x'82a4726f6c65' WHERE position = {EDITED}", (Kind.CHANGED, EDITED)),
    "no key": (f"UPDATE events SET key = NULL WHERE position = {EDITED} AND key IS NOT NULL", (Kind.CHANGED, EDITED)),
    "no digest": (f"UPDATE events SET digest = zeroblob(32) WHERE position = {EDITED}", (Kind.CHANGED, EDITED)),
    "another time of creation": ("UPDATE log SET created_at = created_at + 1", (Kind.CHANGED, 1)),
    "another identity": (f"UPDATE log SET log_id = '{'0' * 32}'", (Kind.CHANGED, 1)),
    "the first event removed": ("DELETE FROM events WHERE position = 1", (Kind.REMOVED, 1)),
    "an event removed": ("DELETE FROM events WHERE position = 5", (Kind.REMOVED, 5)),
    "four events removed": ("DELETE FROM events WHERE position BETWEEN 5 AND 8", (Kind.REMOVED, 5)),
    "all but the ends removed": ("DELETE FROM events WHERE position BETWEEN 2 AND 13", (Kind.REMOVED, 2)),
    "a removed event whose place is filled": (
        ["DELETE FROM events WHERE position = 5", *(RENUMBERED.format(at, at - 1) for at in range(6, EVENTS + 1))],
        (Kind.CHANGED, 5),
    ),
    "an event inserted into the past": (
        [
            *(RENUMBERED.format(at, at + 1) for at in range(EVENTS, EDITED - 1, -1)),
            COPIED.format(EDITED, "'session/c'", 1),
        ],
        (Kind.CHANGED, EDITED),
    ),
    "exchanged positions": (
        [
            "UPDATE events SET position = 1000 WHERE position = 5",
            "UPDATE events SET position = 5 WHERE position = 6",
            "UPDATE events SET position = 6 WHERE position = 1000",
        ],
        (Kind.CHANGED, 5),
    ),
    "an event at position 0": (COPIED.format(0, "stream", 99), (Kind.FILE, 0)),
    "an event at position -1": (COPIED.format(-1, "stream", 99), (Kind.FILE, 0)),
    "an event at the lowest position": (COPIED.format(-(2**63), "stream", 99), (Kind.FILE, 0)),
    "the newest events removed": ("DELETE FROM events WHERE position > 12", (Kind.REMOVED, 13)),
    "the counter of positions set back": (
        "UPDATE sqlite_sequence SET seq = 3 WHERE name = 'events'",
        (Kind.CHANGED, EVENTS),
    ),
    "no index of keys": ("DROP INDEX events_key", (Kind.FILE, 0)),
    "no index of sessions": ("DROP INDEX events_sparse", (Kind.FILE, 0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_by_sql_is_found_where_it_is(tampering, change):
    """The first finding names the position; a changed column also breaks the next link at most."""
    statements, expected = CHANGES[change]
    one_change = isinstance(statements, str)
    for statement in [statements] if one_change else statements:
        tampering.execute(statement)
    found, (kind, at) = findings(tampering), expected
    assert found[0] == expected
    if kind == Kind.FILE:
        assert found == [expected]
    elif kind == Kind.CHANGED and one_change:
        assert {position for _, position in found} <= {at, at + 1}


def test_unreadable_bytes_are_found(tampering):
    """An event that cannot be decoded is named as such too."""
    tampering.write(EDITED, state=b"\xc1")
    assert set(findings(tampering)) == {(Kind.CHANGED, EDITED), (Kind.UNDECODABLE, EDITED)}


def test_two_swapped_events_are_found(tampering):
    """The same events in another order are another history, with their digests swapped or not."""
    one, two = tampering.row(5), tampering.row(6)
    for row in (one, two):
        del row["position"]
    tampering.write(5, stream=b"elsewhere", key=None)
    tampering.write(6, **one)
    tampering.write(5, **two)
    found = findings(tampering)
    assert found[0] == (Kind.CHANGED, 5)
    assert (Kind.CHANGED, 6) in found


def test_a_removed_tail_is_still_found_after_more_was_recorded(tampering):
    """Recording on does not cover up what was cut off: this log leaves no holes, so a hole is a removal."""
    tampering.execute("DELETE FROM events WHERE position > 12")
    tampering.put_triggers_back()
    try:
        with MemoryStore.open(tampering.path.parent, model=None, create=False) as store:
            store.record("a", "user", "later")
    except LogDamaged:
        pass  # Refusing to write behind a loss is as good.
    with MemoryStore.open(tampering.path.parent, model=None, create=False) as store:
        found = store.verify().findings
    assert [(finding.kind, finding.position) for finding in found] == [(Kind.REMOVED, 13)]


def test_a_removed_tail_without_traces_needs_a_witness(tampering, bare, head):
    """With the counter set back too, only a witness can reveal it: and does."""
    tampering.execute("DELETE FROM events WHERE position > 12")
    tampering.execute("UPDATE sqlite_sequence SET seq = 12 WHERE name = 'events'")
    tampering.put_triggers_back()
    assert verify(bare).sound, "nothing in the file speaks of what was cut off"
    with MemoryStore.open(tampering.path.parent, model=None, create=False) as store:
        (found,) = store.verify(expect_head=head).findings
    assert (found.kind, found.position) == (Kind.WITNESS, 13)


def test_a_segment_witnesses_a_removed_tail(tampering, bare):
    """The manifest of a vector segment remembers how far the log went."""
    tampering.execute("DELETE FROM events WHERE position > 10")
    tampering.execute("UPDATE sqlite_sequence SET seq = 10 WHERE name = 'events'")
    assert findings(tampering) == [(Kind.WITNESS, 11)]
    assert verify(bare).sound


def test_a_history_rewritten_with_its_chain_is_found_by_the_expected_head(tampering, bare, head):
    """Who recomputes every link makes a sound log: of another history than the one remembered."""
    tampering.replace_text(13, "turn 10", "turn XX")
    tampering.recompute_links(genesis=bare.genesis)
    assert findings(tampering) == [], "the segment has seen less than position 13"
    assert verify(bare).sound
    with MemoryStore.open(tampering.path.parent, model=None, create=False) as store:
        (found,) = store.verify(expect_head=head).findings
        assert (found.kind, found.position) == (Kind.WITNESS, EVENTS)


def test_a_history_rewritten_with_its_chain_is_found_by_a_segment(tampering, bare):
    """The manifest's digest is of the history it was made from."""
    tampering.replace_text(3, "turn 0", "turn X")
    tampering.recompute_links(genesis=bare.genesis)
    assert findings(tampering) == [(Kind.WITNESS, 12)]
    assert verify(bare).sound


def test_an_index_that_lacks_an_event_is_found(tampering):
    """Every row and every digest is right, and yet a reader of the stream misses one."""
    tampering.execute("DROP INDEX events_sparse")
    (made,) = (index for index in EVENTS_TABLE.indexes if index.name == "events_sparse")
    asked = "topic <> 'turn.recorded.v1'"
    sql = str(CreateIndex(made).compile(dialect=sqlite_dialect()))
    tampering.execute(sql.replace(asked, f"{asked} AND position > 1"))
    tampering.execute("PRAGMA writable_schema=ON")
    tampering.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'events_sparse'", (sql,))
    tampering.execute("PRAGMA writable_schema=RESET")
    assert findings(tampering) == [(Kind.FILE, 0)]


def test_a_trigger_that_was_removed_or_defused_is_found_and_named(tampering):
    """A file that anybody may edit is not sound, though its history still is."""
    tampering.put_triggers_back()
    for name, statement in APPEND_ONLY_TRIGGERS.items():
        for instead in ("", statement[: statement.index("BEGIN")] + "BEGIN SELECT 1; END"):
            tampering.execute(f"DROP TRIGGER {name}")
            tampering.execute(instead)
            with MemoryStore.open(tampering.path.parent, model=None, create=False) as store:
                (found,) = store.verify().findings
            assert found.kind == Kind.UNPROTECTED
            assert name in found.detail
            tampering.execute(f"DROP TRIGGER IF EXISTS {name}")
            tampering.execute(statement)


def test_a_trigger_that_swallows_events_loses_no_acknowledged_turn(tampering):
    """Whatever a file does with an insert, a turn that was not stored is not acknowledged."""
    tampering.put_triggers_back()
    tampering.execute("CREATE TRIGGER swallow BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END")
    with MemoryStore.open(tampering.path.parent, model=None, create=False) as store:
        for _ in range(2):
            try:
                position = store.record("a", "user", "is it there?").position
            except Exception:
                position = None
            assert position is None or store.head().position == position


@pytest.mark.parametrize(
    ("column", "position"),
    [
        (column, position)
        for column in COLUMNS
        for position in (1, EDITED, EVENTS)
        if not (column == "key" and position == 1)  # The start of a session has no key.
    ],
)
def test_every_flipped_bit_of_an_event_is_found(tampering, bare, column, position):
    """Single bits of a stored column, each one; found where it is, and gone when it is put right."""

    def found():
        # The triggers stay away meanwhile: a finding each, known and not counted.
        return [finding for finding in verify(bare).findings if finding.kind != Kind.UNPROTECTED]

    stored = tampering.row(position)[column]
    for flipped in flips(stored):
        try:
            tampering.write(position, **{column: flipped})
        except dbapi2.IntegrityError:
            continue  # Another event has this place: the file itself cannot hold both.
        findings = found()
        assert findings, flipped
        moved = column == "position" and findings[0].kind in (Kind.REMOVED, Kind.FILE)
        assert findings[0].position == position or moved
        tampering.write(flipped if column == "position" else position, **{column: stored})
    assert found() == []


def flips(stored):
    """Every value that differs from `stored` in one bit."""
    if isinstance(stored, int):
        for bit in range(64):
            value = (stored ^ (1 << bit)) & (2**64 - 1)
            yield value - 2**64 if value >= 2**63 else value
    else:
        for bit in range(8 * len(stored)):
            value = bytearray(stored)
            value[bit // 8] ^= 1 << bit % 8
            yield bytes(value)


def test_pages_that_lead_back_to_themselves_end_a_read_with_an_error(store, monkeypatch):
    """A damaged page may name an earlier one: reading on would never end."""
    from mnemolog.infra.log.sqlite.engine import SqliteReader

    for n in range(9):
        store.session("trip").record("user", f"turn {n}")
    whole = SqliteReader._page
    again = lambda self, query, parameters: whole(self, query, (0, parameters[1], 3))  # noqa: E731
    monkeypatch.setattr(SqliteReader, "_page", again)
    log = store.parts.log
    with pytest.raises(LogDamaged, match="lead back"):
        list(log.read(after=0, upto=log.head().position))
    assert "lead back" in store.verify().findings[-1].detail


@pytest.fixture
def heads(tmp_path):
    return tmp_path / "elsewhere" / "heads.jsonl"


@pytest.fixture
def noted(store, heads):
    """Ten turns; the heads at 2, 3 and 5 were noted down, then the one at 2 once more."""
    heads.parent.mkdir()
    session = store.start_session("s")
    for n in range(10):
        session.record("user", f"turn {n}")
        if store.head().position in (2, 3, 5):
            store.audit.append_head(heads)
    first = heads.read_bytes().splitlines(keepends=True)[0]
    with heads.open("ab") as file:
        file.write(first)
    assert [json.loads(line)["position"] for line in heads.read_text().splitlines()] == [2, 3, 5, 2]
    return store


@pytest.fixture
def tampered(noted, tmp_path):
    """A copy that may be tampered with."""
    tampering = Tampering(copy_store(noted.parts.log, tmp_path / "copy") / LOG_FILE)
    yield tampering
    tampering.close()


def rewrite(tampering, position):
    """Change an event and make every link behind it fit."""
    with closing(open_log(tampering.path.parent, clock=FakeClock(), create=False)) as log:
        tampering.write(position, recorded_at=5)
        tampering.recompute_links(genesis=log.genesis)
        tampering.put_triggers_back()
        assert verify(log).sound, "nothing in the file speaks of the rewriting"


def asked(tampering, heads):
    with MemoryStore.open(tampering.path.parent, model=None, create=False) as store:
        found = store.verify(heads=heads)
    return found.witnesses, [(item.kind, item.position, item.detail.split(" remembers")[0]) for item in found.findings]


def test_a_rewriting_is_found_by_every_head_behind_it_and_not_only_by_both_ends(noted, heads, tmp_path):
    """The linear fake: heads at 2, 3, 5 and 2 again. What was rewritten between two of them lies to the later ones."""
    found = noted.verify(heads=heads)
    assert (found.sound, found.witnesses) == (True, 5)
    lines = [(2, "heads.jsonl line 1"), (3, "heads.jsonl line 2"), (5, "heads.jsonl line 3"), (2, "heads.jsonl line 4")]
    for position in range(1, 12):
        with closing(Tampering(copy_store(noted.parts.log, tmp_path / str(position)) / LOG_FILE)) as tampering:
            rewrite(tampering, position)
            expected = sorted((Kind.WITNESS, at, name) for at, name in lines if at >= position)
            assert asked(tampering, heads) == (4, expected)


def test_one_forged_head_among_true_ones_is_found(noted, heads):
    """A log that shows another middle to one reader than to the others cannot please all of their heads."""
    lines = heads.read_text().splitlines()
    forged = json.loads(lines[1]) | {"digest": "0" * 64}
    heads.write_text("\n".join([lines[0], json.dumps(forged), *lines[2:]]))
    (found,) = noted.verify(heads=heads).findings
    assert (found.kind, found.position, found.stream) == (Kind.WITNESS, 3, "session/s")
    assert "heads.jsonl line 2" in found.detail


def test_a_head_of_another_log_is_a_finding(noted, heads, tmp_path):
    """Heads of two stores in one file, or the wrong file: not what was remembered of this log."""
    with MemoryStore.open(tmp_path / "other", model=None) as other:
        with pytest.raises(LogDamaged, match="is of log"):
            other.audit.append_head(heads)
        findings = other.verify(heads=heads).findings
    assert {finding.kind for finding in findings} == {Kind.WITNESS}
    assert len(findings) == 4


def test_no_head_is_noted_behind_one_that_contradicts_the_log(tampered, noted, heads):
    """A witness that accepted anything would be worthless."""
    heads.write_text(heads.read_text().splitlines()[2] + "\n")  # The one at 5 is the last.
    before = heads.read_bytes()
    rewrite(tampered, 4)
    store = MemoryStore.open(tampered.path.parent, model=None, create=False)
    with store, pytest.raises(LogDamaged, match="nothing was written") as caught:
        store.audit.append_head(heads)
    assert caught.value.position == 5
    assert heads.read_bytes() == before
    noted.audit.append_head(heads)
    assert heads.read_bytes().startswith(before)


NO_HEADS = {
    "words": b"nonsense",
    "no digest": b'{"position": 3}',
    "negative": b'{"position": -1, "digest": "' + b"0" * 64 + b'"}',
    "short digest": b"3:00ff",
    "no text": b"\xff\xfe",
    "long": b"x" * 9_000,
}


def test_a_line_that_is_no_head_is_named(noted, heads):
    """An unreadable witness is an error: to pass over it would be to verify against less than was asked."""
    lines = heads.read_bytes().splitlines()
    for name, line in NO_HEADS.items():
        heads.write_bytes(b"\n".join([lines[0], b"", line, *lines[1:], b""]))
        before = heads.read_bytes()
        for call in (lambda: noted.verify(heads=heads), lambda: noted.audit.append_head(heads)):
            with pytest.raises(WitnessUnreadable, match=r"heads\.jsonl:3: ") as caught:
                call()
            assert caught.value.line == 3, name
        assert heads.read_bytes() == before
    with pytest.raises(WitnessUnreadable, match="there is no such file"):
        noted.verify(heads=heads.with_name("nowhere.jsonl"))


def test_heads_as_they_are_printed_may_stand_in_the_file_too(noted, heads):
    """What `mnemolog head >> heads` left, the last line unended."""
    heads.write_text(f"{noted.head()}\n{noted.head()}")
    noted.audit.append_head(heads)
    assert len(heads.read_text().splitlines()) == 3
    assert noted.verify(heads=heads).witnesses == 4


def test_a_head_is_durable_before_it_is_returned(store, heads, monkeypatch):
    """The line is synced, and the folder of a new file."""
    heads.parent.mkdir()
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink())))
    store.audit.append_head(heads)
    assert synced == [str(heads), str(heads.parent)]


def test_half_a_head_is_taken_back(noted, heads, monkeypatch):
    """If the disk has no room for a whole line, the file stays a file of heads."""
    before, write = heads.read_bytes(), os.write
    for written in (0, 1, 60):
        monkeypatch.setattr(os, "write", lambda file, data, written=written: write(file, data[:written]))
        with pytest.raises(StorageFull):
            noted.audit.append_head(heads)
        assert heads.read_bytes() == before


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
    return copy_store(store.parts.log, tmp_path / "original") / LOG_FILE


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
