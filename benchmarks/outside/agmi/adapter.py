"""mnemolog under agmi, a test of whether a memory notices that it was edited at rest.

    agmi-check --adapter benchmarks.outside.agmi.adapter:Reads

agmi fills a memory through its own interface, edits what it has stored, and asks whether it noticed. The classes here
differ in whom they ask: reads, reads of a store that is opened with a witness, `verify()`, `verify(heads=)`. Each call
opens the store anew. Only an error that names damage counts as noticed; any other ends the edit as *not evaluable*.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from agmi.adapters.base import MemoryAdapter, Record

from benchmarks.hashed_words import HashedWords
from benchmarks.outside.stored_log import StoredInPostgres, StoredLog
from mnemolog import MemoryStore, errors

FIRST: Final = "alpha"
OTHER: Final = "beta"
"""Sessions of two users, each in a scope of the same name."""
CONTENT: Final = ("topic", "state", "key", "recorded_at", "digest")
"""What an edit moves from one place of the log to another; position, stream and version are the place."""
A_DAY: Final = 86_400_000_000


def in_pence(text: str) -> str:
    """Have a turn say something else."""
    return text.replace("euros", "pence")


class Reads(MemoryAdapter):
    """What an agent reads: turns, messages, recall, context and find. `verify` is not called."""

    name = "mnemolog, reads"
    detection_point = "read"
    supports_replay = supports_metadata = supports_snapshot = True
    witness = False
    """Whether the store is opened with `witness=`, a file outside of it."""
    notes_heads = False
    """Whether the head is noted in that file after each write."""

    def __init__(self, *, url: str | None = None, encrypt: bool = True, projections: bool = True) -> None:
        """Take the place of a store.

        - `url`: a PostgreSQL database without logs; None for SQLite
        - `encrypt`: whether content is encrypted
        - `projections`: whether views and vectors are there when the edited store is opened, or deleted
        """
        self._url, self._encrypt, self._projections = url, encrypt, projections

    def setup(self) -> None:
        """Make room for a store."""
        self._place = Path(tempfile.mkdtemp(prefix="mnemolog-agmi-"))
        folder, self._outside = self._place / "memory", self._place / "heads.jsonl"
        self._log = StoredLog(folder) if self._url is None else StoredInPostgres(folder, self._url)
        self._log.prepare()

    def teardown(self) -> None:
        """Remove the store."""
        self._log.drop()
        shutil.rmtree(self._place)

    def _open(self) -> MemoryStore:
        outside: dict[str, Any] = {"witness": self._outside} if self.witness else {}
        return MemoryStore.open(
            self._log.folder, model=HashedWords(), encrypt=self._encrypt, background=False, **outside
        )

    # What the store writes by itself.

    def seed(self, n: int) -> None:
        """Record turns of the first user."""
        self._record(FIRST, [f"The limit of {FIRST} number {number} is {40 + number} euros." for number in range(n)])

    def seed_other(self, n: int) -> None:
        """Record turns of the second user."""
        self._record(OTHER, [f"The limit of {OTHER} number {number} is {80 + number} euros." for number in range(n)])

    def append_genuine(self) -> None:
        """Record one more turn of the first user."""
        self._record(FIRST, ["The newest limit is 99 euros."])

    def _record(self, name: str, texts: list[str]) -> None:
        with self._open() as store:
            session = store.session(name, scope=name)
            for text in texts:
                session.record("user", text)
            store.admin.catch_up_vectors()
            if self.notes_heads:
                store.audit.append_head(self._outside)

    # What is stored, past the library.

    def read_all_raw(self) -> list[Record]:
        """Return the stored turns of the first user."""
        return self._turns_of(FIRST)

    def read_other_raw(self) -> list[Record]:
        """Return the stored turns of the second user."""
        return self._turns_of(OTHER)

    def _turns_of(self, name: str) -> list[Record]:
        rows = [
            row
            for row in self._log.rows()
            if row["topic"] == b"turn.recorded.v1" and row["stream"].endswith(name.encode())
        ]
        return [Record(seq=number, fields=row) for number, row in enumerate(rows)]

    def identity_of(self, record: Record) -> str:
        """Return the place of an event in the log."""
        return str(record.fields["position"])

    def payload_of(self, record: Record) -> str:
        """Return the stored content of an event."""
        return record.fields["state"].hex()

    def owner_of(self, record: Record) -> str:
        """Return the stream of an event."""
        return record.fields["stream"].decode()

    def mutate_payload(self, record: Record) -> Record:
        """Have a turn say something else, sealed with the store's keys if it is encrypted: they lie beside the log."""
        record.fields["state"] = self._log.restated(record.fields, in_pence)
        return record

    def forge_record(self, template: Record) -> Record:
        """Return one more turn, at the next place of the log, sealed likewise, with the digest of the one before."""
        last = self._log.rows()[-1]["position"]
        version = template.fields["version"] + 1
        state = self._log.restated(template.fields, in_pence, version=version)
        row = template.fields | {"position": last + 1, "version": version, "state": state}
        return Record(seq=template.seq + 1, fields=row)

    def write_raw(self, record: Record) -> None:
        """Write the content of a record to its place: that of the turn with its number, or a new one."""
        turns = self.read_all_raw()
        if record.seq == len(turns):
            self._log.insert(record.fields)
        else:
            content = {name: record.fields[name] for name in CONTENT}
            self._log.change(turns[record.seq].fields["position"], **content)

    def delete_raw(self, seq: int) -> None:
        """Delete a turn. If it was the last event, what says where the log ends goes back with it."""
        self._log.remove(self.read_all_raw()[seq].fields["position"])
        self._log.end(self._log.rows()[-1]["position"])

    def replay_onto(self, victim_seq: int, donor: Record) -> None:
        """Copy the content of an event over that of a turn, and leave everything else as it was."""
        self._log.change(self.read_all_raw()[victim_seq].fields["position"], state=donor.fields["state"])

    def read_meta(self, seq: int) -> dict[str, Any]:
        """Return when a turn was recorded."""
        return {"recorded_at": self.read_all_raw()[seq].fields["recorded_at"]}

    def write_meta(self, seq: int, meta: dict[str, Any]) -> None:
        """Have a turn recorded a day earlier."""
        self._log.change(self.read_all_raw()[seq].fields["position"], recorded_at=meta["recorded_at"] - A_DAY)

    def snapshot_store(self) -> object:
        """Copy the folder of the store, and in PostgreSQL the tables of the database."""
        return self._log.snapshot()

    def restore_store(self, token: object) -> None:
        """Put such a copy back."""
        self._log.restore(token)

    # The question.

    def reload(self) -> None:
        """Delete the projections if this is about a store without them."""
        if not self._projections:
            shutil.rmtree(self._log.folder / "projections", ignore_errors=True)

    def verify(self) -> bool:
        """Return whether the store noticed nothing."""
        self.verify_detail = None
        try:
            with self._open() as store:
                self.verify_detail = self._why_unsound(store)
        except (errors.LogDamaged, errors.StoreReplaced) as error:
            self.verify_detail = f"{type(error).__name__}: {error}"
        return self.verify_detail is None

    def _why_unsound(self, store: MemoryStore) -> str | None:
        """Read what an agent reads. Raises what the store raises."""
        session = store.session(FIRST, scope=FIRST)
        session.turns()
        session.messages()
        store.recall("limit in euros", scope=FIRST, k=10)
        store.context("limit in euros", scope=FIRST)
        store.find("limit", scope=FIRST)
        return None


class ReadsWithWitness(Reads):
    """The same of a store that is opened with a file outside of it, in which it notes its head."""

    name = "mnemolog, reads with witness="
    witness = True


class Verify(Reads):
    """`verify()`, which an operator has to call."""

    name = "mnemolog, verify()"
    detection_point = "audit"

    def _why_unsound(self, store: MemoryStore) -> str | None:
        found = store.verify(heads=self._outside if self.notes_heads else None)
        return None if found.sound else "{0.kind} at {0.position}: {0.detail}".format(found.findings[0])


class VerifyWithHeads(Verify):
    """`verify(heads=)`, with the heads that were noted outside of the store."""

    name = "mnemolog, verify(heads=)"
    notes_heads = True


ROWS: Final = (Reads, ReadsWithWitness, Verify, VerifyWithHeads)
