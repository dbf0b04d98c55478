"""Everything mnemolog raises on purpose, in one family.

    MnemologError                                                        .hint
    ├── StoreError
    │   ├── StoreNotFound          .path                 no store there
    │   ├── NotAStore              .path                 a folder, but not one of ours; left as it was
    │   ├── StoreNotWritable       .path                 nothing was written
    │   ├── FormatTooNew           .path .found .supported
    │   ├── StoreClosed
    │   └── StoreForked                                  opened in another process
    ├── InvalidInput (ValueError)  .field                nothing was written
    │   └── LimitExceeded          .field .limit .actual
    │       └── MemoryFull                               of one session; nothing is ever dropped for room
    ├── SessionError                                     nothing was written
    │   ├── UnknownSession         .session
    │   ├── AmbiguousSession       .name .candidates
    │   ├── SessionExists          .session              same id, other content
    │   ├── SessionEnded           .session
    │   ├── NoTask                 .session
    │   ├── UnknownCheckpoint      .session .checkpoint
    │   ├── CheckpointExists       .session .checkpoint
    │   ├── OutsideSession         .session .position .first .last
    │   └── SwitchRefused          .reason               the combination makes no sense
    ├── AppendError                                      nothing was written
    │   ├── WrongExpectedVersion   .stream .expected .actual
    │   ├── DuplicateKey           .stream .key .position    same key, other content
    │   ├── LogBusy                .waited_s             safe to retry
    │   ├── AppendOnly                                   somebody tried to change history
    │   ├── StorageFull
    │   └── LogWriteFailed                               outcome unknown: reopen the store
    ├── LogDamaged                 .position             stop; do not rebuild from this file
    │   └── UndecodableEvent       .position .topic
    ├── ProjectionError                                  disposable: nothing is lost
    │   ├── ProjectionBehind       .behind_events .why
    │   ├── ProjectionUnreadable   .path .cause
    │   ├── ModelMismatch          .built_with .asked_with
    │   └── IndexerBusy            .holder               somebody else writes these vectors
    ├── ModelError
    │   ├── ModelUnavailable       .model
    │   ├── ModelRefused           .model                cannot be activated or dropped as asked
    │   └── EncodingFailed         .position
    ├── ImportRefused              .path .line           nothing of that line was written
    └── ExtraMissing (ImportError) .extra .missing       an adapter's requirements are not installed

A class exists only where a caller would act differently. `hint` says what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mnemolog.domain.base_error import MnemologError as MnemologError
from mnemolog.domain.projection_errors import EncodingFailed as EncodingFailed
from mnemolog.domain.projection_errors import IndexerBusy as IndexerBusy
from mnemolog.domain.projection_errors import ModelError as ModelError
from mnemolog.domain.projection_errors import ModelMismatch as ModelMismatch
from mnemolog.domain.projection_errors import ModelRefused as ModelRefused
from mnemolog.domain.projection_errors import ModelUnavailable as ModelUnavailable
from mnemolog.domain.projection_errors import ProjectionBehind as ProjectionBehind
from mnemolog.domain.projection_errors import ProjectionError as ProjectionError
from mnemolog.domain.projection_errors import ProjectionUnreadable as ProjectionUnreadable


class StoreError(MnemologError):
    """The store as a whole cannot be used as asked."""


class StoreNotFound(StoreError):
    """There is no store at that path."""

    hint = "create one with `mnemolog init DIR`, or check the path"

    def __init__(self, path: Path) -> None:
        super().__init__(f"there is no store at {path}")
        self.path = path


class NotAStore(StoreError):
    """The path exists and is not a mnemolog store. It was left exactly as it was."""

    hint = "give an empty or new folder to create a store in; nothing was changed"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is not a mnemolog store: {why}")
        self.path = path


class StoreNotWritable(StoreError):
    """The folder or its disk does not let us write."""

    hint = "nothing was written; check the owner and mode of the folder and whether its disk is read-only"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"cannot write to {path}: {why}")
        self.path = path


class FormatTooNew(StoreError):
    """The log was written by a newer mnemolog than this one."""

    hint = "upgrade mnemolog; nothing was changed"

    def __init__(self, path: Path, *, found: int, supported: int) -> None:
        super().__init__(f"{path} has log format {found}; this mnemolog reads formats up to {supported}")
        self.path, self.found, self.supported = path, found, supported


class StoreClosed(StoreError):
    """The store was closed before this call."""

    hint = "open the store again; nothing was written"

    def __init__(self) -> None:
        super().__init__("the store is closed")


class StoreForked(StoreError):
    """The store was opened in another process and inherited through fork()."""

    hint = "open the store in the child process; SQLite connections do not survive a fork; nothing was written"

    def __init__(self, *, opened_in: int, used_in: int) -> None:
        super().__init__(f"the store was opened in process {opened_in} and used in its fork {used_in}")
        self.opened_in, self.used_in = opened_in, used_in


class InvalidInput(MnemologError, ValueError):
    """An argument that cannot be recorded or asked. Nothing was written."""

    hint = "nothing was written; correct the value and call again"

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


class LimitExceeded(InvalidInput):
    """A value is larger than the named limit of `mnemolog.domain.limits`. Nothing was written."""

    hint = "nothing was written; split or shorten the value"

    def __init__(self, field: str, *, limit: int, actual: int, unit: str = "bytes of UTF-8") -> None:
        super().__init__(field, f"{actual:,} {unit}, the limit is {limit:,}")
        self.limit, self.actual = limit, actual


class MemoryFull(LimitExceeded):
    """The working memory of a session has no room for one more. Nothing was written, nothing was dropped."""

    hint = "nothing was written; delete what is no longer needed, or raise the limit"


class SessionError(MnemologError):
    """The session does not allow what was asked. Nothing was written."""


class UnknownSession(SessionError):
    """No session of that id (or name) was ever started in this log."""

    hint = "nothing was written; `mnemolog sessions` lists them, `start_session` starts one"

    def __init__(self, session: str) -> None:
        super().__init__(f"there is no session {session!r}")
        self.session = session


class AmbiguousSession(SessionError):
    """Several sessions carry that name."""

    hint = "nothing was written; name the session by its id"

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        super().__init__(f"{len(candidates)} sessions are called {name!r}: {', '.join(candidates[:5])}")
        self.name, self.candidates = name, tuple(candidates)


class SessionExists(SessionError):
    """A session of that id exists where a new one was to be started."""

    hint = "nothing was written; choose another id, resume that session, or start it just as it was started"

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} exists and was started differently or by another call")
        self.session = session


class SessionEnded(SessionError):
    """The session has ended: it takes no more turns and its memory does not change."""

    hint = "nothing was written; resume it, branch it or start a new session"

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} has ended")
        self.session = session


class NoTask(SessionError):
    """The session has no task that could be updated."""

    hint = "nothing was written; set a task first"

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} has no task")
        self.session = session


class UnknownCheckpoint(SessionError):
    """The session has no checkpoint of that id or name: never created, or deleted."""

    hint = "nothing was written; list the session's checkpoints and take one of them"

    def __init__(self, session: str, checkpoint: str) -> None:
        super().__init__(f"session {session!r} has no checkpoint {checkpoint!r}")
        self.session, self.checkpoint = session, checkpoint


class CheckpointExists(SessionError):
    """The session has a checkpoint of that name or id, its own or inherited."""

    hint = "nothing was written; choose another name, or delete that checkpoint first"

    def __init__(self, session: str, checkpoint: str) -> None:
        super().__init__(f"session {session!r} has a checkpoint {checkpoint!r} already")
        self.session, self.checkpoint = session, checkpoint


class OutsideSession(SessionError):
    """The position is not one that the session sees: before its beginning, hidden, or not written yet."""

    hint = "nothing was written; take a position between the first and the last that the session sees"

    def __init__(self, session: str, *, position: int, first: int, last: int) -> None:
        super().__init__(f"position {position} is not in what session {session!r} sees ({first} to {last})")
        self.session, self.position, self.first, self.last = session, position, first, last


class SwitchRefused(SessionError):
    """That reason does not go with these two sessions."""

    hint = "nothing was written; the message says what to ask for instead"

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(f"switch with reason {reason!r}: {why}")
        self.reason = reason


class AppendError(MnemologError):
    """The log refused an append. Nothing was written unless the class says otherwise."""


class WrongExpectedVersion(AppendError):
    """Another writer moved the stream since you read it."""

    hint = "read the stream again and decide anew; nothing was written"

    def __init__(self, *, stream: str, expected: int, actual: int) -> None:
        super().__init__(f"stream {stream!r}: expected version {expected}, found {actual}")
        self.stream, self.expected, self.actual = stream, expected, actual


class DuplicateKey(AppendError):
    """The idempotency key is taken by an event with other content."""

    hint = "nothing was written; a key names one event for ever, use a new one for new content"

    def __init__(self, *, stream: str, key: str, position: int) -> None:
        super().__init__(f"key {key!r} in {stream!r} belongs to other content, recorded at position {position}")
        self.stream, self.key, self.position = stream, key, position


class LogBusy(AppendError):
    """Other processes held the write lock for the whole waiting time."""

    hint = "nothing was written; it is safe to try again"

    def __init__(self, *, waited_s: float) -> None:
        super().__init__(f"the log was locked by another process for {waited_s:g} s")
        self.waited_s = waited_s


class AppendOnly(AppendError):
    """Something tried to change or remove recorded history through the library."""

    hint = "history was not changed; record a new event instead"

    def __init__(self, what: str) -> None:
        super().__init__(f"the log is append-only: {what}")


class StorageFull(AppendError):
    """The disk (or a quota) has no room for the append."""

    hint = "nothing was written; free some space and try again"

    def __init__(self, path: Path) -> None:
        super().__init__(f"no space left for {path}")
        self.path = path


class LogWriteFailed(AppendError):
    """The disk failed while a transaction was being made durable.

    What was acknowledged before is safe as far as the disk is honest. Whether the appends in flight
    were written is unknown, so this store object refuses to write again: a second sync may report
    success although the data was dropped.
    """

    hint = "check the disk, then open the store again and look whether your last turns are there"

    def __init__(self, why: str) -> None:
        super().__init__(f"writing the log failed: {why}")


class LogDamaged(MnemologError):
    """The log contradicts itself. Nothing is rebuilt from it."""

    hint = "stop; run `mnemolog verify`, keep the file, restore a backup"

    def __init__(self, why: str, *, position: int | None = None) -> None:
        super().__init__(why if position is None else f"position {position}: {why}")
        self.position = position


class UndecodableEvent(LogDamaged):
    """A stored event cannot be read: unknown topic or bytes that do not fit it."""

    hint = "a newer mnemolog may know this topic; otherwise run `mnemolog verify`"

    def __init__(self, *, position: int, topic: str, why: str) -> None:
        super().__init__(f"event of topic {topic!r} cannot be read: {why}", position=position)
        self.topic = topic


class ImportRefused(MnemologError):
    """A line of an imported file cannot be recorded."""

    hint = "nothing of this line was written; correct it and import again: what is already there is skipped"

    def __init__(self, path: Path, line: int, why: str) -> None:
        super().__init__(f"{path}:{line}: {why}")
        self.path, self.line = path, line


class ExtraMissing(MnemologError, ImportError):
    """An adapter needs packages that mnemolog does without, and they are not installed."""

    hint = "the rest of mnemolog works without it"

    def __init__(self, extra: str, missing: str) -> None:
        super().__init__(f"{missing} is not installed: pip install 'mnemolog[{extra}]'")
        self.extra, self.missing = extra, missing
