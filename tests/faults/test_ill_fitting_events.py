"""Events under a valid chain that fit nothing before them: named by `verify`, set apart by every read."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import pytest

from mnemolog import MemoryStore, MnemologError, import_log
from mnemolog.adapters.support.store_access import log_of
from mnemolog.cli import main
from mnemolog.domain.digest import link
from mnemolog.domain.encrypted_content import SEALED, SEALED_TOPICS
from mnemolog.domain.errors import ImportRefused, SessionExists
from mnemolog.domain.log_row import LogRow
from mnemolog.infra.log.transaction import Transaction
from tests.support import EPOCH_2024, HashEncoder

pytestmark = pytest.mark.promise("P12")
TURNS = 6
PLACES = ("first", "middle", "last")
GOOD = ("good", "other")
NEVER = 1 << 62
"""Microseconds: after the year 9999."""
TURN, START = "turn.recorded.v1", "session.started.v1"


def nested(depth):
    value: Any = "deep"
    for _ in range(depth):
        value = {"in": value}
    return value


def turn(**fields):
    return {"role": "user", "text": "crafted words", **fields}


def deep_turn(depth):
    """The bytes of a turn with metadata that no encoder would nest so deep."""
    head = b"".join(map(msgspec.msgpack.encode, ("role", "user", "text", "crafted words", "metadata")))
    return b"\x83" + head + b"\x81\xa2in" * depth + b"\xa4deep"


class Crafted(NamedTuple):
    """An event to append below every check of the domain: its stream, topic and payload."""

    stream: str
    topic: str
    payload: Any
    recorded_at: int = EPOCH_2024
    started: bool = True
    """Whether the session `bad` is started before it."""


BRANCH = {"name": "", "agent": "a", "reason": "branch"}
RECEIPT = {"query": "q", "k": 3, "mode": "text", "head": 1, "candidates": 1, "ranking": "r", "hits": [1]}
CHECKPOINT = {"id": "c", "checkpoint": {"kind": "k"}, "metadata": {"kind": "k"}}
CONTEXT = {
    "recall": RECEIPT | {"scores": [1.0], "ranks": {}},
    **{
        "form": "context/1",
        "budget": 9,
        "tokens": 9,
        "counted_by": "c",
        "min_relevance": 0.1,
        "moment": 0,
        "digest": "",
    },
}
KINDS = {
    "a turn of a session never started": Crafted("session/bad", TURN, turn(), started=False),
    "a value of a session never started": Crafted(
        "session/bad", "value.set.v1", {"key": "k", "value": 1}, started=False
    ),
    "a turn in the stream of an agent": Crafted("agent/a", TURN, turn()),
    "metadata nested deep": Crafted("session/bad", TURN, deep_turn(990)),
    "metadata nested deeper than any stack": Crafted("session/bad", TURN, deep_turn(100_000)),
    "metadata nested a little too deep": Crafted("session/bad", TURN, turn(metadata=nested(66))),
    "tool calls nested deep": Crafted("session/bad", TURN, turn(tool_calls=[nested(300)])),
    "metadata of bytes": Crafted("session/bad", TURN, turn(metadata={"k": b"\xff"})),
    "metadata with keys of numbers": Crafted("session/bad", TURN, turn(metadata={"k": {1: 2}})),
    "metadata without a number": Crafted("session/bad", TURN, turn(metadata={"k": float("nan")})),
    "an unknown role": Crafted("session/bad", TURN, turn(role="wizard")),
    "said after the calendar": Crafted("session/bad", TURN, turn(said_at=NEVER)),
    "said before the calendar": Crafted("session/bad", TURN, turn(said_at=-NEVER)),
    "said beyond 64 bits": Crafted("session/bad", TURN, turn(said_at=(1 << 64) - 1)),
    "recorded after the calendar": Crafted("session/bad", TURN, turn(), recorded_at=NEVER),
    "recorded before the calendar": Crafted("session/bad", "note.added.v1", {"text": "n"}, recorded_at=-NEVER),
    "started outside of the calendar": Crafted("session/new", START, {"name": "", "agent": "a"}, recorded_at=-NEVER),
    "started twice": Crafted("session/bad", START, {"name": "", "agent": "again"}),
    "branched from what is not there": Crafted("session/new", START, BRANCH | {"parent": "nobody", "branched_at": 1}),
    "branched from itself": Crafted("session/new", START, BRANCH | {"parent": "new", "branched_at": 1}),
    "branched at a later position": Crafted("session/new", START, BRANCH | {"parent": "bad", "branched_at": 1 << 40}),
    "branched at a negative position": Crafted("session/new", START, BRANCH | {"parent": "bad", "branched_at": -5}),
    "branched beyond 64 bits": Crafted("session/new", START, BRANCH | {"parent": "bad", "branched_at": (1 << 64) - 1}),
    "a restored checkpoint that never was": Crafted(
        "session/bad", "checkpoint.restored.v1", {"id": "x", "position": 1}
    ),
    "a restored checkpoint of the future": Crafted(
        "session/bad", "checkpoint.restored.v1", {"id": "x", "position": NEVER}
    ),
    "a rewind to the future": Crafted("session/bad", "turns.rewound.v1", {"to": NEVER}),
    "a rewind to a negative position": Crafted("session/bad", "turns.rewound.v1", {"to": -1}),
    "a value nested deep": Crafted("session/bad", "value.set.v1", {"key": "k", "value": nested(200)}),
    "a value that expires after the calendar": Crafted(
        "session/bad", "value.set.v1", {"key": "k", "value": 1, "expires_at": NEVER}
    ),
    "a task with a negative step": Crafted("session/bad", "task.changed.v1", {"description": "d", "step": -1}),
    "a switch to a session that is not there": Crafted(
        "agent/assistant", "session.switched.v1", {"from": None, "to": "nobody", "reason": "resume"}
    ),
    "a text that is a number": Crafted("session/bad", TURN, {"role": "user", "text": 5}),
    "a turn without a role": Crafted("session/bad", TURN, {"text": "t"}),
    "bytes that are no MessagePack": Crafted("session/bad", TURN, b"\xff\xff"),
    "a start without an agent": Crafted("session/new", START, {"name": ""}),
    "a model of no dimension": Crafted(
        "models", "model.activated.v1", {"fingerprint": "f" * 64, "model": "m", "dimension": 0}
    ),
    "a model without a fingerprint": Crafted(
        "models", "model.activated.v1", {"fingerprint": "x", "model": "m", "dimension": 3}
    ),
    "a language that is none": Crafted("language", "language.chosen.v1", {"language": "tlh"}),
    "a receipt of the future": Crafted(
        "recalls", "recall.served.v1", RECEIPT | {"head": NEVER, "scores": [1.0], "ranks": {}}
    ),
    "a receipt without scores": Crafted("recalls", "recall.served.v1", RECEIPT | {"scores": [], "ranks": {}}),
    "a context of the future": Crafted(
        "recalls", "context.served.v1", CONTEXT | {"recall": RECEIPT | {"head": NEVER, "scores": [1.0], "ranks": {}}}
    ),
    "a context with later turns": Crafted(
        "recalls", "context.served.v1", CONTEXT | {"turns": [2], "starts": [0], "ends": [1]}
    ),
    "a context with a part that cannot be": Crafted(
        "recalls", "context.served.v1", CONTEXT | {"turns": [1], "starts": [5], "ends": [1]}
    ),
    "a context without offsets": Crafted("recalls", "context.served.v1", CONTEXT | {"turns": [1]}),
    "a context built at no time": Crafted("recalls", "context.served.v1", CONTEXT | {"moment": NEVER}),
    "a judgement of the future": Crafted("recalls", "recall.judged.v1", {"receipt": NEVER, "nothing": True}),
    "a judgement of a later turn": Crafted("recalls", "recall.judged.v1", {"receipt": 1, "good": [NEVER]}),
    "a judgement that contradicts itself": Crafted(
        "recalls", "recall.judged.v1", {"receipt": 2, "good": [1], "bad": [1]}
    ),
    "a request to forget negative versions": Crafted(
        "forgetting",
        "forget.requested.v1",
        {"id": "f", "targets": [{"stream": "session/good", "versions": [(-3, 2)], "counts": {}}]},
    ),
    "a request to forget keys that cannot be": Crafted(
        "forgetting",
        "forget.requested.v1",
        {"id": "f", "targets": [{"stream": "session/x", "versions": [(1, 2)], "series": 999, "counts": {}}]},
    ),
    "content erased beyond 64 bits": Crafted(
        "session/bad", "content.forgotten.v1", {"request": "f", "versions": [(1, (1 << 64) - 1)]}
    ),
    "a thread built on its future": Crafted("thread/t", "thread.checkpointed.v1", CHECKPOINT | {"kept": {"c": NEVER}}),
    "a thread with a negative value": Crafted(
        "thread/t",
        "thread.checkpointed.v1",
        CHECKPOINT | {"values": [{"name": "c", "blob": {"kind": "k"}, "number": -1}]},
    ),
    "an item nested deep": Crafted("items/n", "item.put.v1", {"key": "k", "value": nested(300)}),
    "an item that lives for no time": Crafted(
        "items/n", "item.put.v1", {"key": "k", "value": {}, "ttl_s": float("inf")}
    ),
    "an item touched until after the calendar": Crafted(
        "items/n", "item.touched.v1", {"key": "k", "expires_at": NEVER}
    ),
}


def append(store, crafted):
    """Append an event as it is given, encrypted where the store would; return its position."""
    log, state = log_of(store), crafted.payload
    if not isinstance(state, bytes):
        state = msgspec.msgpack.encode(state)

    def work(tx: Transaction):
        version, position, stored = tx.version(crafted.stream) + 1, tx.head + 1, state
        if tx.codec.sealer is not None and crafted.topic in SEALED_TOPICS:
            stored = tx.codec.sealer.seal(crafted.stream, version, crafted.topic, state, tx.reads)
        columns = (crafted.stream.encode(), version, crafted.topic.encode(), stored, None, crafted.recorded_at)
        digest = link(tx.head_digest, position, *columns)
        tx.append_rows([LogRow(position, *columns, digest)])
        return position

    return log.transact(work)


def fill(folder, crafted, where, *, encrypt):
    """Make a store with two good sessions, and a crafted event at one place among theirs. Return its position."""
    with MemoryStore.open(folder, model=HashEncoder(dimension=16), background=False, encrypt=encrypt) as store:
        at = PLACES.index(where) * TURNS // 2
        for n in range(TURNS + 1):
            if n == at:
                if crafted.started:
                    store.start_session("bad").record("user", "words before")
                    store.session("bad").set("kept", "value")
                position = append(store, crafted)
            if n < TURNS:
                session = store.session(GOOD[n % 2])
                session.record("user", f"note number{n}")
                session.set(f"k{n}", n)
        return position


SESSION_READS = (
    lambda store, name: store.turns(name),
    lambda store, name: store.recall("words", session=name, mode="text"),
    lambda store, name: store.recall("words", session=name, lineage=True, mode="text"),
    *(
        lambda store, name, read=read: read(store.find_session(name)) if store.find_session(name) else None
        for read in (
            lambda session: session.all(),
            lambda session: session.task,
            lambda session: session.notes(with_times=True),
            lambda session: session.checkpoints(),
            lambda session: session.lineage(),
            lambda session: session.stats(),
            lambda session: session.turns(),
            lambda session: session.at(store_head(session)).turns(),
        )
    ),
)


def read_everything(store):
    """Call what reads a store; let no error through but those of mnemolog for the bad session."""
    for name in GOOD:
        session = store.session(name)
        assert len(session.turns()) == TURNS // 2
        assert session.get("k0" if name == "good" else "k1") in (0, 1)
        assert {turn.text for turn in store.recall("note", session=name, k=50, mode="text").hits} == {
            turn.text for turn in session.turns()
        }
    assert {hit.text for hit in store.recall("note", k=50).hits if "note" in hit.text} == texts()
    assert {item.session for item in store.sessions()} >= set(GOOD)
    held = {item.session: item for item in store.replay().sessions}
    assert all(len(held[name].turns) == TURNS // 2 for name in GOOD)
    assert str(store.replay())
    moments = list(store.audit.timeline())
    assert [moment.position for moment in moments] == list(range(1, store.head().position + 1))
    assert all(map(str, moments))
    store.audit.diff(0)
    store.audit.recalls()
    list(store.events())
    list(store.find("note"))
    store.agents()
    store.scopes()
    store.current()
    for position in range(1, store.head().position + 1):
        msgspec.json.encode(store.audit.event(position))
    for name in ("bad", "new", "nobody"):
        for read in SESSION_READS:
            with suppress(MnemologError):
                read(store, name)
        with suppress(MnemologError):
            str(store.replay(session=name))
        with suppress(MnemologError):
            list(store.audit.timeline(session=name))


def store_head(session):
    return session.turns()[-1].position if session.turns() else 1


def texts():
    return {f"note number{n}" for n in range(TURNS)}


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command line in this process; return its exit status, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["mnemolog", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            main()
        return exited.value.code or 0, *capsys.readouterr()

    return run


@pytest.mark.promise("P12", "places of an event")
@pytest.mark.parametrize("encrypt", [True, False], ids=["encrypted", "plain"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_event_that_fits_nothing_is_named_and_the_rest_is_served(tmp_path, run, kind, encrypt, tries):
    """`verify` names its position, `status` too; every read of other sessions is whole, and no raw error escapes."""
    turn_of = list(KINDS).index(kind) + encrypt
    for n in range(tries):
        where = PLACES[(turn_of + n) % len(PLACES)]
        (tmp_path / where).mkdir()
        check(tmp_path / where, run, kind, where, encrypt=encrypt, by_hand=n == 0 and turn_of % 2 == 0)


def check(tmp_path, run, kind, where, *, encrypt, by_hand):
    folder = tmp_path / "memory"
    position = fill(folder, KINDS[kind], where, encrypt=encrypt)
    with MemoryStore.open(folder, model=HashEncoder(dimension=16), background=False) as store:
        found = store.verify(contents=True)
        assert [(finding.position, finding.kind in ("unfit", "undecodable")) for finding in found.findings] == [
            (position, True)
        ], found.findings
        assert not found.sound
        assert not found.damaged or found.findings[0].kind == "undecodable"
        read_everything(store)
        status = store.status()
        assert [item.position for item in status.views.first_set_apart] == [position]
        assert status.views.set_apart == 1
        assert any(f"position {position} " in warning for warning in status.warnings)
        for report in (*store.rebuild("views"), *store.rebuild("vectors")):
            assert report.complete
        read_everything(store)
        store.admin.doctor(deep=True)
        with suppress(MnemologError):
            store.record("bad", "user", "words after")
            assert "words after" in {turn.text for turn in store.session("bad").turns()}
        with suppress(SessionExists):
            store.start_session("new").record("user", "a beginning")
        store.record("good", "user", "later words")
        store.session("good").set("later", True)
        store.switch("other", reason="resume")
        store.audit.export(tmp_path / "log.jsonl")
    crafted = KINDS[kind]
    (row,) = row_at(folder, position)
    if row.state[:1] == bytes((SEALED,)) and crafted.started and crafted.recorded_at == EPOCH_2024:
        # What is wrong is encrypted, and an import has no keys.
        import_log(tmp_path / "log.jsonl", tmp_path / "copy")
    else:
        with pytest.raises(ImportRefused, match=f"position {position} ") as caught:
            import_log(tmp_path / "log.jsonl", tmp_path / "copy")
        assert caught.value.line == position + 1
        assert not (tmp_path / "copy").exists()
    if by_hand:
        commands(run, folder, tmp_path, position)


CHANGES = (None, True, -1, 0, NEVER, -NEVER, (1 << 64) - 1, 0.5, float("nan"), "", "x", b"\xff", [], [1], {}, {"k": 1})


def rich(folder):
    """Make a store with many kinds of events, in the clear. Return stream, topic, payload and time of each."""
    with MemoryStore.open(folder, model=HashEncoder(dimension=16), background=False, encrypt=False) as store:
        for n in range(TURNS):
            session = store.session(GOOD[n % 2])
            session.record("user", f"note number{n}")
            session.set(f"k{n}", n)
        bad = store.session("bad", agent="a", scope="acme/bad", title="Bad")
        bad.record("user", "words", speaker="Ann", said_at="2026-01-01T00:00:00Z", metadata={"k": {"in": [1]}})
        bad.record("assistant", "words", tool_calls=[{"name": "look", "arguments": {"at": 1}}])
        bad.set("kept", {"in": [1, 2]}, ttl=3_600)
        bad.set_task("a task", total=3)
        bad.note("a note")
        bad.checkpoint("early")
        bad.delete("kept")
        bad.record("user", "words to hide")
        bad.restore("early")
        bad.record("user", "words again")
        bad.rewind(turns=1)
        new = bad.branch("new")
        new.record("user", "words of a branch")
        store.switch("new", agent="a", reason="resume")
        store.recall("words", session="bad", receipt=True)
        new.end()
        store.admin.set_language("de")
        store.models.activate(HashEncoder(dimension=16))
        rows = [
            LogRow(*row) for rows in log_of(store).stored_rows(after=0, upto=1 << 40, batch_max=500) for row in rows
        ]
    return [
        (row.stream.decode(), row.topic.decode(), msgspec.msgpack.decode(row.state), row.recorded_at) for row in rows
    ]


def places_in(value, path=()):
    """Yield the path of every field of a payload, at any depth."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, below in items:
        yield (*path, name)
        yield from places_in(below, (*path, name))


