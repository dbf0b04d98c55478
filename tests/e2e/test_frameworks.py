"""What a framework needs that names sessions, keeps the transcript, and tells of a turn when it likes.

Messages as people have them: dicts, parts and roles of model providers, alone and many at once. Keys: a write of a
session and a switch are made once under theirs; an export is imported with those of its log.
"""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from mnemolog import (
    DuplicateKey,
    InvalidInput,
    MemoryStore,
    NewTurn,
    SessionAlreadyEnded,
    UnknownSession,
    import_log,
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
from mnemolog.domain import errors
from mnemolog.domain.errors import ImportRefused, LimitExceeded, SessionExists, SwitchRefused
from mnemolog.domain.events import SessionSwitched
from mnemolog.domain.message import ROLE_WORDS
from mnemolog.domain.request import request_key
from mnemolog.domain.session import session_stream
from mnemolog.domain.values import TURNS_PER_CALL_MAX
from tests.support import nothing_written, summary


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


@pytest.mark.local
@pytest.mark.parametrize("given", [{"agent": "bob"}, {"scope": "acme/bob"}, {"title": "Another"}])
def test_an_adapter_joins_a_session_whoever_started_it(store, given):
    """Its agent, scope and title are those of a session that it starts; one that is there keeps its own."""
    store.session("trip", agent="ada", scope="acme/alice", title="A trip")
    joined = begin_session(store, "trip", **given)
    assert (joined.agent, joined.scope, joined.title) == ("ada", "acme/alice", "A trip")
    assert store.head().position == 1


@pytest.mark.local
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


@pytest.mark.local
def test_a_file_that_names_no_scope_is_imported_into_the_session_that_is_there(store, tmp_path):
    """One that names another scope is refused."""
    store.session("trip", scope="acme/alice")
    file = tmp_path / "said.jsonl"
    file.write_text('{"session": "trip", "role": "user", "text": "hi"}')
    with pytest.raises(ImportRefused, match="'trip'"):
        import_files(store, file, scope="acme/bob")
    assert import_files(store, file).recorded == 1
    assert store.find_session("trip").scope == "acme/alice"


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
def test_only_so_many_turns_are_compared(store):
    """A session may be longer than anybody remembers."""
    session = store.start_session("one")
    store.record_many([NewTurn(session="one", role="user", text=str(n)) for n in range(LOOKED_BACK_MAX + 5)])
    assert rewind_to_transcript(session, [{"role": "user", "text": "4"}]) == 0
    assert rewind_to_transcript(session, [{"role": "user", "text": "5"}]) == LOOKED_BACK_MAX - 1


# Copies for a backup that copies files.


@pytest.mark.local
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


PARTS = [
    ("plain text", "plain text"),
    (["one", "two"], "one\ntwo"),
    ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
    ([{"type": "input_text", "text": "asked"}], "asked"),
    ([{"type": "output_text", "text": "answered", "annotations": []}], "answered"),
    ([{"type": "refusal", "refusal": "I cannot."}], "I cannot."),
    ([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:…"}}], "look\n[image]"),
    ([{"type": "input_image", "image_url": "data:…"}, {"type": "input_file", "file_id": "f"}], "[image] [file]"),
    ([{"type": "image", "source": {}}, {"type": "document", "source": {}}], "[image] [document]"),
    ([{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "said"}], "said"),
    ([{"type": "text", "text": "one"}, {"type": "text", "text": None}, {"type": "text"}, None, "two"], "one\ntwo"),
    ([{"text": "of Gemini"}, {"text": "hm", "thought": True}, {"inlineData": {}}], "of Gemini\n[inlineData]"),
    ([{"type": "input_audio", "transcript": "spoken"}, {"type": "audio", "data": ""}], "spoken"),
    ({"content_type": "text", "parts": ["of ChatGPT", None, ""]}, "of ChatGPT"),
    ([{"type": "voice_note", "title": "t", "text": "said aloud"}, {"type": "canvas"}], "said aloud\n[canvas]"),
]


@pytest.fixture
def session(folder):
    """A session in a store without a model."""
    with MemoryStore.open(folder, model=None) as store:
        yield store.start_session("trip")


def test_messages_of_chat_apis_are_recorded_as_they_are(session):
    """`messages` of a request can be passed one by one. Parts are read as text, in a message and as an argument."""
    turn = session.record({"role": "user", "content": "Tea in Porto?"})
    assert (turn.role, turn.text, turn.session) == ("user", "Tea in Porto?", session.id)
    assert [seen.text for seen in session.turns()] == ["Tea in Porto?"]
    for content, text in PARTS:
        assert session.record({"role": "user", "content": content}).text == text
        assert session.record("user", content).text == text


def test_calls_and_results_of_tools_are_kept_with_the_turn(session):
    """Of OpenAI and of Anthropic; a message that only calls says so in words."""
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    of_openai = session.record({"role": "assistant", "content": None, "tool_calls": [call]})
    assert (of_openai.text, of_openai.tool_calls) == ("[tool call: weather]", [call])
    answer = session.record({"role": "tool", "content": "sunny", "tool_call_id": "c1"})
    assert (answer.role, answer.text, answer.metadata) == ("tool", "sunny", {"tool_call_id": "c1"})
    use = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"place": "Porto"}}
    of_anthropic = session.record("assistant", [{"type": "text", "text": "I look."}, use])
    assert of_anthropic.text == "I look."
    assert of_anthropic.tool_calls == [{"id": "t1", "name": "weather", "input": {"place": "Porto"}}]
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "rain"}],
        "is_error": True,
    }
    turn = session.record({"role": "user", "content": [result]})
    assert (turn.role, turn.text, turn.metadata) == ("tool", "rain", {"tool_use_id": "t1", "is_error": True})
    of_gemini = session.record({"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}}]})
    assert of_gemini.tool_calls == [{"type": "function_call", "name": "weather", "args": {}}]
    turn = session.record(
        {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "sun"}]}}]}
    )
    assert (turn.role, turn.text, turn.metadata) == ("tool", "sun", {"tool_use_id": "t1"})
    both = session.record({"role": "user", "content": [result, {"type": "text", "text": "Go on."}]})
    assert (both.role, both.text) == ("user", "rain\nGo on.")


