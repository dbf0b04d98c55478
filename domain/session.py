"""A session: one conversation of one agent, started once, recorded turn by turn, ended once.

It sees the turns of its ancestors up to the branch point, and its own. It does not see turns of siblings, nor rewound
turns. A branch keeps what it saw when it was created, whatever its parent hides later.

Decisions are pure functions of a state and a command; they raise an error or return the events to append.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
from immutables import Map

from mnemolog.domain import errors
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
from mnemolog.domain.limits import (
    METADATA_BYTES_MAX,
    checked_json,
    checked_label,
    checked_text,
)
from mnemolog.domain.message import parse_role, said_in
from mnemolog.domain.position import Position, Time, checked_position, parse_said_at
from mnemolog.domain.scope import parse_scope
from mnemolog.domain.state import (
    NoteState,
    SessionState,
    Spans,
    branched,
    checkpoint_of,
    cut,
    entry_bytes,
    new_value,
    own,
    rewound,
    task_of,
)
from mnemolog.domain.threads import Blob, pack, unpack


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


_STREAM_PREFIX: Final = "session/"
NO_SESSION: Final = _STREAM_PREFIX
"""A stream in which nothing is: no session has an empty id."""
_STREAMS_KEPT: Final = 4_096


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


def session_stream(session_id: str) -> str:
    """Return the name of the stream that holds the session."""
    return _STREAM_PREFIX + session_id


@lru_cache(_STREAMS_KEPT)
def session_of(stream: str) -> str | None:
    """Return the session that a stream holds, or None for a stream of another kind."""
    return stream.removeprefix(_STREAM_PREFIX) if stream.startswith(_STREAM_PREFIX) else None


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
            visible = rewound(state.spans, to=Position(to), session=state.session, at=position)
            return _replace(state, spans=visible)
        case _:
            return _with_memory(state, recorded)


def _begin(recorded: RecordedEvent, started: SessionStarted, past: Past) -> SessionState | None:
    session, position = session_of(recorded.stream), recorded.position
    if session is None:
        return None
    if started.parent is None or started.branched_at is None:
        visible = own(session, at=position)
        return SessionState(session=session, started=started, started_position=position, spans=visible)
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
            left = state.values_bytes - entry_bytes(key, state.values[key])
            return _replace(state, values=state.values.delete(key), values_bytes=left)
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
        why = f"session {state.session!r} restores what comes after it"
        raise errors.LogDamaged(why, position=recorded.position)
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
