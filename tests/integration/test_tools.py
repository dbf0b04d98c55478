"""Tools for language models, called as any adapter calls them: with a name's schema and arguments as they came."""

import asyncio
import json

import msgspec
import pytest

from mnemolog import AsyncMemoryStore, MemoryStore
from mnemolog.adapters.support.agent_tools import CORE, TOOLS, Answer, Memory, Refusal, conversation_tools, offered
from mnemolog.adapters.support.agent_tools.catalogue import NOTHING
from mnemolog.adapters.support.context import context_for


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
