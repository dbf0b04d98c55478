"""Update the vectors of a store from its log: in small steps, and in a thread in the background, the projector.

One thread of this process updates at a time: the projector, a recall that embeds a few new texts, or one that waits for
a position. No caller waits longer than its timeout for its turn, even if the model is stuck.

The projector never fails silently: an error is kept, reported by `status()` and in recalls, and the work is retried.

Each projector has a small file of its own, `projections/projectors/<token>.json`, while it runs. The file is only for
display: nothing depends on it.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from mnemolog.domain import errors, structured_log
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.result import Result
from mnemolog.domain.store_layout import PROJECTIONS
from mnemolog.domain.values import ORIGIN, Position, UtcTime, to_datetime
from mnemolog.infra.runtime import cancellation, fork_guard, shutdown
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.condition import InterruptSafeCondition
from mnemolog.infra.runtime.files import make_folder, read_file, replace_file
from mnemolog.infra.runtime.processes import is_running
from mnemolog.projections.ports import StoreLog
from mnemolog.projections.vectors.folders import IndexerLock
from mnemolog.projections.vectors.model_vectors import Vectors

if TYPE_CHECKING:
    from mnemolog.projections.sql.filtering import PositionMask
    from mnemolog.projections.vectors.projection import VectorAnswer

STEP_TEXTS: Final = 128
"""Texts per model call of a step. A step that is stopped loses at most these."""
STEP_EVENTS: Final = 2_048
"""Events per step, so that texts from the cache are read in bounded pieces too."""
RECALL_TEXTS: Final = 64
"""Texts that a recall embeds before it answers. Further ones are found by text until they are embedded."""
RECALL_WAIT_S: Final = 3.0
"""How long a recall waits for its turn to embed, before it answers from existing vectors. The model is loaded then."""
BUSY_POLL_S: Final = 0.05


class Indexing:
    """Extends the vectors to positions of the log. Safe for many threads."""

    def __init__(self, root: Path, vectors: Callable[[], Vectors]) -> None:
        self._root, self._vectors = root, vectors
        self._changes = InterruptSafeCondition()
        self._turn: object | None = None
        """The token of the thread that extends the vectors now."""
        self.trouble: Callable[[], str | None] = lambda: None
        """Returns what is wrong with the projector; called when vectors are behind."""

    def covers(self) -> Position:
        """Return the position up to which every turn has its vector."""
        return self._vectors().projection().covers

    def bring_up(
        self,
        upto: Position,
        *,
        stop: Callable[[], bool],
        wait_s: float = 0.0,
        moved: Callable[[Position], None] = lambda _: None,
    ) -> int:
        """Embed all missing turns up to `upto`, one process at a time. Return how many texts the model encoded.

        `moved` is called with the position at the start and after every step. If the model refuses a text, all turns
        before it are embedded first.

        Raises `IndexerBusy` if another process embeds for more than `wait_s` seconds, `Stopped` when `stop()` is true,
        `EncodingFailed` with the position, `ProjectionBehind` if a step changes nothing.
        """
        start = self.covers()
        if start >= upto:
            return 0
        vectors = self._vectors()
        encoded = 0
        limit = upto
        refused: errors.EncodingFailed | None = None
        with (
            IndexerLock(self._root, vectors.fingerprint, purpose="projector").held(wait_s=wait_s),
            cancellation.when(stop),
        ):
            moved(start)
            while (before := self.covers()) < limit:
                cancellation.check()
                step = Position(min(limit, before + STEP_EVENTS))
                try:
                    made = self._extend(vectors, step, texts=STEP_TEXTS, timeout_s=None)
                except errors.EncodingFailed as error:
                    refused = refused or error
                    if error.position is None or error.position - 1 <= self.covers():
                        raise refused from None
                    limit = Position(error.position - 1)
                    continue
                encoded += made or 0
                if not made and self.covers() == before:
                    raise errors.ProjectionBehind("vectors", behind_events=limit - before, why="a step changed nothing")
                moved(self.covers())
        if refused is not None:
            raise refused
        return encoded

    def cover(self, vectors: Vectors, upto: Position, *, timeout_s: float) -> None:
        """Embed missing turns in the caller's thread until these vectors cover `upto`.

        Does not wait for the projector or other processes. A call of the model is not interrupted, so one call may
        exceed `timeout_s`. Raises `ProjectionBehind` with the distance and the reason.
        """
        end = time.monotonic() + timeout_s
        why = f"not there within {timeout_s:g} s"
        try:
            with cancellation.when(lambda: time.monotonic() >= end):
                while vectors.projection().covers < upto:
                    cancellation.check()
                    try:
                        self._extend(vectors, upto, texts=RECALL_TEXTS, timeout_s=max(0.0, end - time.monotonic()))
                    except errors.IndexerBusy as error:
                        why = str(error)
                        self._changes.wait_for(lambda: None, timeout_s=BUSY_POLL_S)
            return
        except cancellation.Stopped:
            cancellation.check()  # Raises again if the caller was stopped; else the time is over.
            why = "; ".join(filter(None, [why, self.trouble()]))
            behind = upto - vectors.projection().covers
            raise errors.ProjectionBehind("vectors", behind_events=behind, why=why) from None
        except (errors.ModelError, errors.ProjectionError, errors.StorageFull) as error:
            behind = _distance(vectors, upto)
            raise errors.ProjectionBehind("vectors", behind_events=behind, why=str(error)) from error

    def search(
        self, vectors: Vectors, query: str, *, k: int, allowed: PositionMask | None, upto: Position
    ) -> VectorAnswer:
        """Embed the few texts that are new, unless another thread is embedding, and return up to `k` turns."""
        projection = vectors.projection()
        projection.refresh()
        lag, reached = None, upto
        if projection.covers < upto:
            lag = self._embed_new(vectors, upto)
            reached = min(projection.covers, upto)
        answer = projection.answer(query, k=k, allowed=allowed, upto=upto)
        if answer.covers < reached:
            # The search found a damaged segment, and the cache lacks some of its vectors.
            lag = self._embed_new(vectors, upto)
            answer = projection.answer(query, k=k, allowed=allowed, upto=upto)
        return answer._replace(lag=lag or self.trouble()) if answer.covers < upto else answer

    def _embed_new(self, vectors: Vectors, upto: Position) -> str | None:
        """Embed up to `RECALL_TEXTS` new texts. Return why that failed; None if it did not."""
        vectors.encoder.load()  # The thread whose turn it is may be waiting for the model, too.
        # A thread that embeds an import will not finish in time.
        wait_s = RECALL_WAIT_S if upto - vectors.projection().covers <= RECALL_TEXTS else 0.0
        try:
            if self._extend(vectors, upto, texts=RECALL_TEXTS, timeout_s=wait_s) is None and wait_s:
                return f"another thread of this process has been embedding for over {wait_s:g} s"
        except (errors.EncodingFailed, errors.IndexerBusy) as error:
            return str(error)
        except errors.ProjectionUnreadable as error:  # A damaged cache: existing vectors can still answer.
            return f"{error}; {error.hint}"
        return None

    def write(self, *, new_since: Position | None = None) -> None:
        """Write the vectors in memory, and merge those after `new_since` into few segments."""
        self._alone(
            lambda: self._vectors().projection().write(new_since=new_since), needless=lambda: False, timeout_s=None
        )

    def _extend(self, vectors: Vectors, upto: Position, *, texts: int, timeout_s: float | None) -> int | None:
        """Make one step. Return how many texts were encoded; None if the turn did not come in time."""
        projection = vectors.projection()
        return self._alone(
            lambda: projection.catch_up(upto=upto, encode_max=texts),
            needless=lambda: projection.covers >= upto,
            timeout_s=timeout_s,
        )

    def _alone(
        self, work: Callable[[], int | None], *, needless: Callable[[], bool], timeout_s: float | None
    ) -> int | None:
        """Run `work` when no other thread does. Return 0 if it became needless, None after `timeout_s` seconds."""
        mine = object()

        def begin() -> bool | None:
            if self._turn is None and not needless():
                self._turn = mine
            return True if self._turn is mine or needless() else None

        # The turn is a field and not a lock: an interrupt between taking a lock and the `try` would leave it locked.
        try:
            if self._changes.wait_for(begin, timeout_s=timeout_s) is None:
                return None
            return (work() or 0) if self._turn is mine else 0
        finally:
            with self._changes.mutex:
                if self._turn is mine:
                    self._turn = None
                self._changes.notify_all()


def _distance(vectors: Vectors, upto: Position) -> int:
    """Return how many positions are missing: all of them if the vectors cannot be opened."""
    try:
        return upto - vectors.projection().covers
    except (errors.ModelError, errors.ProjectionError, errors.StorageFull):
        return upto


START_DELAY_S: Final = 0.25
"""Delay before the first pass, so that a short-lived process loads no model."""
GATHER_S: Final = 0.05
"""How long to gather appends after the first one, so that turns recorded one by one are embedded together."""
FOLLOW_S: Final = 1.0
"""Longest delay before an append of another process is seen. Appends of this process wake the projector."""
POLL_S: Final = 0.5
"""Shortest interval between two looks at a log that does not watch for appends of other processes."""
STANDBY_S: Final = 0.5
"""Delay before the next attempt while another process embeds."""
RETRY_S_MIN: Final = 1.0
RETRY_S_MAX: Final = 60.0
CLOSE_TIMEOUT_S: Final = 0.8
EXIT_TIMEOUT_S: Final = 1.0
"""How long process exit waits for the interrupted thread, which may be in a long call into C."""


ProjectorState = Literal["off", "idle", "working", "standing by", "backing off", "stopped", "dead"]

PROJECTORS: Final = "projectors"

_SHOWN_FIRST: Final[tuple[ProjectorState, ...]] = ("working", "backing off", "idle", "standing by", "dead")
"""The order in which one of several projectors is chosen to be shown."""


class ProjectorStatus(Result, frozen=True, kw_only=True):
    """What the background projector of a store is doing."""

    state: ProjectorState
    """`off`: none is running. `stopped`: this store is closed. `dead`: its thread or process ended without closing."""
    position: Position | None = None
    """The last position that the vectors cover, as last reported; None before the first report."""
    error: str | None = None
    """The last error since the last success."""
    failed_at: UtcTime | None = None
    failures: int = 0
    """Number of failures in a row."""
    retry_in_s: float | None = None
    waits_for: str | None = None
    """The process that embeds, while this projector stands by."""
    since: UtcTime | None = None
    """When this state began."""
    pid: int | None = None
    host: str | None = None

    @property
    def trouble(self) -> str | None:
        """Why the vectors stay behind, in words; None if nothing is wrong."""
        if self.state not in ("backing off", "dead"):
            return None
        return f"the background projector is {self.state}: {self.error or 'it gave no reason'}"


# Made at import: `checked_json` has the reason.
_DECODER: Final = msgspec.json.Decoder(ProjectorStatus)


class StateFile:
    """The file of one projector. Failing to write it is harmless: `status()` returns the same."""

    def __init__(self, projections: Path) -> None:
        self._folder = projections / PROJECTORS
        self._path = self._folder / f"{secrets.token_hex(8)}.json"

    def write(self, status: ProjectorStatus) -> None:
        """Replace the file. It is not synced, because it is not needed after a power cut."""
        with suppress(OSError):
            make_folder(self._folder, root=PROJECTIONS)
            replace_file(self._path, to_json(status), prefix="state", synced=False)

    def remove(self) -> None:
        """Delete the file, because the projector has stopped."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete the files of processes that are gone."""
        for path, status in _files(self._folder):
            if status.state == "dead":
                with suppress(OSError):
                    path.unlink(missing_ok=True)


