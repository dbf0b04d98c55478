"""What kinds of events are called on the pages, by topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mnemolog.domain import events, items, threads

KINDS: Final[Mapping[str, str]] = {
    events.TurnRecorded.topic: "turns said",
    events.SessionStarted.topic: "sessions started",
    events.SessionEnded.topic: "sessions ended",
    events.SessionResumed.topic: "sessions resumed",
    events.SessionSwitched.topic: "switches to another session",
    events.TurnsRewound.topic: "rewinds that hid turns",
    events.ValueSet.topic: "values set",
    events.ValueDeleted.topic: "values deleted",
    events.ValuesCleared.topic: "times all values were deleted",
    events.TaskChanged.topic: "changes of a task",
    events.NoteAdded.topic: "notes added",
    events.NotesCleared.topic: "times all notes were deleted",
    events.CheckpointCreated.topic: "checkpoints made",
    events.CheckpointDeleted.topic: "checkpoints deleted",
    events.CheckpointRestored.topic: "checkpoints restored",
    events.RecallServed.topic: "recalls with a receipt",
    events.ContextServed.topic: "contexts with a receipt",
    events.RecallJudged.topic: "judgements of a recall",
    events.ModelActivated.topic: "models activated",
    events.LanguageChosen.topic: "languages chosen",
    events.RedactionChosen.topic: "redactions switched",
    events.ForgetRequested.topic: "requests to forget",
    events.ContentErased.topic: "erasures of content",
    events.ForgetCompleted.topic: "completed requests to forget",
    events.TokenCreated.topic: "tokens made",
    events.TokenRevoked.topic: "tokens revoked",
    threads.ThreadCheckpointed.topic: "checkpoints of a graph",
    threads.ThreadWritten.topic: "writes of a graph",
    threads.ThreadPruned.topic: "times checkpoints of a graph were pruned",
    threads.ThreadDeleted.topic: "threads of a graph deleted",
    threads.ThreadCopied.topic: "threads of a graph copied",
    events.FactAsserted.topic: "facts asserted",
    events.FactRetracted.topic: "facts retracted",
    events.SourceDistrusted.topic: "sources distrusted",
    events.SourceTrusted.topic: "sources trusted again",
    items.ItemPut.topic: "items put",
    items.ItemTouched.topic: "items touched",
    items.ItemDeleted.topic: "items deleted",
}
"""In the plural, as in `3 turns said`."""


def in_words(counts: Mapping[str, int]) -> dict[str, int]:
    """Return numbers of events by the words for their topics, the largest first."""
    return {KINDS.get(topic, topic): count for topic, count in sorted(counts.items(), key=lambda item: -item[1])}
