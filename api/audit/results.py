"""What an audit of a store answers with, beside `Verification` and `Replay`."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mnemolog.domain.events import Event
from mnemolog.domain.head import Head
from mnemolog.domain.model import Activation
from mnemolog.domain.position import Position
from mnemolog.projections.read_models import Switch, Turn
from mnemolog.results import Checkpoint, Note, Task, ValueChange


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the log: every column as it is stored, its link, and what it says."""

    position: Position
    stream: str
    version: int
    topic: str
    key: str | None
    """Its idempotency key."""
    recorded_at: int
    """Microseconds since the Unix epoch, as stored."""
    at: datetime | None
    """The same as a moment in UTC; None where that is no time of the calendar."""
    state: bytes
    """The stored bytes of the event itself; base64 in JSON."""
    digest: str
    """Hexadecimal, as stored."""
    previous_digest: str | None
    """That of the position before; None where no event is there."""
    link_holds: bool
    """Whether the digest follows from these columns and the digest before."""
    event: Event | None
    """What was recorded, decoded."""
    unreadable: str | None
    """Why it cannot be decoded; None where it can."""


class SessionDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What changed of a session between two positions."""

    session: str
    name: str
    agent: str
    scope: str
    parent: str | None
    branched_at: int | None
    started: bool
    """Whether it was started in between. A branch then begins with the memory of its parent."""
    ended_before: bool
    ended_after: bool
    turns_recorded: int
    turns: tuple[Turn, ...]
    """The recorded ones, hidden since or not; no more than were asked for, see `Diff.turns_left_out`."""
    hidden: tuple[Position, ...]
    """Turns that it saw, or recorded in between, and does not see any more."""
    shown: tuple[Position, ...]
    """Turns from before that it did not see then, and does now."""
    values: tuple[ValueChange, ...]
    """Expired ones are not there."""
    task_before: Task | None
    task_after: Task | None
    notes_removed: tuple[Note, ...]
    notes_added: tuple[Note, ...]
    checkpoints_created: tuple[Checkpoint, ...]
    checkpoints_deleted: tuple[Checkpoint, ...]


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """What changed in a store between two positions."""

    before: Head
    after: Head
    before_at: datetime
    """When the last event up to `before` was recorded. What has expired by then is not there."""
    after_at: datetime
    topics: dict[str, int]
    """How many events of each kind were recorded in between."""
    sessions: tuple[SessionDiff, ...]
    """Those to which something happened, in the order in which it first did."""
    switches: tuple[Switch, ...]
    activations: tuple[Activation, ...]
    """Models that were activated."""
    turns_left_out: int
    """Recorded turns that are counted and not listed."""


class LogExport(msgspec.Struct, frozen=True, kw_only=True):
    """What was exported."""

    log_id: str
    after: Position
    """The export holds the events behind this position."""
    events: int
    head: Head
    """The last of them, and the digest by which to check the export."""
    bytes: int


class LogImport(msgspec.Struct, frozen=True, kw_only=True):
    """What an import of an exported log did."""

    log_id: str
    created: bool
    """Whether the store was made for it; else it had a part of this log already."""
    events: int
    """Events that were appended."""
    already_there: int
    needs_keys: bool
    """Whether its content is encrypted and no `keys.db` is there: put the log's own beside `log.db`."""
    head: Head
