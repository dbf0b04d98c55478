"""Numbers and sizes that a caller gives: each has bounds, which the library, the server and the commands keep alike."""

import ast
import importlib
import inspect
import json
import math
import os
import re
from contextlib import closing, suppress
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin
from uuid import uuid4

import httpx2
import pytest
from starlette.datastructures import QueryParams

from mnemolog import (
    AsyncMemoryStore,
    MemoryLimits,
    MemoryStore,
    Session,
    SessionAt,
    Weights,
    acting_as,
    connect,
    errors,
)
from mnemolog.adapters.importers import turn as imported_turn
from mnemolog.adapters.support.graph_checkpoints import Threads, Typed
from mnemolog.adapters.support.outbox import Outbox
from mnemolog.adapters.watch.watcher import ready_to_follow
from mnemolog.cli.app import COMMANDS as COMMAND_NAMES
from mnemolog.cli.app import loaded
from mnemolog.domain import items, threads
from mnemolog.domain.encoding import to_msgpack
from mnemolog.domain.events import AssertFact
from mnemolog.domain.working_memory import checked_expiry
from mnemolog.infra.embedding import encoder as encoders
from mnemolog.operation_table import OWNERS
from mnemolog.server.console.page import ConsoleRequest, form_of
from mnemolog.server.http.guard import parts_in
from tests.console import Browser, opened_console
from tests.support import WAIT_S, HashEncoder
from tests.through_http import Served

pytestmark = pytest.mark.local

ROOT = Path(__file__).parents[2]
HUGE = 1 << 64


class Stores(NamedTuple):
    """One store, in this process and behind a server; and a console of another one."""

    local: MemoryStore
    remote: MemoryStore
    url: str
    console: Browser


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bounds")
    with (
        closing(Served(MemoryStore.open(folder / "memory", model=None, background=False))) as served,
        connect(served.url) as remote,
        opened_console(folder / "console", write=True) as console,
    ):
        trip = served.local.session("trip")
        trip.record("user", "The ferry leaves at nine.", key="first")
        trip.record("user", "It is late.")
        trip.set_task("Book the ferry")
        served.local.session("elsewhere", scope="many")
        served.local.recall("ferry", receipt=True)
        yield Stores(served.local, remote, served.url, console)


# Numbers ------------------------------------------------------------------------------------------------------------

ARGUMENTS = {
    **{"query": "ferry", "text": "ferry", "key": "user/city", "value": 1, "session": "trip", "description": "Book it"},
    **{
        "before": 1,
        "receipt": 4,
        "fact": 1,
        "reason": "rewind",
        "position": 2,
        "distrust": 1,
        "statement": 2,
        "hold": 1,
        "act": AssertFact("user/city", 1),
        "positions": 1,
    },
}
"""Arguments of methods that have to be given."""


def _kinds(annotation):
    """The types of which a value may be, None aside."""
    return {annotation} if get_origin(annotation) not in (Union, UnionType) else {*get_args(annotation)} - {type(None)}


NUMBERS = [
    (owner, name, parameter.name, float not in _kinds(parameter.annotation))
    for owner in (*OWNERS, SessionAt)
    for name, call in inspect.getmembers(owner, inspect.isfunction)
    if not name.startswith("_") and name != "add"
    for parameter in inspect.signature(call, eval_str=True).parameters.values()
    if {int, float} & (kinds := _kinds(parameter.annotation))
    if not kinds & {date, datetime} and not any(get_origin(kind) for kind in kinds)
]
"""Each parameter of a public method that is a number: the class, the method, the parameter, whether it is whole."""


def _owner_in(store, owner):
    trip = store.session("trip")
    made = {Session: trip, SessionAt: trip.at(3), MemoryStore: store}
    return made.get(owner) or getattr(store, {"AuditService": "audit", "AdminService": "admin"}[owner.__name__])


@pytest.mark.parametrize(("owner", "method", "name", "whole"), NUMBERS)
def test_a_number_out_of_range_is_refused_with_its_name(stores, owner, method, name, whole):
    """By each method that takes one, called here or over HTTP, whatever else it would do."""
    taken = inspect.signature(getattr(owner, method)).parameters.values()
    others = {item.name: ARGUMENTS[item.name] for item in taken if item.default is item.empty and item.name != "self"}
    of_here = [True, "3", math.nan, math.inf, *([1.5] if whole else [])]
    for store, given in ((stores.local, [-1, HUGE, *of_here]), (stores.remote, [-1, HUGE])):
        call = getattr(_owner_in(store, owner), method)
        for value in given:
            with pytest.raises(errors.InvalidInput) as caught:
                call(**(others | {name: value}))
            assert caught.value.field == name, (value, caught.value)


