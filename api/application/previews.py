"""Preview changes without writing them, and compare two states of a session. None is one that is not started."""

from __future__ import annotations

from collections.abc import Iterator

from mnemolog.application.commands import Restored, Switched
from mnemolog.domain.position import Micros
from mnemolog.domain.session import SessionState, Value
from mnemolog.domain.working_memory import is_expired, notes
from mnemolog.results import Checkpoint, Note, PlannedEvent, RestorePreview, SwitchPreview, Task, ValueChange


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
    before: SessionState | None, after: SessionState | None, *, then: Micros, now: Micros
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


def note_changes(before: SessionState | None, after: SessionState | None) -> tuple[tuple[Note, ...], tuple[Note, ...]]:
    """Return the notes removed and the notes added: all from the first that differs."""
    old, new = [] if before is None else notes(before), [] if after is None else notes(after)
    same = next(
        (place for place, (one, two) in enumerate(zip(old, new, strict=False)) if one != two),
        min(len(old), len(new)),
    )
    return tuple(map(Note.of, old[same:])), tuple(map(Note.of, new[same:]))


def _keys(state: SessionState | None) -> Iterator[str]:
    return iter(() if state is None else state.values)


def _there(state: SessionState | None, key: str, now: Micros) -> Value | None:
    value = None if state is None else state.values.get(key)
    return None if value is None or is_expired(value, now) else value
