"""Tools for language models, called as any adapter calls them: with a name's schema and arguments as they came.

Writes that wait for a store: in their order, once, whatever is wrong with it. Stores shared within a process: one
for all who ask alike, closed with the last of them.
"""

import asyncio
import json
import logging
import os
from contextlib import closing

import msgspec
import pytest

from mnemolog import (
    AsyncMemoryStore,
    DuplicateKey,
    LimitExceeded,
    LogBusy,
    MemoryStore,
    NewTurn,
    NotAStore,
    StoreClosed,
    UnknownSession,
)
from mnemolog.adapters.support import outbox
from mnemolog.adapters.support.agent_tools import CORE, TOOLS, Answer, Memory, Refusal, conversation_tools, offered
from mnemolog.adapters.support.agent_tools.catalogue import NOTHING
from mnemolog.adapters.support.context import context_for
from mnemolog.adapters.support.outbox import Outbox, acquire, release
from mnemolog.domain.errors import LogWriteFailed
from tests.children.forking import in_child
from tests.support import HashEncoder, in_thread, open_files, shared_stores


@pytest.fixture
def asked(folder):
    """Ask tools, one after the other, in one store."""

    def ask_all(*calls, read_only=False):
        async def main():
            async with AsyncMemoryStore.open(folder, model=None) as store:
                memory = Memory(store, agent="helper", read_only=read_only)
                return [await offered(read_only=read_only)[name].ask(memory, arguments) for name, arguments in calls]

        return asyncio.run(main())

    return ask_all


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_a_tool_says_when_to_use_it_and_what_it_takes_and_gives(tool):
    """Its schemas are of objects, and can be told as JSON."""
    assert "Use it " in tool.description
    assert tool.input_schema["additionalProperties"] is False
    assert msgspec.json.decode(msgspec.json.encode(tool.input_schema))["type"] == "object"


def test_an_answer_has_its_position(asked):
    """Where the log ended: for what reads before that, for what writes behind it."""
    said, current, listed = asked(
        ("remember", {"session": "trip", "text": "To Lisbon."}),
        ("switch", {"to": "trip"}),
        ("session_list", {}),
    )
    assert (said.position, current.position, listed.position) == (2, 3, 3)
    assert [item.agent for item in listed.result] == ["helper"]
    assert str(said) == '{"session":"trip","positions":[2]}'
    assert '"turns":1' in str(listed)
    assert "null" not in str(listed)


@pytest.mark.parametrize(
    ("name", "arguments", "what"),
    [
        ("recall", {"session": "nowhere", "query": "hi"}, "UnknownSession: "),
        ("recall", {"query": "tea", "scop": "acme"}, "InvalidArguments: "),
        ("recall", {}, "InvalidArguments: "),
        ("recall", ["tea"], "InvalidArguments: "),
        ("recall", {"query": " "}, "InvalidInput: "),
        (
            "recall",
            {"query": "tea", "k": 2.5},
            "InvalidArguments: Expected `int`, got `float` - at `$.k`; k is integer",
        ),
        (
            "working_memory",
            {"delete": "[1]"},
            "InvalidArguments: Expected `str`, got `int` - at `$.delete[0]`; delete is array",
        ),
        (
            "recall",
            {"query": "tea", "scope": "[1]"},
            "InvalidArguments: Expected `str`, got `int` - at `$.scope[0]`",
        ),
        (
            "working_memory",
            {"set": {}},
            "InvalidArguments: working_memory has no argument 'set' (did you mean 'values'?)",
        ),
        ("switch", {"session": "a"}, "InvalidArguments: switch has no argument 'session' (did you mean 'to'?)"),
        ("timeline", {"since": "soon"}, "InvalidInput: since: 'soon' is not a time; expected a time such as "),
        ("remember", {"text": " "}, "InvalidInput: text"),
        ("remember", {"text": "hello", "role": "martian"}, "InvalidInput: role: 'martian' is none of user, assistant"),
        ("recall", {"query": "x", "limit": 3}, "InvalidArguments: recall has no argument 'limit' (did you mean 'k'?)"),
        ("recall", {"query": "x", "scope": "nowhere"}, "UnknownScope: "),
        ("recall", {"query": "x", "as_of": 10_000}, "InvalidInput: "),
    ],
)
@pytest.mark.filterwarnings("error::mnemolog.errors.ScopeWarning")  # As the command line has it.
def test_a_refusal_is_in_words_and_says_what_to_do(name, arguments, what, asked):
    """In those of the tools. Nothing is raised, and nothing written."""
    refusal, status = asked((name, arguments), ("status", {}))
    assert isinstance(refusal, Refusal)
    assert str(refusal).startswith(what)
    assert "\nhint: " in str(refusal)
    assert not any(word in str(refusal) for word in ("nothing was written", "store.", "mnemolog "))
    assert isinstance(status, Answer)
    assert status.position == 0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("remember", {"text": "Tea.", "role": None, "said_at": None}),
        ("recall", {"query": "tea", "k": "3", "scope": None, "min_relevance": "0", "full": "true", "as_of": "2"}),
        ("recall", {"query": "tea", "k": 3.0, "as_of": 2.0, "exchange": None, "since": "yesterday"}),
        ("timeline", {"limit": None, "after": "0", "until": "now"}),
        ("working_memory", {"values": '{"a": null}', "delete": '["a"]'}),
        ("memory_set", {"session": "helper", "key": "a", "value": "[1]", "ttl": "60"}),
        ("checkpoint_create", {"session": "helper", "name": "a", "description": None}),
    ],
)
def test_arguments_are_read_as_models_write_them(name, arguments, asked):
    """Null is not given; numbers and lists may be texts. A text stays a text where one is wanted."""
    said, answer, value = asked(
        ("remember", {"text": '[{"role": "user", "content": "Tea."}]'}),
        (name, arguments),
        ("working_memory", {}),
    )
    assert (str(said), type(answer)) == ('{"session":"helper","positions":[2]}', Answer)
    assert str(value) == (
        '{"values":{"a":"[1]"}}'
        if name == "memory_set"
        else "{}"
        if name != "working_memory"
        else '{"values":{"a":null}}'
    )