@pytest.mark.parametrize("text", [None, "", " "])
def test_a_turn_may_only_call_tools(session, text):
    """Its stand-in is not found by its words; the turn is listed all the same."""
    turn = session.record("assistant", text, tool_calls=[{"id": "c1", "name": "weather", "input": {}}])
    assert (turn.text, turn.tool_calls[0]["name"]) == ("[tool call: weather]", "weather")
    session.record("user", "What is the weather?")
    assert [hit.text for hit in session.recall("weather tool call")] == ["What is the weather?"]
    with pytest.raises(InvalidInput, match="text"):
        session.record("assistant", "", tool_calls=[])


USE = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"place": "Porto"}}
CHATS = {
    "openai": [
        {"role": "user", "content": "Tea?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": id_, "type": "function", "function": {"name": "tea", "arguments": "{}"}} for id_ in ("c1", "c2")
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "green"},
        {"role": "tool", "tool_call_id": "c2", "content": "black"},
        {"role": "assistant", "content": "Green or black."},
    ],
    "anthropic": [
        {"role": "user", "content": "Sun?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, USE]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}]},
        {"role": "assistant", "content": "No."},
    ],
    "functions": [
        {"role": "assistant", "content": None, "function_call": {"name": "tea", "arguments": "{}"}},
        {"role": "function", "name": "tea", "content": "green"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("chat", CHATS)
def test_the_messages_of_a_session_are_those_that_it_was_given(session, chat):
    """In the form of their provider. What a provider would refuse is left out: halves of calls, where a page begins."""
    given = CHATS[chat]
    session.record_many(given)
    assert session.messages() == given
    called = next(at for at, said in enumerate(given) if said["role"] == "assistant")
    for first in range(1, len(given)):
        halves = [said for said in given[first:] if "tool_call_id" in said or "tool_result" in str(said)]
        expected = [said for said in given[first:] if first <= called or said not in halves]
        assert session.messages(limit=len(given) - first) == expected
    assert [turn.text for turn in session.turns(last=2)] == [turn.text for turn in session.turns()][-2:]
    assert session.turns(last=2, newest_first=True) == session.turns(last=2)[::-1]


def test_objects_of_a_providers_library_are_recorded_as_they_come(session):
    """`response.choices[0].message` of OpenAI, `response.content` of Anthropic: both have `model_dump`."""

    def made(**fields):
        return SimpleNamespace(model_dump=lambda: fields)

    message = {"role": "assistant", "content": "Yes.", "refusal": None, "annotations": [], "audio": None}
    assert session.record(made(**message, tool_calls=None)).text == "Yes."
    assert session.record(made(**message | {"content": None, "audio": {"transcript": "Aloud."}})).text == "Aloud."
    part, use = made(type="text", text="I look.", citations=None), made(type="tool_use", id="t", name="go", input={})
    turn = session.record({"role": "assistant", "content": [part, use]})
    assert (turn.text, turn.tool_calls) == ("I look.", [{"id": "t", "name": "go", "input": {}}])
    whole = made(
        id="msg_1", type="message", role="assistant", model="m", content=[part], stop_reason="end_turn", usage={}
    )
    assert session.record(whole).key == "msg_1"


def test_roles_of_other_providers_are_understood(session):
    """As an argument and in a message, in upper and lower case."""
    for word, role in (
        *ROLE_WORDS.items(),
        ("User", "user"),
        ("HUMAN", "user"),
        ("AIMessage", "assistant"),
        ("user_message", "user"),
    ):
        assert session.record(word, "hello").role == role
        assert session.record({"role": word, "content": "hello"}).role == role


@pytest.mark.local
def test_a_message_of_langchain_is_understood(session):
    """Its role is its type."""
    turn = session.record({"type": "human", "content": "hello", "additional_kwargs": {}, "example": False, "id": None})
    assert (turn.role, turn.text, turn.key) == ("user", "hello", None)


def test_what_a_message_says_about_itself_is_kept(session):
    """Name, time, key and metadata, under the names that the importers know."""
    turn = session.record(
        {
            "role": "user",
            "content": "hello",
            "name": "Ada",
            "timestamp": "2026-03-16T12:00Z",
            "id": 7,
            "metadata": {"a": 1},
        }
    )
    assert (turn.speaker, turn.key, turn.metadata) == ("Ada", "7", {"a": 1})
    assert turn.said_at == datetime(2026, 3, 16, 12, tzinfo=UTC)
    unix = session.record({"role": "user", "text": "hello", "created_at": 1_773_662_400})
    assert unix.said_at == datetime(2026, 3, 16, 12, tzinfo=UTC)


def test_an_argument_adds_what_a_message_lacks(session):
    """But does not contradict it."""
    turn = session.record({"role": "user", "content": "hello"}, key="k1", speaker="Ada")
    assert (turn.key, turn.speaker) == ("k1", "Ada")
    assert session.record({"role": "user", "content": "hello", "speaker": "Ada"}, key="k1").position == turn.position
    with pytest.raises(DuplicateKey):
        session.record({"role": "user", "content": "other", "key": "k1"})
    for given in ({"key": "k2"}, {"text": "twice"}, {"speaker": "Bo"}):
        with pytest.raises(InvalidInput, match="given twice"):
            session.record({"role": "user", "content": "a", "key": "k1", "speaker": "Ada"}, **given)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"content": "hi"}, 'role: missing; a message looks like {"role": "user", "content": "Hello"}'),
        ({"role": "boss", "content": "hi"}, "role: 'boss' is none of user, assistant, system, tool, human"),
        ({"role": "user"}, "content: missing; a message looks like"),
        ({"role": "user", "content": []}, "content: missing"),
        (
            {"role": "user", "contents": "hi"},
            "'contents': a message has no such key; use metadata, or one of role, content",
        ),
        ({"role": "user", "content": "hi", "channel": "mail"}, "'channel': a message has no such key; use metadata"),
        ({"role": "user", "content": 5}, "content: expected text or a list of parts, got int"),
        ({"role": "user", "content": [{"text": 5}]}, 'an object such as {"type": "text", "text": "Hello"}'),
        ({"role": "user", "content": "hi", "metadata": 5}, "metadata: expected a mapping, got int"),
        ({"role": "user", "content": "hi", "said_at": 5}, "said_at: 5 is not a Unix time"),
        ({"role": "user", "content": "hi", "session": "other"}, "session: 'other' is not"),
        (5, 'message: expected a dict such as {"role": "user", "content": "Hello"}, got int'),
        ("hi", 'text: missing; write record("user", "Hello")'),
    ],
)
def test_a_message_that_cannot_be_read_is_refused_with_an_example(session, message, why):
    """The error names the key and what was expected; nothing is written."""
    with pytest.raises(InvalidInput) as caught:
        session.record(message)
    assert why in str(caught.value)
    assert session.turns() == []