def read_status(projections: Path, *, now: datetime) -> ProjectorStatus:
    """Return the status of a projector of another process, chosen by `_SHOWN_FIRST`."""
    found = [status for _, status in _files(projections / PROJECTORS)]
    if not found:
        return ProjectorStatus(state="off")
    chosen = min(found, key=lambda status: _SHOWN_FIRST.index(status.state))
    if chosen.retry_in_s is None or chosen.since is None:
        return chosen
    past_s = max(0.0, (now - chosen.since).total_seconds())  # The clock may have been set back.
    return msgspec.structs.replace(chosen, retry_in_s=max(0.0, chosen.retry_in_s - past_s))


def _files(folder: Path) -> list[tuple[Path, ProjectorStatus]]:
    """Return the readable files. The status of a process that has ended is `dead`, whatever its file says."""
    found: list[tuple[Path, ProjectorStatus]] = []
    for path in sorted(folder.glob("[!.]*.json")):
        try:
            status = _DECODER.decode(read_file(path))
        except (OSError, *UNDECODABLE):
            continue  # Removed meanwhile, or half of it after a power cut.
        if status.state not in _SHOWN_FIRST:
            continue
        is_of_here = status.host == socket.gethostname()  # Processes of another machine cannot be checked.
        if status.state != "dead" and is_of_here and status.pid is not None and not is_running(status.pid):
            why = f"process {status.pid} on {status.host} is gone; it was {status.state}"
            why += f" ({status.error})" if status.error else ""
            status = msgspec.structs.replace(status, state="dead", error=why, retry_in_s=None, waits_for=None)
        found.append((path, status))
    return found


