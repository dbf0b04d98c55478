"""The timeline of the log: each event with its time, its session and a description in words, one line per event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from mnemolog.domain.choices import short
from mnemolog.domain.display import LINE_CHARACTERS_MAX, counted, dated, one_line, visible
from mnemolog.domain.encoding import to_json
from mnemolog.domain.errors import LogDamaged
from mnemolog.domain.events import (
    CheckpointCreated,
    CheckpointDeleted,
    CheckpointRestored,
    ContentErased,
    ContextServed,
    Event,
    FactAsserted,
    FactRetracted,
    ForeignEvent,
    ForgetCompleted,
    ForgetRequested,
    Forgotten,
    HoldLifted,
    HoldPlaced,
    LanguageChosen,
    LossAccepted,
    ModelActivated,
    NoteAdded,
    NotesCleared,
    ProposalDecided,
    ProposalMade,
    RecallJudged,
    RecallServed,
    RecordedEvent,
    RedactionChosen,
    RetentionChosen,
    SessionEnded,
    SessionResumed,
    SessionStarted,
    SessionSwitched,
    SourceDistrusted,
    SourceTrusted,
    StandingEnded,
    TaskChanged,
    TokenCreated,
    TokenRevoked,
    TurnRecorded,
    TurnsRewound,
    ValueDeleted,
    ValuesCleared,
    ValueSet,
)
from mnemolog.domain.position import Micros, Position, UtcTime, Version, to_datetime, within_calendar
from mnemolog.domain.result import Result, brief
from mnemolog.domain.session import session_of
from mnemolog.domain.switching import agent_of
from mnemolog.infra.runtime.lru_cache import LruCache
from mnemolog.projections.ports import Progress, SessionLog, ShownEvents, tell


def describe(event: Event, *, characters_max: int | None = LINE_CHARACTERS_MAX) -> str:
    """Return an event in words, on one line that is safe to print; cut to `characters_max`, or whole for None."""
    what = _session_event(event) or _memory_event(event) or _forgetting_event(event) or f"{event.topic} {_json(event)}"
    return one_line(what, characters_max=characters_max)


def signed(what: str, event: Event) -> str:
    """Return a description of an event with its actor. Descriptions never have two spaces, so no text can forge it."""
    return f"{what}  (by {visible(event.actor)})" if event.actor else what


def _session_event(event: Event) -> str | None:
    match event:
        case SessionStarted(parent=None):
            return f"session started by {event.agent} in {event.scope or '/'} ({event.reason})"
        case SessionStarted(branched_at=None):
            return f"session started by {event.agent} for {event.parent} in {event.scope or '/'} ({event.reason})"
        case SessionStarted():
            return f"session branched from {event.parent} at {event.branched_at} by {event.agent} ({event.reason})"
        case TurnRecorded():
            calls = f" [{counted(len(event.tool_calls), 'tool call')}]" if event.tool_calls else ""
            return f"{event.speaker or event.role}: {event.text}{calls}"
        case SessionEnded():
            return f"session ended ({event.reason})"
        case SessionResumed():
            return f"session resumed ({event.reason})" if event.reason else "session resumed"
        case TurnsRewound():
            return f"turns after position {event.to} hidden"
        case SessionSwitched():
            return f"switched from {event.from_ or 'no session'} to {event.to} ({event.reason})"
        case ModelActivated():
            return (
                f"model {event.model} activated ({short(event.fingerprint)}, {counted(event.dimension, 'dimension')})"
            )
        case TokenCreated():
            where = (f" in {', '.join(event.scopes)}" if event.scopes else "") + _at(", until", event.expires_at)
            return f"token {event.id} created for {event.acts_as}: {', '.join(event.verbs)}{where}"
        case TokenRevoked():
            return f"token {event.id} revoked{_at(' from', event.at)}"
        case LanguageChosen():
            return f"language of the text index: {event.language}"
        case RedactionChosen():
            return f"secrets are {'replaced' if event.on else 'no longer replaced'} before they are recorded"
        case RetentionChosen():
            most = f"at most {event.max_age} since it was {event.by}, " if event.max_age else ""
            kept = ", facts that hold stay" if event.keep_facts else ""
            return f"retention of {event.scope or '/'}: {most}at least {event.min_age or '0m'}{kept}"
        case HoldPlaced():
            return f"hold on {event.scope or '/'}: {event.reason}"
        case HoldLifted():
            return f"hold of position {event.hold} lifted: {event.reason}"
        case LossAccepted():
            head, *seen = (head[: head.find(":") + 9] for head in (event.head, *event.lost[:1]))
            lost, why = (
                " to ".join([f"what came after {head}", *seen]),
                event.reason or "a power cut, with synchronous=NORMAL",
            )
            return f"loss of {lost} accepted: {why}"
        case RecallServed():
            return f"recall of {event.query!r} answered with {counted(len(event.hits), 'hit')} as of {event.head}"
        case ContextServed():
            size = f"{counted(event.tokens, 'token')} and {counted(len(event.turns), 'turn')}"
            return f"context for {event.recall.query!r} of {size} as of {event.recall.head}"
        case RecallJudged():
            return _judgement(event)
        case _:
            return None


def _memory_event(event: Event) -> str | None:
    match event:
        case ValueSet():
            return f"value {event.key} = {_json(event.value)}{_at(', until', event.expires_at)}"
        case ValueDeleted():
            return f"value {event.key} deleted"
        case ValuesCleared():
            return "all values deleted"
        case TaskChanged():
            step = "" if event.step is None else f", step {event.step}" + (f" of {event.total}" if event.total else "")
            percent = "" if event.percent is None else f", {event.percent:g} %"
            return f"task ({event.status}{step}{percent}): {event.description}"
        case NoteAdded():
            return f"note: {event.text}"
        case NotesCleared():
            return "all notes deleted"
        case FactAsserted():
            since = _at(" since", event.valid_from)
            because = f", because of {', '.join(map(str, event.because))}" if event.because else ""
            return (
                f"fact {event.key} = {_json(event.value)}{since}{because}{f', by {event.maker}' if event.maker else ''}"
            )
        case StandingEnded():
            return f"what position {event.turn} says of all answers ended: {event.reason}"
        case FactRetracted():
            return f"fact {event.fact} retracted{f': {event.reason}' if event.reason else ''}"
        case SourceDistrusted():
            return f"{_sources(event)} distrusted: {event.reason}"
        case ProposalMade():
            why = f" ({event.why})" if event.why else ""
            return f"proposed: {_json(event.act)}{why}"
        case ProposalDecided():
            what = "approved" if event.approved else f"declined: {event.reason}"
            return f"proposal {event.proposal} {what}"
        case SourceTrusted():
            return f"distrust {event.distrust} ended{f': {event.reason}' if event.reason else ''}"
        case CheckpointCreated():
            return f"checkpoint {event.name} created ({event.id})"
        case CheckpointDeleted():
            return f"checkpoint {event.id} deleted"
        case CheckpointRestored():
            return f"checkpoint {event.id} of position {event.position} restored"
        case _:
            return None


def _forgetting_event(event: Event) -> str | None:
    match event:
        case ForeignEvent():
            return f"event of another library ({event.was}, {counted(len(event.state), 'byte')})"
        case Forgotten():
            return f"forgotten ({event.was})"
        case ForgetRequested():
            count = sum(sum(target.counts.values()) for target in event.targets)
            why = f": {event.reason}" if event.reason else ""
            what = f"{counted(count, 'event')} of {counted(len(event.targets), 'stream')}"
            return f"{what} to be forgotten ({event.id}){why}"
        case ContentErased():
            return f"content forgotten, its keys destroyed ({event.request})"
        case ForgetCompleted():
            return f"forgetting completed ({', '.join(event.requests)})"
        case _:
            return None


def _sources(event: SourceDistrusted) -> str:
    turns, sessions = (", ".join(map(str, items)) for items in (event.turns, event.sessions))
    named = {"turn": turns, "session": sessions, "actor": event.appended_by, "maker": event.maker}
    where = f" in {', '.join(event.scopes)}" if event.scopes else ""
    return ", ".join(f"{kind} {name}" for kind, name in named.items() if name) + where


def _judgement(event: RecallJudged) -> str:
    sides = (("good", event.good), ("bad", event.bad))
    said = [f"{word} {', '.join(map(str, turns))}" for word, turns in sides if turns]
    found = "; ".join([*said, *(["nothing answers it"] if event.nothing else [])])
    return f"recall {event.receipt} judged{f' by {event.by}' if event.by else ''}: {found}"


def _at(words: str, at: int | None) -> str:
    return "" if at is None else f"{words} {to_datetime(Micros(at)).isoformat()}"


def _json(value: Any) -> str:
    return to_json(value).decode()


BATCH_MAX: Final = 1_000
TITLES_KEPT_MAX: Final = 10_000
"""Sessions whose title is remembered; that of another one is read again."""
_WHO_CHARACTERS: Final = 16


class Moment(Result, frozen=True, kw_only=True):
    """One event of the timeline."""

    position: Position
    at: UtcTime
    """When it was recorded. UTC."""
    said_at: UtcTime | None = None
    """When a turn was said, if the caller gave a time. UTC."""
    stream: str
    version: Version
    topic: str
    session: str | None
    """None for what happened to an agent, or to the store as a whole."""
    who: str
    """The title of the session, or its id, or the agent, or else the stream."""
    what: str
    """What happened, in words, on one line; long texts are cut."""
    actor: str
    """The actor that appended it; empty if none was named, or if its content was forgotten."""
    key: str | None
    event: Event
    """All of it."""

    def __str__(self) -> str:
        return " ".join(self.columns())

    def columns(self) -> tuple[str, str, str, str]:
        """Return position, time, session and what happened, as columns of a line of the timeline."""
        who = one_line(self.who, characters_max=_WHO_CHARACTERS)
        what = signed(self.what, self.event)
        said_at = dated(self.said_at, seconds=True) if self.said_at is not None else ""
        at = dated(self.at, seconds=True)
        said = f"  (said {said_at})" if said_at and said_at[:-3] != at[:-3] else ""
        return f"@{self.position:<6}", at, f"{who:<{_WHO_CHARACTERS}}", what + said

    def _shown(self) -> Iterable[str]:
        return (f"@{self.position}", brief(self.who), brief(self.what))


def timeline(
    log: SessionLog,
    events: ShownEvents,
    *,
    after: Position,
    upto: Position,
    session: str | None = None,
    said_since: Micros | None = None,
    said_until: Micros | None = None,
    progress: Progress | None = None,
) -> Iterator[Moment]:
    """Yield those of `events` in `(after, upto]` in order, of one session or of all, a batch in memory at a time.

    Turns are those said at `said_since` or later and before `said_until`; what has no said time counts as said when it
    was recorded. Raises `UndecodableEvent`, naming the position.
    """
    titles: LruCache[str, str] = LruCache(TITLES_KEPT_MAX)
    for read_upto, batch in events(after=after, upto=upto, batch_max=BATCH_MAX):
        for recorded in batch:
            if isinstance(recorded.event, SessionStarted):
                titles.put(recorded.stream, recorded.event.title)
            if _is_asked(recorded, session=session, since=said_since, until=said_until):
                yield _moment(recorded, _who(log, titles, recorded))
        tell(progress, read_upto - after, upto - after)


def _is_asked(recorded: RecordedEvent, *, session: str | None, since: Micros | None, until: Micros | None) -> bool:
    event = recorded.event
    said_at = event.said_at if isinstance(event, TurnRecorded) and event.said_at is not None else recorded.recorded_at
    return (
        (session is None or session_of(recorded.stream) == session)
        and (since is None or said_at >= since)
        and (until is None or said_at < until)
    )


def _who(log: SessionLog, titles: LruCache[str, str], recorded: RecordedEvent) -> str:
    stream = recorded.stream
    title = titles.get(stream)
    if title is None:  # It began before what is shown, or long ago.
        first = log.first_event(stream) if session_of(stream) is not None else None
        title = first.event.title if first and isinstance(first.event, SessionStarted) else ""
        titles.put(stream, title)
    return title or session_of(stream) or agent_of(stream) or stream


def _moment(recorded: RecordedEvent, who: str) -> Moment:
    try:
        at = to_datetime(recorded.recorded_at)
    except OverflowError as error:
        raise LogDamaged("it was recorded at no time of the calendar", position=recorded.position) from error
    said_at = recorded.event.said_at if isinstance(recorded.event, TurnRecorded) else None
    return Moment(
        position=recorded.position,
        at=at,
        said_at=None if said_at is None else to_datetime(within_calendar(said_at)),
        stream=recorded.stream,
        version=recorded.version,
        topic=recorded.event.topic,
        session=session_of(recorded.stream),
        who=who,
        what=describe(recorded.event),
        actor=recorded.event.actor,
        key=recorded.key,
        event=recorded.event,
    )
