"""inspeximus with an embedder and write receipts, which its page calls what makes it tamper-evident."""

import time
from pathlib import Path

from inspeximus import Inspeximus

from benchmarks.mechanisms.protocol import Memory, Model


class Adapter(Memory):
    """A user is `user_id`; all are in one store, as one deployment has them."""

    package = "inspeximus"
    keyed = False
    how = {
        "retry": "no key of a call; `key=` is what a text is about, and a second one corrects the first",
        "correction": "`remember(key=)`, `current`, `history`",
        "as of": "`as_of(key, when, as_recorded)` and `believed_at` are about one key; `recall(as_of=)` takes a time",
        "revocation": "`retract_lineage`: left out of recall, with what was derived from it; kept, and reversible",
        "erasure": "`forget_subject`, then `vacuum`",
        "another model": "another `embed` and `embed_id`",
        "index drift": "vectors are not stored by default: they are made again at each opening",
        "touched": "`receipts=True`, which is not the default: without it there is no audit",
        "cost": "with `receipts=True`, which is not the default",
    }

    def __init__(self, folder: Path, model: Model) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._store = Inspeximus(str(folder / "memory.json"), embed=model, embed_id=model.name, receipts=True)

    def close(self) -> None:
        self._store.flush()

    def add(self, user, text, *, session="s", source="x", key=None):
        self._store.remember(text, source={"doc": f"{user}-{source}"}, user_id=user, session_id=session)

    def texts(self, user):
        return [item["text"] for item in self._store.items if item["meta"].get("uid") == user]

    def find(self, user, question, k, *, session=None):
        return [hit["text"] for hit in self._store.recall(question, k=k, user_id=user, session_id=session)]

    def set(self, user, subject, text):
        self._store.remember(text, key=subject, user_id=user, source={"doc": f"{user}-x"})

    def get(self, user, subject):
        record = self._store.current(subject)
        return record and record["text"]

    def history(self, user, subject):
        return [record["text"] for record in self._store.history(subject)]

    def moment(self):
        return time.time()

    def find_as_of(self, user, question, k, moment):
        return [hit["text"] for hit in self._store.recall(question, k=k, user_id=user, as_of=moment)]

    def distrust(self, user, source):
        self._store.retract_lineage(f"{user}-{source}", reason="declared bad")

    def erase(self, user):
        self._store.forget_subject(f"{user}-x")
        self._store.vacuum()

    def check(self):
        sound, problems = self._store.verify_writes()
        return [] if sound else [str(problem) for problem in problems]
