"""Sessions and their working memory, without a model: python examples/sessions.py"""

from __future__ import annotations

import tempfile
from pathlib import Path

from mnemolog import MISSING, MemoryStore, Session


def show(what: str, session: Session) -> None:
    """Print what a session sees and holds."""
    print(f"{what:<26}{[turn.text for turn in session.turns()]}  {session.all()}  {session.notes()}")


with tempfile.TemporaryDirectory() as folder, MemoryStore.open(Path(folder) / "memory", model=None) as store:
    trip = store.switch("trip", reason="new", agent="assistant", scope="acme/alice")
    trip.record("user", "I want to go to Lisbon.")
    trip.set("city", "Lisbon")
    trip.set("offer", {"price": 120}, ttl=3_600)  # Gone in an hour.
    trip.set_task("book the trip", step=1, total=3)
    asked = trip.checkpoint("asked", "before anything was booked")

    trip.record("assistant", "Booked the train.")
    trip.set("booked", "train")
    trip.note("trains are slow")
    show("after booking", trip)

    by_plane = trip.branch("by-plane", at="asked")
    by_plane.record("assistant", "Booked the plane.")
    by_plane.set("booked", "plane")
    show("a branch at 'asked'", by_plane)

    trip.rewind(turns=1)
    show("a turn rewound", trip)  # Memory stays as it is.
    trip.restore("asked")
    show("restored to 'asked'", trip)
    print("booked is missing now:    ", trip.get("booked", MISSING) is MISSING)

    store.switch("by-plane", reason="resume", agent="assistant")
    current = store.current("assistant")
    print("assistant is in           ", current.id if current else None, by_plane.lineage())

    store.switch("summary", reason="compress", agent="assistant")  # Continues by-plane, which is ended.
    show("compressed into another", store.session("summary"))

    then = trip.at(asked.position + 3)
    print(f"trip at position {then.position}:       ", then.all(), then.notes(), then.task())
    print("the log keeps every turn: ", [turn.text for turn in store.turns("trip")])