def changed(payload, path, value):
    """Return a payload with another value at a path."""
    copy = json.loads(json.dumps(payload))
    at = copy
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return copy


@pytest.mark.promise("P12", "changed fields")
def test_an_event_with_a_changed_field_harms_no_session_but_its_own(tmp_path, rng, tries):
    """Any field of another stream, any value: no raw error, and `verify` and `status` name the same events."""
    events = rich(tmp_path / "rich")
    fields = [
        (at, path)
        for at, (stream, _, payload, _) in enumerate(events)
        if stream not in ("session/good", "session/other")
        for path in places_in(payload)
    ]
    for n in range(tries):
        at, path = rng.choice(fields)
        value = rng.choice(CHANGES)
        with MemoryStore.open(
            tmp_path / str(n), model=HashEncoder(dimension=16), encrypt=False, background=False
        ) as store:
            for number, (stream, topic, payload, recorded_at) in enumerate(events):
                given = changed(payload, path, value) if number == at else payload
                append(store, Crafted(stream, topic, given, recorded_at))
            what = (events[at][1], path, value)
            findings = store.verify().findings
            assert all(item.kind in ("unfit", "undecodable") and item.position > at for item in findings), what
            read_everything(store)
            status = store.status()
            if all(item.kind == "unfit" for item in findings):
                assert status.views.set_apart == len(findings), what
                assert [item.position for item in status.views.first_set_apart] == [item.position for item in findings][
                    : len(status.views.first_set_apart)
                ], what
            store.record("good", "user", "later words")


