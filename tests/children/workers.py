"""What child processes do in the crash and process tests. Each works at a store of its own opening.

They answer through a pipe: a message is sent whole or not at all, as a line printed and flushed would be.
"""

import functools
import io
import os
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO, cast

from mnemolog import MemoryStore, NewTurn, composition
from mnemolog.domain import errors
from mnemolog.domain.events import SessionStarted, TurnRecorded
from mnemolog.domain.values import NO_STREAM, Version
from mnemolog.operations import backup_files, copies
from mnemolog.projections.history import states
from tests.golden.make_store import encoder
from tests.interrupts import Interrupt
from tests.support import HalfEncoder, HashEncoder, projections_of


def batch_of(session: str, label: str, size: int, *, keyed: bool = False) -> list[NewTurn]:
    """A batch whose turns say to which batch they belong, which one of how many they are."""
    texts = [f"{label}/{n}/{size}" for n in range(size)]
    return [NewTurn(session=session, role="user", text=text, key=text if keyed else None) for text in texts]


def open_store(folder: str | Path, session: str) -> MemoryStore:
    """Open the store and start the session, unless it is there."""
    store = MemoryStore.open(folder, model=None)
    store.session(session)
    return store


def telling_failures(work: Callable[..., None]) -> Callable[..., None]:
    """Have a child send why its work failed, and let those go that wait for it at a barrier."""

    @functools.wraps(work)
    def told(pipe: Connection, *arguments: Any) -> None:
        try:
            work(pipe, *arguments)
        except BaseException as error:
            for barrier in arguments:
                if hasattr(barrier, "abort"):
                    barrier.abort()
            pipe.send(f"failed: {error!r}")

    return told


def record_one(pipe: Connection, folder: str, text: str) -> None:
    """Record a turn in the store at a path that came from another process, then read the whole session."""
    with MemoryStore.open(folder, model=None, background=False) as store:
        store.record("trip", "user", text)
        pipe.send([turn.text for turn in store.turns("trip")])


def record_and_cut_shared_memory(pipe: Connection, folder: str, name: str) -> None:
    """Record a turn, cut a `-shm` to 0 bytes, and continue."""
    with MemoryStore.open(folder, model=None, background=False) as store:
        store.session("trip").record("user", "acknowledged")
        store.recall("acknowledged")
        pipe.send("recorded")
        os.truncate(Path(folder, f"{name}-shm"), 0)
        while True:
            store.session("trip").record("user", "later")
            store.recall("later")


def wait_within(pipe: Connection, folder: str, work: str, temporary: str) -> None:
    """Begin to read, back up, restore or copy a store, and wait where that has written content elsewhere."""
    tempfile.tempdir = temporary

    def wait(*_: object, **__: object) -> None:
        pipe.send("there")
        signal.pause()

    if work == "restore":
        copies._verify = wait  # type: ignore[assignment]
        copies.restore_backup(f"{folder}-backup", f"{folder}-restored", keys=f"{folder}-keys")
    elif work == "copy":
        backup_files.check = wait  # type: ignore[assignment]
        copies.copy_store(folder, f"{folder}-copy")
    with MemoryStore.open(folder, model=None, read_only=work == "read") as store:
        if work == "backup":
            copies.verify_copy = wait  # type: ignore[assignment]
            store.backup(f"{folder}-new")
        wait()


def append_until_killed(pipe: Connection, folder: str, label: str, seed: int, keyed: bool) -> None:
    """Append batches of 1 to 50 turns for ever; after each return tell label, size and positions."""
    rng = random.Random(seed)
    pipe.send("opening")
    store = open_store(folder, "s")
    number = 0
    while True:
        size = rng.randint(1, 50)
        name = f"{label}.{number}"
        turns = store.record_many(batch_of("s", name, size, keyed=keyed))
        pipe.send((name, size, [turn.position for turn in turns]))
        number += 1


@telling_failures
def append_and_index(pipe: Connection, folder: str, label: str, stop: Any) -> None:
    """Append batches of 1 to 20 turns to a session of its own, with vectors in the background, until told to stop."""
    rng = random.Random(label)
    with MemoryStore.open(folder, model=HashEncoder(dimension=32)) as store:
        store.session(label)
        pipe.send("started")
        number = 0
        while not stop.wait(0.005):
            store.record_many(batch_of(label, f"{label}.{number}", rng.randint(1, 20)))
            store.sessions()  # Brings the views to the head.
            number += 1
    pipe.send("done")


