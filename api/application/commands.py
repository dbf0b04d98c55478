"""Commands: plain functions `command(tx, ...)`, run by `EventLog.appends.transact(partial(command, ...))`.

Each runs alone under the write lock and decides on the current state, so it needs no retry. One that is rehearsed is
a preview.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec

from mnemolog.domain import choices, errors, session, switching, working_memory
from mnemolog.domain.events import (
    Event,
    Forgotten,
    ModelActivated,
    RecordedEvent,
    RedactionChosen,
    SessionStarted,
    SessionSwitched,
    TurnRecorded,
)
from mnemolog.domain.redaction import REDACTION_STREAM
from mnemolog.domain.request import is_of_other_request, with_request, without_actor
from mnemolog.domain.stream_fold import Known
from mnemolog.domain.values import INTEGER_MAX, ORIGIN, Micros, Position, Version, checked_position
from mnemolog.infra.log.transaction import Transaction
from mnemolog.projections.history.states import SessionStates, evolve
from mnemolog.projections.read_models import Turn, turn_of
from mnemolog.results import Checkpoint, Note, PlannedEvent, RestorePreview, SwitchPreview, Task, ValueChange

Found = TypeVar("Found")

LATE: Final = "late turns"
"""The reason recorded when an ended session is resumed for late turns and ended again."""

Decision = Callable[[session.SessionState | None], list[Event]]
"""Returns the events to append, given the state of a session; or raises."""


class Recorded(msgspec.Struct, frozen=True):
    """A turn in the log. `deduplicated` if its key was already in use and nothing was added."""

    event: RecordedEvent
    session: str
    scope: str
    deduplicated: bool

    def turn(self) -> Turn:
        """Return it as a result type."""
        return turn_of(self.event, session=self.session, scope=self.scope)


def decide(
    tx: Transaction, session_id: str, states: SessionStates, decision: Decision, *, key: str | None = None
) -> list[RecordedEvent]:
    """Append the events that `decision` returns for the state of a session, the last one under `key`.

    See `append_once`.
    """
    stream, state = session.session_stream(session_id), state_in(tx, session_id, states)
    return append_once(tx, stream, lambda: decision(state), key=key)


def append_once(
    tx: Transaction, stream: str, decision: Callable[[], list[Event]], *, key: str | None
) -> list[RecordedEvent]:
    """Append the events that `decision` returns to a stream, the last one under `key`.

    If there is an event with that key, it is a retry: that event is returned, and nothing is decided. Raises
    `DuplicateKey` if it was made for another request, `ContentForgotten` if it was forgotten.
    """
    if key is not None and (made := tx.find(stream, key)) is not None:
        if isinstance(made.event, Forgotten):
            raise errors.ContentForgotten(stream=stream, key=key, position=made.position)
        if is_of_other_request(made.event):
            raise errors.DuplicateKey(stream=stream, key=key, position=made.position)
        return [made]
    events = decision()
    if events and key is not None:
        events = [*events[:-1], with_request(events[-1])]
    return [tx.append(stream, event, key=key if event is events[-1] else None) for event in events]


def state_in(tx: Transaction, session_id: str, states: SessionStates) -> session.SessionState | None:
    """Return the state of a session within a transaction; None if it was never started.

    Raises `UnknownSession` for one outside of the store's scope.
    """
    if states.is_outside(session_id):  # Its events are not read, but as many questions are asked as if it never was.
        tx.fold(session.NO_SESSION, evolve, states.known)
        raise errors.UnknownSession(session_id)
    state = tx.fold(session.session_stream(session_id), evolve, states.known)
    if not states.is_inside(state):
        raise errors.UnknownSession(session_id)
    return state


def new_state_in(tx: Transaction, session_id: str, states: SessionStates) -> session.SessionState | None:
    """Return the state of a session that is to be started.

    Raises `SessionExists` if one outside has the id, or if events that fit no session are stored under it.
    """
    try:
        state = state_in(tx, session_id, states)
    except errors.UnknownSession as error:
        raise _taken(session_id, f"a session outside of the scope of this store has the id {session_id!r}") from error
    if state is None and tx.version(session.session_stream(session_id)):
        raise _taken(session_id, f"events that fit no session are stored under the id {session_id!r}")
    return state


def _if_inside(tx: Transaction, session_id: str, states: SessionStates) -> session.SessionState | None:
    """Return the state of a session; None for one outside, about which everything is decided as if it did not exist."""
    try:
        return state_in(tx, session_id, states)
    except errors.UnknownSession:
        return None


def _taken(session_id: str, why: str) -> errors.SessionExists:
    return errors.SessionExists(session_id, why).saying(hint="nothing was written; choose another id")


def record_turn(
    tx: Transaction, session_id: str, turn: TurnRecorded, states: SessionStates, *, key: str | None
) -> Recorded:
    """Record a turn, or return the one already recorded under its key with the same content."""
    stream = session.session_stream(session_id)
    state = state_in(tx, session_id, states)
    scope = "" if state is None else state.started.scope
    # A retry finds its turn even if the session has ended since.
    if key is not None and (known := tx.find(stream, key)) is not None:
        if isinstance(known.event, Forgotten):
            raise errors.ContentForgotten(stream=stream, key=key, position=known.position)
        before, now = (without_actor(tx.redaction().event(event)) for event in (known.event, turn))
        if before != now:
            raise errors.DuplicateKey(stream=stream, key=key, position=known.position)
        return Recorded(known, session_id, scope, True)
    session.opened(session_id, state)
    return Recorded(tx.append(stream, turn, key=key), session_id, scope, False)


def record_late(
    tx: Transaction, turns: Sequence[tuple[str, Callable[[Transaction], Recorded]]], states: SessionStates
) -> list[Recorded]:
    """Record turns, each given with its session; ended sessions are resumed for it and ended again.

    A retry whose turns are all recorded already reopens nothing.
    """
    made, reopened = list[Recorded](), list[str]()
    for session_id, record in turns:
        try:
            made.append(record(tx))
        except errors.SessionAlreadyEnded:
            decide(tx, session_id, states, partial(session.resume, session_id, reason=LATE))
            reopened.append(session_id)
            made.append(record(tx))
    for session_id in reopened:
        decide(tx, session_id, states, partial(session.end, session_id, reason=LATE))
    return made


def record_behind(
    tx: Transaction,
    session_id: str,
    turns: Sequence[tuple[TurnRecorded, str | None]],
    states: SessionStates,
    *,
    expected: Version,
) -> list[Recorded]:
    """Record turns if nothing was appended to the session since `expected`, else raise `WrongExpectedVersion`.

    A turn whose key belongs to forgotten content is skipped.
    """
    _require_version(tx, session.session_stream(session_id), expected)
    made: list[Recorded] = []
    for turn, key in turns:
        with suppress(errors.ContentForgotten):  # Forgotten turns are not recorded again.
            made.append(record_turn(tx, session_id, turn, states, key=key))
    return made


def rewind(
    tx: Transaction,
    session_id: str,
    states: SessionStates,
    *,
    to: int | None,
    turns: int | None,
    key: str | None = None,
) -> list[Position]:
    """Hide the last `turns` visible turns of a session, or all after the position `to`. Return them, newest first."""
    stream = session.session_stream(session_id)
    state = session.opened(session_id, state_in(tx, session_id, states))
    target = position_before(tx, state, turns=turns) if to is None else checked_position("to", to, head=tx.head)
    events = session.rewind(session_id, state, to=target, head=tx.last_position(stream))
    visible = state.spans
    for event in events:
        tx.append(stream, event, key=key)
    return last_visible(tx, visible, after=Position(target)) if events else []


def resolve_pending_undo(
    tx: Transaction, session_id: str, states: SessionStates, *, turns: int, expected: Version
) -> None:
    """Hide the last `turns` turns, if any, and clear the flag of a pending undo. An ended session is ended again.

    Raises `WrongExpectedVersion` if anything was appended to the session since `expected`.
    """
    _require_version(tx, session.session_stream(session_id), expected)
    resumed = decide(tx, session_id, states, partial(session.resume, session_id, reason=LATE))
    if turns:
        rewind(tx, session_id, states, to=None, turns=turns)
    decide(tx, session_id, states, partial(working_memory.resolve_undo, session_id))
    if resumed:
        decide(tx, session_id, states, partial(session.end, session_id, reason=LATE))


def _require_version(tx: Transaction, stream: str, expected: Version) -> None:
    actual = tx.version(stream)
    if actual != expected:
        raise errors.WrongExpectedVersion(stream=stream, expected=expected, actual=actual)


class Restored(msgspec.Struct, frozen=True):
    """The state of a session before and after a restore, and the number of turns it hid."""

    checkpoint: session.CheckpointState
    before: session.SessionState
    after: session.SessionState
    hidden: int


def restore(tx: Transaction, session_id: str, states: SessionStates, checkpoint: str) -> Restored:
    """Restore working memory from a checkpoint, given by id or name."""
    before = session.opened(session_id, state_in(tx, session_id, states))
    found = working_memory.find_checkpoint(before, checkpoint)
    hidden = len(last_visible(tx, before.spans, after=found.position))
    decide(tx, session_id, states, lambda state: working_memory.restore_checkpoint(session_id, state, checkpoint))
    return Restored(found, before, session.known(session_id, state_in(tx, session_id, states)), hidden)


def position_before(tx: Transaction, state: session.SessionState, *, turns: int | None) -> int:
    """Return the position after which the last `turns` turns that a session sees begin; all if it sees fewer."""
    visible = last_visible(tx, state.spans, count=turns)
    return visible[-1] - 1 if visible else tx.last_position(session.session_stream(state.session))


class TurnSource(Protocol[Found]):
    """A reader of the turns of one stream: the log gives the events, a transaction their positions."""

    def last_turns(self, stream: str, *, after: Position, upto: Position | None, limit: int) -> list[Found]:
        """Return the last `limit` turns of a stream in `(after, upto]`, newest first, without forgotten ones."""


def last_visible(
    source: TurnSource[Found], spans: Sequence[session.Span], *, after: Position = ORIGIN, count: int | None = None
) -> list[Found]:
    """Return the last `count` turns after `after` that the spans hold, newest first."""
    found: list[Found] = []
    for span in reversed(spans):
        if (count is not None and len(found) >= count) or (span.upto is not None and span.upto <= after):
            break
        limit = INTEGER_MAX if count is None else count - len(found)
        stream = session.session_stream(span.session)
        found += source.last_turns(stream, after=max(span.after, after), upto=span.upto, limit=limit)
    return found


class Switched(msgspec.Struct, frozen=True):
    """The result of a switch or a branch: the session left, and the session entered with its start."""

    left: str | None
    to: str
    started: SessionStarted
    appended: list[RecordedEvent]
    """In order; empty for a retry."""


def switch(
    tx: Transaction,
    asked: switching.SwitchRequest,
    states: SessionStates,
    known_agent: Known[switching.AgentState],
    *,
    turns: int | None,
    in_place: bool = False,
    named: bool = True,
    joins: bool = False,
    key: str | None = None,
) -> Switched:
    """Switch an agent's session: one append over all the streams it touches, or none.

    Without `from_` the agent leaves the session it is in; `in_place` it enters the session it leaves. Both are known
    only now: other switches may have been queued before this one. `turns` is converted to the position after which
    that many of the turns that session sees begin. If this agent already made a switch with this `key`, it is a
    retry: unless the target was `named`, the target is the session which that switch entered. If it `joins`, a session
    that exists is resumed where another reason would start it.
    """
    if key is not None and (made := tx.find(switching.agent_stream(asked.agent), key)) is not None:
        return _made_before(tx, made, asked, states, named=named, in_place=in_place)
    if joins and asked.to != asked.from_ and new_state_in(tx, asked.to, states) is not None:
        asked = msgspec.structs.replace(asked, reason=switching.SwitchReason.RESUME, at=None)
    agent = tx.fold(switching.agent_stream(asked.agent), switching.evolve_agent, known_agent)
    _require_inside(tx, asked, agent, states)
    left = asked.from_
    if left is None:
        left = switching.left_by(agent, reason=asked.reason, to=asked.to)
    to = left if in_place and left is not None else asked.to
    old = None if left is None else _if_inside(tx, left, states)
    at = asked.at
    if turns is not None and old is not None:
        at = position_before(tx, old, turns=turns)
    decided = switching.switch(
        msgspec.structs.replace(asked, from_=left, to=to, at=at),
        agent=agent,
        old=old,
        new=(_if_inside if to == left or asked.reason is switching.SwitchReason.RESUME else new_state_in)(
            tx, to, states
        ),
        head=tx.head,
        old_head=ORIGIN if left is None else tx.last_position(session.session_stream(left)),
    )
    appended = [
        tx.append(stream, event, key=key if isinstance(event, SessionSwitched) else None) for stream, event in decided
    ]
    return Switched(left, to, session.known(to, state_in(tx, to, states)).started, appended)


def _require_inside(
    tx: Transaction, asked: switching.SwitchRequest, agent: switching.AgentState | None, states: SessionStates
) -> None:
    """Refuse to move an agent out of a session outside of the store's scope."""
    if agent is None or not states.boundary.scopes:
        return
    try:
        state_in(tx, agent.current, states)
    except errors.UnknownSession:
        why = f"agent {asked.agent!r} is in a session outside of it; use an agent of another name"
        raise states.boundary.outside(why) from None