def test_many_messages_are_recorded_at_once(session, folder):
    """Dicts and `NewTurn`s, for one session or each for its own; all of them or none."""
    chat = [{"role": "user", "content": "Tea?"}, {"role": "ai", "content": [{"type": "text", "text": "Yes."}]}]
    with MemoryStore.open(folder, model=None) as store:
        other = store.start_session("other")
        assert [turn.text for turn in store.record_many(chat, session.id)] == ["Tea?", "Yes."]
        assert [turn.text for turn in store.record_many(chat, session=session.id)] == ["Tea?", "Yes."]
        mixed = [{**chat[0], "session": other.id}, NewTurn(session=session.id, role="Human", text="Now.")]
        assert [(turn.session, turn.role) for turn in store.record_many(mixed)] == [
            (other.id, "user"),
            (session.id, "user"),
        ]
        assert [turn.text for turn in other.record_many(chat)] == ["Tea?", "Yes."]
        with nothing_written(store):
            with pytest.raises(InvalidInput, match=r"messages\[2\]\.role: 'boss' is none of"):
                store.record_many([*chat, {"role": "boss", "content": "x"}], session.id)
            with pytest.raises(InvalidInput, match=r"messages\[0\]\.session: missing; name it in the message"):
                store.record_many(chat)
            with pytest.raises(InvalidInput, match=r"messages\[1\]\.session: '.*' is not"):
                other.record_many(mixed)
            with pytest.raises(LimitExceeded, match=r"messages\[0\]\.text: .* bytes of UTF-8") as caught:
                store.record_many([{"role": "user", "content": "x" * (2 << 20)}], session.id)
            assert caught.value.field == "messages[0].text"
            with pytest.raises(LimitExceeded, match="10,001 messages"):
                store.record_many([chat[0]] * (TURNS_PER_CALL_MAX + 1), session.id)