def read_texts(pipe: Connection, folder: str, session: str) -> None:
    """Open the store, tell the texts of a session, and close it."""
    with MemoryStore.open(folder, model=None, create=False) as store:
        found = [turn.text for turn in store.turns(session, limit=1_000_000)]
    pipe.send(found)


@telling_failures
def append_through_crashes(pipe: Connection, folder: str, label: str, seed: int, over: Any) -> None:
    """Append batches until told to stop; where the outcome is unknown, again with the same keys. Tell what was told."""
    rng, number, unknown = random.Random(seed), 0, 0
    with MemoryStore.open(folder, model=None, background=False) as store:
        store.session(label)
        pipe.send("started")
        while not over.is_set():
            name, size, turns = f"{label}.{number}", rng.randint(1, 8), None
            while turns is None:
                try:
                    turns = store.record_many(batch_of(label, name, size, keyed=True))
                except errors.LogUnreachable:
                    unknown += 1
            pipe.send((name, size, [turn.position for turn in turns]))
            number += 1
    pipe.send(unknown)


class Deadly:
    """Something to notify after a commit, that ends this process instead."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def set(self) -> None:
        self._pipe.send("committed")
        os.kill(os.getpid(), signal.SIGKILL)


def die_between_commit_and_return(pipe: Connection, folder: str, label: str, size: int) -> None:
    """Append one keyed batch and be killed after its commit, before the call returns."""
    store = open_store(folder, "s")
    store.parts.log.followers.listen(Deadly(pipe))  # type: ignore[arg-type]
    store.record_many(batch_of("s", label, size, keyed=True))
    pipe.send("returned")


@telling_failures
def append_batches(pipe: Connection, folder: str, label: str, seed: int, events: int, ready: Any) -> None:
    """Append `events` turns in batches of 1 to 20 to the shared session and to one of its own, by turns."""
    rng = random.Random(seed)
    with open_store(folder, label) as store:
        ready.wait()
        number = done = 0
        while done < events:
            size = min(rng.randint(1, 20), events - done)
            turns = store.record_many(batch_of(("all", label)[number % 2], f"{label}.{number}", size))
            assert [turn.text for turn in turns] == [f"{label}.{number}/{n}/{size}" for n in range(size)]
            pipe.send((f"{label}.{number}", size, [turn.position for turn in turns]))
            number, done = number + 1, done + size
    pipe.send("done")


@telling_failures
def race(pipe: Connection, folder: str, label: str, kind: str, rounds: int, together: Any) -> None:
    """Ask, round by round, for what everybody else asks for and one can have; tell who won."""
    outcomes: list[Any] = []
    with MemoryStore.open(folder, model=None, busy_timeout_s=120) as store:
        for number in range(rounds):
            together.wait()
            try:
                outcomes.append(("won", _compete(store, kind, number, f"{number}/{label}")))
            except errors.WrongExpectedVersion as error:
                outcomes.append(("lost", (error.expected, error.actual)))
            except (errors.DuplicateKey, errors.SessionExists, errors.CheckpointExists) as error:
                outcomes.append(("lost", type(error).__name__))
            together.wait()
    pipe.send(outcomes)


def _compete(store: MemoryStore, kind: str, number: int, text: str) -> Any:
    """Ask for one thing that others ask for as well. `text` says who did."""
    turn = TurnRecorded(role="user", text=text)
    match kind:
        case "version":  # The session's start is the first version of its stream.
            expected = Version(number + 1)
            return store.parts.log.appends.transact(
                lambda tx: tx.append("session/race", turn, expected=expected)
            ).position
        case "no stream":
            start = SessionStarted(agent="a", title=text)
            return store.parts.log.appends.transact(
                lambda tx: tx.append(f"session/n{number}", start, expected=NO_STREAM)
            ).position
        case "key":
            return store.record("race", "user", text, key=f"k{number}").position
        case "session":
            return store.start_session(f"s{number}", title=text).id
        case _:
            return store.session("race").checkpoint(f"c{number}", text).position


@telling_failures
def add_notes(pipe: Connection, folder: str, label: str, count: int, together: Any, in_all: int) -> None:
    """Add notes to the shared session; when all have done, tell which notes this process sees."""
    with MemoryStore.open(folder, model=None, busy_timeout_s=120) as store:
        session = store.session("s")
        together.wait()
        for n in range(count):
            session.note(f"{label}/{n}")
        together.wait()
        notes = session.notes()
        assert len(notes) == in_all
        pipe.send(notes)


@telling_failures
def change_task(pipe: Connection, folder: str, field: str, count: int, together: Any) -> None:
    """Count up one field of the shared session's task, with no look at the other."""
    with MemoryStore.open(folder, model=None, busy_timeout_s=120) as store:
        session = store.session("s")
        together.wait()
        for n in range(1, count + 1):
            task = session.update_task(step=n) if field == "step" else session.update_task(status=f"status {n}")
            assert n in (task.step, int(task.status.split()[1]))
    pipe.send("done")


