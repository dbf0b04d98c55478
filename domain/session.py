"""A session: one conversation of one agent, started once, recorded turn by turn, ended once.

It sees the turns of its ancestors up to the branch point, and its own. It does not see turns of siblings, nor rewound
turns. A branch keeps what it saw when it was created, whatever its parent hides later. What it sees is part of its
state, as ranges of streams. These spans are ordered by position, root first, and do not overlap; only the last one can
be open. Positions count events of the whole log, so one position cuts the spans of all sessions.

The state of a session at a position is a pure fold of its stream, turns left out (`evolve`). Everything in it is
immutable. The maps are persistent (HAMT): a state shares almost all of its memory with the one before it, so keeping
many of one session is cheap. Snapshots store a state in bytes, which are equal for equal states; tests compare two
replays by a digest of them.

Decisions are pure functions of a state and a command; they raise an error or return the events to append.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
from immutables import Map

from mnemolog.domain import errors
from mnemolog.domain.encoding import UNDECODABLE, msgpack_encoder
from mnemolog.domain.event import named_streams
from mnemolog.domain.events import (
    CheckpointCreated,
    CheckpointDeleted,
    CheckpointRestored,
    Event,
    Forgotten,
    NoteAdded,
    NotesCleared,
    RecordedEvent,
    SessionEnded,
    SessionResumed,
    SessionStarted,
    TaskChanged,
    TurnRecorded,
    TurnsRewound,
    ValueDeleted,
    ValuesCleared,
    ValueSet,
)
from mnemolog.domain.forgetting import was_checkpoint
from mnemolog.domain.message import parse_role, said_in
from mnemolog.domain.scope import parse_scope
from mnemolog.domain.threads import Blob, pack, unpack
from mnemolog.domain.values import (
    METADATA_BYTES_MAX,
    Micros,
    Position,
    Time,
    checked_json,
    checked_label,
    checked_position,
    checked_text,
    parse_said_at,
)


class Span(msgspec.Struct, frozen=True, array_like=True):
    """The turns of `session` at positions in `(after, upto]`; `upto` None means up to the end."""

    session: str
    after: Position
    upto: Position | None = None

    def holds(self, session: str, position: Position) -> bool:
        """Whether a turn of `session` at `position` is in this span."""
        return session == self.session and self.after < position and (self.upto is None or position <= self.upto)


Spans = tuple[Span, ...]


def own(session: str, *, at: Position) -> Spans:
    """Return what a session without ancestors sees if the event at `at` started it."""
    return (Span(session, at),)


def cut(spans: Spans, *, upto: Position) -> Spans:
    """Return the spans up to `upto`. All of them are closed, none is empty."""
    return tuple(
        span if span.upto is not None and span.upto <= upto else Span(span.session, span.after, upto)
        for span in spans
        if span.after < upto
    )


def branched(spans: Spans, *, at: Position, session: str, started: Position) -> Spans:
    """Return what a branch sees: its parent's spans as they were at `at`, and its own turns after `started`."""
    return cut(spans, upto=at) + own(session, at=started)


def rewound(spans: Spans, *, to: Position, session: str, at: Position) -> Spans:
    """Return what a session sees once the event at `at` has hidden everything after `to`."""
    return cut(spans, upto=to) + own(session, at=at)


def without(spans: Spans, others: Spans) -> Spans:
    """Return the parts of `spans` that are in none of `others`. All of them must be closed."""
    left = spans
    for other in others:
        left = tuple(piece for span in left for piece in _cut_out(span, other))
    return left


def _cut_out(span: Span, other: Span) -> Spans:
    if span.session != other.session or span.upto is None or other.upto is None:
        return (span,)
    pieces = (
        Span(span.session, span.after, min(span.upto, other.after)),
        Span(span.session, max(span.after, other.upto), span.upto),
    )
    if other.after >= span.upto or other.upto <= span.after:
        return (span,)
    return tuple(piece for piece in pieces if piece.upto is not None and piece.after < piece.upto)


_ENCODER: Final = msgpack_encoder("deterministic")
_DECODER: Final = msgspec.msgpack.Decoder()


class Value(msgspec.Struct, frozen=True, array_like=True):
    """The value of a key. Kept encoded, so that it cannot be changed in place."""

    encoded: bytes
    """msgpack, with the keys of objects in order."""
    expires_at: Micros | None = None

    @property
    def value(self) -> Any:
        """The value as JSON types: a copy of the caller's own."""
        return _DECODER.decode(self.encoded)


def new_value(value: Any, *, expires_at: int | None) -> Value:
    """Return a JSON value, encoded."""
    return Value(_ENCODER.encode(value), None if expires_at is None else Micros(expires_at))


