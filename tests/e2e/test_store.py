"""The promises of the store, asked from outside."""

import os
import shutil
import tempfile
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
from pysqlite3 import dbapi2

import mnemolog
from mnemolog import MemoryStore, NewTurn
from mnemolog.domain.values import TEXT_BYTES_MAX
from mnemolog.projections.vectors.projection import QUESTIONS_KEPT
from tests.postgres import put_log_in_postgres
from tests.support import nothing_written, unprivileged

TOPICS = ["lisbon flat", "dog nero vet", "invoice error", "flight copenhagen", "peanut allergy", "database migration"]


def fill(store: MemoryStore, *, turns: int = 60) -> list[mnemolog.Turn]:
    """Record turns in three sessions under two scopes."""
    sessions = [store.start_session(f"s{n}", scope=f"acme/{'ab'[n % 2]}") for n in range(3)]
    return [
        sessions[n % 3].record("user", f"turn {n} about {TOPICS[n % 6]} number{n}", key=f"k{n}") for n in range(turns)
    ]


IN_A_FOLDER = pytest.mark.parametrize("folder", ["in a folder"], indirect=True)


@pytest.fixture(params=["in a folder", "in PostgreSQL"])
def folder(folder, request):
    """The folder of a store, with its log in it or in PostgreSQL."""
    if request.param == "in PostgreSQL":
        put_log_in_postgres(folder, request.getfixturevalue("postgres_url"))
    return folder


def test_a_recall_right_after_record_returns_that_turn_by_text_and_by_vector(store):
    """Read your writes, without any projection having been asked to run."""
    turn = store.start_session("trip", scope="acme").record("user", "the ferry leaves at noon")
    for mode in ("text", "vector", "hybrid"):
        answer = store.recall("when does the ferry leave", mode=mode)
        assert [hit.position for hit in answer.hits] == [turn.position], mode
        assert answer.head == turn.position


def test_a_repeated_question_is_not_embedded_again(store, encoder):
    """Its vector is kept; what was recorded meanwhile is found. Only the latest questions are kept."""
    store.session("s").record("user", "tea in Porto")
    first = store.recall("tea", mode="vector")
    calls = len(encoder.calls)
    assert store.recall("tea", mode="vector").hits == first.hits
    assert len(encoder.calls) == calls
    store.session("s").record("user", "tea")
    assert [hit.text for hit in store.recall("tea", mode="vector")] == ["tea", "tea in Porto"]
    for number in range(QUESTIONS_KEPT):
        store.recall(f"question {number}", mode="vector")
    calls = len(encoder.calls)
    store.recall("tea", mode="vector")
    assert len(encoder.calls) == calls + 1


def test_more_new_turns_than_a_recall_embeds_are_found_by_text_and_said_to_be(store):
    """The vectors' reach is in the answer; what lies beyond it is not lost."""
    session = store.start_session("long")
    last = [session.record("user", f"note number{n}") for n in range(200)][-1]
    answer = store.recall("number199")
    assert {hit.position: hit.ranks for hit in answer.hits}[last.position] == {"text": 1}
    assert answer.vectors_cover < answer.head == last.position
    store.admin.catch_up_vectors()
    assert store.recall("number199").vectors_cover == last.position


def test_many_turns_are_recorded_all_or_none(store):
    """One transaction across sessions: a bad last turn takes the others with it."""
    store.start_session("a")
    store.start_session("b").end()
    with nothing_written(store), pytest.raises(mnemolog.SessionAlreadyEnded):
        store.record_many([NewTurn(session="a", role="user", text="x"), NewTurn(session="b", role="user", text="y")])
    made = store.record_many([NewTurn(session="a", role="user", text=f"x{n}") for n in range(250)])
    assert [turn.version for turn in made] == list(range(2, 252))
    assert store.verify().sound


def test_a_retry_adds_nothing_and_other_content_is_refused(store):
    """A key names one turn for ever."""
    session = store.start_session("trip")
    first = session.record("user", "hello", key="k")
    assert session.record("user", "hello", key="k") == first
    with nothing_written(store):
        with pytest.raises(mnemolog.DuplicateKey, match=r"^key 'k' of session 'trip' belongs to other") as caught:
            session.record("user", "other", key="k")
        assert caught.value.position == first.position
    session.end()
    assert session.record("user", "hello", key="k") == first


