"""Invalid events under a valid chain: `verify` names them, an import refuses them, a read may stop at them.

One event that cannot be used: a rebuild stops there and says where; what does not need it goes on.
"""

import json
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from mnemolog import MemoryStore, MnemologError, import_log
from mnemolog.domain.chain import LogRow, link
from mnemolog.domain.errors import EncodingFailed, ImportRefused, InvalidInput, LogDamaged
from mnemolog.domain.events import SEALED_TOPICS
from mnemolog.infra.log.event_log import append_rows
from mnemolog.infra.log.transaction import Transaction
from tests.support import EPOCH_2024, FakeClock, HashEncoder

pytestmark = pytest.mark.promise("P12")


TURNS = 6
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


ONLY_VERIFIED = {"metadata with keys of numbers"}
"""Reads are not tried: the index of metadata cannot hold it, and says so with an error of the library below."""


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
    **{"form": "context/1", "budget": 9, "tokens": 9, "counted_by": "c"},
    **{"min_relevance": 0.1, "moment": 0, "digest": ""},
}
bad = partial(Crafted, "session/bad")
new = partial(Crafted, "session/new", START)
judgement = partial(Crafted, "recalls", "recall.judged.v1")


def receipt(changes):
    return Crafted("recalls", "recall.served.v1", RECEIPT | changes)


def context(changes):
    return Crafted("recalls", "context.served.v1", CONTEXT | changes)