def entry_bytes(key: str, value: Value | None) -> int:
    """Return how many bytes a key with its value adds to `values_bytes`; 0 for no value."""
    return 0 if value is None else len(key.encode()) + len(value.encoded)


class TaskState(msgspec.Struct, frozen=True, array_like=True):
    """What a session is working on."""

    description: str
    step: int | None
    total: int | None
    percent: float | None
    status: str
    changed_at: Micros


def task_of(changed: TaskChanged, *, changed_at: Micros) -> TaskState:
    """Return the task that an event describes."""
    return TaskState(changed.description, changed.step, changed.total, changed.percent, changed.status, changed_at)


class NoteState(msgspec.Struct, frozen=True, array_like=True):
    """A line of the scratchpad."""

    text: str
    added_at: Micros


class CheckpointState(msgspec.Struct, frozen=True, array_like=True):
    """A named moment of a session: only the position of that moment in the log."""

    id: str
    session: str
    """The session that created it: an ancestor's where it was inherited."""
    name: str
    description: str
    position: Position
    created_at: Micros


def checkpoint_of(
    created: CheckpointCreated, *, session: str, position: Position, created_at: Micros
) -> CheckpointState:
    """Return the checkpoint that an event of `session` created."""
    return CheckpointState(created.id, session, created.name, created.description, position, created_at)


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """A session as of a position."""

    session: str
    started: SessionStarted
    started_position: Position
    ended: bool = False
    ancestors: tuple[str, ...] = ()
    """Root first, the parent last."""
    spans: Spans
    """The turns it sees."""
    values: Map[str, Value] = Map()
    """Expired ones included: whether a value exists depends on the time of the read."""
    values_bytes: int = 0
    """`entry_bytes` of all values."""
    task: TaskState | None = None
    notes: Map[int, NoteState] = Map()
    """By index: 0, 1, 2 and so on without gaps."""
    notes_bytes: int = 0
    """Bytes of UTF-8 of all notes."""
    checkpoints: Map[str, CheckpointState] = Map()
    """By id, inherited ones included."""
    checkpoint_names: Map[str, str] = Map()
    """The ids of the checkpoints by their names."""
    lost_checkpoints: Map[Position, str] = Map()
    """The sessions of checkpoints whose name is forgotten, by position: earlier restores of them stay valid."""


STATE_FORMAT: Final = 1
"""Rises with every change of the bytes. A snapshot of another format is ignored, and the state is folded again."""


class _Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A state in the order of its bytes: values by key, notes by place, checkpoints by position and id."""

    format: int
    session: str
    started: SessionStarted
    started_position: Position
    ended: bool
    ancestors: tuple[str, ...]
    spans: tuple[Span, ...]
    values: list[tuple[str, Value]]
    task: TaskState | None
    notes: list[NoteState]
    checkpoints: list[CheckpointState]
    lost_checkpoints: list[tuple[Position, str]] = []


_STORED: Final = msgspec.msgpack.Decoder(_Stored)


def encode_state(state: SessionState) -> bytes:
    """Return the bytes of a state: canonical msgpack."""
    return _ENCODER.encode(
        _Stored(
            format=STATE_FORMAT,
            session=state.session,
            started=state.started,
            started_position=state.started_position,
            ended=state.ended,
            ancestors=state.ancestors,
            spans=state.spans,
            values=sorted(state.values.items()),
            task=state.task,
            notes=[state.notes[place] for place in range(len(state.notes))],
            checkpoints=sorted(state.checkpoints.values(), key=lambda found: (found.position, found.id)),
            lost_checkpoints=sorted(state.lost_checkpoints.items()),
        )
    )


def decode_state(stored: bytes) -> SessionState:
    """Return the state that `encode_state` encoded as `stored`. Raises `InvalidInput` for other bytes."""
    try:
        found = _STORED.decode(stored)
    except UNDECODABLE as error:
        raise errors.InvalidInput("state", f"not a stored state: {error}") from error
    if found.format != STATE_FORMAT:
        raise errors.InvalidInput("state", f"format {found.format}, this mnemolog reads {STATE_FORMAT}")
    return SessionState(
        session=found.session,
        started=found.started,
        started_position=found.started_position,
        ended=found.ended,
        ancestors=found.ancestors,
        spans=found.spans,
        values=Map(found.values),
        values_bytes=sum(entry_bytes(key, value) for key, value in found.values),
        task=found.task,
        notes=Map(enumerate(found.notes)),
        notes_bytes=sum(len(note.text.encode()) for note in found.notes),
        checkpoints=Map((checkpoint.id, checkpoint) for checkpoint in found.checkpoints),
        checkpoint_names=Map((checkpoint.name, checkpoint.id) for checkpoint in found.checkpoints),
        lost_checkpoints=Map(found.lost_checkpoints),
    )


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a turn in a framework's own format, kept beside its text. Opaque to mnemolog.

    The format holds more than a role and a text, and must be returned exactly. The bytes are deflated with the turn's
    text as the dictionary, so that it is not stored twice.
    """

    form: str
    """The format, as a label such as `openai-agents.item`."""
    data: bytes
    """Up to 64 MiB."""