def retry_delay_s(failures: int) -> float:
    """Return the delay after so many failures in a row: it doubles each time, up to `RETRY_S_MAX`."""
    return float(min(RETRY_S_MAX, RETRY_S_MIN * 2 ** min(failures - 1, 30)))


class Projector:
    """Embeds the turns that any process records. The first append or `start` starts it.

    Safe for many threads. After a fork, the child has no projector.
    """

    def __init__(self, projections: Path, log: StoreLog, indexing: Indexing) -> None:
        self._log, self._indexing = log, indexing
        self.look: Callable[[Position], None] = lambda _: None
        """Called with the head before turns up to it are embedded."""
        self._changes = InterruptSafeCondition()
        self._file = StateFile(projections)
        self._thread: threading.Thread | None = None
        self._closed = self._poked = self._grown = self._asleep = False
        self._reached = ORIGIN
        """The position up to which all is embedded."""
        self._has_turns = False
        self._status = ProjectorStatus(state="idle", pid=os.getpid(), host=socket.gethostname(), since=self._now())
        self._retry_at = 0.0
        self._origin = fork_guard.Origin()
        fork_guard.watch(self)
        shutdown.watch(self)
        log.followers.listen(self, poll_s_max=FOLLOW_S)
        indexing.trouble = lambda: self.status().trouble

    def status(self) -> ProjectorStatus:
        """Return the current status."""
        status, thread = self._status, self._thread
        if status.state == "backing off":
            return msgspec.structs.replace(status, retry_in_s=round(max(0.0, self._retry_at - time.monotonic()), 3))
        if thread is not None and not thread.is_alive() and status.state not in ("dead", "stopped"):
            return msgspec.structs.replace(status, state="dead")
        return status

    def start(self) -> None:
        """Start the thread, unless it is running."""
        with self._changes.mutex:
            if self._closed or not self._origin.is_here or (self._thread is not None and self._thread.is_alive()):
                return
            # A daemon: the process may end while an encoder is at work.
            self._thread = threading.Thread(target=self._run, name="mnemolog-projector", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # Out of threads: an append that has succeeded must not fail because of that.
            self._die(error)

    def poke(self) -> None:
        """End the current wait. Call it when the cause of a failure may be gone."""
        self.start()
        with self._changes.mutex:
            self._poked = True
            self._changes.notify_all()

    def set(self) -> None:
        """Note an append, as a listener of the log. Called for each append, so it is cheap and never raises."""
        self._grown = True
        if self._asleep:
            with self._changes.mutex:
                self._changes.notify_all()
        elif self._thread is None:
            self.start()

    def close(self, *, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Stop between two calls of the model, and wait up to `timeout_s` seconds for that.

        Returns whether it has stopped. Otherwise the thread is abandoned: it ends after its current call and writes
        nothing. Embedded texts are in the cache. May be called again.
        """
        if not self._origin.is_here:
            return True
        with self._changes.mutex:
            self._closed = True
            self._changes.notify_all()
        self._log.followers.unlisten(self)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
        over = thread is None or not thread.is_alive()
        if self._status.state != "stopped":
            self._enter("stopped")
        self._file.remove()
        self._file.sweep()
        return over

    def forked(self) -> None:
        """Become inactive: this is a forked child, and the thread exists only in the parent."""
        self._thread, self._closed = None, True
        self._changes.forked()
        self._status = ProjectorStatus(state="off")

    def end(self) -> None:
        """Stop, or interrupt the thread if it does not stop in time: the process ends."""
        if self._origin.is_here and not self.close() and self._thread is not None:
            shutdown.interrupt(self._thread)
            self._thread.join(EXIT_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._file.sweep()
            self._file.write(self._status)
            self._rest(START_DELAY_S)
            while not self._closed:
                self._follow()
        except BaseException as error:
            if not self._closed:
                self._die(error)
                raise

    def _follow(self) -> None:
        """Catch up with the log, then wait for more."""
        try:
            head = self._log.head().position
            self.look(head)
            self._catch_up(head)
        except (cancellation.Stopped, errors.StoreClosed, errors.StoreForked, errors.StoreReplaced):
            self._closed = True
        except errors.IndexerBusy as error:
            self._enter("standing by", waits_for=error.holder)
            self._rest(STANDBY_S)
        except Exception as error:  # Reported, and retried.
            self._fail(error)
            self._rest(retry_delay_s(self._status.failures))
        else:
            if self._rest(max(POLL_S, self._log.followers.poll_interval_s), for_appends=True):
                self._rest(GATHER_S)

    def _catch_up(self, head: Position) -> None:
        if head > self._reached or self._status.failures:
            # Without any turns, neither a model nor vectors are loaded.
            if not self._has_turns:
                self._has_turns = self._log.count(topic=TurnRecorded.topic, after=self._reached, upto=head) > 0
            if self._has_turns:
                self._indexing.bring_up(head, stop=lambda: self._closed, moved=self._moved)
                self._enter("idle", position=self._indexing.covers())
            else:
                self._enter("idle", position=head)
            self._reached = head
        elif self._status.state != "idle":
            self._enter("idle", position=self._status.position)

    def _moved(self, position: Position) -> None:
        if self._status.state == "working":
            self._status = msgspec.structs.replace(self._status, position=position)
        else:
            self._enter("working", position=position)

    def _fail(self, error: Exception) -> None:
        failures = self._status.failures + 1
        delay_s = retry_delay_s(failures)
        structured_log.warning("projector.backing_off", failures=failures, retry_in_s=delay_s, error=error)
        self._retry_at = time.monotonic() + delay_s
        self._enter(
            "backing off",
            position=self._position(),
            error=_in_words(error),
            failed_at=self._now(),
            failures=failures,
            retry_in_s=delay_s,
        )

    def _die(self, error: BaseException) -> None:
        structured_log.error("projector.died", error=error)
        self._enter("dead", position=self._status.position, error=_in_words(error), failed_at=self._now())

    def _position(self) -> Position | None:
        with suppress(Exception):  # Why the vectors cannot be opened is reported already.
            return self._indexing.covers()
        return self._status.position

    def _enter(self, state: ProjectorState, **facts: Any) -> None:
        """Enter a state and publish it. `position` stays unless it is given; only success clears an error."""
        if self._closed and state != "stopped":
            return  # An abandoned thread publishes nothing.
        before = self._status
        kept: dict[str, Any] = {"position": before.position}
        if state in ("working", "standing by", "stopped"):
            kept |= {"error": before.error, "failed_at": before.failed_at, "failures": before.failures}
        fresh = ProjectorStatus(state=state, pid=before.pid, host=before.host, **{**kept, **facts})
        if msgspec.structs.replace(before, since=None) == fresh:
            return
        self._status = msgspec.structs.replace(fresh, since=self._now())
        if state != before.state:
            structured_log.debug("projector.state", state=state, position=self._status.position)
        if state != "stopped":
            self._file.write(self._status)

    def _rest(self, timeout_s: float, *, for_appends: bool = False) -> bool:
        """Wait until the timeout, or until `close` or `poke`. Return whether appends ended the wait."""

        def reason() -> str | None:
            self._asleep = for_appends  # Set before `_grown` is read: `set` does it in the opposite order.
            if self._closed or self._poked:
                self._poked = False
                return "ended"
            if for_appends and self._grown:
                self._grown = False
                return "grown"
            return None

        try:
            return self._changes.wait_for(reason, timeout_s=timeout_s) == "grown"
        finally:
            self._asleep = False

    def _now(self) -> datetime:
        return to_datetime(SystemClock().now())


def _in_words(error: BaseException) -> str:
    return str(error) if isinstance(error, errors.MnemologError) else f"{type(error).__name__}: {error}"
