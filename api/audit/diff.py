"""Compare the state of the store at two positions of the log.

Only the events in between are read, a batch at a time; the states at both ends come from the usual state cache,
and the facts from the views.
"""

from collections import Counter
from operator import attrgetter
from typing import Annotated, Final

from mnemolog.application.commands import last_visible, note_changes, value_changes
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain.choices import Activation, activation_of
from mnemolog.domain.event import TO_EVENT, TO_SESSION
from mnemolog.domain.events import RecordedEvent, SessionSwitched, TurnRecorded
from mnemolog.domain.facts import facts_stream
from mnemolog.domain.head import Head, Known
from mnemolog.domain.result import Result
from mnemolog.domain.session import SessionState, Span, Spans, cut, session_of, without
from mnemolog.domain.switching import agent_of
from mnemolog.domain.values import Micros, Position, UtcTime, to_datetime
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.ports import Progress, tell
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.read_models import FactChange, Switch, Turn, turn_of
from mnemolog.projections.sql import fact_queries
from mnemolog.results import Checkpoint, Note, Task, ValueChange


class SessionDiff(Result, frozen=True, kw_only=True):
    """What changed in a session between two positions."""

    session: str
    title: str
    agent: str
    scope: str
    parent: Annotated[str, TO_SESSION] | None
    branched_at: int | None
    started: bool
    """Whether it was started in between. A branch then begins with the memory of its parent."""
    ended_before: bool
    ended_after: bool
    turns_recorded: int
    turns: tuple[Turn, ...]
    """Turns recorded in between, hidden since or not, up to the requested number; see `Diff.turns_left_out`."""
    hidden: tuple[Annotated[Position, TO_EVENT], ...]
    """Turns that it saw before or recorded in between, and no longer sees."""
    shown: tuple[Annotated[Position, TO_EVENT], ...]
    """Older turns that it did not see before and sees now."""
    values: tuple[ValueChange, ...]
    """Expired values are left out."""
    task_before: Task | None
    task_after: Task | None
    notes_removed: tuple[Note, ...]
    notes_added: tuple[Note, ...]
    checkpoints_created: tuple[Checkpoint, ...]
    checkpoints_deleted: tuple[Checkpoint, ...]


class Diff(Result, frozen=True, kw_only=True):
    """What changed in a store between two positions."""

    before: Head
    after: Head
    before_at: UtcTime
    """When the last event up to `before` was recorded. Values expired by then are left out."""
    after_at: UtcTime
    topics: dict[str, int]
    """How many events of each kind were recorded in between."""
    sessions: tuple[SessionDiff, ...]
    """Sessions with events in between, in the order of their first one."""
    facts: tuple[FactChange, ...]
    """Facts whose value is another, by scope and key: asserted or retracted in between, or its time came."""
    switches: tuple[Switch, ...]
    activations: tuple[Activation, ...]
    """Models activated in between."""
    turns_left_out: int
    """Recorded turns that are counted but not listed."""


BATCH_MAX: Final = 1_000