@pytest.mark.local
def test_a_transcript_with_parts_is_reconciled(session):
    """`reconcile` reads messages by the same rule: passing the transcript again adds nothing."""
    chat = [
        {"role": "human", "content": [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {}}]},
        {"role": "assistant", "content": "A boat.", "finish_reason": "stop"},
    ]
    assert [turn.text for turn in reconcile(session, chat)] == ["Look.\n[image]", "A boat."]
    assert reconcile(session, chat) == []
    with pytest.raises(InvalidInput, match=r"messages\[2\]\.role: 'boss' is none of user"):
        reconcile(session, [*chat, {"role": "boss", "content": "x"}])


@pytest.fixture
def trip(store):
    """A session with turns, a value, a task and a checkpoint."""
    session = store.session("trip")
    for text in ("one", "two", "three"):
        session.record("user", text)
    session.set("city", "Porto")
    session.set_task("book a train", total=3)
    session.checkpoint("booked")
    session.note("window seat")
    return session


WRITES = {
    "record": lambda store, trip: trip.record("user", "four").text,
    "record_many": lambda store, trip: [
        turn.text for turn in trip.record_many([{"role": "user", "content": text} for text in "ab"])
    ],
    "set": lambda store, trip: trip.set("city", "Lisbon"),
    "delete": lambda store, trip: trip.delete("city"),
    "clear": lambda store, trip: trip.clear(),
    "set_task": lambda store, trip: trip.set_task("book a bus").description,
    "update_task": lambda store, trip: trip.update_task(step=1).step,
    "note": lambda store, trip: trip.note("aisle seat"),
    "clear_notes": lambda store, trip: trip.clear_notes(),
    "checkpoint": lambda store, trip: trip.checkpoint("paid"),
    "restore": lambda store, trip: trip.restore("booked"),
    "delete_checkpoint": lambda store, trip: trip.delete_checkpoint("booked"),
    "rewind": lambda store, trip: trip.rewind(turns=2),
    "branch": lambda store, trip: trip.branch().id,
    "end": lambda store, trip: trip.end(),
    "start_session": lambda store, trip: store.start_session().id,
    "start a named session": lambda store, trip: store.start_session("boat").id,
    "session": lambda store, trip: store.session().id,
    "switch": lambda store, trip: store.switch(reason="reset", session=trip).id,
    "switch in place": lambda store, trip: store.switch(reason="rewind", session=trip, turns=1).id,
}


