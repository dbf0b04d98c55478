"""Whoever reads a part of a list is told so: in the answer, on standard error, and by tools with the next call."""

import inspect
import re
from contextlib import closing

import pytest

from mnemolog import AsyncMemoryStore, MemoryStore, connect
from mnemolog.adapters.support.agent_tools import TOOLS, Memory
from mnemolog.operation_table import OPERATIONS
from mnemolog.types import AssertFact
from tests.support import HashEncoder
from tests.through_http import Served

LIMITS = {"limit", "last", "k", "turns_max"}
TOLD = ("next", "more", "turns_left_out")
READS = {
    "turns limit": lambda store, most: store.turns("s", limit=most),
    "find limit": lambda store, most: store.find("heron", limit=most),
    "recall k": lambda store, most: store.recall("heron", most, min_relevance=0),
    "session.turns limit": lambda store, most: store.session("s").turns(limit=most),
    "session.turns last": lambda store, most: store.session("s").turns(last=most),
    "session.recall k": lambda store, most: store.session("s").recall("heron", most, min_relevance=0),
    "audit.receipts limit": lambda store, most: store.audit.receipts(limit=most),
    "audit.diff turns_max": lambda store, most: store.audit.diff(0, turns_max=most),
    "proposals limit": lambda store, most: store.proposals(limit=most),
    "session.at": lambda store, most: store.session("s").at(store.head().position).turns(limit=most),
    "session.messages": lambda store, most: store.session("s").messages(limit=most),
}
OF_TICKETS = {"session.prefetch k"}
"""Returns no list yet; what it announces is an answer of recall."""


@pytest.fixture
def filled(folder):
    """A store with five turns and a receipt for each of five questions."""
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        store.session("s").record_many([{"role": "user", "content": f"heron {number}"} for number in range(5)])
        for _ in range(5):
            store.recall("heron", receipt=True)
            store.propose(AssertFact("herons", 1))
        yield store


def test_every_read_with_a_limit_is_tried_here():
    parameters = {item.name: inspect.signature(item.method).parameters.keys() & LIMITS for item in OPERATIONS}
    limited = {f"{operation} {limit}" for operation, limits in parameters.items() for limit in limits}
    assert limited == {name for name in READS if " " in name} | OF_TICKETS


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("through_http", [False, True])
def test_an_answer_says_that_its_limit_has_left_some_out(filled, name, through_http):
    """And one that has all says nothing, also where their number is the limit."""
    with closing(Served(filled)) as served, connect(served.url) as remote:
        store = remote if through_http else filled
        answers = {most: READS[name](store, most) for most in (2, 5, 6)}
        told = {most: any(getattr(answer, word, None) for word in TOLD) for most, answer in answers.items()}
    assert told == {2: True, 5: False, 6: False}


def test_the_next_page_begins_where_the_answer_says(filled):
    session, every = filled.session("s"), filled.turns("s")
    assert session.turns(limit=5, after=session.turns(limit=2).next) == every[2:]
    assert session.turns(last=2, before=session.turns(last=2).next) == every[1:3]
    assert session.turns(newest_first=True, before=session.turns(newest_first=True, limit=2).next) == every[2::-1]


@pytest.mark.parametrize("options", ["show s", "show s --at 6", "show s --hidden", "find heron", "find heron --json"])
def test_the_command_line_names_the_option_for_the_rest(filled, folder, run, options):
    command, *rest = options.split()
    told = {most: run(command, folder, *rest, "--limit", most).stderr for most in ("2", "5")}
    assert told == {"2": f"note: the limit leaves some out; more: --after {filled.turns('s')[1].position}\n", "5": ""}


async def test_a_tool_names_the_call_for_the_rest(folder):
    """Pages of a timeline follow one another both ways, and each event is on one of them."""
    async with AsyncMemoryStore.open(folder, model=None) as store:
        for number in range(3):
            await (await store.start_session(f"s{number}")).record("user", f"heron {number}")
        memory = Memory(store, agent="tester")

        async def ask(tool, **arguments):
            return (await TOOLS[tool].ask(memory, arguments)).result

        newest = await ask("timeline", limit=2)
        before = int(re.match(r"\(earlier: after=(\d+)\)", newest)[1])
        older = await ask("timeline", limit=2, after=before)
        shown = [line.split()[0] for line in f"{older}\n{newest}".splitlines()]
        assert shown == ["@3", "@4", "(more:", "(earlier:", "@5", "@6"]
        listed = await TOOLS["session_list"].ask(memory, {"limit": 2})
        first = await TOOLS["session_list"].ask(memory, {"limit": 2, "before": listed.next})
        assert [item.session for item in (*first.result, *listed.result)] == ["s0", "s1", "s2"]
        assert first.next is None
