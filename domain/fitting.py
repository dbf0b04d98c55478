"""Which events fit: what a reader can apply to the log as it is before them.

The library appends only events that fit. A log that something else wrote may hold others under a valid chain of
digests: a turn of a session that was never started, a time outside of the calendar. They stay in the log, and every
reader gets an `UnfitEvent` in their place, which changes nothing. `verify` reports them, `import_log` refuses them.

Reasons are shown and stored beside projections, so they hold no content.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from mnemolog.domain.agent import agent_of
from mnemolog.domain.clock import is_in_calendar
from mnemolog.domain.embedding_model import FINGERPRINT_DIGITS
from mnemolog.domain.errors import MnemologError
from mnemolog.domain.events import (
    CheckpointCreated,
    CheckpointRestored,
    ContentErased,
    ContextServed,
    Event,
    ForgetRequested,
    Forgotten,
    LanguageChosen,
    ModelActivated,
    RecallJudged,
    RecallServed,
    RecordedEvent,
    SessionStarted,
    SessionSwitched,
    TaskChanged,
    TokenCreated,
    TurnRecorded,
    TurnsRewound,
    UnfitEvent,
    ValueSet,
)
from mnemolog.domain.item_events import ItemPut, ItemTouched
from mnemolog.domain.language import LANGUAGES
from mnemolog.domain.limits import INTEGER_MAX, JSON_DEPTH_MAX
from mnemolog.domain.position import Position
from mnemolog.domain.role import ROLES
from mnemolog.domain.scope import parse_scope
from mnemolog.domain.session import session_of
from mnemolog.domain.thread_events import ThreadCheckpointed, ThreadWritten

DIGEST_BYTES: Final = 32
SERIES_MAX: Final = 255
"""The largest series of keys: it is stored in one byte."""


class Start(NamedTuple):
    """The start of a session, as far as lineage needs it."""

    position: Position
    parent: str | None = None
    branched_at: int | None = None
    """None also for a session that inherits nothing from its parent."""


class CreatedCheckpoint(NamedTuple):
    """A checkpoint of the log."""

    session: str
    id: str | None
    """None where it cannot be read: it is forgotten, or encrypted."""


class Before(Protocol):
    """What the log says before an event."""

    def start_of(self, session: str) -> Start | None:
        """Return the start of a session, None if it was not started."""
        ...

    def checkpoint_at(self, position: int) -> CreatedCheckpoint | None:
        """Return the checkpoint that the event at a position created, None if it created none."""
        ...


def flaw_in(event: Event, *, position: int, recorded_at: int) -> str | None:
    """Return what is wrong with an event itself, whatever comes before it; None if nothing is."""
    if not is_in_calendar(recorded_at):
        return "it was recorded at no time of the calendar"
    find = _FLAWS.get(type(event))
    return None if find is None else find(event, position)


def why_unfit(recorded: RecordedEvent, before: Before) -> str | None:
    """Return why an event without flaws does not fit what the log says before it; None if it fits."""
    session, event = session_of(recorded.stream), recorded.event
    if isinstance(event, UnfitEvent):
        return event.why
    if session is None:
        if isinstance(event, SessionSwitched) and agent_of(recorded.stream) is not None:
            return None if _is_started(event.to, recorded.position, before) else "the session entered was never started"
        return "a turn belongs into the stream of a session" if isinstance(event, TurnRecorded) else None
    if isinstance(event, SessionStarted):
        return _why_no_start(recorded, event, before)
    if not _is_started(session, recorded.position, before):
        return "its session was never started"
    if isinstance(event, CheckpointRestored) and not _inherits_checkpoint(session, event, recorded.position, before):
        return "it restores a checkpoint that its session does not have"
    return None


def start_in(recorded: RecordedEvent) -> Start | None:
    """Return the start that an event is, None for an event of another kind. It must fit."""
    event = recorded.event
    if not isinstance(event, SessionStarted):
        return None
    return Start(recorded.position, event.parent, None if event.parent is None else event.branched_at)


def _is_started(session: str, position: int, before: Before) -> bool:
    start = before.start_of(session)
    return start is not None and start.position < position


def _why_no_start(recorded: RecordedEvent, started: SessionStarted, before: Before) -> str | None:
    if recorded.version != 1:
        return "a session is started once, by its first event"
    if started.parent is None or started.branched_at is None:
        return None
    parent = before.start_of(started.parent)
    if parent is None or parent.position > started.branched_at:
        return "the session it is branched from was not started then"
    return None


def _inherits_checkpoint(session: str, restored: CheckpointRestored, position: int, before: Before) -> bool:
    """Whether a session has a checkpoint that an event at `position` restores, of its own or of an ancestor."""
    made, upto = before.checkpoint_at(restored.position), position - 1
    if made is None or made.id not in (None, restored.id):
        return False
    owner: str | None = session
    while owner is not None and restored.position <= upto:
        if owner == made.session:
            return True
        start = before.start_of(owner)
        if start is None or start.branched_at is None:
            return False
        owner, upto = start.parent, min(upto, start.branched_at)
    return False


class History:
    """What the events of a log say so far, as far as fitting needs it. For reading a log once, from its beginning.

    Memory grows with the number of sessions and checkpoints, not with the number of turns.
    """

    def __init__(self) -> None:
        self._starts: dict[str, Start] = {}
        self._checkpoints: dict[int, CreatedCheckpoint] = {}

    def start_of(self, session: str) -> Start | None:
        """Return the start of a session, None if it was not started."""
        return self._starts.get(session)

    def checkpoint_at(self, position: int) -> CreatedCheckpoint | None:
        """Return the checkpoint that the event at a position created, None if it created none."""
        return self._checkpoints.get(position)

    def follow(self, recorded: RecordedEvent) -> str | None:
        """Add the next event of the log. Return why it does not fit; then it adds nothing."""
        event = recorded.event
        why = flaw_in(event, position=recorded.position, recorded_at=recorded.recorded_at)
        why = why or why_unfit(recorded, self)
        if why is None:
            session = session_of(recorded.stream)
            if session is not None and (start := start_in(recorded)) is not None:
                self._starts[session] = start
            elif (checkpoint := checkpoint_in(recorded)) is not None:
                self._checkpoints[recorded.position] = checkpoint
        return why


def checkpoint_in(recorded: RecordedEvent) -> CreatedCheckpoint | None:
    """Return the checkpoint that an event created, None for an event of another kind."""
    session, event = session_of(recorded.stream), recorded.event
    if session is None:
        return None
    if isinstance(event, CheckpointCreated):
        return CreatedCheckpoint(session, event.id)
    if isinstance(event, Forgotten) and event.was == CheckpointCreated.topic:
        return CreatedCheckpoint(session, None)
    return None


def _turn(event: TurnRecorded, _position: int) -> str | None:
    if event.role not in ROLES:
        return f"its role is none of {', '.join(ROLES)}"
    if event.said_at is not None and not is_in_calendar(event.said_at):
        return "it was said at no time of the calendar"
    if event.tool_calls and not _is_json(event.tool_calls):
        return "its tool calls are no JSON, or nested too deep"
    if event.metadata and not _is_json(event.metadata):
        return "its metadata are no JSON, or nested too deep"
    return None


def _start(event: SessionStarted, position: int) -> str | None:
    if event.branched_at is not None and not 0 < event.branched_at < position:
        return "it is branched at a position that does not come before it"
    return None


def _value(event: ValueSet, _position: int) -> str | None:
    if not _is_json(event.value):
        return "its value is no JSON, or nested too deep"
    return _expiry(event.expires_at)


def _expiry(expires_at: int | None) -> str | None:
    return None if expires_at is None or is_in_calendar(expires_at) else "it expires at no time of the calendar"


def _task(event: TaskChanged, _position: int) -> str | None:
    counts = (event.step or 0, event.total or 0)
    fit = all(0 <= count <= INTEGER_MAX for count in counts) and 0 <= (event.percent or 0) <= 100
    return None if fit else "its progress is none that a task can have"


def _restore(event: CheckpointRestored, position: int) -> str | None:
    return None if 0 < event.position < position else "it restores what does not come before it"


def _rewind(event: TurnsRewound, position: int) -> str | None:
    return None if 0 <= event.to < position else "it rewinds to what does not come before it"


def _activation(event: ModelActivated, _position: int) -> str | None:
    digits = event.fingerprint
    if len(digits) != FINGERPRINT_DIGITS or not set(digits) <= _HEXADECIMAL:
        return f"its fingerprint is not {FINGERPRINT_DIGITS} hexadecimal digits"
    counts = event.dimension, event.retain_every_n_turns
    return None if all(0 < count <= INTEGER_MAX for count in counts) else "its dimension is no size of a vector"


def _language(event: LanguageChosen, _position: int) -> str | None:
    return None if event.language in LANGUAGES else f"its language is none of {', '.join(LANGUAGES)}"


def _receipt(event: RecallServed, position: int) -> str | None:
    if not 0 <= event.head < position or not all(0 < hit <= event.head for hit in event.hits):
        return "it answered with what does not come before it"
    lengths = {len(event.hits), len(event.scores), *map(len, event.ranks.values())}
    if len(lengths) != 1:
        return "its hits, scores and ranks are not of one length"
    numbers = event.k, event.passed_over, event.candidates, event.vectors_to or 0, event.retain_every_n_turns
    times = [moment for moment in (event.since, event.until) if moment is not None]
    if not all(0 <= number <= INTEGER_MAX for number in numbers) or not all(map(is_in_calendar, times)):
        return "its question has numbers or times that no recall can have"
    if event.min_relevance is not None and not 0 <= event.min_relevance <= 1:
        return "its question has a min_relevance that is not between 0 and 1"
    if not set(event.roles) <= ROLES.keys() or not _is_json(event.metadata) or not _is_json(event.weights):
        return "its question has filters or weights that no recall can have"
    return None


def _context(event: ContextServed, position: int) -> str | None:
    if (why := _receipt(event.recall, position)) is not None:
        return why
    if not all(0 < turn <= event.recall.head for turn in event.turns):
        return "it shows turns that do not come before it"
    if len({len(event.turns), len(event.starts), len(event.ends)}) != 1:
        return "its turns and what is shown of them are not of one length"
    if not all(0 <= start <= end <= INTEGER_MAX for start, end in zip(event.starts, event.ends, strict=True)):
        return "it shows parts of turns that cannot be"
    numbers = event.budget, event.tokens, event.notes
    if not all(0 <= number <= INTEGER_MAX for number in numbers) or not 0 <= event.min_relevance <= 1:
        return "it has numbers that no context can have"
    return None if is_in_calendar(event.moment) else "it was built at no time"


def _judgement(event: RecallJudged, position: int) -> str | None:
    if not 0 < event.receipt < position or not all(0 < turn < event.receipt for turn in (*event.good, *event.bad)):
        return "it judges what does not come before it"
    if set(event.good) & set(event.bad) or (event.nothing and event.good):
        return "it contradicts itself"
    return None


def _request(event: ForgetRequested, _position: int) -> str | None:
    for target in event.targets:
        if (why := _ranges(target.versions)) is not None:
            return why
        if not 0 <= target.series <= SERIES_MAX or not all(0 <= n <= INTEGER_MAX for n in target.counts.values()):
            return "it names keys that cannot be"
    return None


def _erased(event: ContentErased, _position: int) -> str | None:
    return _ranges(event.versions)


def _ranges(versions: Iterable[tuple[int, int]]) -> str | None:
    fit = all(0 < first <= last <= INTEGER_MAX for first, last in versions)
    return None if fit else "it names versions that cannot be"


def _token(event: TokenCreated, _position: int) -> str | None:
    if len(event.digest) != DIGEST_BYTES:
        return f"its digest is not {DIGEST_BYTES} bytes long"
    try:
        if not all(map(parse_scope, event.scopes)):
            return "one of its scopes is empty"
    except MnemologError:
        return "one of its scopes is no scope"
    return _expiry(event.expires_at)


def _thread(event: ThreadCheckpointed, position: int) -> str | None:
    bases = (value.base for value in event.values if value.base is not None)
    if not all(0 < at < position for at in (*event.kept.values(), *bases)):
        return "it is built on what does not come before it"
    if not all(0 <= value.number <= INTEGER_MAX for value in event.values):
        return "it numbers a value as no value can be"
    return None


def _writes(event: ThreadWritten, _position: int) -> str | None:
    return None if all(abs(write.place) <= INTEGER_MAX for write in event.writes) else "it writes to no place"


def _item(event: ItemPut, _position: int) -> str | None:
    if not _is_json(event.value):
        return "its value is no JSON, or nested too deep"
    if event.ttl_s is not None and not (math.isfinite(event.ttl_s) and event.ttl_s >= 0):
        return "it lives for no time"
    return _expiry(event.expires_at)


def _touch(event: ItemTouched, _position: int) -> str | None:
    return _expiry(event.expires_at)


def _is_json(value: Any, depth: int = 0) -> bool:
    """Whether a decoded value is what `mnemolog.domain.limits.checked_json` accepts."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is float:
        return math.isfinite(value)
    if depth > JSON_DEPTH_MAX or kind not in (list, dict):
        return False
    if kind is dict:
        if not all(type(name) is str for name in value):
            return False
        value = value.values()
    return all(type(item) in _SCALARS or _is_json(item, depth + 1) for item in value)


_SCALARS: Final = frozenset((str, int, bool, type(None)))
_HEXADECIMAL: Final = frozenset("0123456789abcdef")
_FLAWS: Final[dict[type[Event], Callable[[Any, int], str | None]]] = {
    TurnRecorded: _turn,
    SessionStarted: _start,
    ValueSet: _value,
    TaskChanged: _task,
    CheckpointRestored: _restore,
    TurnsRewound: _rewind,
    ModelActivated: _activation,
    LanguageChosen: _language,
    RecallServed: _receipt,
    ContextServed: _context,
    RecallJudged: _judgement,
    ForgetRequested: _request,
    ContentErased: _erased,
    TokenCreated: _token,
    ThreadCheckpointed: _thread,
    ThreadWritten: _writes,
    ItemPut: _item,
    ItemTouched: _touch,
}