OUTSIDE_OF_METHODS = {
    "busy_timeout_s": lambda folder, value: MemoryStore.open(folder, model=None, busy_timeout_s=value),
    "timeout_s": lambda _, value: connect("http://localhost", timeout_s=value),
    "patience_s": lambda _, value: connect("http://localhost", patience_s=value),
    "tries": lambda _, value: connect("http://localhost", tries=value),
    "poll_s": lambda _, value: ready_to_follow(value),
}


@pytest.mark.parametrize("name", OUTSIDE_OF_METHODS)
@pytest.mark.parametrize("value", [-1, HUGE, True, "3", math.nan, math.inf])
def test_opening_refuses_a_number_out_of_range_with_its_name(folder, name, value):
    """A store, a connection, and what follows transcripts."""
    with pytest.raises(errors.InvalidInput) as caught:
        OUTSIDE_OF_METHODS[name](folder, value)
    assert caught.value.field == name


@pytest.mark.parametrize("value", [-1, math.inf, "3"])
async def test_waiting_for_a_prefetch_refuses_a_time_out_of_range(stores, folder, value):
    """The ticket as the session does, and a session of asyncio."""
    ticket = stores.local.session("trip").prefetch("ferry", mode="text")
    with pytest.raises(errors.InvalidInput, match="timeout_s: a number from 0 to 86,400, got "):
        ticket.wait(value)

    async with AsyncMemoryStore.open(folder, model=None) as store:
        with pytest.raises(errors.InvalidInput, match="wait_s: a number from 0 to 86,400, got "):
            await (await store.session("trip")).prefetch_result(wait_s=value)


TYPED = {
    "find DIR ferry --limit 0": "--limit: a whole number from 1 on, got 0",
    "find DIR ferry --limit -1": "--limit: a whole number from 1 on, got -1",
    "show DIR trip --limit 0": "--limit: a whole number from 1 on, got 0",
    "show DIR trip --last 0": "--last: a whole number from 1 on, got 0",
    "show DIR trip --at 3 --last -1": "--last: a whole number from 1 on, got -1",
    "recall DIR ferry --model none --k 0": "--k: a whole number from 1 to 1,000, got 0",
    "recall DIR ferry --model none --context-turns 21": "--context-turns: a whole number from 0 to 20, got 21",
    "recall DIR ferry --model none --min-relevance 1.5": "--min-relevance: a number from 0 to 1, got 1.5",
    "context DIR ferry --model none --tokens -1": "--tokens: a whole number from 0 on, got -1",
    "audit DIR --model none --limit 0": "--limit: a whole number from 1 on, got 0",
    "diff DIR 1 --limit -3": "--limit: a whole number from 0 on, got -3",
    "replay DIR --from 0": "--from: a whole number from 1 on, got 0",
    "export DIR - --from 0": "--from: a whole number from 1 on, got 0",
    "rewind DIR trip --turns 0": "--turns: a whole number from 1 on, got 0",
    "switch DIR --reason rewind --from trip --turns 0": "--turns: a whole number from 1 on, got 0",
    "judge DIR 6 --good 0": "--good: there is no hit 0: the answer has 1",
    "judge DIR 6 --bad 2": "--bad: there is no hit 2: the answer has 1",
    "task DIR trip --step -1": "--step: a whole number from 0 on, got -1",
    "task DIR trip --percent 101": "--percent: a number from 0 to 100, got 101.0",
    "memory set DIR trip a 1 --ttl 0": "--ttl: must be more than 0 seconds; delete the value to remove it now",
    "watch DIR . --poll 0.01": "--poll: a number from 0.05 to 86,400, got 0.01",
    "serve DIR --model none --port 65536": "--port: a whole number from 0 to 65,535, got 65536",
    "serve DIR --model none --body-max 1023": "--body-max: a whole number from 1024 on, got 1023",
}


@pytest.mark.parametrize("line", TYPED)
def test_a_command_shows_the_refusal_of_the_library_with_its_own_option(stores, run, line):
    """As wrong usage, with the value and the range."""
    ran = run(*(stores.local.path if word == "DIR" else word for word in line.split()))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines()[0] == f"error: {TYPED[line]}"


