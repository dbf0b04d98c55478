"""Results of `store.audit`, besides `Verification` and `Replay`."""

from __future__ import annotations

from typing import Annotated

from mnemolog.domain.choices import Activation
from mnemolog.domain.event import TO_EVENT, TO_SESSION
from mnemolog.domain.events import Event
from mnemolog.domain.head import Head
from mnemolog.domain.position import Position, UtcTime
from mnemolog.domain.result import Result
from mnemolog.projections.read_models import FactChange, Switch, Turn
from mnemolog.results import Checkpoint, Note, Task, ValueChange


class StoredEvent(Result, frozen=True, kw_only=True):
    """One event of the log: its stored columns, whether its digest is valid, and its decoded content."""

    position: Position
    stream: str
    version: int
    topic: str
    key: str | None
    """Its idempotency key."""
    recorded_at: int
    """Microseconds since the Unix epoch, as stored."""
    at: UtcTime | None
    """The same as a time in UTC; None if it is out of range."""
    state: bytes
    """The stored bytes of the event itself; base64 in JSON."""
    digest: str
    """Hexadecimal, as stored."""
    previous_digest: str | None
    """The digest at the position before; None if there is no event."""
    link_holds: bool
    """Whether the digest matches these columns and the previous digest."""
    event: Event | None
    """The decoded event."""
    unreadable: str | None
    """Why it cannot be decoded; None if it can."""


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


class LogExport(Result, frozen=True, kw_only=True):
    """The result of an export."""

    log_id: str
    after: Position
    """The export holds the events after this position."""
    events: int
    head: Head
    """The last exported position, and the digest to check the export with."""
    bytes: int


class LogImport(Result, frozen=True, kw_only=True):
    """The result of importing an exported log."""

    log_id: str
    events: int
    needs_keys: bool
    """Whether its content is encrypted and `keys.db` is missing: put the log's own beside `log.db`."""
    head: Head
