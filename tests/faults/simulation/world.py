"""A store in a folder, open twice in one process, beside its model: changed together, and compared."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mnemolog import MemoryStore, Session
from mnemolog.adapters.support.store_access import visible_of
from mnemolog.domain import errors
from mnemolog.domain.session import SessionState
from mnemolog.domain.values import Micros
from mnemolog.infra.sqlite import Synchronous
from mnemolog.session import MemoryView
from tests.faults.simulation.failing import Crash, Failing
from tests.faults.simulation.model import SECOND, SessionThen, StoreModel
from tests.session_states import fold_all, state_digest
from tests.support import FakeClock, HalfEncoder, in_thread, read_all

SESSIONS_MAX = 7
HANDLES = 2
DIMENSION = 16
SCOPES = ("", "acme", "acme/a", "acmeother")
VOCABULARY = ("amber", "birch", "cedar", "ember", "fjord", "grove", "heron", "ivory", "jetty", "koala")
EVERYTHING = 1_000
EVERY_TURN_IN = 1e-4
"""How far a similarity may be from that of the model, in the arithmetic of another summation order."""


class Mismatch(AssertionError):
    """Store and model do not agree."""


def agree(found: Any, expected: Any, what: str) -> None:
    """Raise `Mismatch` unless the two are equal, types included."""
    if repr(found) != repr(expected):
        raise Mismatch(f"{what}: the store says {found!r}, the model {expected!r}")


class Over(Exception):
    """A step has met a disk that was made to fail; the rest of it is left out."""


class Remembered(MemoryView):
    """Working memory as a state has it: read once, where a handle would read it for every question."""

    def __init__(self, state: SessionState, now: Micros) -> None:
        self.id, self._known, self._moment = state.session, state, now

    def _state(self) -> SessionState:
        return self._known

    def _now(self) -> Micros:
        return self._moment


class World:
    """Handles on one store, its model, the clock, and the models that embed."""

    with_models = True
    """Whether stores are opened with models that embed."""
    synchronous: Synchronous = "NORMAL"
    """Quick: no script takes the power away."""
    background = False
    """Whether projectors follow the log. What they do is not part of a script, and does not replay."""

    def __init__(self, base: Path, failing: Failing | None = None) -> None:
        self.folder, self.failing = base / "memory", failing
        self.clock = FakeClock(step=0)
        self.model = StoreModel()
        self.model.time = self.clock.now()
        self.encoders = [HalfEncoder(half, dimension=DIMENSION) for half in (0, 1)]
        self.vectors: dict[tuple[int, str], np.ndarray] = {}
        self.names = 0
        self.stores: list[MemoryStore] = []
        self.handle = 0
        self.suspect: set[int] = set()
        """The handles that may meet damage that a doctor has to see to."""
        self.receipts: list[tuple[int, list[int]]] = []
        """Receipts that scripts asked for, each with its hits."""
        self.judged: dict[int, tuple[list[int], list[int], bool]] = {}
        """By receipt, what was judged last: good, bad, and whether nothing answers it."""
        self.unanswerable: set[int] = set()
        """Receipts that are forgotten."""
        self.open()

    def open(self) -> None:
        """Open the handles."""
        self.stores = [
            MemoryStore.open(
                self.folder,
                model=self.encoders[0] if self.with_models else None,
                models=self.encoders[1:] if self.with_models else (),
                clock=self.clock,
                synchronous=self.synchronous,
                background=self.background,
            )
            for _ in range(HANDLES)
        ]

    def close(self) -> None:
        """Close the handles. Nothing of theirs stays open: what is left mapped would be cut by who damages a file."""
        for store in self.stores:
            store.close()
        if self.failing is not None and (left := self.failing.left_open()):
            raise Mismatch(f"still open after closing: {', '.join(left)}")

    def recover(self) -> None:
        """After a crash: the handles are abandoned as they are, and opened anew."""
        assert self.failing is not None
        self.failing.disarm()
        self.failing.let_go()
        self.open()

    def beside_a_reader(self, take: Callable[[], Any]) -> Any:
        """Take a step while the other handle is read: each answer is that from before it or that from after it."""
        if self.suspect:
            return take()
        other, name, over = self.stores[self.handle - 1], next(iter(self.model.sessions)), threading.Event()

        def asked() -> str:
            return repr(other.turns(name))

        def read() -> None:
            while not over.is_set():
                answers.append(asked())

        answers = [asked()]
        reading = in_thread(read)
        try:
            outcome = take()
        finally:
            over.set()
            reading.result()
        agree({*answers} - {answers[0], asked()}, set(), f"turns of {name!r}, read during the step")
        return outcome

    @property
    def store(self) -> MemoryStore:
        """The handle of this step."""
        return self.stores[self.handle]

    def new_name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def words(self, which: int) -> str:
        """A text of two to four words, some of which many texts have."""
        size = len(VOCABULARY)
        chosen = (which, which // size, which // size**2)[: 2 + which % 2]
        return " ".join(VOCABULARY[n % size] for n in chosen)

    def pick(self, which: int) -> tuple[SessionThen, Session]:
        """A session, as the model has it and as a handle of the store."""
        names = list(self.model.sessions)
        name = names[which % len(names)]
        return self.model.sessions[name], self.store.session(name)

    # Both together.

    def append(self, call: Callable[[], Any], *facts: Callable[[], None], maybe: bool = False) -> Any:
        """Have the store do something that appends `facts`, one event each, and the model too. Return the answer.

        `maybe`: it need not append anything where that changes nothing. Where the disk was made to fail, all of
        it is there or nothing, and the step is over.
        """
        before = self.model.head
        try:
            answer = self._doctored(call)
        except (Crash, errors.MnemologError) as error:
            self.hindered(error)
            done = self.head() - before
            if done != 0 and not (done == len(facts) and isinstance(error, Crash)):
                raise Mismatch(f"{error!r} left {done} of {len(facts)} events") from None
            for fact in facts if done else ():
                fact()
            raise Over from None
        done = self.head() - before
        if done != len(facts) and not (maybe and done == 0):
            raise Mismatch(f"{done} events were appended, {len(facts)} are to be")
        if done or not maybe:
            for fact in facts:
                fact()
        else:
            self._changes_nothing(facts)
        return answer

    def attempt(self, call: Callable[[], Any]) -> Any:
        """Have the store do something that appends nothing."""
        try:
            return self._doctored(call)
        except (Crash, errors.MnemologError) as error:
            self.hindered(error)
            raise Over from None

    def _doctored(self, call: Callable[[], Any]) -> Any:
        """Do what `ProjectionUnreadable` asks for after damage, once for each handle: then it has to work."""
        try:
            return call()
        except errors.ProjectionUnreadable:
            if not self._may_meet_damage():
                raise
            return self.doctored(call, None)

    def doctored(self, call: Callable[[], Any], answer: Any) -> Any:
        """Do it again after a doctor has been asked, where there may be damage; else return the `answer` there is."""
        if not self._may_meet_damage():
            return answer
        self.suspect.discard(self.handle)
        self.store.admin.doctor(deep=True, fix=True)
        return call()

    def _may_meet_damage(self) -> bool:
        return self.handle in self.suspect and (self.failing is None or not self.failing.happened)

    def hindered(self, error: BaseException) -> None:
        """Go on after an error of the store: opened anew after a crash. Raises it again if it had no reason."""
        if self.failing is None or not self.failing.happened:
            raise error
        if isinstance(error, Crash):
            self.recover()
        self.failing.disarm()

    def refused(self, kind: type[errors.MnemologError], call: Callable[[], Any]) -> None:
        """Have the store refuse something, with nothing written."""

        def refuse() -> None:
            try:
                answer = call()
            except kind:
                return
            raise Mismatch(f"{kind.__name__} was to be raised, {answer!r} was answered")

        self.append(refuse)

    def change(
        self, then: SessionThen, call: Callable[[], Any], *facts: Callable[[], None], maybe: bool = False
    ) -> Any:
        """As `append`, for what a session refuses that has ended."""
        if then.ended:
            return self.refused(errors.SessionAlreadyEnded, call)
        return self.append(call, *facts, maybe=maybe)

    def head(self) -> int:
        return self.store.head().position

    def _changes_nothing(self, facts: tuple[Callable[[], None], ...]) -> None:
        """What appends nothing must not have been asked to change anything."""
        kept, told, before = list(self.model.past), list(self.model.journal), self.model.now
        for fact in facts:
            fact()
        after, self.model.past, self.model.journal = self.model.now, kept, told
        for name, session in after.sessions.items():
            agree(session, before.sessions[name], f"{name}, about which nothing was appended")

    # The comparison.

    def check(self, session: str | None = None) -> None:
        """Compare what is quick to compare: one session's memory, whose turn it is, the end of the log."""
        agree(self.head(), self.model.head, "head")
        if session is None:
            return
        then, state = self.model.sessions[session], visible_of(self.store).state(session)
        self.compare(Remembered(state, self.clock.now()), then, now=self.clock.now())
        agree(state.ended, then.ended, f"{session} ended")

    def check_agent(self) -> None:
        """Compare which session the agent is in."""
        current = self.store.current()
        agree(current.id if current else None, self.model.now.agent, "the agent's session")
        if current is not None:
            agree(self.store.parts.agents.state("agent").generation, self.model.now.switches, "switches")  # type: ignore[union-attr]

    def compare(self, view: Any, then: SessionThen, *, now: int) -> None:
        """Compare working memory and lineage, of a session now or of one as it was."""
        values = then.values_at(now)
        agree(view.all(), {key: values[key] for key in sorted(values)}, f"values of {then.name}")
        task = view.task()
        found = None if task is None else (task.description, task.step, micros(task.changed_at))
        agree(found, then.memory.task and tuple(then.memory.task), f"task of {then.name}")
        notes = tuple((note.text, micros(note.added_at)) for note in view.notes(with_times=True))
        agree(notes, then.memory.notes, f"notes of {then.name}")
        made = sorted((found.position, found.name) for found in view.checkpoints())
        agree(made, sorted((at, name) for name, at, _ in then.checkpoints), f"checkpoints of {then.name}")
        agree(view.lineage(), then.lineage, f"lineage of {then.name}")

    def compare_turns(self, session: Session, then: SessionThen) -> None:
        """Compare the turns that a session sees, and those hidden from it."""
        seen = [(turn.position, turn.text) for turn in session.turns(limit=EVERYTHING)]
        agree(seen, [said[:2] for said in then.visible], f"turns of {then.name}")
        ever = [turn.position for turn in session.turns(limit=EVERYTHING, hidden=True)]
        agree(ever, [said.position for said in then.ever], f"all turns of {then.name}")

    def compare_then(self, position: int) -> None:
        """Compare every session as it was at a position."""
        moment = self.model.past[position]
        for name, then in moment.sessions.items():
            view = self.store.session(name).at(position)
            self.compare(view, then, now=moment.at)
            agree(view.ended, then.ended, f"{name} ended at {position}")
            seen = [(turn.position, turn.text) for turn in view.turns(limit=EVERYTHING)]
            agree(seen, [said[:2] for said in then.visible], f"turns of {name} at {position}")

    def check_all(self, *, positions: int = 3) -> None:
        """Compare everything: from the log alone, through the handle, and as of some positions."""
        agree(self.head(), self.model.head, "head")
        folded = {name: state_digest(state) for name, state in fold_all(read_all(self.store.parts.log)).items()}
        agree(sorted(folded), sorted(self.model.sessions), "sessions in the log")
        kept = {name: state_digest(visible_of(self.store).state(name)) for name in folded}
        agree(kept, folded, "states")
        for name, then in self.model.sessions.items():
            session = self.store.session(name)
            self.compare(session, then, now=self.clock.now())
            self.compare_turns(session, then)
        self.check_agent()
        for n in range(positions if self.model.head else 0):
            self.compare_then(1 + (self.model.head - 1) * n // positions)
        found = self.store.verify()
        agree(found.findings, (), "findings")

    def vector(self, model: int, text: str) -> np.ndarray:
        """The vector of a text by one of the models; kept."""
        if (model, text) not in self.vectors:
            self.vectors[model, text] = self.encoders[model].encode([text])[0]
        return self.vectors[model, text]


def micros(moment: Any) -> int:
    return round(moment.timestamp() * SECOND)