def test_a_model_remembers_a_fact_with_the_turn_that_says_so(asked):
    """It hears of keys like its own; null ends; a call that cannot be records no turn either."""
    first, _, second, held, ended, left, refused, alone = asked(
        ("remember", {"text": "I moved to Porto.", "key": "user/city", "value": "Porto", "valid_from": "2026-03"}),
        ("remember", {"text": "I work for Acme.", "key": "user/employer", "value": {"name": "Acme"}}),
        ("remember", {"text": "I live in Porto.", "key": "user/home_city", "value": "Porto"}),
        ("facts", {"pattern": "user/*city", "valid_at": "2100-01"}),
        ("remember", {"text": "I left Porto.", "key": "user/city", "value": None}),
        ("facts", {"pattern": "user/city"}),
        ("remember", {"text": "Hm.", "key": "no path/", "value": 1}),
        ("remember", {"text": "Hm.", "valid_from": "2026-03"}),
    )
    assert str(first) == '{"session":"helper","positions":[2],"fact":3}'
    assert str(second).endswith('"keys_like_it":["user/city","user/employer"]}')
    found = [(fact["key"], fact["value"], fact["because"]) for fact in json.loads(str(held))["facts"]]
    assert found == [("user/city", "Porto", [2]), ("user/home_city", "Porto", [6])]
    assert (ended.position, left.result.note, refused.what[:12], alone.what[:12]) == (9, NOTHING, *["InvalidInput"] * 2)
    assert left.position == 9


def test_a_timeline_asks_for_the_time_of_saying(asked):
    """What was said before it was recorded is in its own time, not in that of the recording."""
    _, tuesday, today = asked(
        ("remember", {"text": "It rains.", "said_at": "3 days ago"}),
        ("timeline", {"since": "4 days ago", "until": "2 days ago"}),
        ("timeline", {"since": "today"}),
    )
    assert "It rains." in tuesday.result
    assert "It rains." not in today.result


def test_a_memory_that_is_read_only_offers_what_reads():
    """And all of that."""
    reading = {name for name, tool in TOOLS.items() if tool.effect == "reads"} | {"working_memory", "propose_fact"}
    assert offered(read_only=True).keys() == reading
    assert offered() == TOOLS
    assert list(offered("core")) == list(CORE)


@pytest.fixture
def conversing(folder):
    """The two tools of a framework that records by itself, bounded to a scope."""
    with MemoryStore.open(folder, model=None, background=False) as store:
        session = store.start_session("now", scope="acme/alice")
        store.start_session("other", scope="acme/bob").record("user", "Bob has a boat.")

        def recall(query):
            return context_for(session, query, scope="acme/alice", fresh=True)

        yield conversation_tools(recall, lambda text: session.record("assistant", text).text, prefix="my_")


