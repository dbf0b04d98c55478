"""A store with a random history, every read of the table of operations, and random edits of what it has stored."""

from __future__ import annotations

import inspect
import io
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psycopg
import pytest
from pysqlite3 import dbapi2

from benchmarks.outside.stored_log import COLUMNS, Row, StoredLog
from mnemolog import MemoryStore, errors
from mnemolog.operation_table import OPERATIONS, Operation
from tests.faults.simulation.running import played
from tests.faults.simulation.script import script_of
from tests.faults.simulation.world import DIMENSION, VOCABULARY, World
from tests.support import FakeClock, HalfEncoder

DAMAGE = (errors.LogDamaged, errors.StoreReplaced)
"""What a read raises that does not answer because the log was touched."""
SAYS_SO = ('"unreadable":"', '"link_holds":false')
"""What `audit.event` answers instead, which shows what is stored to who looks into it."""
REFUSED = (dbapi2.Error, psycopg.Error)
"""What a database raises that cannot hold what an edit would make."""
NOT_ASKED = {
    "status",
    "verify",
    "models.list",
    "models.load",
    "admin.nodes",
    "session.prefetch",
    "session.prefetch_result",
}
"""Operations that do not read the log, or say themselves what is wrong with it."""
ASKED = 25
"""Reads after each edit, chosen at random."""
OPEN = 0.2
"""The share of edits that are made while the store is open, and has answered before."""
CONTENT = ("topic", "state", "key", "recorded_at", "digest")
EXCHANGED = (CONTENT, CONTENT[:-1], ("state",), ("recorded_at",), ("position",))
KINDS = ("change", "change", "change", "restate", "remove", "exchange", "insert", "replace", "cut", "end")


class Question(NamedTuple):
    """An operation, what it is asked, and of which session, as of which position."""

    operation: Operation
    arguments: dict[str, Any]
    session: str
    at: int | None = None

    def ask(self, store: MemoryStore) -> str | None:
        """Return the answer or the error as text, whole; None for one that says that the log was touched."""
        owner: Any = store
        file = {"file": io.BytesIO()} if self.operation.method is type(store.audit).export else {}
        try:
            for part in self.operation.name.split(".")[:-1]:
                owner = store.find_session(self.session) if part == "session" else getattr(owner, part)
            owner = owner if self.at is None else owner.at(self.at)
            answer = getattr(owner, self.operation.method.__name__)(**self.arguments, **file)
            told = msgspec.json.encode([answer, *map(io.BytesIO.getvalue, file.values())], enc_hook=plain).decode()
            return None if any(sign in told for sign in SAYS_SO) else told
        except Exception as error:
            return told_by(error)

    def __str__(self) -> str:
        return f"{self.operation.name}({self.arguments}), session {self.session}, at {self.at}"


def told_by(error: Exception) -> str | None:
    """Return an error as text; None if it says that the log was touched."""
    return None if isinstance(error, DAMAGE) else repr(error)


def plain(value: Any) -> Any:
    """Return what is no plain data as such: an iterator as a list, anything else as text."""
    return list(value) if isinstance(value, Iterable) else repr(value)


def questions(names: Sequence[str], position: int) -> Iterator[Question]:
    """Every operation that reads the log: with what it needs, with one option more, and as of a position."""
    for operation in (item for item in OPERATIONS if item.verb == "read" and item.name not in NOT_ASKED):
        taken = inspect.signature(operation.method).parameters
        for name in names:
            given = {"query": "amber cedar", "text": "mber", "key": "user/a", "time": "2024-01-01T00:00:03Z"}
            given |= {"reason": "resume", "position": position, "when": position, "before": position}
            given |= {"id": name, "session": name}
            options = {"as_of": position, "hidden": True, "mode": "vector", "newest_first": True, "session": name}
            options |= {"to": name if "reason" in taken else position}
            needed = {key: given[key] for key in given if key in taken and taken[key].default is taken[key].empty}
            yield Question(operation, needed, name)
            yield from (Question(operation, needed | {key: options[key]}, name) for key in options if key in taken)
            if operation.as_of:
                yield Question(operation, needed, name, at=position)


def opened(folder: Path) -> MemoryStore:
    """Return the store, at a time that stands still."""
    models = [HalfEncoder(half, dimension=DIMENSION) for half in (0, 1)]
    clock = FakeClock(1_800_000_000_000_000, step=0)
    return MemoryStore.open(folder, model=models[0], models=models[1:], clock=clock, background=False)


def answers(folder: Path, asked: Sequence[Question], *, amid: Callable[[], object] | None = None) -> list[str | None]:
    """Return the answers of a store. `amid` is called when it is open and has answered once."""
    try:
        with opened(folder) as store:
            found = [question.ask(store) for question in asked]
            if amid is None:
                return found
            amid()
            return [question.ask(store) for question in asked]
    except Exception as error:
        return [told_by(error)] * len(asked)