BAD_TURNS = {
    "empty text": ({"text": ""}, mnemolog.InvalidInput),
    "blank text": ({"text": " \n"}, mnemolog.InvalidInput),
    "NUL": ({"text": "a\x00b"}, mnemolog.InvalidInput),
    "a lone surrogate": ({"text": "a\ud800b"}, mnemolog.InvalidInput),
    "a surrogate in the metadata": ({"metadata": {"a": "\ud800"}}, mnemolog.InvalidInput),
    "text over the limit": ({"text": "x" * (TEXT_BYTES_MAX + 1)}, mnemolog.LimitExceeded),
    "multi-byte text over the limit": ({"text": "é" * (TEXT_BYTES_MAX // 2 + 1)}, mnemolog.LimitExceeded),
    "an unknown role": ({"role": "robot"}, mnemolog.InvalidInput),
    "a time without zone": ({"said_at": datetime(2026, 1, 1)}, mnemolog.InvalidInput),
    "NaN": ({"metadata": {"a": float("nan")}}, mnemolog.InvalidInput),
    "metadata over the limit": ({"metadata": {"a": "x" * 70_000}}, mnemolog.LimitExceeded),
    "an object in the metadata": ({"metadata": {"a": object()}}, mnemolog.InvalidInput),
    "an empty key": ({"key": ""}, mnemolog.InvalidInput),
}


def test_bad_input_is_refused_with_a_hint_and_nothing_is_written(store):
    """Every refusal is of our tree and leaves the head where it was. A text at the limit comes back whole."""
    session = store.start_session("trip")
    with nothing_written(store):
        for what, (fields, expected) in BAD_TURNS.items():
            arguments = {"role": "user", "text": "fine"} | fields
            with pytest.raises(expected) as caught:
                session.record(arguments.pop("role"), arguments.pop("text"), **arguments)
            assert caught.value.hint, what
    session.record("user", "x" * TEXT_BYTES_MAX)
    assert session.turns()[0].text == "x" * TEXT_BYTES_MAX


def test_a_wrong_scope_is_refused(store):
    """A scope is a plain path, for recording and for asking."""
    with nothing_written(store):
        for scope in ("/acme", "acme/", "a//b", "a/../b", "acme/*", "a\nb", "x" * 600):
            for call in (store.start_session, store.recall):
                with pytest.raises(mnemolog.InvalidInput):
                    call("s", scope=scope)


def test_a_folder_that_is_no_store_is_left_as_it_was(tmp_path):
    """Neither a folder of files, nor a file, nor another program's database is touched."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("mine")
    (tmp_path / "plain").write_text("a file")
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "log.db").write_bytes(b"no database at all" * 100)
    (tmp_path / "foreign").mkdir()
    with closing(dbapi2.connect(str(tmp_path / "foreign" / "log.db"))) as foreign:
        foreign.execute("CREATE TABLE theirs (a)")
        foreign.commit()
    before = (tmp_path / "foreign" / "log.db").read_bytes()
    for name in ("files", "plain", "junk", "foreign"):
        message = "it is a file; a store is a folder" if name == "plain" else None
        with pytest.raises(mnemolog.NotAStore, match=message):
            MemoryStore.open(tmp_path / name, model=None)
    assert (tmp_path / "plain").read_text() == "a file"
    assert (tmp_path / "foreign" / "log.db").read_bytes() == before
    assert sorted(path.name for path in (tmp_path / "files").iterdir()) == ["a.txt"]
    with pytest.raises(mnemolog.StoreNotFound):
        MemoryStore.open(tmp_path / "missing", model=None, create=False)
    assert not (tmp_path / "missing").exists()


@pytest.mark.log_file
@IN_A_FOLDER
def test_a_log_of_a_newer_format_is_refused(store, folder):
    """An old program must not write into what it does not understand."""
    store.close()
    with closing(dbapi2.connect(str(folder / "log.db"))) as outside:
        outside.execute("DROP TRIGGER log_refuse_update")
        outside.execute("UPDATE log SET format = 99")
        outside.commit()
    with pytest.raises(mnemolog.errors.FormatTooNew) as caught:
        MemoryStore.open(folder, model=None)
    assert caught.value.found == 99


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX file systems")
def test_a_read_only_folder_is_a_clear_error():
    """For a new store, and for one that exists."""
    root = Path(tempfile.mkdtemp())
    try:
        root.chmod(0o755)
        MemoryStore.open(root / "memory", model=None).close()
        for path in (root, root / "memory"):
            path.chmod(0o555)
        (root / "memory" / "log.db").chmod(0o444)
        with unprivileged():
            with pytest.raises(mnemolog.errors.StoreNotWritable) as caught:
                MemoryStore.open(root / "new", model=None)
            assert caught.value.hint
            with (
                pytest.raises(mnemolog.errors.StoreNotWritable),
                MemoryStore.open(root / "memory", model=None) as store,
            ):
                store.start_session("trip")
    finally:
        for path in (root, root / "memory"):
            path.chmod(0o755)
        shutil.rmtree(root)


def test_a_closed_store_says_that_it_is_closed(store):
    """After close every call is the same clear error."""
    session = store.start_session("trip")
    store.close()
    for call in (lambda: session.record("user", "x"), store.head, store.status, lambda: store.recall("x")):
        with pytest.raises(mnemolog.StoreClosed):
            call()


def test_replay_shows_at_every_position_what_was_there(store):
    """Replay equals a plain fold, at each offset."""
    turns = fill(store, turns=12)
    store.end_session("s1")
    for position in range(store.head().position + 1):
        replayed = store.replay(to=position)
        seen = sorted(turn.position for session in replayed.sessions for turn in session.turns)
        assert seen == [turn.position for turn in turns if turn.position <= position]
        assert replayed.position == position
    assert store.replay(session="s1").sessions[0].ended_at is not None
    with pytest.raises(mnemolog.InvalidInput):
        store.replay(to=store.head().position + 1)


def test_status_tells_how_far_each_projection_follows(store):
    """Behind is said, and then it is not."""
    fill(store, turns=9)
    before = store.status()
    assert (before.views.state, before.views.behind_events) == ("missing", before.head)
    store.recall("dog")
    store.admin.catch_up_vectors()
    after = store.status()
    assert (after.views.state, after.sessions, after.turns) == ("current", 3, 9)
    assert [item.state for item in after.vectors] == ["current"]
    store.record("s0", "user", "one more")
    assert (store.status().views.behind_events, store.status().vectors[0].state) == (1, "behind")


NOT_FOR_SQLITE = [
    lambda store: store.session("\ud800"),
    lambda store: store.find_session("\ud800"),
    lambda store: store.turns("\ud800"),
    lambda store: store.record("\ud800", "user", "hello"),
    lambda store: store.end_session("\ud800"),
    lambda store: store.switch("s", reason="resume", session="\ud800"),
    lambda store: store.session("s").rewind(turns=2**70),
    lambda store: store.session("s").rewind(to=2**70),
    lambda store: store.session("s").at(2**70),
    lambda store: store.session("s").branch(at=2**70),
    lambda store: store.replay(to=2**70),
    lambda store: store.recall("hello", session="\ud800"),
    lambda store: store.recall("hello", scope="\ud800"),
]


def test_what_sqlite_cannot_be_given_is_a_clear_error(store):
    """Lone surrogates and numbers beyond 64 bits: one of our errors, nothing written."""
    store.start_session("s").record("user", "hello")
    with nothing_written(store):
        for call in NOT_FOR_SQLITE:
            with pytest.raises(mnemolog.MnemologError):
                call(store)


@pytest.mark.log_file
@IN_A_FOLDER
def test_a_setting_that_does_not_exist_is_refused_before_anything_is_created(folder):
    """With the ones there are."""
    with pytest.raises(mnemolog.InvalidInput, match="synchronous: 'on' is none of NORMAL, FULL"):
        MemoryStore.open(folder, model=None, synchronous="on")
    assert not folder.exists()