def test_a_framework_that_records_its_own_turns_has_tools_to_recall_and_to_remember(conversing):
    """As OpenAI describes functions; answers say where they are from, and nothing is seen of others."""
    functions = [tool.function() for tool in conversing.values()]
    assert [function["name"] for function in functions] == list(conversing) == ["my_recall", "my_remember"]
    for function, argument in zip(functions, ("query", "text"), strict=True):
        assert function["description"]
        assert function["parameters"]["type"] == "object"
        assert function["parameters"]["required"] == [argument]
    assert msgspec.json.decode(conversing["my_remember"].answer({"text": "The boat is red."})) == {
        "kept": "The boat is red."
    }
    (found,) = msgspec.json.decode(conversing["my_recall"].answer({"query": "boat"}))["found"]
    assert found.pop("said_at")
    assert found == {"text": "The boat is red.", "role": "assistant", "session": "now", "position": 4}


@pytest.mark.parametrize("arguments", [{}, {"query": 3}, {"query": " "}])
def test_what_such_a_tool_cannot_answer_it_says_with_a_hint(conversing, arguments):
    """Nothing is raised that a model could put right."""
    told = msgspec.json.decode(conversing["my_recall"].answer(arguments))
    assert told.keys() == {"error", "hint"}
    assert told["hint"].startswith("correct the ")


@pytest.fixture
def reported():
    return []


@pytest.fixture
def box(folder, reported):
    """One for a store of its own."""
    with closing(Outbox(lambda: MemoryStore.open(folder, model=None, background=False), reported.append)) as box:
        box.put(lambda store: store.start_session("trip"))
        yield box


def saying(text):
    """A write that is safe to be called again."""
    return lambda store: store.record_many([NewTurn(session="trip", role="user", text=text, key=text)])


def said(box):
    return [turn.text for turn in box.ask(lambda store: store.turns("trip"))]


def test_what_is_put_is_written_when_that_returns(box, folder):
    """Durable, for any other process."""
    box.put(saying("one"))
    with MemoryStore.open(folder, model=None, background=False) as other:
        assert [turn.text for turn in other.turns("trip")] == ["one"]
    assert len(box) == 0


@pytest.mark.parametrize("error", [LogBusy(waited_s=5), LogWriteFailed("a failing disk")], ids=["busy", "unknown"])
def test_what_cannot_be_written_waits_and_all_that_follows_behind_it(box, reported, error):
    """And is written once, in order, also where nobody knows whether it was written."""
    failing = [error, error, None]

    def fails(store):
        if isinstance(error, LogWriteFailed):
            saying("one")(store)
        if problem := failing.pop(0):
            raise problem
        saying("one")(store)

    with pytest.raises(type(error)):
        box.put(fails)
    with pytest.raises(type(error)):
        box.put(saying("two"))
    assert len(box) == 2
    assert len(reported) == 1  # The same again is not news.
    box.put(saying("three"))
    assert said(box) == ["one", "two", "three"]


def test_an_entry_that_is_always_refused_does_not_block_later_ones(box, reported, caplog):
    """It is raised, reported with its hint, logged, and gone."""
    with caplog.at_level(logging.WARNING), pytest.raises(UnknownSession):
        box.put(lambda store: store.record("nowhere", "user", "hello"))
    assert len(box) == 0
    assert reported[0].startswith("mnemolog: it was not recorded: ")
    assert UnknownSession("nowhere").hint in reported[0]
    assert "nowhere" in caplog.text
    box.put(saying("one"))
    with pytest.raises(DuplicateKey):
        box.put(lambda store: store.record("trip", "user", "something else", key="one"))
    assert len(box) == 0
    assert said(box) == ["one"]


def test_a_store_that_cannot_be_opened_is_tried_again_with_every_call(folder, reported):
    """What is put meanwhile waits."""
    folder.mkdir()
    (folder / "other.txt").write_text("not a store")
    with closing(Outbox(lambda: MemoryStore.open(folder, model=None, background=False), reported.append)) as box:
        for name in ("one", "two"):
            with pytest.raises(NotAStore):
                box.put(lambda store, name=name: store.start_session(name))
        with pytest.raises(NotAStore):
            box.ask(MemoryStore.head)
        assert len(reported) == 1
        (folder / "other.txt").unlink()
        box.flush()
        assert [session.session for session in box.ask(MemoryStore.sessions)] == ["one", "two"]


