"""Results as a user takes them: sequences, plain values, JSON, one line in a terminal.

Whoever reads a part of a list is told so: in the answer, on standard error, and by tools with the next call.
"""

import inspect
import json
import re
import typing
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import version

import msgspec
import pytest

import mnemolog
from mnemolog import AsyncMemoryStore, MemoryStore, Session, connect
from mnemolog.adapters.support.agent_tools import TOOLS, Memory
from mnemolog.audit.service import AuditService
from mnemolog.domain.errors import InvalidInput, ModelRefused
from mnemolog.domain.event import Event
from mnemolog.domain.result import Result, Results
from mnemolog.models.service import ModelService
from mnemolog.operation_table import OPERATIONS
from mnemolog.operations.service import AdminService
from mnemolog.session import SessionAt, WorkingMemory
from mnemolog.types import AssertFact
from tests.support import HashEncoder
from tests.through_http import Served


@pytest.fixture
def filled(store):
    """Six turns about dogs in one session, and a checkpoint, a note and a task."""
    trip = store.start_session("trip", scope="acme/alice")
    for number in range(6):
        trip.record("user", f"My dog number {number} is called Rex", speaker="Alice", metadata={"n": number})
    trip.note("call the vet")
    trip.set_task("find a vet")
    trip.checkpoint("before")
    return store


"""Types that a module names without importing them, because theirs imports numpy."""


def structs_in(annotation):
    """The structs that an annotation names."""
    if inspect.isclass(annotation) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for part in typing.get_args(annotation):
        yield from structs_in(part)


def returned_by(kind):
    """The structs that the public methods of a class return."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            yield from structs_in(typing.get_type_hints(method).get("return"))


def test_a_recall_can_be_iterated_counted_and_indexed(filled):
    """As the sequence of hits that it is: without any it is false."""
    assert not filled.recall("submarine", mode="text")
    answer = filled.recall("dog", mode="text")
    assert answer
    assert [hit.text for hit in answer] == [hit.text for hit in answer.hits]
    assert len(answer) == 5
    assert answer[0] == answer.hits[0]
    assert answer[-1] == answer.hits[-1]
    assert answer[:2] == answer.hits[:2]
    assert answer.hits[3] in answer
    with pytest.raises(IndexError):
        answer[5]


@pytest.mark.parametrize(
    "kind", [MemoryStore, Session, SessionAt, WorkingMemory, AuditService, ModelService, AdminService]
)
def test_every_result_of_a_public_method_can_be_printed_and_exported(kind):
    """Whichever method returns it."""
    events = (Event, *(found for found in returned_by(MemoryStore) if found.__name__ == "RecordedEvent"))
    assert [found for found in returned_by(kind) if not issubclass(found, (Result, *events))] == []


def test_a_result_becomes_a_dictionary_of_plain_values(filled):
    """Which a table of pandas takes: times are times, roles are text, turns within are dictionaries."""
    (hit,) = filled.recall("dog", k=1, mode="text", context_turns=1)
    fields = hit.to_dict()
    assert fields["text"] == hit.text
    assert type(fields["role"]) is str
    assert fields["said_at"] == hit.said_at
    assert isinstance(fields["said_at"], datetime)
    assert fields["metadata"] == hit.metadata
    assert type((*fields["before"], *fields["after"])[0]) is dict
    assert set(fields) == set(hit.__struct_fields__)


def test_a_result_becomes_json_with_times_in_iso_8601(filled):
    """On one line, or indented."""
    answer = filled.recall("dog", mode="text")
    read = json.loads(answer.to_json())
    assert datetime.fromisoformat(read["hits"][0]["said_at"]) == answer[0].said_at
    assert "\n" not in answer.to_json()
    assert '\n  "query"' in answer.to_json(indent=2)
    assert json.loads(answer.to_json(indent=4)) == read
    assert json.loads(filled.sessions().to_json())[0]["scope"] == "acme/alice"


def test_every_result_has_a_repr_that_fits_a_terminal_line(filled):
    """Whatever the store holds."""
    trip = filled.start_session("long " * 20, scope="acme/" + "bob" * 40)
    turn = trip.record("user", "word " * 5_000, speaker="Anne-Marie " * 10)
    answer = filled.recall("dog word", k=100, mode="text")
    results = [
        *(answer, *answer, turn, *filled.sessions(), filled.replay(), *filled.replay().sessions, filled.status()),
        *(filled.verify(), filled.head(), filled.audit.diff(0), *filled.audit.timeline(), filled.audit.event(1)),
        *(filled.forget(positions=[turn.position]), *filled.audit.forgotten(), filled.admin.doctor()),
        *filled.rebuild("views"),
    ]
    for result in results:
        assert "\n" not in repr(result)
        assert len(repr(result)) < 80, type(result)
        assert repr(result).startswith(f"{type(result).__name__}(")


def test_a_hit_reads_as_its_position_its_text_and_its_relevance(filled):
    """Nothing else is needed to tell hits apart."""
    (hit,) = filled.recall("dog", k=1, mode="text")
    assert repr(hit) == f"Hit(@{hit.position}, {hit.text!r}, relevance={hit.relevance:.2f})"
    assert repr(filled.recall("dog", mode="text")) == "Recall('dog', 5 hits, head=10)"
    assert repr(filled.recall("zebra", mode="text")) == "Recall('zebra', 0 hits, head=10)"


def test_a_hit_names_its_session_by_id_and_title(folder, run):
    """Also on the command line. A session without a title has an empty one."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip-1", title="Trip to Lisbon").record("user", "the ferry")
        store.session("plain").record("user", "the train")
        (hit,), (plain,) = store.recall("ferry"), store.recall("train")
        assert (hit.session, hit.session_title) == ("trip-1", "Trip to Lisbon")
        assert (plain.session, plain.session_title) == ("plain", "")
    assert "trip-1 (Trip to Lisbon)\n" in run("recall", folder, "ferry", "--model", "none").stdout
    assert "plain\n" in run("recall", folder, "train", "--model", "none").stdout