def test_no_option_of_a_command_has_bounds_of_its_own():
    """They would be others than those of the library, sooner or later."""
    commands = [loaded(name) for names in COMMAND_NAMES.values() for name in names]
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        for parameter in command.params:
            assert getattr(parameter.type, "min", None) is getattr(parameter.type, "max", None) is None, parameter.name


# Named limits -------------------------------------------------------------------------------------------------------


def sized(size, made=lambda text: text):
    """A JSON value that has this size when it is stored."""
    fitting = (made("y" * length) for length in range(size, size - 20, -1))
    return next(value for value in fitting if len(to_msgpack(value)) == size)


def nested(levels):
    """A list in lists, so many levels deep below the value that holds it."""
    value: Any = 1
    for _ in range(levels - 1):
        value = [value]
    return value


def put_checkpoint(local, size):
    """A checkpoint whose channels have this size together. Zeros, which take little room."""
    whole = bytes(min(size, threads.BLOB_BYTES_MAX))
    parts = [*[whole] * (size // len(whole)), *([whole[: size % len(whole)]] if size % len(whole) else [])]
    channels = {f"c{n}": partial(Typed, "bytes", part) for n, part in enumerate(parts)}
    graph = Threads(local)
    try:
        empty = Typed("bytes", b"")
        graph.checkpoint(
            "t", "", "1", parent=None, checkpoint=empty, metadata=empty, channels=channels, changed=channels
        )
    finally:
        graph.close()


def fill_outbox(_, count):
    """Put one more write that fails for now into an outbox in which all others wait already."""

    def busy(_):
        raise errors.LogBusy(waited_s=1.0)

    box = Outbox(partial(SimpleNamespace, close=bool))
    box._waiting.extend([busy] * (count - 1))
    with suppress(errors.LogBusy):
        box.put(busy)


def model_with(_, length):
    """The identity of a model whose fingerprint has this length."""
    encoder = HashEncoder()
    encoder.fingerprint = "f" * length
    return encoders._identity(encoder, recipe="")


def record(store, **about):
    return store.record("trip", "user", about.pop("text", "The ferry leaves at nine."), **about)


def recall(store, query="ferry", **how):
    return store.recall(query, mode="text", **how)


def end_of_time(length):
    """A time in so many characters."""
    return "2026-03-16T14:00:00." + "0" * (length - 20)


L = "domain/values.py "


def fill_queue(store, count, *, actors):
    """Have each actor make as many of the proposals, in a scope of its own."""
    scope = f"queue-{uuid4().hex}"
    for number in range(count):
        with acting_as(f"actor-{number % actors}"):
            store.propose(AssertFact(f"k{number}", 1), scope=scope)


LIBRARY = {
    L + "INTEGER_MAX": lambda store, n: store.find("ferry", limit=n),
    L + "TEXT_BYTES_MAX": lambda store, n: record(store, text="x" * n),
    L + "METADATA_BYTES_MAX": lambda store, n: record(store, metadata=sized(n, lambda text: {"k": text})),
    L + "LABEL_BYTES_MAX": lambda store, n: record(store, speaker="x" * n),
    L + "KEY_BYTES_MAX": lambda store, n: record(store, key="x" * n),
    L + "SCOPE_BYTES_MAX": lambda store, n: store.session("s" * (n % 2 + 1), scope="x" * n),
    L + "QUERY_BYTES_MAX": lambda store, n: recall(store, "ferry" + " " * (n - 6) + "x"),
    L + "RECALL_K_MAX": lambda store, n: recall(store, k=n),
    L + "RECALL_FILTERS_MAX": lambda store, n: recall(store, speakers=[f"s{i}" for i in range(n)]),
    L + "CONTEXT_TURNS_MAX": lambda store, n: recall(store, context_turns=n),
    L + "TURNS_PER_CALL_MAX": lambda store, n: store.record_many([ONE] * n, "trip"),
    L + "WAIT_S_MAX": lambda _, n: connect("http://localhost", timeout_s=n),
    L + "VALUE_BYTES_MAX": lambda store, n: store.session("trip").set("k", sized(n)),
    L + "VALUE_KEY_BYTES_MAX": lambda store, n: store.session("trip").set("x" * n, 1),
    L + "TASK_BYTES_MAX": lambda store, n: store.session("task").set_task("x" * n),
    L + "NOTE_BYTES_MAX": lambda store, n: store.session("trip").note("x" * n),
    L + "DESCRIPTION_BYTES_MAX": lambda store, n: store.session("trip").checkpoint(
        f"c{n}{type(store).__name__}", "x" * n
    ),
    L + "JSON_DEPTH_MAX": lambda store, n: store.session("trip").set("k", nested(n + 1)),
    L + "BLOB_BYTES_MAX": lambda _, n: threads.pack("bytes", bytes(n)),
    L + "CHECKPOINT_BYTES_MAX": put_checkpoint,
    L + "ITEM_BYTES_MAX": lambda _, n: put_item(value=sized(n, lambda text: {"k": text})),
    "domain/items.py TTL_S_MAX": lambda _, n: put_item(ttl_s=n),
    "domain/items.py _DEPTH_MAX": lambda _, n: items.join_namespace(["x"] * n),
    "domain/scope.py SCOPES_MAX": lambda store, n: store.facts(scope=[f"s{i}" for i in range(n)]),
    "domain/proposals.py OPEN_MAX": lambda local, n: fill_queue(local, n, actors=11),
    "domain/proposals.py OPEN_OF_ACTOR_MAX": lambda store, n: fill_queue(store, n, actors=1),
    "domain/facts.py BECAUSE_MAX": lambda store, n: store.assert_fact("k", n, because=[2] * n),
    "domain/values.py TIME_CHARACTERS_MAX": lambda store, n: store.sessions(since=end_of_time(n)),
    "domain/working_memory.py _EXPIRES_AT_MAX": lambda _, n: checked_expiry(timedelta(microseconds=n), now=0),
    "projections/recall/question.py WEIGHT_MAX": lambda store, n: recall(store, weights=Weights(words=n)),
    "infra/embedding/encoder.py FINGERPRINT_BYTES_MAX": model_with,
    "adapters/importers/turn.py TIME_CHARACTERS_MAX": lambda _, n: imported_turn.parse_time("time", end_of_time(n)),
    "adapters/support/outbox.py WAITING_MAX": fill_outbox,
    "adapters/watch/watcher.py POLL_S_MIN": lambda _, n: ready_to_follow(n),
    "server/console/page.py FORM_FIELDS_MAX": lambda _, n: form_of(b"&".join([b"a=1"] * n)),
    "server/console/page.py POSITIONS_MAX": lambda _, n: ConsoleRequest(None, QueryParams(p=f"1-{n}")).positions("p"),
}
"""What the store or a function is told, by the limit: at the limit it is accepted, one step beyond refused.

Where the first parameter is `store`, it is called over HTTP as well.
"""

DIR = "DIR"
COMMANDS = {
    L + "INTEGER_MAX": lambda n: ("show", DIR, "trip", "--limit", n),
    L + "TEXT_BYTES_MAX": lambda n: ("record", DIR, "trip", "x" * n),
    L + "METADATA_BYTES_MAX": lambda n: ("record", DIR, "trip", "x", "--metadata", as_json(sized(n, as_field))),
    L + "LABEL_BYTES_MAX": lambda n: ("record", DIR, "trip", "x", "--speaker", "x" * n),
    L + "KEY_BYTES_MAX": lambda n: ("record", DIR, "trip", "x", "--key", "y" * n),
    L + "SCOPE_BYTES_MAX": lambda n: ("record", DIR, "typed", "x", "--start", "--scope", "x" * n),
    L + "QUERY_BYTES_MAX": lambda n: ("recall", DIR, "x" * n, "--mode", "text", "--model", "none"),
    L + "RECALL_K_MAX": lambda n: ("recall", DIR, "ferry", "--model", "none", "-k", n),
    L + "RECALL_FILTERS_MAX": lambda n: ("find", DIR, "ferry", *(f"--speaker=s{i}" for i in range(n))),
    L + "CONTEXT_TURNS_MAX": lambda n: ("recall", DIR, "ferry", "--model", "none", "--context-turns", n),
    L + "VALUE_BYTES_MAX": lambda n: ("memory", "set", DIR, "trip", "k", sized(n), "--text"),
    L + "VALUE_KEY_BYTES_MAX": lambda n: ("memory", "set", DIR, "trip", "x" * n, "1"),
    L + "TASK_BYTES_MAX": lambda n: ("task", DIR, "trip", "--set", "x" * n),
    L + "NOTE_BYTES_MAX": lambda n: ("notes", DIR, "trip", "--add", "x" * n),
    L + "DESCRIPTION_BYTES_MAX": lambda n: ("checkpoint", "create", DIR, "trip", f"c{n}", "--description", "x" * n),
    L + "JSON_DEPTH_MAX": lambda n: ("memory", "set", DIR, "trip", "k", as_json(nested(n + 1))),
    "domain/scope.py SCOPES_MAX": lambda n: ("recall", DIR, "x", "--model=none", *["--scope=many"] * n),
    "domain/facts.py BECAUSE_MAX": lambda n: ("assert", DIR, "k", "1", *["--because=2"] * n),
    "domain/values.py TIME_CHARACTERS_MAX": lambda n: ("sessions", DIR, "--since", end_of_time(n)),
}
"""The same on the command line, for limits that a command can reach."""


def padded(body, size):
    """A body that white space makes this large."""
    return body + b" " * (size - len(body))


def in_parts(count):
    """A body of this many parts."""
    body = b'{"messages": [%s]}'
    return body % b"0,".join([b""] * (count - parts_in(body % b"") + 1))


ONE = {"role": "user", "content": "x", "key": "one"}
ASKED = b'{"query": "ferry", "mode": "text"}'
HTTP = {
    "api/defaults.py BODY_MAX": lambda send, n: send("POST", "/v1/turns", content=padded(b'{"messages": []}', n)),
    "server/http/guard.py SMALL_BODY_MAX": lambda send, n: send("POST", "/v1/recall", content=padded(ASKED, n)),
    "server/http/guard.py PARTS_MAX": lambda send, n: send("POST", "/v1/turns", content=in_parts(n)),
    "server/http/serialization.py PAGE_MAX": lambda send, n: send("GET", "/v1/events", params={"limit": n}),
    "server/http/serialization.py QUERY_MAX": lambda send, n: send("GET", "/v1/events?" + "&".join(["after=1"] * n)),
    "server/http/serialization.py WAIT_MAX_S": lambda send, n: send("POST", "/v1/recall", json=asked(timeout_s=n)),
    "server/console/recall_page.py HITS_MAX": lambda send, n: send("GET", "/recall", params={"q": "x", "k": n}),
    "server/console/recall_page.py TOKENS_MAX": lambda send, n: send("GET", "/context", params={"q": "x", "tokens": n}),
    "server/console/upkeep_page.py DAYS_MAX": lambda send, n: send("POST", "/tokens", data=token_for(n)),
}
"""Requests to the API, or to the console, by the limit of what the server takes."""


def asked(**more):
    return json.loads(ASKED) | more


def token_for(days):
    return {"actor": "ann", "verb": "read", "days": days}


def as_json(value):
    return json.dumps(value)


def as_field(text):
    return {"k": text}


def put_item(value=None, ttl_s=None):
    return items.new_item(key="k", value=value or {}, paths=None, ttl_s=ttl_s, now=0)


def limit(key):
    """The value of a limit, and the next one beyond it."""
    path, name = key.split()
    module = "mnemolog." + path.removeprefix("api/").removesuffix(".py").replace("/", ".")
    value = getattr(importlib.import_module(module), name)
    step = -1 if name.endswith("_MIN") else 1
    return value, value + step * (1 if isinstance(value, int) else value / 100)


@pytest.mark.parametrize("key", LIBRARY)
def test_the_library_accepts_the_limit_and_refuses_the_next_step(stores, key):
    """With an error that names what was given, and the limit."""
    call, (most, beyond) = LIBRARY[key], limit(key)
    taker = next(iter(inspect.signature(call).parameters))
    for store in (stores.local, stores.remote) if taker == "store" else (stores.local,):
        call(store, most)
        with pytest.raises(errors.InvalidInput) as refused:
            call(store, beyond)
        assert refused.value.field
        assert tells(str(refused.value), most, beyond), refused.value


@pytest.mark.parametrize("key", COMMANDS)
def test_the_command_line_accepts_the_limit_and_refuses_the_next_step(stores, run, key):
    """As wrong usage: the line of the error names what was given, and the limit."""
    most, beyond = limit(key)
    for value, status in ((most, 0), (beyond, 2)):
        ran = run(*(stores.local.path if item is DIR else item for item in COMMANDS[key](value))).exited(status)
    assert tells(ran.stderr, most, beyond), ran.stderr


@pytest.mark.parametrize("key", HTTP)
def test_the_server_accepts_the_limit_and_refuses_the_next_step(stores, key):
    """A request is refused as such, before anything is looked for."""
    (most, beyond), shown = limit(key), []
    with httpx2.Client(base_url=stores.url, timeout=WAIT_S) as client:
        send = stores.console.send if "console" in key else client.request
        for value in (most, beyond):
            answer = HTTP[key](send, value)
            shown.append((answer.status_code in (400, 413), tells(answer.text, most, beyond)))
    assert shown[0][0] is False or not shown[0][1]
    assert shown[1] == (True, True), answer.text


def tells(message, most, beyond):
    """Whether a message names the limit; for what is too long or too late to be a time, that."""
    return (
        any(f"{value:,}" in message or str(value) in message for value in (most, beyond))
        or "a time" in message
        or "year 9999" in message
    )


MEMORY = {
    "values_max": lambda trip, n: [trip.set(f"k{i}", i) for i in range(n)],
    "values_bytes_max": lambda trip, n: trip.set("k", sized(n - 1)),
    "notes_max": lambda trip, n: [trip.note("x") for _ in range(n)],
    "notes_bytes_max": lambda trip, n: trip.note("x" * n),
    "note_bytes_max": lambda trip, n: trip.note("x" * n),
    "checkpoints_max": lambda trip, n: [trip.checkpoint(f"c{i}") for i in range(n)],
}


@pytest.mark.parametrize("name", MemoryLimits.__struct_fields__)
def test_the_memory_of_a_session_holds_its_limit_and_no_more(folder, name):
    """Each of the limits that a store is opened with."""
    with MemoryStore.open(folder, model=None, limits=MemoryLimits(**{name: 30})) as store:
        MEMORY[name](store.session("full"), 30)
        with pytest.raises(errors.LimitExceeded) as refused:
            MEMORY[name](store.session("over"), 31)
        assert (refused.value.limit, refused.value.actual) == (30, 31)


NO_BOUND = {
    "kept in memory": """
        adapters/importers/turn.py PLANS_MAX
        adapters/importers/source.py _BEGINNINGS_MAX
        adapters/importers/transcripts/interpreter.py RECENT_MAX
        api/application/facts.py SCOPES_KEPT_MAX
        api/forgetting/proposals.py STREAMS_KEPT_MAX
        api/application/session_service.py AGENTS_KEPT_MAX
        api/audit/subject.py STREAMS_KEPT_MAX
        api/operations/backup_files.py BACKUPS_MAX
        infra/keys/keyring.py STREAMS_KEPT_MAX
        infra/log/transaction.py STREAMS_CACHED_MAX
        projections/history/states.py SESSIONS_KEPT_MAX INSIDE_KEPT_MAX CHECKPOINTS_KEPT_MAX
        projections/history/states.py REFS_CACHED_MAX
        projections/history/timeline.py TITLES_KEPT_MAX
        projections/recall/prefetch.py WAITING_MAX REMEMBERED_MAX REMEMBERED_CHARACTERS_MAX
        projections/sql/snapshots.py SNAPSHOTS_KEPT_MAX
        projections/sql/words.py REMEMBERED_MAX REMEMBERED_CHARACTERS_MAX
        projections/vectors/checked_rows.py KEPT_ROWS_MAX
        server/console/jobs.py JOBS_MAX
        server/http/authentication.py PARTS_MAX ADDRESSES_MAX
        server/http/live_events.py KEPT_MAX KEPT_BYTES_MAX
    """,
    "worked on at a time": """
        adapters/importers/import_files.py BATCH_MAX BATCH_CHARACTERS_MAX
        adapters/importers/transcripts/reading.py LINES_MAX BYTES_MAX
        api/aio/wrappers.py WRITERS_MAX READERS_MAX RECALLERS_MAX BACKGROUND_MAX ACCESS_MAX
        api/audit/diff.py BATCH_MAX
        api/audit/exports.py BATCH_MAX
        api/audit/secret_scan.py BATCH_MAX
        infra/embedding/encoder.py BATCH_TOKENS_MAX BERT_TOKENS_MAX THREADS_MAX
        infra/log/group_commit.py GROUP_MAX QUEUE_MAX GATHER_S_MAX
        infra/log/seen_head.py LINE_BYTES_MAX
        infra/log/sqlite/engine.py ROWS_MAX
        infra/postgres.py POOL_MAX
        projections/history/verify.py BATCH_MAX
        projections/history/timeline.py BATCH_MAX
        projections/sql/embeddings.py LOOKUP_MAX DELETED_TOGETHER_MAX FREE_PAGES_MAX
        projections/sql/fact_queries.py ANSWER_TURNS_MAX TOGETHER_MAX
        projections/sql/database.py BATCH_MAX
        projections/vectors/generation.py EVENTS_TOGETHER_MAX
        server/client/connection.py CONNECTIONS_MAX
        server/console/jobs.py RUNNING_MAX
        server/http/live_events.py BATCH_MAX READ_MAX
        projections/sql/queries.py SPANS_INLINE_MAX
    """,
    "shown": """
        adapters/importers/source.py SAMPLES_MAX
        adapters/importers/transcripts/recording.py REFUSED_LISTED_MAX
        adapters/importers/message_reader.py FIELDS_KEPT_MAX REASONS_MAX
        adapters/openai_agents/session.py SHOWN_MAX
        adapters/support/agent_tools/catalogue.py LINE_MAX SCANNED_MAX
        api/application/facts.py NEAREST_MAX _COMPARED_MAX
        api/audit/receipt_audit.py LIMIT
        api/audit/effects.py REVIEWED_MAX
        api/audit/service.py DIFF_TURNS_MAX
        api/forgetting/plan.py ASKED_MAX
        api/forgetting/service.py BATCH_MAX
        api/operations/doctor.py LISTED_MAX
        cli/forgetting.py PREVIEWED_MAX POSITIONS_MAX
        cli/terminal.py _WIDTH_MIN _SHORTENED_MIN
        domain/display.py LINE_CHARACTERS_MAX TEXT_CHARACTERS_MAX
        domain/result.py LINE_CHARACTERS_MAX TEXT_CHARACTERS_MAX
        infra/log/sqlite/engine.py PROBLEMS_MAX
        projections/context/packing.py STANDING_TOKENS_MAX CHARACTERS_PER_TOKEN_MAX
        projections/context/standing.py CONSIDERED_MAX LIKE_MAX SHOWN_MAX
        projections/history/verify.py FINDINGS_MAX
        projections/maintenance/tables.py LISTED_MAX
        projections/recall/hits.py EXCHANGE_TURNS_MAX
        projections/recall/passages.py PASSAGE_CHARACTERS_MAX
        server/console/facts_page.py FACTS_MAX
        server/console/history_page.py LOOKED_MAX WITNESSES_MAX
        server/console/overview_page.py GROUPS_MAX LATEST_MAX QUESTIONS_MAX RECEIPTS_MAX CHANGED_MAX
        server/console/recall_page.py LEFT_OUT_MAX
        server/console/receipts_page.py LOOKED_MAX
        server/console/rendering.py TEXT_CHARACTERS_MAX EXCERPT_CHARACTERS_MAX RAW_CHARACTERS_MAX
        server/console/sessions_page.py LINEAGE_MAX TURNS_MAX VALUES_MAX NOTES_MAX RECEIPTS_MAX NEAR_MAX OTHERS_MAX
        server/console/sessions_page.py ROWS_MAX FOUND_MAX FOUND_TURNS_MAX NAMES_MAX
        server/console/upkeep_page.py QUARANTINED_MAX
        api/forgetting/history.py RANGES_MAX ITEMS_MAX
    """,
    "how it works": """
        adapters/importers/formats/flat.py LEVELS_MAX
        adapters/importers/source.py _EXPLAINED_BYTES_MAX
        adapters/support/context.py SIMILARITY_MIN MESSAGE_CHARS_MAX
        adapters/support/framework_sessions.py LOOKED_BACK_MAX
        api/application/session_service.py ATTEMPTS_MAX
        api/audit/receipt_audit.py SCORES_DIFFER_MAX
        api/models/service.py CATCH_UP_PASSES_MAX
        api/operations/doctor.py SERIES_MAX STATES_MAX
        api/operations/nodes.py LOOKS_MAX
        cli/entry.py GARBAGE_MIN
        domain/binary_delta.py COPY_BYTES_MIN COPIES_MAX SEARCHED_BYTES_MAX
        domain/encoding.py _MSGPACK_MIN _MSGPACK_MAX
        domain/standing.py TURN_CHARACTERS_MAX SENTENCE_CHARACTERS_MAX
        domain/threads.py PACK_BYTES_MIN
        domain/working_memory.py EXPIRED_DELETED_MAX
        infra/keys/key_tree.py LEAF_MAX
        infra/keys/keyring.py SERIES_MAX
        infra/sqlite.py LOOKS_MAX
        infra/runtime/files.py ROOM_MIN_BYTES
        infra/sqlite.py WAL_SIZE_LIMIT_BYTES
        projections/context/service.py HITS_MIN HITS_MAX
        projections/maintenance/vectors.py PASSES_MAX
        projections/projector.py RETRY_S_MIN RETRY_S_MAX
        projections/recall/bm25.py IDF_MIN
        projections/recall/candidates.py RARE_MAX CANDIDATES_MIN
        projections/recall/ranking.py COMPARED_MAX
        projections/recall/candidates.py CHARACTERS_MAX COMPARED_CHARACTERS_MAX
        projections/recall/ranking.py RERANKED_MAX
        projections/recall/scoring.py NUMBER_BEHIND_MAX
        projections/recall/text_search.py PLACES_MAX
        projections/sql/database.py FAULTS_MAX
        projections/sql/position_blocks.py LISTED_MAX LENGTH_MAX
        projections/sql/turn_tables.py VALUE_BYTES_MAX
        projections/sql/words.py TERMS_MAX FORMS_MAX STEMMED_CHARACTERS_MAX
        projections/vectors/ann_index.py COARSE_ROWS_MIN TRAINED_WITH_MAX FOUND_MIN GAIN_MIN PROBED_MIN
        projections/vectors/checked_rows.py GAP_ROWS_MAX
        projections/vectors/generation.py SHARE_MAX UNEVEN_MAX LISTINGS_MAX
        projections/vectors/folders.py LOOKS_MAX
        projections/vectors/projection.py TAIL_ROWS_MAX SEGMENTS_MAX ATTEMPTS_MAX
        server/client/connection.py WAIT_MAX_S
        server/http/connections.py PLACES_MIN
        domain/spelling.py COMPARED_MAX MEASURED_MAX CHARACTERS_MAX RUN_MAX
    """,
    "of a file, in the tests of that file": """
        adapters/importers/source.py DOCUMENT_BYTES_MAX
        api/operations/backup_files.py BYTES_MAX
        infra/embedding/model_files.py _SAFETENSORS_HEADER_BYTES_MAX FILES_MAX
        infra/runtime/files.py DOCUMENT_BYTES_MAX
        infra/text_file.py LINE_BYTES_MAX UNPACKED_TIMES_MAX UNPACKED_BYTES_MIN
        projections/quarantine.py ITEMS_MAX BYTES_MAX
        projections/sql/database.py SEALED_BYTES_MAX
        projections/vectors/folders.py DIMENSION_MAX SEARCHED_MAX
    """,
    "of a request without a token, in the tests of the guard": "server/http/authentication.py PUBLIC_BODY_MAX",
}
"""The other named limits, by what they limit: nothing that a caller gives is refused because of them."""


def test_every_named_limit_is_tried_or_limits_nothing_that_a_caller_gives():
    """A new one fails here until it has a row above."""
    found = {
        f"{path.relative_to(ROOT)} {node.target.id}"
        for top in ("domain", "infra", "projections", "api", "server", "adapters", "cli")
        for here, _, names in os.walk(ROOT / top)  # Follows no links.
        for path in (Path(here, name) for name in names if name.endswith(".py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.AnnAssign) and is_limit(node)
    }
    others = [f"{path} {name}" for text in NO_BOUND.values() for path, names in rows(text) for name in names]
    listed = [*LIBRARY, *HTTP, *others]
    assert sorted(listed) == sorted(found)
    assert COMMANDS.keys() <= LIBRARY.keys()


def is_limit(node):
    """Whether a module gives a limit its name: a number, or what is computed from numbers."""
    is_named = re.search(r"(?:^|_)(?:MAX|MIN|LIMIT)(?:_|$)", node.target.id) is not None
    return is_named and not any(
        isinstance(part, ast.Tuple | ast.Call) or isinstance(getattr(part, "value", None), str | bytes)
        for part in ast.walk(node.value)
    )


def rows(text):
    """The lines of a table: a file, and names in it."""
    return [(path, names) for path, *names in (line.split() for line in text.strip().splitlines())]
