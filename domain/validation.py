"""Validate stored events against the log before them.

The library appends only events that pass. A log that something else wrote may hold others under a valid chain of
digests: a turn of a session that was never started, a branch of what comes later. `verify` reports them, `import_log`
refuses them. Reads do not look for them: one that cannot use such an event raises `LogDamaged` at its position.

Decoding has checked each field of an event already (`mnemolog.domain.event`). Reasons hold no content: they are shown.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from mnemolog.domain.choices import LANGUAGES
from mnemolog.domain.errors import MnemologError
from mnemolog.domain.events import (
    DISTRUST_STREAM,
    CheckpointCreated,
    CheckpointRestored,
    ContentErased,
    ContextServed,
    Event,
    FactAsserted,
    FactRetracted,
    ForgetRequested,
    Forgotten,
    LanguageChosen,
    ProposalDecided,
    ProposalMade,
    RecallJudged,
    RecallServed,
    RecordedEvent,
    SessionStarted,
    SessionSwitched,
    SourceDistrusted,
    SourceTrusted,
    StandingEnded,
    TokenCreated,
    TurnRecorded,
    TurnsRewound,
    ValueSet,
)
from mnemolog.domain.facts import facts_scope
from mnemolog.domain.items import ItemPut
from mnemolog.domain.scope import parse_scope
from mnemolog.domain.session import session_of
from mnemolog.domain.switching import agent_of
from mnemolog.domain.threads import ThreadCheckpointed
from mnemolog.domain.values import JSON_DEPTH_MAX, Position, is_in_calendar

NOT_IN_CALENDAR: Final = "it was recorded outside of the years 1 to 9999"
NEVER_STARTED: Final = "its session was never started"
STARTED_AGAIN: Final = "its session was started before it"


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


def flaw_in(event: Event, *, position: int, recorded_at: int) -> str | None:
    """Return what is wrong with an event itself, whatever comes before it; None if nothing is."""
    if not is_in_calendar(recorded_at):
        return NOT_IN_CALENDAR
    named, why = _EARLIER.get(type(event), (None, None))
    if named is not None and any(at >= position for at in named(event)):
        return why
    find = _FLAWS.get(type(event))
    return None if find is None else find(event, position)


class History:
    """What the events of a log say so far, as far as validation needs it. For reading a log once, from its beginning.

    Memory grows with the number of sessions and checkpoints, not with the number of turns.
    """

    def __init__(self) -> None:
        self._starts: dict[str, Start] = {}
        self._checkpoints: dict[int, CreatedCheckpoint] = {}

    def follow(self, recorded: RecordedEvent) -> str | None:
        """Add the next event of the log. Return why it is invalid; then it adds nothing."""
        event, session = recorded.event, session_of(recorded.stream)
        why = flaw_in(event, position=recorded.position, recorded_at=recorded.recorded_at)
        why = why or self._why_misplaced(recorded, session)
        if why is None and session is not None:
            if isinstance(event, SessionStarted):
                branched_at = None if event.parent is None else event.branched_at
                self._starts[session] = Start(recorded.position, event.parent, branched_at)
            elif isinstance(event, CheckpointCreated):
                self._checkpoints[recorded.position] = CreatedCheckpoint(session, event.id)
            elif isinstance(event, Forgotten) and event.was == CheckpointCreated.topic:
                self._checkpoints[recorded.position] = CreatedCheckpoint(session, None)
        return why

    def _why_misplaced(self, recorded: RecordedEvent, session: str | None) -> str | None:
        """Return why an event without flaws does not fit the events before it; None if it fits."""
        event = recorded.event
        if isinstance(event, FactAsserted | FactRetracted) and facts_scope(recorded.stream) is None:
            return "a fact belongs into the stream of the facts of a scope"
        if isinstance(event, SourceDistrusted | SourceTrusted) and recorded.stream != DISTRUST_STREAM:
            return "it belongs into the stream of distrust"
        if session is None:
            if isinstance(event, SessionSwitched) and agent_of(recorded.stream) is not None:
                return None if event.to in self._starts else "the session entered was never started"
            return "a turn belongs into the stream of a session" if isinstance(event, TurnRecorded) else None
        if isinstance(event, SessionStarted):
            return self._why_no_start(recorded, event)
        if session not in self._starts:
            return NEVER_STARTED
        if isinstance(event, CheckpointRestored) and not self._inherits_checkpoint(session, event, recorded.position):
            return "it restores a checkpoint that its session does not have"
        return None

    def _why_no_start(self, recorded: RecordedEvent, started: SessionStarted) -> str | None:
        if recorded.version != 1:
            return STARTED_AGAIN
        if started.parent is None or started.branched_at is None:
            return None
        parent = self._starts.get(started.parent)
        if parent is None or parent.position > started.branched_at:
            return "the session it is branched from was not started then"
        return None

    def _inherits_checkpoint(self, session: str, restored: CheckpointRestored, position: int) -> bool:
        """Whether a session has a checkpoint that an event at `position` restores, of its own or of an ancestor."""
        made, upto = self._checkpoints.get(restored.position), position - 1
        if made is None or made.id not in (None, restored.id):
            return False
        owner: str | None = session
        while owner is not None and restored.position <= upto:
            if owner == made.session:
                return True
            start = self._starts[owner]
            if start.branched_at is None:
                return False
            owner, upto = start.parent, min(upto, start.branched_at)
        return False


def _turn(event: TurnRecorded, _position: int) -> str | None:
    if event.tool_calls and not _is_json(event.tool_calls):
        return "its tool calls are no JSON, or nested too deep"
    if event.metadata and not _is_json(event.metadata):
        return "its metadata are no JSON, or nested too deep"
    return None


def _start(event: SessionStarted, position: int) -> str | None:
    if event.branched_at is not None and event.branched_at >= position:
        return "it is branched at a position that does not come before it"
    return None


def _value(event: ValueSet | FactAsserted | ItemPut, _position: int) -> str | None:
    return None if _is_json(event.value) else "its value is no JSON, or nested too deep"


def _receipt(event: RecallServed, position: int) -> str | None:
    shown = (*event.hits, *event.around)
    if event.head >= position or (event.asked_for or 0) >= position or any(turn > event.head for turn in shown):
        return "it answered with or for what does not come before it"
    if len({len(event.hits), len(event.scores), *map(len, event.ranks.values())}) != 1:
        return "its hits, scores and ranks are not of one length"
    if not _is_json(event.metadata) or not _is_json(event.weights):
        return "its question has filters or weights that no recall can have"
    return None


def _context(event: ContextServed, position: int) -> str | None:
    if (why := _receipt(event.recall, position)) is not None:
        return why
    if any(shown > event.recall.head for shown in (*event.turns, *event.facts)):
        return "it shows turns that do not come before it"
    if len({len(event.turns), len(event.starts), len(event.ends)}) != 1:
        return "its turns and what is shown of them are not of one length"
    if any(start > end for start, end in zip(event.starts, event.ends, strict=True)):
        return "it shows parts of turns that end before they begin"
    return None


def _judgement(event: RecallJudged, position: int) -> str | None:
    if event.receipt >= position or any(turn >= event.receipt for turn in (*event.good, *event.bad)):
        return "it judges what does not come before it"
    return "it contradicts itself" if set(event.good) & set(event.bad) or (event.nothing and event.good) else None


def _request(event: ForgetRequested, position: int) -> str | None:
    why = next((why for target in event.targets if (why := _ranges(target.versions)) is not None), None)
    return why or _scopes(event, position)


def _ranges(versions: Iterable[tuple[int, int]]) -> str | None:
    return None if all(first <= last for first, last in versions) else "it names versions that cannot be"


def _scopes(event: SourceDistrusted | TokenCreated | ForgetRequested, _position: int) -> str | None:
    try:
        return None if all(map(parse_scope, event.scopes)) else "one of its scopes is empty"
    except MnemologError:
        return "one of its scopes is no scope"


def _is_json(value: Any, depth: int = 0) -> bool:
    """Whether a decoded value is what `mnemolog.domain.values.checked_json` accepts."""
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
_EARLIER: Final[dict[type[Event], tuple[Callable[[Any], Iterable[int]], str]]] = {
    CheckpointRestored: (lambda event: (event.position,), "it restores what does not come before it"),
    TurnsRewound: (lambda event: (event.to,), "it rewinds to what does not come before it"),
    FactAsserted: (lambda event: event.because, "it rests on what does not come before it"),
    FactRetracted: (lambda event: (event.fact,), "it takes back what does not come before it"),
    StandingEnded: (lambda event: (event.turn,), "it ends what does not come before it"),
    SourceDistrusted: (lambda event: event.turns, "it distrusts what does not come before it"),
    SourceTrusted: (lambda event: (event.distrust,), "it ends what does not come before it"),
    ProposalMade: (lambda event: event.because, "it rests on what does not come before it"),
    ProposalDecided: (
        lambda event: (event.proposal, event.done or 0),
        "it decides on what does not come before it",
    ),
    ForgetRequested: (lambda event: event.questions, "it names questions that do not come before it"),
    ThreadCheckpointed: (
        lambda event: (*event.kept.values(), *(value.base or 0 for value in event.values)),
        "it is built on what does not come before it",
    ),
}
"""The positions that an event names, which have to lie before it, and what is wrong where one does not."""
_FLAWS: Final[dict[type[Event], Callable[[Any, int], str | None]]] = {
    TurnRecorded: _turn,
    SessionStarted: _start,
    ValueSet: _value,
    LanguageChosen: lambda event, _: (
        None if event.language in LANGUAGES else f"its language is none of {', '.join(LANGUAGES)}"
    ),
    RecallServed: _receipt,
    ContextServed: _context,
    RecallJudged: _judgement,
    ForgetRequested: _request,
    ContentErased: lambda event, _: _ranges(event.versions),
    TokenCreated: _scopes,
    ItemPut: _value,
    FactAsserted: _value,
    SourceDistrusted: _scopes,
}
