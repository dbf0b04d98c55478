"""A child process that makes a store with backups of it, and dies with its newest commits in write-ahead logs."""

import os
from multiprocessing.connection import Connection
from pathlib import Path

from mnemolog import MemoryStore

SESSIONS = 6
WORDS = ("Quokkaberry", "wombattitle", "echidnavalue", "numbatnote", "possumtask")
"""Words that only encrypted content has: of turns, titles, values, notes, tasks."""
STAGES = ("early", "good", "last")
FORGOTTEN = [f"Quokkaberry {stage} 0 2" for stage in STAGES]


def fill_and_die(pipe: Connection, folder: str) -> None:
    """Fill `store`, with the backups `early` and `good` and the copies of their keys, and die without closing it."""
    place = Path(folder)
    store = MemoryStore.open(place / "store", model=None, background=False)
    for stage in STAGES:
        for number in range(SESSIONS):
            session = store.start_session(f"{stage}{number}", title=f"wombattitle {stage} {number}")
            for turn in range(5):
                session.record("user", f"Quokkaberry {stage} {number} {turn}")
            session.set("value", "echidnavalue")
            session.note("numbatnote")
            session.set_task("possumtask")
            store.session(f"early{number}").record("user", f"Quokkaberry {stage} once more {number}")
        store.forget(positions=[store.turns(f"{stage}0")[2].position], reason="asked for")
        if stage != "last":
            store.backup(place / stage, keys=place / f"{stage} keys")
    store.start_session("at the end").record("user", "Quokkaberry at the end")  # Its key is in the write-ahead log.
    pipe.send(store.head().position)
    os._exit(0)
