"""What the log held, from the log alone: the store at any position (`replay`), and each event in words (`timeline`)."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any, Final

from mnemolog.domain.choices import short
from mnemolog.domain.display import LINE_CHARACTERS_MAX, counted, dated, named, one_line, visible
from mnemolog.domain.encoding import to_json
from mnemolog.domain.errors import LogDamaged, UndecodableEvent
from mnemolog.domain.event import READ, TO_SESSION
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
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.result import Result, brief
from mnemolog.domain.session import session_of
from mnemolog.domain.switching import agent_of
from mnemolog.domain.validation import NEVER_STARTED
from mnemolog.domain.values import ORIGIN, Micros, Position, UtcTime, Version, to_datetime, within_calendar
from mnemolog.infra.runtime.lru_cache import LruCache
from mnemolog.projections.ports import Log, Progress, SessionLog, ShownEvents, tell
from mnemolog.projections.read_models import Turn, turn_of


class SessionReplay(Result, frozen=True, kw_only=True):
    """A session as of the position: its own turns, not those it shares with its parent."""

    session: str
    title: str
    agent: str
    scope: str
    parent: Annotated[str, TO_SESSION] | None
    branched_at: Position | None
    reason: str
    """Why it was started."""
    started_at: UtcTime
    started_position: Position
    ended_at: UtcTime | None
    turns: tuple[Turn, ...]
    forgotten: tuple[Position, ...] = ()
    """Where turns were whose content is forgotten."""

    def __str__(self) -> str:
        branched = f", {descent(self.parent, self.branched_at)}" if self.parent else ""
        ended = f", ended {dated(self.ended_at)}" if self.ended_at else ""
        forgotten = f", {len(self.forgotten):,} forgotten" if self.forgotten else ""
        turns = counted(len(self.turns), "turn")
        return f"{named(self.session, self.title)} in {self.scope or '/'}{branched}{ended}, {turns}{forgotten}"

    def _shown(self) -> Iterable[str]:
        return (brief(self.session), counted(len(self.turns), "turn"), f"scope={brief(self.scope)}")


class Replay(Result, frozen=True, kw_only=True):
    """The store as it was at `position`, and the digest that pins exactly this history.

    Printed, it is a heading, a line for each session, and the digest.
    """

    position: Position
    digest: str
    events: int
    sessions: Annotated[tuple[SessionReplay, ...], READ]

    def __str__(self) -> str:
        return "\n".join(self.held())

    def held(self) -> list[str]:
        """Return what was held at the position in words: a heading, a line for each session, the position's digest."""
        events = counted(self.events, "event")
        return [
            f"held at position {self.position}:{'' if self.position else ' nothing, it is before the first event'}",
            *(f"  {item}" for item in self.sessions),
            f"{events} up to position {self.position}, digest {self.digest}",
        ]

    def _shown(self) -> Iterable[str]:
        turns = sum(len(item.turns) for item in self.sessions)
        return (f"@{self.position}", *(counted(*of) for of in ((len(self.sessions), "session"), (turns, "turn"))))


class _Session:
    def __init__(self, recorded: RecordedEvent, started: SessionStarted) -> None:
        self.id = str(session_of(recorded.stream))
        self.recorded, self.started = recorded, started
        self.ended_at: datetime | None = None
        self.turns: list[Turn] = []
        self.forgotten: list[Position] = []


def replay(
    log: Log,
    shown: ShownEvents,
    *,
    to: Position,
    session: str | None = None,
    progress: Progress | None = None,
) -> Replay:
    """Fold every event up to `to` (included), of one session or of all those that are `shown`.

    The state is that at the last event at or before `to`, and `Replay.position` is where that is.
    """
    sessions: dict[str, _Session] = {}
    position, count = ORIGIN, 0
    for position, batch in shown(after=ORIGIN, upto=to, batch_max=BATCH_MAX):
        for recorded in batch:
            if session is None or session_of(recorded.stream) == session:
                _apply(sessions, recorded)
                count += 1
        tell(progress, position, to)
    digest = log.digest_at(position) or b""
    return Replay(
        position=position,
        digest=digest.hex(),
        events=count,
        sessions=tuple(
            SessionReplay(
                session=found.id,
                title=found.started.title,
                agent=found.started.agent,
                scope=found.started.scope,
                parent=found.started.parent,
                branched_at=None if found.started.branched_at is None else Position(found.started.branched_at),
                reason=found.started.reason,
                started_at=to_datetime(found.recorded.recorded_at),
                started_position=found.recorded.position,
                ended_at=found.ended_at,
                turns=tuple(found.turns),
                forgotten=tuple(found.forgotten),
            )
            for found in sessions.values()
        ),
    )


def descent(parent: str | None, branched_at: int | None) -> str:
    """Return how a session descends from its parent, in words."""
    return f"for {parent}" if branched_at is None else f"branched at {branched_at} of {parent}"


def _apply(sessions: dict[str, _Session], recorded: RecordedEvent) -> None:
    match recorded.event:
        case SessionStarted() as started:
            sessions[recorded.stream] = _Session(recorded, started)
        case TurnRecorded():
            known = _started(sessions, recorded)
            known.turns.append(turn_of(recorded, session=known.id, scope=known.started.scope))
        case Forgotten() if was_turn(recorded.event):
            _started(sessions, recorded).forgotten.append(recorded.position)
        case SessionEnded():
            _started(sessions, recorded).ended_at = to_datetime(recorded.recorded_at)
        case SessionResumed():
            _started(sessions, recorded).ended_at = None


def _started(sessions: dict[str, _Session], recorded: RecordedEvent) -> _Session:
    """Return the session of an event. Raises `UndecodableEvent` if it was never started."""
    if (session := sessions.get(recorded.stream)) is None:
        raise UndecodableEvent(position=recorded.position, topic=recorded.event.topic, why=NEVER_STARTED)
    return session


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