def row_at(folder, position):
    with MemoryStore.open(folder, model=None) as store:
        return [
            LogRow(*row)
            for rows in log_of(store).stored_rows(after=position - 1, upto=position, batch_max=1)
            for row in rows
        ]


def commands(run, folder, tmp_path, position):
    """Run the commands that read."""
    for line in (
        ["recall", folder, "note", "--mode", "text", "--model", "none"],
        ["sessions", folder, "--tree"],
        ["replay", folder],
        ["replay", folder, "--jsonl"],
        ["diff", folder, "0"],
        ["show", folder, "good"],
        ["find", folder, "note"],
        ["agents", folder],
        ["rebuild", folder, "views", "--model", "none"],
        ["export", folder, tmp_path / "by-hand.jsonl"],
        ["backup", folder, tmp_path / "backup"],
        ["restore", tmp_path / "backup", tmp_path / "restored"],
    ):
        status, out, err = run(*line)
        assert status == 0, (line, out, err)
    status, out, _ = run("verify", folder, "--contents")
    assert status == 3
    assert f"position {position}, " in out
    status, out, _ = run("status", folder)
    assert f"position {position} " in out
    status, out, _ = run("verify", folder, "--contents", "--json")
    assert [finding["position"] for finding in json.loads(out)["findings"]] == [position]
    assert run("doctor", folder, "--deep")[0] == 3