def stored_original(original: Original, *, text: str) -> Blob:
    """Return the original of a turn with that text in its stored form. Raises `InvalidInput`, `LimitExceeded`."""
    return pack(checked_label("original.form", original.form), original.data, dictionary=text.encode())


def original_of(turn: TurnRecorded) -> Original | None:
    """Return the original of a turn, None if it has none. Raises `LogDamaged`."""
    if turn.original is None:
        return None
    try:
        return Original(form=turn.original.kind, data=unpack(turn.original, dictionary=turn.text.encode()))
    except ValueError as error:
        raise errors.LogDamaged(f"the original of a turn cannot be read: {error}") from error


session_stream, session_of = named_streams("session/")
"""The stream that holds a session, and the session that a stream holds."""
NO_SESSION: Final = session_stream("")
"""A stream in which nothing is: no session has an empty id."""


@runtime_checkable
class SessionHandle(Protocol):
    """A handle on a session: `Session` or `AsyncSession`."""

    @property
    def id(self) -> str:
        """Id of the session."""

    @property
    def record(self) -> Callable[..., Any]:
        """Records a turn. What cannot do that, such as a session as it was, is no handle on it."""


SessionLike = SessionHandle | str
"""A session as a call takes it: a handle, or the id."""


def session_id_of(given: SessionLike, field: str = "session") -> str:
    """Return the id of a session that is given by a handle or by its id. Raises `InvalidInput` for anything else."""
    if isinstance(given, str):
        return given
    if isinstance(given, SessionHandle):
        return given.id
    raise errors.InvalidInput(field, f"expected a session or its id, got {type(given).__name__}")


def start(session_id: str, state: SessionState | None, started: SessionStarted) -> list[Event]:
    """Decide to start a session. Raises `SessionExists`."""
    if state is not None:
        raise errors.SessionExists(session_id)
    return [started]


def agreeing(
    session_id: str,
    started: SessionStarted,
    *,
    title: str | None = None,
    agent: str | None = None,
    scope: str | None = None,
    parent: SessionLike | None = None,
) -> SessionStarted:
    """Return the start of a session if the attributes that are not None agree with it. Raises `SessionDiffers`.

    An empty recorded title agrees with every title, because it may have been forgotten.
    """
    given = {"agent": agent, "scope": None if scope is None else parse_scope(scope)}
    given["parent"] = None if parent is None else session_id_of(parent, "parent")
    if started.title:
        given["title"] = title
    for attribute, value in given.items():
        if value is not None and value != (recorded := getattr(started, attribute)):
            raise errors.SessionDiffers(session_id, attribute=attribute, recorded=recorded, given=value)
    return started


def known(session_id: str, state: SessionState | None) -> SessionState:
    """Return the state of a session that was started. Raises `UnknownSession`."""
    if state is None:
        raise errors.UnknownSession(session_id)
    return state


def opened(session_id: str, state: SessionState | None) -> SessionState:
    """Return the state of a session that takes events. Raises `UnknownSession` or `SessionAlreadyEnded`."""
    state = known(session_id, state)
    if state.ended:
        raise errors.SessionAlreadyEnded(session_id)
    return state


def end(session_id: str, state: SessionState | None, *, reason: str) -> list[Event]:
    """Decide to end a session. Ending it again changes nothing. Raises `UnknownSession`."""
    return [] if known(session_id, state).ended else [SessionEnded(reason=reason)]


def resume(session_id: str, state: SessionState | None, *, reason: str = "") -> list[Event]:
    """Decide to resume an ended session; no event if it has not ended. Raises `UnknownSession`."""
    return [SessionResumed(reason=reason)] if known(session_id, state).ended else []


def new_session(*, title: str = "", agent: str, scope: str = "", parent: str | None = None) -> SessionStarted:
    """Return the event that starts a session, checked. Raises `InvalidInput`.

    With `parent` it belongs to that session but is not a branch: it sees nothing of it.
    """
    return SessionStarted(
        title=title if title == "" else checked_label("title", title),
        agent=checked_label("agent", agent),
        scope=parse_scope(scope),
        parent=None if parent is None else checked_session_id(parent),
    )


