"""Make a golden store: python -m tests.golden.make_store tests/golden/RELEASE, and one with --plain RELEASE-plain

Without --plain its content is encrypted, and some of it forgotten.

Run once for a release (and again only while that release is not out yet). The clock is its own and ids are counted,
so that two runs give the same log. Every later release opens a copy of what this leaves, verifies it against its head
and compares its answers (tests/faults/test_golden.py).
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from mnemolog import MemoryStore
from mnemolog.domain.events import EVENT_TYPES
from tests.support import FakeClock, HashEncoder

QUERIES = ("Lisbon", "dog", "the", "Inês", "ERR_42", "nothing of the kind")


def encoder() -> HashEncoder:
    """The model that the store was made with: vectors of 16 components, made of the words' hashes."""
    return HashEncoder(fingerprint="golden/1", dimension=16)


def make(folder: Path, *, encrypt: bool) -> None:
    """Make the store with its export, its head and the answers it gives, in place of what is in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    clock = FakeClock(step=1_000_000)
    options: dict[str, Any] = {"model": encoder(), "clock": clock, "background": False, "encrypt": encrypt}
    with counted_ids(), MemoryStore.open(folder / "store", **options) as store:
        live(store)
        if encrypt:
            gone = store.start_session("gone-1", title="to be forgotten", agent="ada", scope="acme/support/bob")
            gone.record("user", "My dog is called Nero, and this is to be forgotten.")
            gone.set("secret", "to be forgotten")
            said = store.session("trip-1").record("user", "This one turn is to be forgotten.")
            store.forget(session="gone-1", positions=[said.position], reason="asked for")
        missing = EVENT_TYPES.keys() - {event.event.topic for event in store.events()}
        print(f"{store.head().position} events; without: {', '.join(sorted(missing)) or 'none'}")
        store.admin.catch_up_views()
        store.admin.catch_up_vectors()
        store.audit.export(folder / "export.jsonl")
        (folder / "head.txt").write_text(f"{store.head()}\n")
        (folder / "expected.json").write_bytes(msgspec.json.format(msgspec.json.encode(answers(store)), indent=1))
    for note in (*folder.rglob("*.lock"), *folder.rglob("*.holder.json")):  # Of the process that ran, not of the store.
        note.unlink()


@contextmanager
def counted_ids() -> Iterator[None]:
    """Have random ids counted instead."""
    numbers = count(1)
    with mock.patch("secrets.token_hex", lambda size=32: f"{next(numbers):0{2 * size}x}"):
        yield


def live(store: MemoryStore) -> None:
    """Have something of every kind happen."""
    trip = store.start_session("trip-1", title="trip", agent="ada", scope="acme/support/alice")
    trip.record(
        "user", "I moved to Lisbon in March.", key="t1", speaker="Alice", said_at=datetime(2024, 1, 1, tzinfo=UTC)
    )
    trip.record("assistant", "Noted: Lisbon.", key="t2", tool_calls=[{"id": "c1", "name": "save", "input": {"n": 1}}])
    trip.record("user", "Olá, Inês! ☕ The dog is called Nero.", metadata={"mood": "bright", "n": [1, 2.5, None, True]})
    trip.set("city", "Lisbon")
    trip.set("nothing", None)
    trip.set("short", {"lives": "an hour"}, ttl=3_600)
    trip.set_task("find a flat", step=1, total=3)
    trip.note("prefers the fourth floor")
    trip.checkpoint("before the search", "all that was said so far")
    trip.checkpoint("to be deleted")
    trip.delete_checkpoint("to be deleted")
    trip.set("city", "Porto")
    trip.delete("nothing")
    trip.record("user", "Forget Lisbon, take Porto.")
    branch = store.switch("plan-1", reason="branch", session="trip-1", title="plan")
    branch.record("user", "Here the plan goes on in Porto.")
    branch.update_task(step=2, status="active", percent=40.0)
    branch.clear()
    branch.clear_notes()
    trip.restore("before the search")
    trip.record("user", "Lisbon it is after all.", key="t3")
    trip.record("user", "ERR_42 came up again.")
    trip.rewind(turns=1)
    store.models.add(encoder())
    store.models.activate(encoder())
    store.recall("where does Alice live?", scope="acme/support", mode="text", receipt=True)
    other = store.start_session("other-1", title="other", agent="bob", scope="acme/sales")
    other.record("tool", "The dog chased the postman.", key="t1")
    other.end(reason="done")
    store.switch("other-1", reason="resume", agent="bob")
    other.record("user", "x" * 3_000)
    store.switch("other-2", reason="reset", agent="bob", title="afresh")


def answers(store: MemoryStore) -> dict[str, Any]:
    """What a store is asked, with its answers as JSON."""
    head = store.head().position
    sessions = {summary.session: store.session(summary.session) for summary in store.sessions()}
    found = {
        "sessions": store.sessions(),
        "seen": {name: [turn.position for turn in session.turns()] for name, session in sessions.items()},
        "turns": {name: store.turns(name) for name in sessions},
        "held": {
            name: {
                "values": session.at(head).all(),
                "task": session.at(head).task(),
                "notes": session.at(head).notes(with_times=True),
                "checkpoints": session.at(head).checkpoints(),
                "lineage": session.at(head).lineage(),
            }
            for name, session in sessions.items()
        },
        "current": {agent: session.id for agent in ("ada", "bob") if (session := store.current(agent))},
        # Which turns hold the words, in the order of the log: how they are ranked may become better.
        "hits": {
            query: sorted(hit.position for hit in store.recall(query, k=100, mode="text").hits) for query in QUERIES
        },
        "forgotten": store.audit.forgotten(),
        "replay": [store.replay(to=position) for position in (0, head // 2, head)],
        "diff": store.audit.diff(head // 2, head),
        "topics": [moment.topic for moment in store.audit.timeline()],
        "heads": [store.audit.event(position).digest for position in range(1, head + 1)],
    }
    return msgspec.json.decode(msgspec.json.encode(found))


if __name__ == "__main__":
    make(Path(sys.argv[-1]), encrypt="--plain" not in sys.argv)