@pytest.mark.local
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_retry_with_the_key_of_its_request_writes_nothing(store, trip, write):
    """It returns what the first try returned, at once and after other events."""
    with request_key("r1"):
        first = write(store, trip)
    for between in (False, True):
        if between:
            store.session("other").record("user", "meanwhile")
            if not trip.at(store.head().position).ended:
                trip.record("user", "meanwhile, here")
        with nothing_written(store), request_key("r1"):
            assert write(store, trip) == first


@pytest.mark.local
def test_another_key_is_another_write(store, trip):
    """Two notes of the same words, wanted twice, are two notes."""
    for key in ("r1", "r2", "r2"):
        with request_key(key):
            trip.note("again")
    assert trip.notes() == ["window seat", "again", "again"]


@pytest.mark.local
def test_a_key_of_ones_own_comes_before_that_of_the_request(store, trip):
    """A turn keeps the key that its caller gave."""
    with request_key("r1"):
        assert trip.record("user", "four", key="mine").key == "mine"
        with pytest.raises(errors.DuplicateKey):
            trip.record("user", "five", key="mine")


@pytest.mark.local
def test_a_refused_write_takes_no_key(store, trip):
    """The same request may succeed later."""
    with request_key("r1"), pytest.raises(errors.CheckpointExists):
        trip.checkpoint("booked")
    trip.delete_checkpoint("booked")
    with request_key("r1"):
        assert trip.checkpoint("booked").name == "booked"


@pytest.mark.local
def test_a_retry_retracts_no_fact_that_came_later(store, trip):
    """It answers how many the first try retracted."""

    def undo(key):
        with request_key(key):
            return store.retract_facts(maker="extractor/1", reason="bad prompt")

    for n in range(3):
        trip.assert_fact(f"k/{n}", n, maker="extractor/1")
    assert undo("r1") == 3
    later, head = trip.assert_fact("k/4", 4, maker="extractor/1"), store.head()
    assert (undo("r1"), store.head()) == (3, head)
    assert undo("r2") == 4
    assert store.fact_history("k/4", scope="")[0].retracted > later.position


@pytest.mark.local
@pytest.mark.parametrize("name", ["set", "set_task", "note", "checkpoint"])
def test_a_retry_of_what_was_forgotten_is_refused(store, trip, name):
    """It would be written again."""
    with request_key("r1"):
        WRITES[name](store, trip)
    store.forget(session=trip)
    with request_key("r1"), pytest.raises(errors.ContentForgotten):
        WRITES[name](store, trip)