class History:
    """A store that is closed, copies of it that differ in their projections, and what each of them answers."""

    def __init__(self, log: StoredLog, seed: str, *, encrypt: bool) -> None:
        """Make the history of a seed, with facts, a receipt and a source that is not trusted at its end."""
        log.drop()
        log.prepare()
        MemoryStore.open(log.folder, model=None, encrypt=encrypt).close()
        left_out = {"flip", "cut", "" if encrypt else "forget"}
        script = tuple(step for step in script_of(seed, steps=30) if step.name not in left_out)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(World, "synchronous", "FULL")  # Else its newest events may be lost, and are not missed.
            assert (why := played(script, log.folder.parent)) is None, why
        behind = shutil.copytree(log.folder / "projections", log.folder.parent / "behind")
        with opened(log.folder) as store:
            turns = [store.session("last", scope="acme").record("user", f"{word} last") for word in VOCABULARY]
            store.assert_fact("user/a", "fjord", scope="acme", because=turns[:2])
            store.assert_fact("user/a", "grove", scope="acme")
            store.recall("amber", receipt=True, mode="text")
            store.distrust(positions=[turns[3].position], actor="al", reason="forged")
            store.admin.catch_up_vectors()
            names = [found.session for found in store.sessions()]
        self.log, self.rows, self.kept = log, log.rows(), {"there": log.snapshot()}
        shutil.rmtree(log.folder / "projections")
        self.kept["deleted"] = log.snapshot()
        shutil.move(behind, log.folder / "projections")
        self.kept["behind"] = log.snapshot()
        rng = random.Random(seed)
        self.questions = list(questions(["last", *rng.sample(names, 2)], rng.choice(self.rows)["position"]))
        self.expected = answers(log.folder, self.questions)
        for kept in self.kept.values():
            log.restore(kept)
            assert answers(log.folder, self.questions) == self.expected, "projections change its answers"
        assert None not in self.expected, "nobody has touched it, and it says so"

    def edited(self, rng: random.Random, foreign: Sequence[Row]) -> str | None:
        """Edit a copy at random; return what it then answers otherwise than before without saying that it was touched.

        - `foreign`: the rows of another store
        """
        projections, asked = (
            rng.choice([*self.kept]),
            rng.sample([*zip(self.questions, self.expected, strict=True)], ASKED),
        )
        self.log.restore(self.kept[projections])
        kind, rows, end = self._edit(rng, foreign)

        def make() -> None:
            with suppress(*REFUSED):
                self.log.replace(rows, end)

        if not (is_open := rng.random() < OPEN):
            make()
        found = answers(self.log.folder, [question for question, _ in asked], amid=make if is_open else None)
        told = [
            f"{question}\n  was {before}\n  is  {answer}"
            for (question, before), answer in zip(asked, found, strict=True)
            if answer not in (None, before)
        ]
        changed = [row for row in [*self.rows, *rows] if row not in self.rows or row not in rows]
        where = f"{kind} (projections {projections}{', while it is open' * is_open}), end {end}: {changed}"
        return "\n".join([where, *told]) if told else None

    def _edit(self, rng: random.Random, foreign: Sequence[Row]) -> tuple[str, list[Row], int]:
        """Return an edit, the rows after it, and where the log then says that it ends."""
        rows, kind = [dict(row) for row in self.rows], rng.choice(KINDS)
        at, last = rng.randrange(len(rows)), rows[-1]["position"]
        row, other, strange = rows[at], rng.choice(rows), rng.choice([*self.rows, *foreign])
        match kind:
            case "change":
                name = rng.choice(COLUMNS)
                row[name] = rng.choice([other[name], strange[name], flipped(row[name], rng)])
            case "restate" if row["topic"] == b"turn.recorded.v1":
                row["state"] = self.log.restated(row, lambda text: f"not {text}")
            case "exchange":
                for name in rng.choice(EXCHANGED):
                    row[name], other[name] = other[name], row[name]
            case "replace":
                row |= {name: strange[name] for name in CONTENT}
            case "insert":
                versions = [found["version"] for found in rows if found["stream"] == strange["stream"]]
                place = {
                    "position": rng.choice([-1, 0, last + 1]),
                    "version": max(versions, default=0) + 1,
                    "key": None,
                }
                rows.insert(rng.choice([at, len(rows)]), strange | place)
            case "remove":
                del rows[at : at + rng.randint(1, 3)]
            case "cut":
                del rows[-rng.choice([1, 2, 3, at + 1]) :]
        if kind in ("remove", "insert", "cut") and rng.random() < 0.5:
            for position, moved in enumerate(rows, 1):
                moved["position"] = position
        ends = [last, max((found["position"] for found in rows), default=0), *([at] if kind == "end" else [])]
        return kind, rows, rng.choice(ends)


def flipped(value: Any, rng: random.Random) -> Any:
    """Return a value with another bit."""
    if isinstance(value, int):
        return value ^ 1 << rng.randrange(62)
    data = bytearray(value or b"key")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)
