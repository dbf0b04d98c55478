"""Messages as people have them: dicts, parts and roles of model providers, alone and many at once."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from mnemolog import MemoryStore, NewTurn
from mnemolog.adapters.support.framework_sessions import reconcile
from mnemolog.domain.errors import DuplicateKey, InvalidInput, LimitExceeded
from mnemolog.domain.message import ROLE_WORDS
from mnemolog.domain.values import TURNS_PER_CALL_MAX
from tests.support import nothing_written

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
