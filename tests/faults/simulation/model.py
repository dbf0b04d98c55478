"""What a naive program would keep: facts in a list, and after each of them everything as it is then.

One method, one fact, one event of the log. Nothing is ever changed in place, so that the past costs nothing to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec

SECOND = 1_000_000
"""In microseconds, as all times here are."""


class Said(NamedTuple):
    """A turn, in the session that it was recorded in."""

    position: int
    text: str
    session: str


class Doing(NamedTuple):
    """A task, and when it was changed last."""

    description: str
    step: int | None
    at: int


class Memory(NamedTuple):
    """Working memory as it is given back by a restore."""

    values: dict[str, tuple[Any, int | None]]
    """Each with the moment at which it expires."""
    task: Doing | None
    notes: tuple[tuple[str, int], ...]


NOTHING = Memory({}, None, ())


@dataclass(frozen=True)
class SessionThen:
    """A session at a position of the log."""

    name: str
    started: int
    scope: str = ""
    ended: bool = False
    ancestors: tuple[str, ...] = ()
    memory: Memory = NOTHING
    checkpoints: tuple[tuple[str, int, Memory], ...] = ()
    """Name, position, and what was remembered there."""
    visible: tuple[Said, ...] = ()
    ever: tuple[Said, ...] = ()
    """Hidden ones too."""

    def values_at(self, now: int) -> dict[str, Any]:
        return {key: value for key, (value, ends) in self.memory.values.items() if ends is None or now < ends}

    @property
    def lineage(self) -> list[str]:
        return [*self.ancestors, self.name]


@dataclass(frozen=True)
class Moment:
    """Everything at a position of the log."""

    sessions: dict[str, SessionThen]
    turns: int = 0
    """How many of all turns there were."""
    agent: str | None = None
    switches: int = 0
    model: int | None = None
    """Which model was activated last; -1 for one that is not at hand."""
    at: int = 0
    """When the last event was recorded."""


class Noted(NamedTuple):
    """A fact as it was told, to be told again where others before it are forgotten."""

    name: str
    session: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    time: int


CONTENT = frozenset({"said", "value_set", "value_deleted", "task_changed", "noted", "checkpointed"})
STARTS = frozenset({"started", "branched"})
"""Of these the name is content."""

Arguments = ParamSpec("Arguments")
Fact = Callable[Concatenate["StoreModel", str, Arguments], None]


def told(fact: Fact[Arguments]) -> Fact[Arguments]:
    """Have a fact noted in the journal."""

    @wraps(fact)
    def method(self: StoreModel, name: str, *arguments: Arguments.args, **options: Arguments.kwargs) -> None:
        fact(self, name, *arguments, **options)
        self.journal.append(Noted(fact.__name__, name, arguments, options, self.time))

    return method


class StoreModel:
    """A store, without any store."""

    def __init__(self) -> None:
        self.journal: list[Noted] = []
        self.forgotten: set[int] = set()
        """The positions whose content is forgotten."""
        self.lost_keys: set[tuple[str, str]] = set()
        """Keys of forgotten turns."""
        self.past = [Moment({})]
        self.turns: list[Said] = []
        """In the order of the log, of all sessions."""
        self.keys: dict[tuple[str, str], Said] = {}
        self.time = 0
        """What the clock says now."""
        self.adopted = 0
        """Up to where the log was made by others, whose models are not at hand."""

    @property
    def head(self) -> int:
        return len(self.past) - 1

    @property
    def now(self) -> Moment:
        return self.past[-1]

    @property
    def sessions(self) -> dict[str, SessionThen]:
        return self.now.sessions

    def turns_at(self, position: int) -> list[Said]:
        """All turns that there were at a position."""
        return self.turns[: self.past[position].turns]

    def _fact(self, session: SessionThen | None = None, **changes: Any) -> None:
        if session is not None:
            changes["sessions"] = self.sessions | {session.name: session}
        self.past.append(replace(self.now, at=self.time, **changes))

    def _of(self, name: str, **changes: Any) -> None:
        self._fact(replace(self.sessions[name], **changes))

    def _remembers(self, name: str, **changes: Any) -> None:
        self._of(name, memory=self.sessions[name].memory._replace(**changes))

    @told
    def started(self, name: str, *, scope: str = "") -> None:
        self._fact(SessionThen(name, self.head + 1, scope))

    @told
    def branched(self, name: str, *, parent: str, at: int, scope: str | None = None) -> None:
        then = self.past[at].sessions[parent]
        scope = then.scope if scope is None else scope
        ever = tuple(said for said in self.sessions[parent].ever if said.position <= at)
        ancestors = (*then.ancestors, parent)
        fresh = replace(then, name=name, started=self.head + 1, scope=scope, ended=False, ancestors=ancestors)
        self._fact(replace(fresh, ever=ever))

    @told
    def said(self, name: str, text: str, *, key: str | None = None) -> None:
        said = Said(self.head + 1, text, name)
        self.turns.append(said)
        if key is not None:
            self.keys[name, key] = said
        session = self.sessions[name]
        found = replace(session, visible=(*session.visible, said), ever=(*session.ever, said))
        self._fact(found, turns=len(self.turns))

    @told
    def ended(self, name: str) -> None:
        self._of(name, ended=True)

    @told
    def resumed(self, name: str) -> None:
        self._of(name, ended=False)

    @told
    def switched(self, to: str) -> None:
        self._fact(agent=to, switches=self.now.switches + 1)

    @told
    def value_set(self, name: str, key: str, value: Any, *, ends: int | None) -> None:
        self._remembers(name, values=self.sessions[name].memory.values | {key: (value, ends)})

    @told
    def value_deleted(self, name: str, key: str) -> None:
        values = self.sessions[name].memory.values
        self._remembers(name, values={other: value for other, value in values.items() if other != key})

    @told
    def values_cleared(self, name: str) -> None:
        self._remembers(name, values={})

    @told
    def task_changed(self, name: str, description: str, step: int | None) -> None:
        self._remembers(name, task=Doing(description, step, self.time))

    @told
    def noted(self, name: str, text: str) -> None:
        self._remembers(name, notes=(*self.sessions[name].memory.notes, (text, self.time)))

    @told
    def notes_cleared(self, name: str) -> None:
        self._remembers(name, notes=())

    @told
    def checkpointed(self, name: str, called: str) -> None:
        session = self.sessions[name]
        self._of(name, checkpoints=(*session.checkpoints, (called, self.head + 1, session.memory)))

    @told
    def checkpoint_deleted(self, name: str, called: str) -> None:
        self._of(name, checkpoints=tuple(made for made in self.sessions[name].checkpoints if made[0] != called))

    def restored(self, name: str, called: str) -> None:
        self.restored_to(name, next(made[1] for made in self.sessions[name].checkpoints if made[0] == called))

    @told
    def restored_to(self, name: str, position: int) -> None:
        """The checkpoint made at a position: its name may be forgotten, what it stands for is there."""
        session = self.sessions[name]
        memory = self.past[position].sessions[self.journal[position - 1].session].memory
        self._of(name, memory=memory, visible=tuple(said for said in session.visible if said.position <= position))

    @told
    def rewound(self, name: str, *, to: int) -> None:
        self._of(name, visible=tuple(said for said in self.sessions[name].visible if said.position <= to))

    def activated(self, model: int) -> None:
        self._activated("", model)

    @told
    def _activated(self, _name: str, model: int) -> None:
        self._fact(model=model)

    def noticed(self) -> None:
        """Something was appended that changes nothing here: a receipt or its judgement, a switch of another agent."""
        self._noticed("")

    @told
    def _noticed(self, _name: str) -> None:
        self._fact()

    def content_of(self, name: str) -> set[int]:
        """The positions of what a session holds that can be forgotten, and is not yet."""
        told_of = [(at, fact) for at, fact in enumerate(self.journal, 1) if fact.session == name]
        return {at for at, fact in told_of if fact.name in CONTENT | STARTS} - self.forgotten

    def forget(self, positions: Iterable[int]) -> None:
        """Have everything be as if what is at these positions had never been told, at any position."""
        journal, time = self.journal, self.time
        self.forgotten |= {*positions}
        self.past, self.turns, self.keys, self.journal = [Moment({})], [], {}, []
        for position, fact in enumerate(journal, 1):
            self.time = fact.time
            if position in self.forgotten and fact.name in CONTENT:
                self._fact()
                self.journal.append(fact)
                if (key := fact.options.get("key")) is not None:
                    self.lost_keys.add((fact.session, key))
            else:
                getattr(self, fact.name)(fact.session, *fact.arguments, **fact.options)
        self.time = time
