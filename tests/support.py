"""What tests share: a clock that stands still, a model without weights, events to append, child processes."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mnemolog import MemoryStore, SessionSummary
from mnemolog.adapters.support import outbox
from mnemolog.adapters.support.store_access import visible_of
from mnemolog.cli.app import loaded
from mnemolog.cli.hints import as_commands, begin
from mnemolog.domain.events import SessionStarted, TurnRecorded
from mnemolog.domain.session import session_stream
from mnemolog.domain.values import Micros
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.transaction import Transaction
from mnemolog.projections.history.states import evolve
from mnemolog.projections.recall import text_search
from mnemolog.projections.sql import position_blocks
from mnemolog.projections.sql.embeddings import pack, unpack
from mnemolog.projections.sql.filtering import turns_left
from mnemolog.projections.sql.queries import Filters
from tests.session_states import state_digest

WAIT_S = 60.0
"""How long a test waits for what must happen. Only a failing test waits that long."""

EPOCH_2024 = 1_704_067_200_000_000
"""2024-01-01T00:00:00Z in microseconds."""


class FakeClock:
    """Time as the test says. Each `now()` is `step` later than the one before, from `start` on.

    `set` and `advance` move it, backwards too; `step=0` holds it still. Safe for several threads.
    """

    def __init__(self, start: int = EPOCH_2024, *, step: int = 1_000) -> None:
        self._time, self.step = start, step
        self._lock = threading.Lock()

    def now(self) -> Micros:
        with self._lock:
            now = self._time
            self._time += self.step
            return Micros(now)

    def set(self, time: int) -> None:
        with self._lock:
            self._time = time

    def advance(self, *, seconds: float) -> None:
        with self._lock:
            self._time += round(seconds * 1_000_000)


class HashEncoder:
    """A model without weights: a text is the sum of its words' vectors, each made of the word's hash.

    Texts that share words are similar, equal texts are equal in every process. `fingerprint` names another
    model with other vectors when it differs. `calls` holds the batches it was given.
    """

    name = "hash-words"

    def __init__(self, *, fingerprint: str = "hash-words/1", dimension: int = 384) -> None:
        self.fingerprint, self.dimension = fingerprint, dimension
        self.calls: list[list[str]] = []
        self._words: dict[str, np.ndarray] = {}

    @property
    def texts_encoded(self) -> int:
        return sum(len(batch) for batch in self.calls)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.calls.append(list(texts))
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        return np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> np.ndarray:
        words = re.findall(r"\w+", text.lower()) or [text]
        total = np.sum([self._word(word) for word in words], axis=0)
        return (total / np.linalg.norm(total)).astype(np.float32)

    def _word(self, word: str) -> np.ndarray:
        if word not in self._words:
            digest = hashlib.sha256(f"{self.fingerprint}\x00{word}".encode()).digest()
            random = np.random.default_rng(int.from_bytes(digest[:8], "big"))
            self._words[word] = random.standard_normal(self.dimension)
        return self._words[word]


def as_stored(vectors: np.ndarray) -> np.ndarray:
    """What a store keeps of vectors, in 12 bits a component. Shape (rows, dimension)."""
    return unpack(pack(vectors), vectors.shape[1])


class HalfEncoder(HashEncoder):
    """A model that uses one half of the dimensions: each of its vectors is orthogonal to each of the other half's.

    A vector of the one that is compared with a query of the other has similarity 0, and is seen at once.
    """

    def __init__(self, half: int, *, dimension: int = 64) -> None:
        super().__init__(fingerprint=f"half/{half}", dimension=dimension)
        self.name = f"half-{half}"
        self._unused = slice(dimension // 2, dimension) if half == 0 else slice(0, dimension // 2)

    def _word(self, word: str) -> np.ndarray:
        if word not in self._words:
            super()._word(word)[self._unused] = 0.0
        return self._words[word]


class Picky(HashEncoder):
    """A model that refuses texts with a word while it `refuses`, and may quote them."""

    def __init__(self, word: str = "poison", *, quotes: bool = False) -> None:
        super().__init__()
        self.word, self.quotes, self.refuses = word, quotes, True

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        if self.refuses and any(self.word in text for text in texts):
            raise RuntimeError(f"cannot read {texts}" if self.quotes else "not this")
        return super().encode(texts)


class SlowToLoad(HashEncoder):
    """A model that is not loaded before it `may` be: not even its dimension is known."""

    def __init__(self) -> None:
        super().__init__()
        self.may, self._dimension, self.dimension = threading.Event(), self.dimension, None

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        assert self.may.wait(WAIT_S)
        self.dimension = self._dimension
        return super().encode(texts)


class StuckEncoder(HashEncoder):
    """A model that does not return from texts with a word while `free` is not set; it sets `entered` first."""

    def __init__(self, word: str = "", *, dimension: int = 384) -> None:
        super().__init__(dimension=dimension)
        self.word, self.entered, self.free = word, threading.Event(), threading.Event()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        if any(self.word in text for text in texts):
            self.entered.set()
            assert self.free.wait(WAIT_S)
        return super().encode(texts)


@contextmanager
def blocks_of(positions: int) -> Iterator[None]:
    """Views with blocks of so many positions instead of thousands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(position_blocks, "BLOCK", positions)
        patch.setattr(position_blocks, "BITS_BYTES", positions // 8)
        patch.setattr(position_blocks, "LISTED_MAX", positions // 16 - 1)
        yield


def positions_left(connection: Any, filters: Filters) -> list[int]:
    """The positions of the turns that filters leave."""
    return turns_left(connection, filters).positions().tolist()


def found_by_text(connection: Any, terms: Sequence[str], *, k: int, filters: Filters) -> list[int]:
    """The turns that the text leg of a recall finds."""
    allowed = None if filters.leave_everything else turns_left(connection, filters)
    return list(text_search.search(connection, terms, k=k, upto=filters.upto, allowed=allowed).positions)


def turn(text: str = "hello", *, role: str = "user", **fields: Any) -> TurnRecorded:
    """A turn, unchecked."""
    return TurnRecorded(role=role, text=text, **fields)


def started(name: str = "trip", *, agent: str = "assistant", scope: str = "") -> SessionStarted:
    """The start of a session, unchecked."""
    return SessionStarted(title=name, agent=agent, scope=scope)


def summary(store: MemoryStore, session: str) -> SessionSummary:
    """Return a session as the list of sessions shows it."""
    return next(item for item in store.sessions() if item.session == session)


def start(session: str, **fields: Any) -> Callable[[Transaction], int]:
    """A unit of work that starts a session and returns the position."""

    def work(tx: Transaction) -> int:
        stream = session_stream(session)
        return tx.append(stream, started(**fields), expected=tx.version(stream)).position

    return work


def append(
    session: str, *texts: str, keys: Sequence[str | None] = (), expected: int | None = None
) -> Callable[[Transaction], list[int]]:
    """A unit of work that appends turns behind `expected` (or whatever is there) and returns positions."""

    def work(tx: Transaction) -> list[int]:
        stream = session_stream(session)
        behind = tx.version(stream) if expected is None else expected
        return [
            tx.append(stream, turn(text), expected=behind + n, key=keys[n] if keys else None).position
            for n, text in enumerate(texts)
        ]

    return work


@contextmanager
def nothing_written(store: MemoryStore) -> Iterator[None]:
    """Check that what happens in the block appends no event."""
    head = store.head()
    yield
    assert store.head() == head


def read_all(log: EventLog, *, after: int = 0) -> list[Any]:
    """Every event of the log as it is now."""
    return [event for batch in log.read(after=after, upto=log.head().position) for event in batch]


def texts_of(events: Iterable[Any]) -> list[str]:
    """The texts of the turns among `events`."""
    return [item.event.text for item in events if isinstance(item.event, TurnRecorded)]


def wait_until(condition: Callable[[], bool], *, what: str, timeout_s: float = WAIT_S) -> None:
    """Return once `condition` holds. Fails the test when it does not within `timeout_s`.

    For what no event announces, such as a thread having begun to wait.
    """
    end = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"waited {timeout_s:g} s for {what}"
        pause.wait(0.001)


def in_thread(function: Callable[[], Any]) -> Outcome:
    """Start `function` in a thread; `.result()` waits for it and returns or raises what it did."""
    return Outcome(function)


class Outcome:
    """A function running in a thread of its own."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error

    @property
    def running(self) -> bool:
        return self.thread.is_alive()

    def result(self, timeout_s: float = WAIT_S) -> Any:
        self.thread.join(timeout_s)
        assert not self.thread.is_alive(), f"still running after {timeout_s:g} s"
        if self._error is not None:
            raise self._error
        return self._value


def start_child(script: Path, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start a Python script in a process of its own, with its output piped, line by line."""
    command = [sys.executable, "-u", str(script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, **options)


def wait_for_queue(log: EventLog, length: int) -> None:
    """Return when `length` appends are in the queue, the ones being written included."""
    wait_until(lambda: len(log.appends._queue._queue) >= length, what=f"{length} appends in the queue")


def append_as_one_group(log: EventLog, works: Sequence[Callable[[Transaction], Any]]) -> list[Outcome]:
    """Have `works` wait in this order behind one that appends nothing, so that they make one group."""
    outcomes: list[Outcome] = []
    log.appends.transact(once(lambda: queue_up(log, works, outcomes)))
    return outcomes


def queue_up(log: EventLog, works: Sequence[Callable[[Transaction], Any]], outcomes: list[Outcome]) -> None:
    """Put `works` into the queue, each in a thread of its own, behind the one who calls this in its work."""
    for work in works:
        outcomes.append(in_thread(lambda work=work: log.appends.transact(work)))
        wait_for_queue(log, 1 + len(outcomes))


def once(effect: Callable[[], Any]) -> Callable[[Transaction], None]:
    """A unit of work that appends nothing and does `effect` once, however often it is run."""
    done: list[None] = []

    def work(_: Transaction) -> None:
        if not done:
            done.append(None)
            effect()

    return work


def projections_of(store: MemoryStore) -> Any:
    """The projections of a store."""
    return store.parts.projections


def decided_on(store: MemoryStore, *sessions: str) -> list[dict[str, str]]:
    """Digests of sessions' states as decisions find them: as the writer knows them, then as it folds them anew."""
    found: list[dict[str, str]] = []

    def work(tx: Transaction) -> None:
        states = {name: tx.fold(session_stream(name), evolve, visible_of(store).states.known) for name in sessions}
        found.append({name: state_digest(state) for name, state in states.items() if state is not None})

    store.parts.log.appends.transact(work)  # It appends nothing, so it is run twice: once more under the lock.
    return found


def open_files(folder: Path) -> list[str]:
    """Paths of the files below `folder` that this process has open: other tests may have left others open."""
    paths = (os.path.realpath(link) for link in Path("/proc/self/fd").iterdir())
    return [path for path in paths if Path(path).is_relative_to(os.path.realpath(folder))]


def can_mount() -> bool:
    """Return whether a child process may mount a folder again, so that it finds the folder on a read-only disk."""
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


def forbid_writing(path: Path) -> None:
    """Set a bit in a database's header with which SQLite reads it and calls it read-only, as if leave were needed."""
    with path.open("r+b") as file:
        file.seek(18)
        assert file.read(1) == b"\x02"
        file.seek(18)
        file.write(b"\x0a")


@contextmanager
def unprivileged() -> Iterator[None]:
    """Be nobody for a moment, if this is root, whom no rights of files stop."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(was)


def settings_of(connection: Any) -> dict[str, object]:
    """The settings that a driver connection has now, by pragma name."""
    names = ("journal_mode", "synchronous", "busy_timeout", "foreign_keys", "recursive_triggers", "secure_delete")
    return {
        name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in (*names, "mmap_size", "trusted_schema")
    }


def shared_stores() -> int:
    """How many stores of this process are open and shared."""
    return len(outbox._stores.shared)


def as_typed(hint: str, folder: str | Path) -> str:
    """A hint as the command line prints it for a store."""
    begin([]).context = loaded("status").make_context("mnemolog status", [str(folder)])
    return as_commands(hint)
