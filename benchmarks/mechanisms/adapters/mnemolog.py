"""mnemolog at its defaults: encrypted, every commit synced, vectors made by a thread in the background."""

from pathlib import Path

import numpy as np

from benchmarks.mechanisms import behind
from benchmarks.mechanisms.protocol import Memory, Model
from mnemolog import MemoryStore


class Encoder:
    """The model, as `MemoryStore.open(model=...)` takes it."""

    def __init__(self, model: Model) -> None:
        self._model, self.dimension = model, model.width
        self.name = self.fingerprint = model.name

    def encode(self, texts):
        return np.array([self._model(text) for text in texts], dtype=np.float32)


def _changed_event(folder: Path, text: str, statement: str) -> int:
    """Change the event of the eighth turn: content is encrypted, so it is not found by its text."""
    changed = 0
    with behind.sqlite3.connect(folder / "log.db") as rows:
        for (name,) in rows.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            rows.execute(f'DROP TRIGGER "{name}"')
        turns = rows.execute(
            "SELECT position FROM events WHERE topic = 'turn.recorded.v1' ORDER BY position"
        ).fetchall()
        changed = rows.execute(statement, turns[7]).rowcount
    rows.close()
    return changed


class Adapter(Memory):
    """A user is a scope. Each session of it is one of the store."""

    package = "mnemolog"
    how = {
        "retry": "`key=`",
        "session switch": "`switch`, `prefetch`, `prefetch_result`",
        "correction": 'a turn and a fact that rests on it; `superseded="drop"` leaves out what no longer holds',
        "as of": "`recall(as_of=)`",
        "revocation": "`distrust`: nothing is deleted, and `trust_again` takes it back",
        "erasure": "`forget`: the keys are destroyed, projections rewritten",
        "another model": "vectors of the old model are set aside and made anew; meanwhile answers are by words",
        "index drift": "`projections/` is derived",
        "touched": "the content of a stored event, and a whole event; without new digests",
    }

    def __init__(self, folder: Path, model: Model) -> None:
        self._store = MemoryStore.open(folder, model=Encoder(model))

    def close(self) -> None:
        self._store.close()

    def add(self, user, text, *, session="s", source="x", key=None):
        self._store.session(f"{user}-{session}", scope=user, agent=user).record("user", text, key=key)

    def texts(self, user):
        sessions = self._store.sessions(scope=user)
        turns = [turn for one in sessions for turn in self._store.turns(one.session)]
        return [turn.text for turn in sorted(turns, key=lambda turn: turn.position)]

    def find(self, user, question, k, *, session=None):
        within = None if session is None else f"{user}-{session}"
        found = self._store.recall(question, k, scope=user, session=within, superseded="drop")
        return [hit.text for hit in found]

    def set(self, user, subject, text):
        turn = self._store.session(f"{user}-s", scope=user, agent=user).record("user", text)
        self._store.assert_fact(subject, text, scope=user, because=[turn])

    def get(self, user, subject):
        fact = self._store.fact(subject, scope=user)
        return fact and fact.value

    def history(self, user, subject):
        return [fact.value for fact in self._store.fact_history(subject, scope=user)]

    def moment(self):
        return self._store.head().position

    def find_as_of(self, user, question, k, moment):
        return [hit.text for hit in self._store.recall(question, k, scope=user, as_of=moment, superseded="drop")]

    def distrust(self, user, source):
        self._store.distrust(session=f"{user}-{source}", reason="declared bad")

    def erase(self, user):
        self._store.forget(scope=user, reason="asked for")

    def check(self):
        report = self._store.verify(contents=True)
        return [] if report.sound else [str(finding) for finding in report.findings]

    def enter(self, user, session):
        self._store.switch(f"{user}-{session}", agent=user, reason="resume")

    def prefetch(self, user, question):
        self._store.current(user).prefetch(question, lineage=True)

    def prefetched(self, user):
        result = self._store.current(user).prefetch_result(wait_s=5)
        return [hit.text for hit in result.recall or ()]

    @staticmethod
    def index(folder):
        return [folder / "projections"]

    @staticmethod
    def edit(folder, text, other):
        flipped = "CAST(substr(state, 1, 20) || x'00' || substr(state, 22) AS BLOB)"
        return _changed_event(folder, text, f"UPDATE events SET state = {flipped} WHERE position = ?")

    @staticmethod
    def remove(folder, text):
        return _changed_event(folder, text, "DELETE FROM events WHERE position = ?")