def diff(
    visible: VisibleEvents,
    projections: ProjectionSet,
    *,
    before: Position,
    after: Position,
    turns_max: int,
    progress: Progress | None = None,
) -> Diff:
    """Return what changed from `before` to `after`. Of the recorded turns at most `turns_max` are listed."""
    topics, recorded = Counter[str](), Counter[str]()  # Turns by session; 0 for a session with other events only.
    turns: dict[str, list[RecordedEvent]] = {}
    switches: list[Switch] = []
    activations: list[Activation] = []
    room = turns_max
    for read_upto, batch in visible.read(after=before, upto=after, batch_max=BATCH_MAX):
        for item in batch:
            event, session = item.event, session_of(item.stream)
            topics[event.topic] += 1
            if session is not None:
                recorded[session] += isinstance(event, TurnRecorded)
            if session is not None and isinstance(event, TurnRecorded) and room:
                room -= 1
                turns.setdefault(session, []).append(item)
            elif isinstance(event, SessionSwitched):
                switches.append(
                    Switch(
                        position=item.position,
                        agent=agent_of(item.stream) or item.stream,
                        from_=event.from_,
                        to=event.to,
                        reason=event.reason,
                        at=to_datetime(item.recorded_at),
                    )
                )
            elif activation := activation_of(item):
                activations.append(activation)
        tell(progress, read_upto - before, after - before)
    log, states = visible.log, visible.states
    then, now = log.recorded_at(before), log.recorded_at(after)
    return Diff(
        before=log.head_at(before),
        after=log.head_at(after),
        before_at=to_datetime(then),
        after_at=to_datetime(now),
        topics=dict(sorted(topics.items())),
        sessions=tuple(
            session_diff(
                log,
                states.at(session, before),
                new,
                before=before,
                after=after,
                then=then,
                now=now,
                recorded=recorded[session],
                turns=turns.get(session, []),
            )
            for session in recorded
            if (new := states.at(session, after)) is not None
        ),
        facts=fact_changes(visible, projections, before, after),
        switches=tuple(switches),
        activations=tuple(activations),
        turns_left_out=max(recorded.total() - turns_max, 0),
    )


def fact_changes(
    visible: VisibleEvents, projections: ProjectionSet, before: Position, after: Position
) -> tuple[FactChange, ...]:
    """Return the facts that have another value at `after`. Reads the views only if facts may be seen."""
    log, scopes = visible.log, visible.boundary.scopes
    if all(log.last_position(facts_stream(scope)) is None for scope in scopes or ("",)):
        return ()
    then, now = (Known(at, log.recorded_at(at)) for at in (before, after))
    with projections.current_views().database.reading() as connection:
        return tuple(fact_queries.changes(connection, scopes, then, now))


def session_diff(
    log: EventLog,
    old: SessionState | None,
    new: SessionState,
    *,
    before: Position,
    after: Position,
    then: Micros,
    now: Micros,
    recorded: int,
    turns: list[RecordedEvent],
) -> SessionDiff:
    """Return what changed in a session between its state at `before` and its state at `after`.

    The log is read only for the positions of hidden turns, if there are any.
    """
    started, session = new.started, new.session
    seen_before = () if old is None else cut(old.spans, upto=before)
    recorded_since = (Span(session, before, after),)
    seen_after = cut(new.spans, upto=after)
    removed, added = note_changes(old, new)
    return SessionDiff(
        session=session,
        title=started.title,
        agent=started.agent,
        scope=started.scope,
        parent=started.parent,
        branched_at=started.branched_at,
        started=old is None,
        ended_before=old is not None and old.ended,
        ended_after=new.ended,
        turns_recorded=recorded,
        turns=tuple(turn_of(turn, session=session, scope=started.scope) for turn in turns),
        hidden=_turns_in(log, without((*seen_before, *recorded_since), seen_after)),
        # A new branch has no earlier view: turns of its parent do not count as shown.
        shown=() if old is None else _turns_in(log, without(cut(seen_after, upto=before), seen_before)),
        values=tuple(value_changes(old, new, then=then, now=now)),
        task_before=None if old is None or old.task is None else Task.of(old.task),
        task_after=None if new.task is None else Task.of(new.task),
        notes_removed=removed,
        notes_added=added,
        checkpoints_created=_checkpoints_of(new, not_of=old),
        checkpoints_deleted=() if old is None else _checkpoints_of(old, not_of=new),
    )


def _turns_in(log: EventLog, spans: Spans) -> tuple[Position, ...]:
    return tuple(recorded.position for recorded in reversed(last_visible(log, spans)))


def _checkpoints_of(state: SessionState, *, not_of: SessionState | None) -> tuple[Checkpoint, ...]:
    others = () if not_of is None else not_of.checkpoints
    found = (checkpoint for checkpoint in state.checkpoints.values() if checkpoint.id not in others)
    return tuple(Checkpoint.of(checkpoint) for checkpoint in sorted(found, key=attrgetter("position")))
