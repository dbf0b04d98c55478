"""Five weeks of two agents, one of support and one that deploys: `python examples/five_weeks.py memory/`.

The sample conversation is recorded at the times at which it was said, and worked with as agents do. So
what the agents knew on a given day differs from what they know now: `mnemolog serve memory/` shows it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from mnemolog import MemoryStore, Session
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.values import Micros, Position

SAMPLE = Path(__file__).parent / "sample.jsonl"
QUESTION = "shall I write an e-mail or a text message?"
"""What the memory answers differently on 2026-03-20 and today."""
BEFORE_SHE_CHANGED_HER_MIND = "2026-03-20T18:00:00Z"
DAY_S = 86_400

Work = Callable[[MemoryStore, Session, Position], object]


class TimeOfTheSample:
    """A clock that is set to the time of each turn."""

    def __init__(self) -> None:
        self._now = 0

    def set(self, time: str) -> None:
        """Set it to a time in ISO 8601, but never back."""
        self._now = max(self._now, round(datetime.fromisoformat(time).timestamp() * 1_000_000))

    def now(self) -> Micros:
        """Return a time that is a millisecond later at each call."""
        self._now += 1_000
        return Micros(self._now)


def make(folder: Path, *, model: Any = DEFAULT_MODEL) -> None:
    """Make the store in the new folder `folder`."""
    clock = TimeOfTheSample()
    turns = sorted(map(json.loads, SAMPLE.read_text().splitlines()), key=lambda turn: str(turn["time"]))
    clock.set(turns[0]["time"])
    with MemoryStore.open(folder, model=model, clock=clock, background=False) as store:
        store.models.activate(model)
        for turn in turns:
            clock.set(turn["time"])
            session = store.find_session(turn["session"]) or _begin(store, turn)
            how = {"speaker": turn.get("speaker"), "key": turn["key"], "said_at": turn["time"]}
            said = session.record(turn["role"], turn["text"], **how)
            for work in WORK.get((session.id, turn["key"]), ()):
                work(store, session, said.position)
        store.admin.catch_up_views()
        store.admin.catch_up_vectors()


def _begin(store: MemoryStore, turn: dict[str, str]) -> Session:
    before = store.current(turn["agent"])
    session = store.switch(
        turn["session"], reason="new", agent=turn["agent"], title=turn["session_name"], scope=turn["scope"]
    )
    for key in () if before is None else before.keys():
        session.set(key, before.get(key))
    return session


WORK: dict[tuple[str, str], list[Work]] = {
    ("support-2026-03-02", "t3"): [
        lambda store, session, position: session.set_task("Return the second payment", step=1, total=3, percent=10),
        lambda store, session, position: session.set("invoice", "INV-2047"),
    ],
    ("support-2026-03-02", "t9"): [
        lambda store, session, position: session.update_task(step=2, percent=60, status="waiting for the bank"),
        lambda store, session, position: session.set("refund", {"amount": 48.5, "state": "started"}, ttl=5 * DAY_S),
        lambda store, session, position: session.checkpoint("refund started", "The bank has been asked."),
    ],
    ("support-2026-03-02", "t12"): [
        lambda store, session, position: session.set("contact by", "e-mail"),
        lambda store, session, position: session.note("She moves from Porto to Lisbon on the 14th of March."),
    ],
    ("support-2026-03-02", "t19"): [
        lambda store, session, position: store.recall("which dog has she?", 3, scope="acme/support", receipt=True),
        lambda store, session, position: session.update_task(step=3, percent=100, status="done"),
        lambda store, session, position: session.end(reason="solved"),
    ],
    ("support-2026-03-16", "t5"): [
        lambda store, session, position: session.set("address", "Rua das Flores 12, third floor, Lisbon"),
        lambda store, session, position: session.delete("invoice"),
    ],
    ("support-2026-03-16", "t9"): [
        lambda store, session, position: session.set("allergy", "peanuts"),
        lambda store, session, position: session.note("Tell the organisers of the dinner: no peanuts."),
    ],
    ("support-2026-03-16", "t17"): [
        lambda store, session, position: store.recall(QUESTION, 3, scope="acme/support", receipt=True),
    ],
    ("support-2026-04-09", "t10"): [
        lambda store, session, position: session.checkpoint("before the text messages"),
    ],
    ("support-2026-04-09", "t11"): [
        lambda store, session, position: session.set("contact by", "text message"),
    ],
    ("support-2026-04-09", "t20"): [
        lambda store, session, position: store.context(QUESTION, 300, scope="acme/support", receipt=True),
        lambda store, session, position: store.switch(
            "support-2026-04-09-summary", reason="compress", agent="milo", title="Alice, in short"
        ),
        lambda store, session, position: store.record(
            "support-2026-04-09-summary", "assistant", "Alice flies in June. She wants text messages.", speaker="Milo"
        ),
    ],
    ("deploy-2026-03-05", "t4"): [
        lambda store, session, position: session.set_task("Move the orders database to PostgreSQL 17", step=1, total=4),
        lambda store, session, position: session.set("window", "2026-03-12, 02:00 to 04:00 UTC"),
    ],
    ("deploy-2026-03-05", "t14"): [
        lambda store, session, position: session.checkpoint("link mode", "The upgrade in place, without a way back."),
        lambda store, session, position: store.switch(
            "deploy-what-if", reason="branch", agent="deploy-bot", at=position, title="What if we replicate?"
        ),
        lambda store, session, position: store.record(
            "deploy-what-if", "user", "What would it take to replicate logically instead?", speaker="Priya"
        ),
        lambda store, session, position: store.record(
            "deploy-what-if", "assistant", "A second primary for a day, and 200 GB that we do not have.", speaker="Bot"
        ),
        lambda store, session, position: store.switch(session.id, reason="resume", agent="deploy-bot"),
    ],
    ("deploy-2026-03-20", "t8"): [
        lambda store, session, position: session.set("window", "in May"),
    ],
    ("deploy-2026-03-05", "t18"): [
        lambda store, session, position: session.record("assistant", "Jonas has agreed.", speaker="Deploy bot"),
        lambda store, session, position: session.rewind(turns=1),
        lambda store, session, position: session.note("Jonas has not been asked yet: he gets it in writing."),
    ],
}
"""What an agent did after a turn of the sample, by session and key."""


if __name__ == "__main__":
    make(Path(sys.argv[1]))