@pytest.mark.local
@pytest.mark.log_file
def test_a_store_reads_as_its_folder_and_its_head(folder):
    """A closed one does not touch the disk."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("a").record("user", "hello")
        assert repr(store) == f"MemoryStore({str(folder)!r}, head=2)"
    (folder / "log.db").rename(folder / "away.db")
    assert repr(store) == f"MemoryStore({str(folder)!r}, closed)"
    assert not (folder / "log.db").exists()


def test_a_long_list_is_cut_in_a_repr(store):
    """A page stays a page."""
    trip = store.start_session("trip")
    for number in range(120):
        trip.record("user", f"turn {number}")
    turns = trip.turns()
    assert isinstance(turns, Results)
    assert len(repr(turns)) < 300


def test_a_printed_replay_is_what_the_command_line_prints_below_the_timeline(filled, folder, run):
    """What was held at the end."""
    trip = filled.session(filled.sessions()[0].session)
    trip.set("city", "Porto")
    branch = trip.branch(title="side trip")
    branch.record("user", "A long \n \x1b[2J story. " * 50)
    trip.rewind(turns=1)
    branch.end()
    whole, part = filled.replay(), filled.replay(to=3)
    filled.close()
    assert run("replay", folder).stdout.endswith(f"\n{whole}\n")
    assert run("replay", folder, "--to", "3").stdout.endswith(f"\n{part}\n")
    assert "\x1b" not in str(whole)


def test_the_version_is_that_of_the_installed_package():
    """Without reading it before it is asked for."""
    assert mnemolog.__version__ == version("mnemolog")


def test_times_in_results_are_in_utc(filled):
    """So they compare, and print the same everywhere."""
    assert all(hit.said_at.tzinfo is UTC for hit in filled.recall("dog", mode="text"))


@pytest.mark.parametrize("through_http", [False, True])
def test_a_call_that_takes_a_name_takes_what_a_list_returns(folder, through_http):
    """A checkpoint, a token, a model, a distrust; anything else is refused by the name of the argument."""
    with (
        MemoryStore.open(folder, model=(encoder := HashEncoder())) as local,
        closing(Served(local)) as served,
        connect(served.url) as remote,
    ):
        store = remote if through_http else local
        trip = store.session("trip")
        local.models.add(encoder)
        saved, token = trip.checkpoint("before"), store.admin.create_token("alice", verbs=["read"]).token
        made = store.distrust(actor="crawler", reason="forged")
        assert trip.restore(saved) == trip.restore(saved.id) == saved
        assert trip.branch("other", at=saved).id == "other"
        trip.delete_checkpoint(*trip.checkpoints())
        assert store.admin.revoke_token(*store.admin.tokens()).id == token.id
        assert store.trust_again(*store.distrusts()).position == made.position
        with pytest.raises(ModelRefused, match="activate another one first"):
            store.models.drop(*store.models.list())
        for field, call in (("checkpoint", trip.restore), ("token", store.admin.revoke_token)):
            with pytest.raises(InvalidInput, match=field):
                call(store)


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
def herons(folder):
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
def test_an_answer_says_that_its_limit_has_left_some_out(herons, name, through_http):
    """And one that has all says nothing, also where their number is the limit."""
    with closing(Served(herons)) as served, connect(served.url) as remote:
        store = remote if through_http else herons
        answers = {most: READS[name](store, most) for most in (2, 5, 6)}
        told = {most: any(getattr(answer, word, None) for word in TOLD) for most, answer in answers.items()}
    assert told == {2: True, 5: False, 6: False}


def test_the_next_page_begins_where_the_answer_says(herons):
    session, every = herons.session("s"), herons.turns("s")
    assert session.turns(limit=5, after=session.turns(limit=2).next) == every[2:]
    assert session.turns(last=2, before=session.turns(last=2).next) == every[1:3]
    assert session.turns(newest_first=True, before=session.turns(newest_first=True, limit=2).next) == every[2::-1]


@pytest.mark.parametrize("options", ["show s", "show s --at 6", "show s --hidden", "find heron", "find heron --json"])
def test_the_command_line_names_the_option_for_the_rest(herons, folder, run, options):
    command, *rest = options.split()
    told = {most: run(command, folder, *rest, "--limit", most).stderr for most in ("2", "5")}
    assert told == {"2": f"note: the limit leaves some out; more: --after {herons.turns('s')[1].position}\n", "5": ""}


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