def test_it_is_bounded(box, monkeypatch):
    """What waits stays, what is one too many is refused."""
    monkeypatch.setattr(outbox, "WAITING_MAX", 1)

    def busy(store):
        raise LogBusy(waited_s=5)

    with pytest.raises(LogBusy):
        box.put(busy)
    with pytest.raises(LimitExceeded, match="2 writes, the limit is 1"):
        box.put(saying("one"))
    assert len(box) == 1
    box._waiting.clear()


def test_a_store_that_others_have_closed_is_reopened(box):
    """For writes and for questions."""
    box.ask(MemoryStore.close)
    box.put(saying("one"))
    box.ask(MemoryStore.close)
    assert said(box) == ["one"]


def test_what_is_put_after_the_end_is_written_and_the_store_is_not_left_open(box, folder):
    """Whoever comes late is heard."""
    box.close()
    box.put(saying("late"))
    assert said(box) == ["late"]
    assert open_files(folder) == []


def test_threads_may_put_at_the_same_time(box):
    """Each write is whole."""
    threads = [in_thread(lambda name=name: [box.put(saying(f"{name} {n}")) for n in range(20)]) for name in "abc"]
    for thread in threads:
        thread.result()
    for name in "abc":
        assert [text for text in said(box) if text.startswith(name)] == [f"{name} {n}" for n in range(20)]


def test_a_forked_child_continues_with_a_store_of_its_own(box):
    """Even if another thread of the parent was writing, and has the lock."""
    box.put(saying("before"))
    with box._lock:
        in_child(lambda: in_thread(lambda: box.put(saying("in the child"))).result())
    box.put(saying("after"))
    assert said(box) == ["before", "in the child", "after"]


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Of any test."""
    assert shared_stores() == 0
    yield
    assert shared_stores() == 0


def test_callers_with_equal_options_share_a_store_until_the_last_releases_it(folder):
    """A relative path is the same folder."""
    encoder = HashEncoder()
    first = acquire(folder, model=encoder, background=False)
    second = acquire(os.path.relpath(folder), background=False, model=encoder)
    assert first is second
    release(first)
    assert second.head().position == 0
    release(second)
    with pytest.raises(StoreClosed):
        second.head()


def test_callers_with_other_options_get_another_store(folder):
    """Another model is another store, and so is another folder."""
    models = None, HashEncoder(), HashEncoder()
    stores = [acquire(folder, model=model, background=False) for model in models]
    stores.append(acquire(folder.with_name("other"), model=None, background=False))
    assert len({id(store) for store in stores}) == shared_stores() == 4
    for store in stores:
        release(store)


def test_one_that_is_broken_is_closed_for_all_and_the_next_has_another(folder):
    """Those who have it still may release it as well."""
    first, second = (acquire(folder, model=None, background=False) for _ in range(2))
    release(first, broken=True)
    with pytest.raises(StoreClosed):
        second.head()
    third = acquire(folder, model=None, background=False)
    assert third is not first
    release(second, broken=True)
    assert third.head().position == 0
    release(third)


def test_one_that_is_not_shared_is_closed(folder):
    """Whoever releases needs not know."""
    store = MemoryStore.open(folder, model=None, background=False)
    release(store)
    with pytest.raises(StoreClosed):
        store.head()


def test_a_store_that_cannot_be_opened_is_not_kept(folder):
    """The next tries again."""
    folder.mkdir()
    (folder / "other.txt").write_text("not a store")
    with pytest.raises(NotAStore):
        acquire(folder, model=None)
    (folder / "other.txt").unlink()
    release(acquire(folder, model=None, background=False))


def test_threads_that_ask_at_the_same_time_have_one_store(folder):
    """Opened once."""
    threads = [in_thread(lambda: acquire(folder, model=None, background=False)) for _ in range(8)]
    stores = [thread.result() for thread in threads]
    assert len({id(store) for store in stores}) == 1
    for store in stores:
        release(store)


def test_a_forked_child_has_none_of_them(folder):
    """It opens its own."""
    store = acquire(folder, model=None, background=False)

    def child():
        own = acquire(folder, model=None, background=False)
        own.start_session("child")
        release(own)
        return shared_stores()

    assert in_child(child) == 0
    assert [session.session for session in store.sessions()] == ["child"]
    release(store)