@telling_failures
def switch_often(pipe: Connection, folder: str, label: str, seed: int, count: int, together: Any) -> None:
    """Switch the one agent `count` times and say something after each; tell where it is when all have done."""
    rng = random.Random(seed)
    with MemoryStore.open(folder, model=None) as store:
        together.wait()
        for n in range(count):
            match rng.choice(["new", "branch", "compress", "rewind", "resume"]):
                case "resume":
                    session = store.switch("other", reason="resume")
                case "rewind":
                    session = store.switch(reason="rewind", turns=1)
                case reason:
                    session = store.switch(reason=reason)
            session.record("user", f"{label}/{n}/{session.id}")
        together.wait()
        current, state = store.current(), store.parts.agents.state("agent")
        assert current is not None
        assert state is not None
        pipe.send((current.id, state.generation))


def switch_until_killed(pipe: Connection, folder: str, label: str) -> None:
    """Reset or compress the agent's session for ever; tell each session after the switch to it."""
    pipe.send("opening")
    store = MemoryStore.open(folder, model=None)
    number = 0
    while True:
        name = f"{label}.{number}"
        current = store.current()
        if current is None:
            store.switch(name, reason="new")
        else:
            current.set("carried", current.id)
            store.switch(name, reason="compress" if number % 4 else "reset")
        pipe.send(name)
        number += 1


class HeldEncoder(HalfEncoder):
    """A model that waits in its first call until it is let go."""

    def __init__(self, half: int, *, started: Any, go_on: Any) -> None:
        super().__init__(half)
        self._started, self._go_on = started, go_on

    def encode(self, texts: Sequence[str]) -> Any:
        self._started.set()
        self._go_on.wait()
        return super().encode(texts)


@telling_failures
def record_and_embed(pipe: Connection, folder: str, half: int, turns: int, together: Any) -> None:
    """Record turns in a session of its own and embed by turns with one of two models; tell where they are."""
    with MemoryStore.open(folder, model=HalfEncoder(half)) as store:
        session = store.session(f"s{half}")
        together.wait()
        found = {}
        for n in range(turns):
            text = f"note number{n} of writer{half}"
            found[text] = session.record("user", text).position
            if n % 10 == 9:
                store.admin.catch_up_vectors()
    pipe.send(found)


@telling_failures
def build_beside(pipe: Connection, folder: str, started: Any, go_on: Any) -> None:
    """Build the vectors of the second model, held at its first text; tell what was built."""
    with MemoryStore.open(folder, model=HalfEncoder(0)) as store:
        pipe.send(store.models.add(HeldEncoder(1, started=started, go_on=go_on)).built_turns)


def activate_until_killed(pipe: Connection, folder: str, label: str) -> None:
    """Record a few turns and activate the model that is not active, for ever; tell each fingerprint."""
    pipe.send("opening")
    both = [HalfEncoder(0), HalfEncoder(1)]
    store = MemoryStore.open(folder, model=both[0], models=[both[1]])
    session = store.session("s")
    number = 0
    while True:
        active = projections_of(store).models.active()
        session.record("user", f"note of {label} number{number}")
        activated = store.models.activate(both[1] if active is None or active.model == "half-0" else both[0])
        pipe.send((activated.fingerprint, activated.position))
        number += 1


def convert_until_killed(pipe: Connection, folder: str) -> None:
    """Open a store of another version and bring everything derived up to date; then wait for the end."""
    pipe.send("opening")
    with MemoryStore.open(folder, model=encoder(), background=False, create=False) as store:
        store.admin.catch_up_views()
        store.admin.catch_up_vectors()
        store.session("trip-1").all()
    pipe.send("converted")
    signal.pause()


