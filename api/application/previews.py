"""Preview changes without writing them."""

from __future__ import annotations

from mnemolog.application.commands import Restored, Switched
from mnemolog.application.state_diff import note_changes, value_changes
from mnemolog.domain.position import Micros
from mnemolog.results import Checkpoint, PlannedEvent, RestorePreview, SwitchPreview, Task


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