KINDS = {
    "a turn of a session never started": bad(TURN, turn(), started=False),
    "a value of a session never started": bad("value.set.v1", {"key": "k", "value": 1}, started=False),
    "a turn in the stream of an agent": Crafted("agent/a", TURN, turn()),
    "metadata nested deep": bad(TURN, deep_turn(990)),
    "metadata nested deeper than any stack": bad(TURN, deep_turn(100_000)),
    "metadata nested a little too deep": bad(TURN, turn(metadata=nested(66))),
    "tool calls nested deep": bad(TURN, turn(tool_calls=[nested(300)])),
    "metadata of bytes": bad(TURN, turn(metadata={"k": b"\xff"})),
    "metadata with keys of numbers": bad(TURN, turn(metadata={"k": {1: 2}})),
    "metadata without a number": bad(TURN, turn(metadata={"k": float("nan")})),
    "an unknown role": bad(TURN, turn(role="wizard")),
    "said after the calendar": bad(TURN, turn(said_at=NEVER)),
    "said before the calendar": bad(TURN, turn(said_at=-NEVER)),
    "said beyond 64 bits": bad(TURN, turn(said_at=(1 << 64) - 1)),
    "recorded after the calendar": bad(TURN, turn(), recorded_at=NEVER),
    "recorded before the calendar": bad("note.added.v1", {"text": "n"}, recorded_at=-NEVER),
    "started outside of the calendar": new({"name": "", "agent": "a"}, recorded_at=-NEVER),
    "started twice": bad(START, {"name": "", "agent": "again"}),
    "branched from what is not there": new(BRANCH | {"parent": "nobody", "branched_at": 1}),
    "branched from itself": new(BRANCH | {"parent": "new", "branched_at": 1}),
    "branched at a later position": new(BRANCH | {"parent": "bad", "branched_at": 1 << 40}),
    "branched at a negative position": new(BRANCH | {"parent": "bad", "branched_at": -5}),
    "branched beyond 64 bits": new(BRANCH | {"parent": "bad", "branched_at": (1 << 64) - 1}),
    "a restored checkpoint that never was": bad("checkpoint.restored.v1", {"id": "x", "position": 1}),
    "a restored checkpoint of the future": bad("checkpoint.restored.v1", {"id": "x", "position": NEVER}),
    "a rewind to the future": bad("turns.rewound.v1", {"to": NEVER}),
    "a rewind to a negative position": bad("turns.rewound.v1", {"to": -1}),
    "a value nested deep": bad("value.set.v1", {"key": "k", "value": nested(200)}),
    "a value that expires after the calendar": bad("value.set.v1", {"key": "k", "value": 1, "expires_at": NEVER}),
    "a task with a negative step": bad("task.changed.v1", {"description": "d", "step": -1}),
    "a switch to a session that is not there": Crafted(
        "agent/assistant", "session.switched.v1", {"from": None, "to": "nobody", "reason": "resume"}
    ),
    "a text that is a number": bad(TURN, {"role": "user", "text": 5}),
    "a turn without a role": bad(TURN, {"text": "t"}),
    "bytes that are no MessagePack": bad(TURN, b"\xff\xff"),
    "a topic that nobody knows": bad("turn.recorded.v99", turn()),
    "a start without an agent": new({"name": ""}),
    "a model of no dimension": Crafted(
        "models", "model.activated.v1", {"fingerprint": "f" * 64, "model": "m", "dimension": 0}
    ),
    "a model without a fingerprint": Crafted(
        "models", "model.activated.v1", {"fingerprint": "x", "model": "m", "dimension": 3}
    ),
    "a language that is none": Crafted("language", "language.chosen.v1", {"language": "tlh"}),
    "a receipt of the future": receipt({"head": NEVER, "scores": [1.0], "ranks": {}}),
    "a receipt without scores": receipt({"scores": [], "ranks": {}}),
    "a context of the future": context({"recall": RECEIPT | {"head": NEVER, "scores": [1.0], "ranks": {}}}),
    "a context with later turns": context({"turns": [2], "starts": [0], "ends": [1]}),
    "a context with a part that cannot be": context({"turns": [1], "starts": [5], "ends": [1]}),
    "a context without offsets": context({"turns": [1]}),
    "a context built at no time": context({"moment": NEVER}),
    "a judgement of the future": judgement({"receipt": NEVER, "nothing": True}),
    "a judgement of a later turn": judgement({"receipt": 1, "good": [NEVER]}),
    "a judgement that contradicts itself": judgement({"receipt": 2, "good": [1], "bad": [1]}),
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
    "content erased beyond 64 bits": bad("content.forgotten.v1", {"request": "f", "versions": [(1, (1 << 64) - 1)]}),
    "a thread built on its future": Crafted("thread/t", "thread.checkpointed.v1", CHECKPOINT | {"kept": {"c": NEVER}}),
    "a thread with a negative value": Crafted(
        "thread/t",
        "thread.checkpointed.v1",
        CHECKPOINT | {"values": [{"name": "c", "blob": {"kind": "k"}, "number": -1}]},
    ),
    "a fact in a session": Crafted("session/good", "fact.asserted.v1", {"key": "k", "value": 1}),
    "a fact nested deep": Crafted("facts/", "fact.asserted.v1", {"key": "k", "value": nested(300)}),
    "a fact that is nested deeper": Crafted("facts/", "fact.asserted.v1", {"key": "k", "value": nested(700)}),
    "a fact that rests on what comes later": Crafted(
        "facts/", "fact.asserted.v1", {"key": "k", "value": 1, "because": [NEVER]}
    ),
    "a retraction of what comes later": Crafted("facts/", "fact.retracted.v1", {"fact": NEVER}),
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
    log, state = store.parts.log, crafted.payload
    if not isinstance(state, bytes):
        state = msgspec.msgpack.encode(state)

    def row_after(tx: Transaction):
        version, position, stored = tx.version(crafted.stream) + 1, tx.head + 1, state
        if tx.codec.sealer is not None and crafted.topic in SEALED_TOPICS:
            stored = tx.codec.sealer.seal(crafted.stream, version, crafted.topic, state, tx.reads.holds_sealed)
        columns = (crafted.stream.encode(), version, crafted.topic.encode(), stored, None, crafted.recorded_at)
        return LogRow(position, *columns, link(tx.head_digest, position, *columns))

    row = log.appends.rehearse(row_after)
    append_rows(log, lambda *_: iter([row]))
    return row.position


def opened(folder, *, encrypt):
    return MemoryStore.open(folder, model=HashEncoder(dimension=16), background=False, encrypt=encrypt)


def record(store, numbers):
    """Record turns and values in the two good sessions."""
    for n in numbers:
        session = store.session(GOOD[n % 2])
        session.record("user", f"note number{n}")
        session.set(f"k{n}", n)


READS = (
    lambda store: store.status(),
    lambda store: store.sessions(),
    lambda store: store.recall("note", k=50),
    lambda store: store.recall("words", mode="text"),
    lambda store: store.replay(),
    lambda store: list(store.audit.timeline()),
    lambda store: store.audit.diff(0),
    lambda store: store.audit.receipts(),
    lambda store: list(store.events()),
    lambda store: list(store.find("note")),
    lambda store: store.agents(),
    lambda store: store.current(),
    lambda store: store.rebuild("views"),
    lambda store: store.rebuild("vectors"),
    lambda store: store.admin.doctor(deep=True),
    *(
        lambda store, read=read, name=name: read(store.find_session(name))
        for name in ("good", "bad", "new")
        for read in (
            lambda session: session and session.all(),
            lambda session: session and (session.task, session.notes(), session.checkpoints()),
            lambda session: session and session.lineage(),
            lambda session: session and session.turns(),
            lambda session: session and session.recall("words", mode="text"),
            lambda session: session and session.record("user", "words after"),
        )
    ),
)


def check_reads(store, positions):
    """Each read answers, or names one of these positions; other sessions go on. Return how many reads stopped."""
    raised: list[LogDamaged] = []
    for read in READS:
        try:
            read(store)
        except LogDamaged as error:
            raised.append(error)
        except MnemologError:
            pass
    assert {error.position for error in raised} <= set(positions)
    for n, name in enumerate(GOOD):
        session = store.session(name)
        assert session.get(f"k{n}") == n
        session.record("user", "later words")
        session.set("later", True)
    return len(raised)


@pytest.mark.promise("P12", "places of an event")
@pytest.mark.parametrize("kind", KINDS)
def test_an_invalid_event_is_named_and_stops_only_what_needs_it(tmp_path, kind, tries):
    """`verify` names it, an import refuses it; a read answers or names it, and no raw error escapes."""
    crafted = KINDS[kind]
    sealed = crafted.topic in SEALED_TOPICS
    for n, encrypt in product(range(tries), (True, False)):
        # A session that begins with something else cannot be started.
        least = 2 if crafted.stream.partition("/")[2] in GOOD else 0
        before = max(least, (list(KINDS).index(kind) + n) % 3 * TURNS // 2)
        folder, export, copy = (tmp_path / f"{name}{n}{encrypt}" for name in ("memory", "export", "copy"))
        with opened(folder, encrypt=encrypt) as store:
            record(store, range(before))
            if crafted.started:
                store.start_session("bad").record("user", "words before")
                store.session("bad").set("kept", "value")
            position = append(store, crafted)
            record(store, range(before, TURNS))
            (found,) = store.verify(contents=True).findings
            assert (found.position, found.kind in ("unfit", "undecodable")) == (position, True), found
            store.audit.export(export)
            if kind not in ONLY_VERIFIED and encrypt == sealed:
                stopped = check_reads(store, [position])
                assert stopped or found.kind == "unfit", "an event that cannot be decoded stops a read"
        if encrypt and sealed and crafted.started and crafted.recorded_at == EPOCH_2024:
            import_log(export, copy)  # What is wrong is encrypted, and an import has no keys.
        else:
            with pytest.raises(ImportRefused, match=f"position {position} ") as caught:
                import_log(export, copy)
            assert caught.value.line == position + 1
            assert not copy.exists()


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
            LogRow(*row) for rows in store.parts.log.stored_rows(after=0, upto=1 << 40, batch_max=500) for row in rows
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
def test_an_event_with_a_changed_field_stops_only_what_needs_it(tmp_path, rng, tries):
    """Any field of another stream, any value: a read answers or names what `verify` names, and no raw error escapes."""
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
        what = (events[at][1], path, value)
        with opened(tmp_path / str(n), encrypt=False) as store:
            for number, (stream, topic, payload, recorded_at) in enumerate(events):
                given = changed(payload, path, value) if number == at else payload
                append(store, Crafted(stream, topic, given, recorded_at))
            findings = store.verify().findings
            assert all(item.kind in ("unfit", "undecodable") and item.position > at for item in findings), what
            check_reads(store, [item.position for item in findings])


def test_a_clock_beyond_the_calendar_is_refused_before_anything_is_written(tmp_path):
    """Nothing could read the event again."""
    clock = FakeClock(step=0)
    with MemoryStore.open(tmp_path / "memory", model=None, clock=clock) as store:
        session = store.start_session("s")
        for time in (NEVER, -NEVER):
            clock.set(time)
            for append_one in (
                lambda: session.record("user", "words"),
                lambda: session.set("k", 1),
                lambda: store.start_session("later"),
                lambda: store.parts.log.appends.transact(lambda tx: tx.append_stored("eventsourcing.x", "Any", b"{}")),
            ):
                with pytest.raises(InvalidInput, match=r"clock: .*years 1 to 9999"):
                    append_one()
        clock.set(EPOCH_2024)
        assert store.head().position == 1
        assert store.verify().sound


TURNS_BEFORE = 60
WHERE = {"first": 0, "middle": TURNS_BEFORE // 2, "last": TURNS_BEFORE - 1}
BAD = "poison"


class Moody(HashEncoder):
    """A model that refuses a word, or answers it with numbers that are none, as long as it is `moody`."""

    def __init__(self, how):
        super().__init__(dimension=16)
        self.how, self.moody = how, True

    def encode(self, texts):
        bad = [BAD in text and self.moody for text in texts]
        if any(bad) and self.how == "refused":
            raise ValueError("I do not like this")
        vectors = super().encode(texts)
        vectors[bad] = np.nan
        return vectors


def fill(store, bad, record_bad):
    """Record turns in one session, with a bad event at one place among them; return its position."""
    session, found = store.start_session("s"), 0
    for n in range(TURNS_BEFORE):
        if n == bad:
            found = record_bad(store)
        else:
            session.record("user", f"note number{n}")
    return found


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("how", ["refused", "not a number"])
def test_a_text_that_the_model_makes_no_vector_of_stops_a_rebuild_and_not_the_service(folder, how, where):
    """Text recall finds it; skipped only on request, listed then, and back as soon as the model accepts it."""
    encoder = Moody(how)
    with MemoryStore.open(folder, model=encoder, background=False) as store:
        bad = fill(store, WHERE[where], lambda store: store.record("s", "user", f"{BAD} note").position)
        with pytest.raises(EncodingFailed) as caught:
            store.rebuild("vectors")
        assert caught.value.position == bad
        assert store.recall(BAD, mode="text").hits[0].position == bad
        answer = store.recall("number3")
        assert answer.hits
        assert answer.vectors_cover < bad
        assert f"position {bad}" in answer.vectors_lag
        (report,) = store.rebuild("vectors", skip_bad=True)
        assert (report.built_turns, report.skipped_turns) == (TURNS_BEFORE - 1, 1)
        (vectors,) = store.status().vectors
        assert (vectors.state, vectors.covers, vectors.vectors) == ("current", store.head().position, TURNS_BEFORE - 1)
        ((position, why),) = [(turn.position, turn.why) for turn in vectors.skipped]
        assert (position, bool(why)) == (bad, True)
        assert not [item for item in store.admin.doctor(deep=True).findings if item.what == "vectors"], "it is no drift"
        assert store.recall("number3").vectors_cover == store.head().position
        encoder.moody = False
        (report,) = store.rebuild("vectors")
        assert (report.built_turns, report.skipped_turns) == (TURNS_BEFORE, 0)
        assert store.status().vectors[0].skipped == ()
        assert store.recall(BAD, mode="vector", k=1).hits[0].position == bad