def _made_before(
    tx: Transaction,
    made: RecordedEvent,
    asked: switching.SwitchRequest,
    states: SessionStates,
    *,
    named: bool,
    in_place: bool,
) -> Switched:
    """Return the switch made under a key. Raises `DuplicateKey` if this one differs from it."""
    event = made.event
    if (
        not isinstance(event, SessionSwitched)
        or event.reason != asked.reason
        or asked.from_ not in (None, event.from_)
        or (named and asked.to != event.to)
        or (in_place and event.from_ != event.to)
    ):
        raise errors.DuplicateKey(stream=made.stream, key=made.key or "", position=made.position)
    return Switched(event.from_, event.to, session.known(event.to, state_in(tx, event.to, states)).started, [])


def branch(
    tx: Transaction, asked: switching.SwitchRequest, states: SessionStates, *, key: str | None = None
) -> Switched:
    """Start a session as a branch of another; the agent stays where it is. A retry finds the start by its `key`."""
    old, new = _if_inside(tx, asked.from_ or "", states), new_state_in(tx, asked.to, states)
    appended: list[RecordedEvent] = []
    made = None if key is None else tx.find(session.session_stream(asked.to), key)
    if key is not None and made is not None:
        if not isinstance(made.event, SessionStarted) or made.event.parent != asked.from_:
            raise errors.DuplicateKey(stream=session.session_stream(asked.to), key=key, position=made.position)
    else:
        decided = switching.branch(asked, old=old, new=new, head=tx.head)
        appended = [
            tx.append(stream, event, key=key if isinstance(event, SessionStarted) else None)
            for stream, event in decided
        ]
    return Switched(asked.from_, asked.to, session.known(asked.to, state_in(tx, asked.to, states)).started, appended)