def new_turn(
    *,
    role: str,
    text: str | Sequence[Any],
    speaker: str | None = None,
    said_at: Time | None = None,
    tool_calls: Sequence[Any] = (),
    metadata: Mapping[str, Any] | None = None,
    original: Original | None = None,
) -> TurnRecorded:
    """Return the event that records a turn, checked. Raises `InvalidInput`, `LimitExceeded`.

    `text` may be a list of parts: texts, images, calls and results of tools. It may be empty if tools are called.
    """
    if not isinstance(text, str) or tool_calls:
        said = said_in({"role": role, "content": text, "tool_calls": tool_calls})
        role = said.role
        text = said.text
        tool_calls = said.tool_calls
        metadata = {**said.metadata, **(metadata or {})}
    return TurnRecorded(
        role=parse_role(role),
        text=checked_text("text", text),
        speaker=None if speaker is None else checked_label("speaker", speaker),
        said_at=None if said_at is None else parse_said_at(said_at),
        tool_calls=checked_json("tool_calls", list(tool_calls), bytes_max=METADATA_BYTES_MAX) if tool_calls else [],
        metadata=checked_metadata(metadata) if metadata else {},
        original=None if original is None else stored_original(original, text=text),
    )


def checked_key(key: str) -> str:
    """Return `key` if it can be an idempotency key. Raises `InvalidInput`, `LimitExceeded`."""
    return checked_text("key", key)


def checked_session_id(session_id: str) -> str:
    """Return `session_id` if it can name a session. Raises `InvalidInput`, `LimitExceeded`."""
    return checked_label("session", session_id)


