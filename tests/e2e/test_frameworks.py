"""What a framework needs that names sessions, keeps the transcript, and tells of a turn when it likes."""

import pytest

from mnemolog import (
    DuplicateKey,
    InvalidInput,
    MemoryStore,
    NewTurn,
    SessionAlreadyEnded,
    UnknownSession,
    restore_backup,
)
from mnemolog.adapters.hermes.backup import backup_beside
from mnemolog.adapters.importers.import_files import import_files
from mnemolog.adapters.support.framework_sessions import (
    LOOKED_BACK_MAX,
    flag_pending_undo,
    get_or_start_session,
    has_pending_undo,
    reconcile,
    record_many_reopening,
    rewind_to_transcript,
)
from mnemolog.adapters.support.store_access import begin_session, enter_session
from mnemolog.domain.errors import ImportRefused, SessionExists, SwitchRefused
from mnemolog.domain.events import SessionSwitched
from tests.support import nothing_written

pytestmark = pytest.mark.local


def seen(store, session):
    return [turn.text for turn in store.session(session).turns()]


def switches(store):
    events = [item.event for item in store.events() if isinstance(item.event, SessionSwitched)]
    return [(event.from_, event.to, event.reason) for event in events]


def converse(session, *users):
    """A turn of the user's each, and an answer to it. Return the transcript."""
    messages = [
        {"role": role, "content": f"{'re ' if role == 'assistant' else ''}{text}"}
        for text in users
        for role in ("user", "assistant")
    ]
    reconcile(session, messages)
    return messages


# Sessions that somebody else names.


@pytest.mark.parametrize("given", [{"agent": "bob"}, {"scope": "acme/bob"}, {"title": "Another"}])
def test_an_adapter_joins_a_session_whoever_started_it(store, given):
    """Its agent, scope and title are those of a session that it starts; one that is there keeps its own."""
    store.session("trip", agent="ada", scope="acme/alice", title="A trip")
    joined = begin_session(store, "trip", **given)
    assert (joined.agent, joined.scope, joined.title) == ("ada", "acme/alice", "A trip")
    assert store.head().position == 1


def test_an_adapter_resumes_a_session_that_another_process_has_just_started(store):
    """Whatever it would have started it for; whoever names a reason itself is refused as before."""
    store.session("trip", agent="ada").end()
    store.switch("home", reason="new", scope="", agent="bob")
    for reason in ("new", "reset", "branch", "compress"):
        entered = enter_session(store, "trip", reason=reason, agent="bob", session="home", scope="")
        assert (entered.id, store.current("bob").id, switches(store)[-1]) == (
            "trip",
            "trip",
            ("home", "trip", "resume"),
        )
    assert not store.find_session("home").at(store.head().position).ended
    assert enter_session(store, "home", reason="compress", agent="bob", session="home").id == "home"
    assert switches(store)[-1] == ("home", "home", "compress")
    with pytest.raises(SessionExists):
        store.switch("trip", reason="new", agent="bob")


def test_a_file_that_names_no_scope_is_imported_into_the_session_that_is_there(store, tmp_path):
    """One that names another scope is refused."""
    store.session("trip", scope="acme/alice")
    file = tmp_path / "said.jsonl"
    file.write_text('{"session": "trip", "role": "user", "text": "hi"}')
    with pytest.raises(ImportRefused, match="'trip'"):
        import_files(store, file, scope="acme/bob")
    assert import_files(store, file).recorded == 1
    assert store.find_session("trip").scope == "acme/alice"


def test_a_session_is_started_by_the_reason_if_it_is_new_and_resumed_if_it_is_there(store):
    """Whatever the framework says: it does not know what this store has seen."""
    first = get_or_start_session(store, "one", agent="a", scope="acme")
    assert (first.id, first.title, first.scope, first.agent) == ("one", "", "acme", "a")
    assert switches(store) == []  # Nothing was left.
    assert get_or_start_session(store, "two", reason="branch", left="one", agent="a").lineage() == ["one", "two"]
    three = get_or_start_session(store, "three", reason="compress", left="two", agent="a")
    assert three.lineage() == ["one", "two", "three"]
    get_or_start_session(store, "one", reason="new", left="three", agent="a")
    get_or_start_session(store, "four", reason="resume", left="one", agent="a")
    get_or_start_session(store, "four", reason="compress", left="four", agent="a")
    get_or_start_session(store, "five", reason="reset", left="never told of", agent="a")
    assert switches(store) == [
        ("one", "two", "branch"),
        ("two", "three", "compress"),
        ("three", "one", "resume"),
        ("one", "four", "new"),
        ("four", "four", "compress"),
    ]
    ended = {item.session for item in store.sessions() if item.ended_at is not None}
    assert ended == {"two"}


def test_entering_a_session_again_adds_no_session_and_reopens_one_that_has_ended(store):
    """A framework that was started anew enters where it was."""
    get_or_start_session(store, "one")
    store.end_session("one")
    get_or_start_session(store, "one").record("user", "I am back.")
    assert len(store.sessions()) == 1
    for wrong in ({"reason": "leave"}, {"reason": "rewind", "left": "one"}, {"agent": ""}):
        with pytest.raises((InvalidInput, SwitchRefused)):
            get_or_start_session(store, "two", **wrong)
    assert len(store.sessions()) == 1


# Turns that come late.


def late(*texts, session="one"):
    return [NewTurn(session=session, role="user", text=text, key=text) for text in texts]