class Activated(msgspec.Struct, frozen=True):
    """The model that is active now, and the one active before."""

    before: choices.Activation | None
    now: choices.Activation
    appended: bool


def activate_model(tx: Transaction, wanted: ModelActivated, known: Known[choices.Activation]) -> Activated:
    """Activate a model, unless it is active."""
    before = tx.fold(choices.MODELS_STREAM, choices.evolve_active, known)
    appended = [tx.append(choices.MODELS_STREAM, event) for event in choices.activate(before, wanted)]
    now = choices.activation_of(appended[0]) if appended else before
    assert now is not None
    return Activated(before, now, bool(appended))


def choose_language(tx: Transaction, wanted: str, *, change: bool = True) -> bool:
    """Choose the language of the store. Return whether it was another one.

    Without `change` raises `InvalidInput` if it was another one.
    """
    before = tx.fold(choices.LANGUAGE_STREAM, choices.evolve_language)
    chosen = choices.choose(before, wanted)
    if chosen and not change:
        raise errors.InvalidInput(
            "language",
            f"this store has the language {before or choices.DEFAULT_LANGUAGE!r}; "
            f"store.admin.set_language({wanted!r}) changes it",
        )
    return bool([tx.append(choices.LANGUAGE_STREAM, event) for event in chosen])


