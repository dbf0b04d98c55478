"""What a change would do, told from a rehearsal of it."""

from __future__ import annotations

from collections.abc import Iterator

from mnemolog.commands import Restored, Switched
from mnemolog.domain.notes import notes
from mnemolog.domain.position import Micros
from mnemolog.domain.state import SessionState, Value
from mnemolog.domain.values import is_expired
from mnemolog.results import (
    PlannedEvent,
    RestorePreview,
    SwitchPreview,
    ValueChange,
    checkpoint_at,
    note_at,
    task_at,
)


def switch_preview(switched: Switched) -> SwitchPreview:
    """Return a switch that was rehearsed as it is answered with."""
    started = switched.started
    return SwitchPreview(
        left=switched.left,
        to=switched.to,
        name=started.name,
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
    """Return a restore that was rehearsed as it is answered with. Values that have expired are not there."""
    before, after = restored.before, restored.after
    notes_before, notes_after = notes(before), notes(after)
    same = next(
        (place for place, (one, two) in enumerate(zip(notes_before, notes_after, strict=False)) if one != two),
        min(len(notes_before), len(notes_after)),
    )
    return RestorePreview(
        checkpoint=checkpoint_at(restored.checkpoint),
        values=tuple(_changes(before, after, now=now)),
        task_changes=before.task != after.task,
        task_before=None if before.task is None else task_at(before.task),
        task_after=None if after.task is None else task_at(after.task),
        notes_removed=tuple(note_at(note) for note in notes_before[same:]),
        notes_added=tuple(note_at(note) for note in notes_after[same:]),
        turns_hidden=restored.hidden,
    )


def _changes(before: SessionState, after: SessionState, *, now: Micros) -> Iterator[ValueChange]:
    for key in sorted({*before.values, *after.values}):
        old, new = _there(before, key, now), _there(after, key, now)
        if old is None and new is not None:
            yield ValueChange(key=key, change="added", before=None, after=new.value)
        elif old is not None and new is None:
            yield ValueChange(key=key, change="removed", before=old.value, after=None)
        elif old is not None and new is not None and old != new:
            yield ValueChange(key=key, change="changed", before=old.value, after=new.value)


def _there(state: SessionState, key: str, now: Micros) -> Value | None:
    value = state.values.get(key)
    return None if value is None or is_expired(value, now) else value
