"""Keys: derived, destroyed, missed, and never taken for what they are not."""

import gc
from contextlib import closing

import pytest

from mnemolog import InvalidInput, LogDamaged, MemoryStore
from mnemolog.domain.errors import KeysMissing
from mnemolog.domain.events import Forgotten, SessionStarted, TurnRecorded
from mnemolog.infra.keys.key_tree import DEPTH, LEAF_MAX, TOGETHER, Node, leaves_near, without
from mnemolog.infra.keys.keyring import KeyErasure, Keyring, LeafRange, Sealer
from mnemolog.infra.keys.postgres_keys import PostgresKeys, create
from mnemolog.infra.keys.sqlite_keys import SqliteKeys
from mnemolog.infra.keys.sqlite_keys import create as create_file
from mnemolog.infra.log.open import open_log
from tests.postgres import connect
from tests.support import FakeClock, append, open_files, read_all, start, texts_of

ROOT = Node(0, 0, bytes(range(32)))
"""A tree to look at."""


def leaf_by_steps(node, leaf):
    """The key of a leaf as a program derives it that goes down step by step."""
    while node.depth < DEPTH:
        node = node.children()[leaf >> (DEPTH - node.depth - 1) & 1]
    return node.material


def key_of(nodes, leaf):
    """The key of a leaf by whichever of these nodes is above it, None where none is."""
    above = [node for node in nodes if node.first <= leaf <= node.last]
    assert len(above) <= 1
    return leaves_near(above[0], leaf)[leaf] if above else None


def test_leaves_derived_together_are_those_derived_step_by_step(rng):
    """Whatever the leaf: the last ones of a block, of the tree, and any others."""
    for leaf in [0, 1, TOGETHER - 1, TOGETHER, LEAF_MAX, *(rng.randrange(LEAF_MAX) for _ in range(200))]:
        near = leaves_near(ROOT, leaf)
        assert len(near) == TOGETHER
        assert near[leaf] == leaf_by_steps(ROOT, leaf)
    assert len({leaves_near(ROOT, leaf)[leaf] for leaf in range(500)}) == 500


def test_what_is_destroyed_has_no_key_and_all_others_have_theirs(rng):
    """Ranges destroyed one after the other, overlapping too; few nodes stay."""
    nodes, gone = [ROOT], set()
    for number in range(1, 40):
        first = rng.randrange(2_000)
        last = first + rng.choice((0, 0, 1, rng.randrange(300)))
        nodes = list(without(nodes, first, last))
        gone |= set(range(first, last + 1))
        assert len(nodes) <= number * 2 * DEPTH
        for leaf in rng.sample(range(2_400), 60):
            assert key_of(nodes, leaf) == (None if leaf in gone else leaf_by_steps(ROOT, leaf))
    assert key_of(nodes, LEAF_MAX) == leaf_by_steps(ROOT, LEAF_MAX)


def sqlite_keys(folder, _request):
    """New keys in a file."""
    return SqliteKeys(folder / "keys.db", log_id=create_file(folder, created_at=1))


def postgres_keys(folder, request):
    """New keys in a database."""
    url = request.getfixturevalue("postgres_url")
    with connect(url) as database:
        log_id = create(database, created_at=1)
    return PostgresKeys(url, log_id=log_id, path=folder / ".mnemolog.toml", named="the database")


@pytest.fixture(params=[sqlite_keys, postgres_keys], ids=["sqlite", "postgres"])
def keys(request, tmp_path):
    """Where the keys of a log are."""
    return request.param(tmp_path, request)


@pytest.fixture
def in_file(tmp_path):
    """The keys of a log in a file."""
    with closing(Keyring(sqlite_keys(tmp_path, None))) as keyring:
        yield keyring