def choose_redaction(tx: Transaction, on: bool) -> bool:
    """Choose whether secrets are replaced before an event is appended. Return whether that is a change."""
    if tx.redaction().on == on:
        return False
    tx.append(REDACTION_STREAM, RedactionChosen(on=on))
    return True


def switch_preview(switched: Switched) -> SwitchPreview:
    """Return the preview of a rehearsed switch."""
    started = switched.started
    return SwitchPreview(
        left=switched.left,
        to=switched.to,
        title=started.title,
        agent=started.agent,
        scope=started.scope,
        parent=started.parent,
        branched_at=started.branched_at,
        events=tuple(
            PlannedEvent(position=item.position, stream=item.stream, topic=item.event.topic, event=item.event)
            for item in switched.appended
        ),
    )


def restore_preview(restored: Restored, *, now: Micros) -> RestorePreview:
    """Return the preview of a rehearsed restore. Expired values are left out."""
    before, after = restored.before, restored.after
    removed, added = note_changes(before, after)
    return RestorePreview(
        checkpoint=Checkpoint.of(restored.checkpoint),
        values=tuple(value_changes(before, after, then=now, now=now)),
        task_changes=before.task != after.task,
        task_before=None if before.task is None else Task.of(before.task),
        task_after=None if after.task is None else Task.of(after.task),
        notes_removed=removed,
        notes_added=added,
        turns_hidden=restored.hidden,
    )