def checked_metadata(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return `value` if it can be the metadata of a turn. Raises `InvalidInput`, `LimitExceeded`."""
    if not isinstance(value, Mapping):
        raise errors.InvalidInput("metadata", f"expected a mapping, got {type(value).__name__}")
    return dict(checked_json("metadata", dict(value), bytes_max=METADATA_BYTES_MAX))


Past = Callable[[str, Position], SessionState]
"""Returns the state of a session as of a position of the log, that position included."""

_replace: Final = msgspec.structs.replace


def evolve(state: SessionState | None, recorded: RecordedEvent, past: Past) -> SessionState | None:
    """Return the state after `recorded`. Turns and events of other kinds change nothing.

    A branch starts with its parent's state at the branch point, and a restore brings back the state at an earlier
    position. Neither is in the event: `past` gives it, which is a fold as well.
    `past` is called with positions before that of `recorded` only. A restore of a deleted checkpoint changes nothing.
    Raises `LogDamaged` for a session branched at a later position, and for a restore of what comes later.
    """
    event, position = recorded.event, recorded.position
    if state is None:
        return _begin(recorded, event, past) if isinstance(event, SessionStarted) else None
    match event:
        case SessionEnded():
            return _replace(state, ended=True)
        case SessionResumed():
            return _replace(state, ended=False)
        case CheckpointCreated() | CheckpointDeleted():
            return _with_checkpoints(state, recorded, event)
        case Forgotten() if was_checkpoint(event):
            return _replace(state, lost_checkpoints=state.lost_checkpoints.set(position, state.session))
        case CheckpointRestored():
            return _restore(state, recorded, event, past)
        case TurnsRewound(to=to):
            return _replace(state, spans=rewound(state.spans, to=Position(to), session=state.session, at=position))
        case _:
            return _with_memory(state, recorded)


def _begin(recorded: RecordedEvent, started: SessionStarted, past: Past) -> SessionState | None:
    session, position = session_of(recorded.stream), recorded.position
    if session is None:
        return None
    if started.parent is None or started.branched_at is None:
        return SessionState(
            session=session, started=started, started_position=position, spans=own(session, at=position)
        )
    at = Position(started.branched_at)
    if at >= position:
        raise errors.LogDamaged(f"session {session!r} is branched at a later position", position=position)
    parent = past(started.parent, at)
    return _replace(
        parent,
        session=session,
        started=started,
        started_position=position,
        ended=False,
        ancestors=(*parent.ancestors, parent.session),
        spans=branched(parent.spans, at=at, session=session, started=position),
    )


def _with_memory(state: SessionState, recorded: RecordedEvent) -> SessionState:
    match recorded.event:
        case ValueSet(key=key, value=value, expires_at=expires_at):
            new = new_value(value, expires_at=expires_at)
            change = entry_bytes(key, new) - entry_bytes(key, state.values.get(key))
            return _replace(state, values=state.values.set(key, new), values_bytes=state.values_bytes + change)
        case ValueDeleted(key=key) if key in state.values:
            return _replace(
                state,
                values=state.values.delete(key),
                values_bytes=state.values_bytes - entry_bytes(key, state.values[key]),
            )
        case ValuesCleared():
            return _replace(state, values=Map(), values_bytes=0)
        case TaskChanged() as task:
            return _replace(state, task=task_of(task, changed_at=recorded.recorded_at))
        case NoteAdded(text=text):
            notes = state.notes.set(len(state.notes), NoteState(text, recorded.recorded_at))
            return _replace(state, notes=notes, notes_bytes=state.notes_bytes + len(text.encode()))
        case NotesCleared():
            return _replace(state, notes=Map(), notes_bytes=0)
        case _:
            return state


def _with_checkpoints(
    state: SessionState, recorded: RecordedEvent, event: CheckpointCreated | CheckpointDeleted
) -> SessionState:
    checkpoints, names = state.checkpoints, state.checkpoint_names
    if isinstance(event, CheckpointCreated):
        created = checkpoint_of(
            event, session=state.session, position=recorded.position, created_at=recorded.recorded_at
        )
        return _replace(
            state, checkpoints=checkpoints.set(event.id, created), checkpoint_names=names.set(event.name, event.id)
        )
    if event.id not in checkpoints:
        return state
    name = checkpoints[event.id].name
    return _replace(state, checkpoints=checkpoints.delete(event.id), checkpoint_names=names.delete(name))


def _restore(state: SessionState, recorded: RecordedEvent, event: CheckpointRestored, past: Past) -> SessionState:
    created_in, at = _created_in(state, event), Position(event.position)
    if at >= recorded.position:
        raise errors.LogDamaged(f"session {state.session!r} restores what comes after it", position=recorded.position)
    if created_in is None:
        return state
    then = past(created_in, at)
    return _replace(
        state,
        values=then.values,
        values_bytes=then.values_bytes,
        task=then.task,
        notes=then.notes,
        notes_bytes=then.notes_bytes,
        spans=rewound(state.spans, to=at, session=state.session, at=recorded.position),
    )


def _created_in(state: SessionState, event: CheckpointRestored) -> str | None:
    """Return the session that created the checkpoint of a restore, None where there is no such checkpoint."""
    checkpoint = state.checkpoints.get(event.id)
    if checkpoint is None:
        return state.lost_checkpoints.get(Position(event.position))
    return checkpoint.session if checkpoint.position == event.position else None


def unhidden(state: SessionState, beginnings: Sequence[RecordedEvent]) -> Spans:
    """Return what a session would see if nothing had ever been hidden.

    `beginnings` are the first events of its ancestors, root first. Their states are not needed.
    """
    chain = [(session_of(first.stream) or "", first.position, first.event) for first in beginnings]
    found: Spans = ()
    for session, position, event in [*chain, (state.session, state.started_position, state.started)]:
        at = event.branched_at if isinstance(event, SessionStarted) else None
        found = cut(found, upto=Position(0 if at is None else at)) + own(session, at=position)
    return found


def rewind(session_id: str, state: SessionState | None, *, to: int, head: Position) -> list[Event]:
    """Decide to hide every turn after the position `to`; no event if no visible turn is after it.

    `head` is the position of the last event in the session's stream, turns included. `to` must be in
    `[span.after, span.upto]` of a span of the session: the first position of its own span hides all of
    its own turns. Raises `UnknownSession`, `SessionAlreadyEnded`, `InvalidInput` or, for a position that is
    hidden, too early or not written yet, `OutsideSession`.
    """
    state = opened(session_id, state)
    target = checked_position("to", to)
    ends = [(span.after, head if span.upto is None else span.upto) for span in state.spans]
    last_seen = max((upto for after, upto in ends if upto > after), default=None)
    if target <= head and (last_seen is None or target >= last_seen):
        return []
    if not any(after <= target <= upto for after, upto in ends):
        raise errors.OutsideSession(session_id, position=target, first=ends[0][0], last=last_seen or head)
    return [TurnsRewound(to=target)]


def last_seen(state: SessionState, position: Position, *, head: Position) -> Position:
    """Return the last position at or before `position` that a session sees; `position` if it saw nothing then.

    `head` is the position of the last event in the session's stream.
    """
    ends = [(span.after, head if span.upto is None else span.upto) for span in state.spans]
    return max((Position(min(position, upto)) for after, upto in ends if after <= position), default=position)