in_both = pytest.mark.parametrize("folder", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def keyring(keys):
    with closing(Keyring(keys)) as keyring:
        yield keyring


def never(_stream):
    """Say that no stream has content."""
    return False


def always(_stream):
    """Say that every stream has content."""
    return True


def erasure(number=1):
    return KeyErasure(f"r{number}", number, 1, b"")


def test_a_stream_continues_after_its_keys_were_destroyed(keyring):
    """Its next version has its key as before. A version whose key is destroyed gets one of a new series.

    That happens where the log was restored to before it: else the stream could never go on.
    """
    for version in range(1, 6):
        keyring.key_to_seal("s", version, never)
    _, before = keyring.key_to_seal("s", 6, never)
    keyring.destroy(erasure(), [LeafRange("s", 0, 1, 5)])
    keys, after = keyring.key_to_seal("s", 6, always)
    assert (keys.series, after) == (0, before)
    keys, key = keyring.key_to_seal("s", 3, always)
    assert keys.series == 1
    assert keyring.key_to_open("s", 0, 3)[1] is None, "the old one stays destroyed"
    assert keyring.key_to_open("s", 1, 3)[1] == key
    keyring.destroy(erasure(), [LeafRange("s", 0, 1, 5)])
    assert keyring.key_to_open("s", 1, 3)[1] == key, "the request was about the series before"


def test_keys_that_another_process_has_made_meanwhile_are_taken(keyring):
    """A stream that two begin at once has one series of keys."""
    with closing(Keyring(keyring.engine.another())) as other:
        keys, key = other.key_to_seal("s", 1, never)
    assert (keys.series, keyring.key_to_seal("s", 1, never)[1]) == (0, key)
    assert keyring.series("s") == 0


def test_a_request_destroys_the_keys_of_each_series_up_to_the_one_it_names(keyring):
    """Content that was sealed before a log was restored goes with what was sealed after it."""
    for version in range(1, 6):
        keyring.key_to_seal("s", version, never)
    keyring.destroy(erasure(), [LeafRange("s", 0, 3, 3)])
    assert keyring.key_to_seal("s", 3, always)[0].series == 1
    keyring.destroy(erasure(2), [LeafRange("s", 1, 1, 4)])
    assert [keyring.key_to_open("s", series, version)[1] for series, version in ((0, 1), (0, 4), (1, 3))] == [None] * 3
    assert keyring.key_to_open("s", 0, 5)[1] is not None


def test_what_another_process_destroys_is_noticed_whatever_was_read_since(keyring):
    """A look at the keys of another stream takes no note of it for those in memory."""
    with closing(Keyring(keyring.engine.another())) as other:
        for stream in ("a", "b"):
            other.key_to_seal(stream, 1, never)
        assert keyring.key_to_open("a", 0, 1)[1] is not None
        other.destroy(erasure(), [LeafRange("a", 0, 1, 1)])
    assert keyring.key_to_open("b", 0, 1)[1] is not None
    keyring.refresh()
    assert keyring.key_to_open("a", 0, 1)[1] is None


def test_nothing_of_a_destroyed_key_stays_in_the_files(in_file, tmp_path):
    """Neither the node it was derived from nor any between, in any file."""
    root, keyring = None, in_file
    keyring.key_to_seal("s", 1, never)
    with keyring.engine._driver() as driver:
        root = bytes(driver.execute("SELECT material FROM nodes").fetchone()[0])
    doomed, node = [], Node(0, 0, root)
    while node.depth < DEPTH:
        doomed.append(node.material)
        node = node.children()[5 >> (DEPTH - node.depth - 1) & 1]
    doomed.append(node.material)
    keyring.destroy(erasure(), [LeafRange("s", 0, 5, 5)])
    assert keyring.wipe()
    assert (tmp_path / "keys.db-wal").stat().st_size == 0
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not any(material in raw for material in doomed)
    assert keyring.key_to_open("s", 0, 6)[1] in (leaves_near(Node(0, 0, root), 6)[6],)


def test_no_copy_of_a_destroyed_key_is_left_by_how_pages_were_split(in_file, tmp_path, rng):
    """Many streams in any order move rows from page to page."""
    keyring = in_file
    streams = [f"{rng.randrange(10**9)}{'x' * rng.randrange(60)}" for _ in range(400)]
    for stream in streams:
        keyring.key_to_seal(stream, 1, never)
    with keyring.engine._driver() as driver:
        roots = {row[0]: bytes(row[1]) for row in driver.execute("SELECT stream, material FROM nodes")}
    gone = rng.sample(streams, 60)
    for number, stream in enumerate(gone):
        keyring.destroy(erasure(number), [LeafRange(stream, 0, rng.randrange(1, 50), 50)])
    assert keyring.wipe()
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not [stream for stream in gone if roots[stream] in raw]
    assert all(roots[stream] in raw for stream in set(streams) - set(gone))


def test_keys_of_another_log_are_refused(keys):
    """They would take every content for damaged."""
    keys.log_id = "another"
    with pytest.raises(KeysMissing, match=r"belongs to log|has none of log another"):
        Keyring(keys).key_to_seal("s", 1, never)


def test_a_missing_root_key_is_never_replaced(keyring):
    """A second root would bury that the first is missing; and a missing one is an error, not forgotten."""
    with pytest.raises(KeysMissing):
        keyring.key_to_seal("s", 2, always)
    with pytest.raises(KeysMissing):
        keyring.key_to_open("s", 0, 1)
    assert keyring.key_to_seal("s", 2, never)[0].series == 0, "a stream may begin with what is no content"


def test_a_missing_node_is_never_buried_under_a_new_series(keyring):
    """A part of the keys of a stream was lost: nothing more is sealed there, and the rest can still be opened."""
    for version in range(1, 6):
        keyring.key_to_seal("s", version, never)
    _, kept = keyring.key_to_open("s", 0, 4)
    keyring.destroy(erasure(), [LeafRange("s", 0, 1, 2)])
    lost = next(node for _, node in keyring.engine.stored("s").nodes if node.first <= 3 <= node.last)
    with keyring.engine.writing():
        keyring.engine.delete("s", 0, [(lost.depth, lost.prefix)])
        keyring.engine.note_change()
    before = keyring.engine.stored("s")
    for again in (keyring, Keyring(keyring.engine)):
        again.refresh()
        for holds in (never, always):
            with pytest.raises(KeysMissing, match="lacks the keys of 's'"):
                again.key_to_seal("s", 3, holds)
        assert again.key_to_open("s", 0, 4)[1] == kept
        assert again.series("s") == 0
    assert keyring.engine.stored("s") == before


def test_sealed_content_opens_only_where_it_was_sealed(keyring):
    """Not under another version, stream or topic, and not with a byte changed."""
    sealer = Sealer(keyring)
    sealed = sealer.seal("s", 1, "turn.recorded.v1", b"hello", never)
    keyring.key_to_seal("t", 1, never)
    assert sealer.open("s", 1, "turn.recorded.v1", sealed, position=7) == b"hello"
    assert b"hello" not in sealed
    for place in (("s", 2, "turn.recorded.v1"), ("t", 1, "turn.recorded.v1"), ("s", 1, "note.added.v1")):
        with pytest.raises(LogDamaged) as caught:
            sealer.open(*place, sealed, position=7)
        assert caught.value.position == 7
    for at in range(3, len(sealed)):
        changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        with pytest.raises(LogDamaged):
            sealer.open("s", 1, "turn.recorded.v1", changed, position=7)
    for other in (sealed[:1], sealed[:20], bytes([sealed[0], 9]) + sealed[2:]):
        with pytest.raises(LogDamaged):
            sealer.open("s", 1, "turn.recorded.v1", other, position=7)


def test_a_store_that_was_made_without_encryption_stays_so(folder):
    """What it is was settled when it was made; a contradiction is said, not obeyed."""
    with MemoryStore.open(folder, model=None, encrypt=False) as store:
        store.start_session("s").record("user", "in the clear")
        assert store.status().log_format == 1
    assert not (folder / "keys.db").exists()
    with MemoryStore.open(folder, model=None) as store:
        assert store.turns("s")[0].text == "in the clear"
        with pytest.raises(InvalidInput, match="without encryption"):
            store.forget(session="s")
    with pytest.raises(InvalidInput, match="without encryption"):
        MemoryStore.open(folder, model=None, encrypt=True)
    assert b"in the clear" in (folder / "log.db").read_bytes()


def test_a_new_store_is_encrypted_and_its_keys_are_private(folder):
    """Nothing of a turn is readable in the log; the keys are for the owner only."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("s", title="the name").record("user", "not in the clear", speaker="Trillian")
        with pytest.raises(InvalidInput, match="with encryption"):
            MemoryStore.open(folder, model=None, encrypt=False)
    raw = b"".join(path.read_bytes() for path in folder.glob("log.db*"))
    assert not any(word in raw for word in (b"not in the clear", b"Trillian", b"the name"))
    assert (folder / "keys.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("how", ["gone", "empty", "other", "damaged"])
def test_a_log_without_its_keys_opens_verifies_and_refuses_content(folder, tmp_path, how):
    """Nothing counts as forgotten, nothing is written, and with the keys back all is as it was."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("s").record("user", "hello")
        head = store.head()
    keys = folder / "keys.db"
    kept = keys.read_bytes()
    match how:
        case "gone":
            keys.unlink()
        case "empty":
            keys.write_bytes(b"")
        case "damaged":
            keys.write_bytes(kept[:100] + bytes(len(kept) - 100))
        case "other":
            MemoryStore.open(tmp_path / "another", model=None).close()
            keys.write_bytes((tmp_path / "another" / "keys.db").read_bytes())
    (folder / "projections" / "views.db").unlink(missing_ok=True)
    with MemoryStore.open(folder, model=None) as store:
        assert store.head() == head
        assert store.verify().sound
        assert store.verify().forgotten == 0
        assert [item.what for item in store.admin.doctor(deep=True).findings if item.severity != "note"] == ["keys"]
        assert store.status().head == head.position
        for call in (
            lambda: store.turns("s"),
            lambda: store.record("s", "user", "more"),
            lambda: store.start_session("t"),
            lambda: store.forget(session="s"),
            lambda: store.verify(contents=True),
            lambda: list(store.events()),
        ):
            with pytest.raises(KeysMissing):
                call()
        assert store.head() == head
    for part in folder.glob("keys.db*"):
        part.unlink()
    keys.write_bytes(kept)
    with MemoryStore.open(folder, model=None) as store:
        assert [turn.text for turn in store.turns("s")] == ["hello"]
        store.record("s", "user", "more")


def test_a_creation_that_was_cut_off_behind_its_keys_is_gone_on_with(folder):
    """Keys that nobody has used yet are those of the log that is made next."""
    folder.mkdir()
    log_id = create_file(folder, created_at=1)
    with MemoryStore.open(folder, model=None) as store:
        assert store.status().log_id == log_id
        store.start_session("s")


@in_both
def test_events_of_destroyed_keys_are_read_as_forgotten(log):
    """They keep place, key and time; the start of a session keeps all but its name."""
    log.appends.transact(start("s", name="secret name"))
    log.appends.transact(append("s", "one", "two", "three", keys=("k1", "k2", "k3")))
    before = read_all(log)
    log.keyring.destroy(erasure(), [LeafRange("session/s", 0, 1, 1), LeafRange("session/s", 0, 3, 3)])
    after = read_all(log)
    assert [(item.position, item.key, item.recorded_at) for item in after] == [
        (item.position, item.key, item.recorded_at) for item in before
    ]
    assert after[0].event == SessionStarted(title="", agent="assistant")
    assert after[2].event == Forgotten(was=TurnRecorded.topic)
    assert texts_of(after) == ["one", "three"]


@in_both
def test_two_processes_that_begin_a_stream_share_its_keys(folder):
    """Whoever makes the root first has made it for both."""
    with closing(open_log(folder, clock=FakeClock(), create=True)) as one:
        two = open_log(folder, clock=FakeClock(), create=False)
        for log, session in ((one, "a"), (two, "b"), (one, "b"), (two, "a")):
            if session not in {item.stream.removeprefix("session/") for item in read_all(one)}:
                log.appends.transact(start(session))
            log.appends.transact(append(session, f"{session} here"))
        assert texts_of(read_all(one)) == texts_of(read_all(two)) == ["a here", "b here", "b here", "a here"]
    two.close()


def test_an_empty_file_of_keys_is_refused_while_another_connection_has_what_it_was(folder):
    """No lock is waited for: SQLite would make the empty file a database first."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("a").record("user", "hello")
        path, log_id = folder / "keys.db", store.parts.log.log_id
        kept = path.read_bytes()
        path.write_bytes(b"")
        with pytest.raises(KeysMissing, match="it is empty"):
            SqliteKeys(path, log_id=log_id, busy_timeout_s=0.1).secret()
        path.write_bytes(kept)


def test_keys_that_are_refused_are_not_left_open(tmp_path, request):
    """At once, not when they are collected: each try would hold a descriptor."""
    create_file(tmp_path, created_at=1)
    keyring = Keyring(SqliteKeys(tmp_path / "keys.db", log_id="f" * 32))
    request.addfinalizer(gc.enable)
    gc.disable()
    with pytest.raises(KeysMissing, match="belongs to log"):
        keyring.secret()
    assert open_files(tmp_path) == []