def value_changes(
    before: session.SessionState | None, after: session.SessionState | None, *, then: Micros, now: Micros
) -> Iterator[ValueChange]:
    """Yield the change of each key between `then` and `now`. Expired values count as deleted."""
    for key in sorted({*_keys(before), *_keys(after)}):
        old, new = _there(before, key, then), _there(after, key, now)
        if old is None and new is not None:
            yield ValueChange(key=key, change="added", before=None, after=new.value)
        elif old is not None and new is None:
            yield ValueChange(key=key, change="removed", before=old.value, after=None)
        elif old is not None and new is not None and old != new:
            yield ValueChange(key=key, change="changed", before=old.value, after=new.value)


def note_changes(
    before: session.SessionState | None, after: session.SessionState | None
) -> tuple[tuple[Note, ...], tuple[Note, ...]]:
    """Return the notes removed and the notes added: all from the first that differs."""
    old, new = (
        [] if before is None else working_memory.notes(before),
        [] if after is None else working_memory.notes(after),
    )
    same = next(
        (place for place, (one, two) in enumerate(zip(old, new, strict=False)) if one != two),
        min(len(old), len(new)),
    )
    return tuple(map(Note.of, old[same:])), tuple(map(Note.of, new[same:]))


def _keys(state: session.SessionState | None) -> Iterator[str]:
    return iter(() if state is None else state.values)


def _there(state: session.SessionState | None, key: str, now: Micros) -> session.Value | None:
    value = None if state is None else state.values.get(key)
    return None if value is None or working_memory.is_expired(value, now) else value