class _Lines(io.TextIOBase):
    """Sends each line of output through a pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._begun = pipe, ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._pipe.send(line)
        return len(text)


def run_command(pipe: Connection, line: list[str]) -> None:
    """Run a command line of mnemolog; tell each line that it prints."""
    from mnemolog.cli.entry import run

    pipe.send("opening")
    sys.stdout = cast("TextIO", _Lines(pipe))
    run(line)


def activate_by_command(pipe: Connection, folder: str, half: int) -> None:
    """Record a turn, then run `mnemolog model activate` for a model that needs no files; tell what it prints."""
    make = composition.make_encoder

    def with_halves(model: Any, **how: Any) -> Any:
        return make(HalfEncoder(int(model[-1])) if str(model).startswith("half-") else model, **how)

    composition.make_encoder = with_halves
    with MemoryStore.open(folder, model=None, background=False) as store:
        store.record("s", "user", f"note number{store.head().position}")
    run_command(pipe, ["model", "activate", folder, f"half-{half}", "--json"])


def restore_until_killed(pipe: Connection, folder: str) -> None:
    """Set everything to a number, name it, change everything, restore, for ever; tell after each restore."""
    pipe.send("opening")
    store = open_store(folder, "s")
    session = store.session("s")
    while True:
        n = len(session.checkpoints())
        session.clear_notes()
        session.set("n", n)
        session.set_task("count", step=n)
        session.note(str(n))
        session.checkpoint(f"c{n}")
        session.clear()
        session.set("n", "overwritten")
        session.set_task("overwritten", step=n + 1_000_000)
        session.note("overwritten")
        session.record("user", f"gone {n}")
        session.restore(f"c{n}")
        pipe.send(n)


def keep_memory_without_permission(pipe: Connection, damaged: bool) -> None:
    """Keep working memory, and read it, where the folder of projections cannot be written."""
    states.SNAPSHOT_EVERY = 5  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.geteuid() == 0:  # Whom no permission stops.
            os.chown(folder, 65_534, 65_534)
            os.seteuid(65_534)
        store = MemoryStore.open(folder / "memory", model=None)
        projections = folder / "memory" / "projections"
        projections.mkdir()
        if damaged:
            (projections / "snapshots.db").write_bytes(b"not a database, whatever it is called" * 200)
        projections.chmod(0o500)
        try:
            session = store.session("s")
            for n in range(40):
                session.set("n", n)
                session.note(f"note {n}")
                if n == 3:
                    then = session.checkpoint("early")
                session.get("n")
            found = {"n": session.get("n"), "notes": len(session.notes())}
            store.close()
            store = MemoryStore.open(folder / "memory", model=None)
            session = store.session("s")
            assert session.get("n") == 39
            session.restore("early")
            pipe.send(found | {"restored": session.get("n"), "then": session.at(then.position).get("n")})
        except BaseException as error:
            pipe.send(f"failed: {error!r}")
        finally:
            store.close()
            projections.chmod(0o700)
            os.seteuid(os.getuid())


def messages(pipe: Connection) -> list[Any]:
    """What a process sent until it ended."""
    found: list[Any] = []
    while True:
        try:
            found.append(pipe.recv())
        except (EOFError, OSError):
            return found


PRELOADED: Sequence[str] = (
    "pytest",
    "mnemolog",
    "mnemolog.composition",
    "tests.children.workers",
    "tests.children.vector_workers",
    "tests.children.recording",
)
"""Imported once by the server that forks the children, so that a child begins at once."""


def append_under_interrupts(pipe: Connection, folder: str, seed: int, count: int, helpers: int) -> None:
    """Append one by one while interrupts hit this thread at random moments, beside helpers whom none hits.

    Tells what was acknowledged; "hangs" when the queue of appends stands still.
    """
    rng = random.Random(seed)
    acknowledged: dict[str, int] = {}
    failures: list[str] = []

    def interrupt(*_: Any) -> None:
        raise Interrupt

    def attempt(text: str, lapse_s: float) -> None:
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, lapse_s)
                acknowledged[text] = session.record("user", text).position
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def help_out(name: int) -> None:
        for n in range(count):
            text = f"helper{name}/{n}"
            try:
                acknowledged[text] = session.record("user", text).position
            except Exception as error:
                failures.append(f"{text}: {error!r}")
                return

    signal.signal(signal.SIGALRM, interrupt)
    store = open_store(folder, "s")
    session = store.session("s")
    threads = [threading.Thread(target=help_out, args=(n,), daemon=True) for n in range(helpers)]
    for thread in threads:
        thread.start()
    watchdog = threading.Timer(60, lambda: (pipe.send("hangs"), os._exit(1)))
    watchdog.start()
    try:
        for n in range(count):
            attempt(f"main/{n}", rng.uniform(1e-6, 4e-4))
        for thread in threads:
            thread.join()
        last = session.record("user", "the last one").position
        store.close()
        pipe.send((dict(acknowledged), failures, last))
    except BaseException as error:
        pipe.send(f"failed: {error!r}")
    watchdog.cancel()