def test_a_late_turn_goes_where_it_was_said_and_the_session_stays_ended(store):
    """All of it is one append, and a retry adds nothing."""
    store.start_session("one")
    store.start_session("two")
    store.end_session("one")
    with pytest.raises(SessionAlreadyEnded):
        store.record_many(late("a"))
    turns = [*late("a", "b"), *late("c", session="two")]
    assert [turn.text for turn in record_many_reopening(store, turns)] == ["a", "b", "c"]
    with nothing_written(store):
        record_many_reopening(store, turns)
    assert seen(store, "one") == ["a", "b"]
    assert {item.session: item.ended_at is not None for item in store.sessions()} == {"one": True, "two": False}
    with pytest.raises(SessionAlreadyEnded):
        store.session("one").record("user", "d")
    assert store.verify().findings == ()


def test_late_turns_of_which_one_is_refused_leave_everything_as_it_was(store):
    """Ended sessions, too."""
    store.start_session("one").record("user", "a", key="a")
    store.end_session("one")
    with nothing_written(store):
        wrong = NewTurn(session="one", role="user", text="other", key="a")
        with pytest.raises(DuplicateKey):
            record_many_reopening(store, [*late("b"), wrong])
        with pytest.raises(UnknownSession):
            record_many_reopening(store, [*late("b"), *late("c", session="nowhere")])


# An undo of which nobody says how far it went.


def test_what_the_transcript_has_no_more_is_hidden(store):
    """With all that was answered to it; it stays in the log, also of a session that has ended since."""
    for undone in range(4):
        session = store.start_session(f"s{undone}")
        messages = converse(session, "a", "b", "c")
        flag_pending_undo(session)
        assert has_pending_undo(session)
        if undone == 3:
            session.end()
        left = messages[: len(messages) - 2 * undone]
        assert rewind_to_transcript(session, [*left, {"role": "user", "content": "next"}], before="next") == 2 * undone
        assert not has_pending_undo(session)
        assert seen(store, session.id) == [message["content"] for message in left]
        assert len(store.turns(session.id)) == 6
    with pytest.raises(SessionAlreadyEnded):
        session.record("user", "d")


def test_texts_may_be_in_parts_or_turns_and_a_transcript_without_what_comes_next_needs_no_before(store):
    """As frameworks have them."""
    session = store.start_session("one")
    converse(session, "a\nb", "c")
    parts = {"role": "user", "content": ["a", {"type": "image"}, {"type": "text", "text": "b"}]}
    assert rewind_to_transcript(session, [parts]) == 2
    assert rewind_to_transcript(session, [NewTurn(session="", role="user", text="a\nb")]) == 0
    with pytest.raises(InvalidInput, match=r"messages\[1\]"):
        rewind_to_transcript(session, [parts, "text"])
    assert rewind_to_transcript(session, [{"role": "user", "content": "[a summary]"}]) == 0
    assert rewind_to_transcript(session, []) == 2


def test_the_doubt_is_in_the_log_and_goes_along_with_a_branch(store, folder):
    """For any process; it is no value that others see, or can set."""
    session = store.start_session("one", agent="a")
    messages = converse(session, "a", "b")
    flag_pending_undo(session)
    flag_pending_undo(session)
    branch = store.switch("two", reason="branch", agent="a", session="one")
    with MemoryStore.open(folder, model=None, background=False) as other:
        assert has_pending_undo(other.session("two"))
        assert rewind_to_transcript(other.session("two"), messages[:2]) == 2
    assert (has_pending_undo(session), has_pending_undo(branch)) == (True, False)
    assert session.keys() == []
    assert session.all() == {}
    with pytest.raises(InvalidInput):
        session.set("mnemolog.undone", False)


def test_what_others_record_meanwhile_does_not_shift_what_is_hidden(store, monkeypatch):
    """It is compared again, and hidden is all from the first turn on that was taken back."""
    session = store.start_session("one")
    messages = converse(session, "a", "b")
    turns, others = type(session).turns, ["from elsewhere"]

    def meanwhile(self, **how):
        found = turns(self, **how)
        if others:
            store.record("one", "assistant", others.pop())
        return found

    monkeypatch.setattr(type(session), "turns", meanwhile)
    assert rewind_to_transcript(session, messages[:2]) == 3
    assert seen(store, "one") == ["a", "re a"]


def test_only_so_many_turns_are_compared(store):
    """A session may be longer than anybody remembers."""
    session = store.start_session("one")
    store.record_many([NewTurn(session="one", role="user", text=str(n)) for n in range(LOOKED_BACK_MAX + 5)])
    assert rewind_to_transcript(session, [{"role": "user", "text": "4"}]) == 0
    assert rewind_to_transcript(session, [{"role": "user", "text": "5"}]) == LOOKED_BACK_MAX - 1


# Copies for a backup that copies files.


def test_a_copy_beside_the_store_restores_and_is_replaced_by_the_next_one(store, folder, tmp_path):
    """Made while the store is in use; there are never two."""
    session = store.start_session("one")
    for number in range(2):
        session.record("user", str(number))
        made = backup_beside(folder, "nightly")
    assert made == [tmp_path / "memory-backup-nightly", tmp_path / "memory-keys-nightly"]
    assert restore_backup(made[0], tmp_path / "restored", keys=made[1]).digest == store.head().digest
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("memory", "memory-backup-nightly", "memory-keys-nightly", "restored"),
    ]
    assert backup_beside(tmp_path / "nowhere", "nightly") == []