@pytest.fixture
def switched(store):
    """The session that the agent is in, with three turns."""
    session = store.switch("trip", reason="new", agent="assistant")
    for text in ("one", "two", "three"):
        session.record("user", text, key=text)
    return session


@pytest.mark.local
@pytest.mark.parametrize(
    "how", [{"reason": "compress"}, {"reason": "rewind", "turns": 1}, {"reason": "resume", "to": "trip"}]
)
def test_a_switch_in_place_is_made_once_under_its_key(store, switched, how):
    """However often it is asked for, and whatever has come after."""
    for _ in range(2):
        assert store.switch(**how, session=switched, key="k1").id == "trip"
        switched.record("user", "four", key="four")
    seen = [turn.text for turn in switched.turns()]
    assert seen == (["one", "two", "four"] if how["reason"] == "rewind" else ["one", "two", "three", "four"])
    assert [event.key for event in store.events() if event.stream == "agent/assistant"] == [None, "k1"]


def test_a_session_that_a_keyed_switch_made_up_is_found_again(store, switched):
    """Without the key another one would be started."""
    other = store.switch(reason="branch", session=switched, key="k1")
    store.switch("trip", reason="resume", agent="assistant")
    assert store.switch(reason="branch", session=switched, key="k1").id == other.id
    assert store.switch(reason="branch", session=switched).id != other.id


def test_a_key_of_another_switch_is_refused(store, switched):
    """Another reason, another session to go to or to leave, or none to go to. Nothing is written."""
    store.start_session("sea", agent="assistant")
    store.switch("plane", reason="new", session=switched, key="k1")
    store.switch("trip-2", reason="compress", session=switched, key="k2")
    with nothing_written(store):
        for other in (
            {"reason": "reset", "to": "plane", "key": "k1"},
            {"reason": "new", "to": "ship", "key": "k1"},
            {"reason": "new", "to": "plane", "session": "sea", "key": "k1"},
            {"reason": "compress", "session": "trip", "key": "k2"},
        ):
            with pytest.raises(errors.DuplicateKey):
                store.switch(**other, agent="assistant")


def test_each_agent_has_keys_of_its_own(store, switched):
    """The key is one of the stream that the switch lies in."""
    store.switch("a", reason="new", agent="one", key="k")
    assert store.switch("b", reason="new", agent="two", key="k").id == "b"


def test_a_session_may_work_for_another(store, switched):
    """It names it as its parent, sees nothing of it and moves no agent; after a restart as well."""
    helper = store.start_session("helper", agent="assistant", parent="trip")
    helper.record("user", "Look it up.")
    assert [turn.text for turn in helper.turns()] == ["Look it up."]
    assert helper.lineage() == ["helper"]
    assert store.current("assistant").id == "trip"
    assert summary(store, "helper").parent == "trip"
    assert summary(store, "helper").branched_at is None
    assert store.session("helper", agent="assistant", parent="trip").id == "helper"
    with pytest.raises(errors.SessionExists):
        store.start_session("helper", agent="assistant")
    with pytest.raises(errors.UnknownSession):
        store.start_session("other", parent="nobody")
    with MemoryStore.open(store.path, model=None, background=False) as again:
        assert [turn.text for turn in again.session("helper").turns()] == ["Look it up."]
        held = next(item for item in again.replay().sessions if item.session == "helper")
        assert (held.parent, held.branched_at) == ("trip", None)


def test_a_key_says_where_its_event_lies(store, switched, log):
    """Forgotten or not."""
    at = log.position_of(session_stream("trip"), "two")
    assert [turn.position for turn in store.turns("trip") if turn.text == "two"] == [at]
    assert log.position_of(session_stream("trip"), "five") is None
    store.forget(positions=[at])
    assert log.position_of(session_stream("trip"), "two") == at
    assert log.appends.transact(lambda tx: tx.position_of(session_stream("trip"), "two")) == at


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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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
