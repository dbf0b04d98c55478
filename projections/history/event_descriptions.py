"""Describe events in words, one line per event."""

from __future__ import annotations

from typing import Any

from mnemolog.domain.choices import short
from mnemolog.domain.display import LINE_CHARACTERS_MAX, counted, one_line, visible
from mnemolog.domain.encoding import to_json
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
from mnemolog.domain.position import Micros, to_datetime


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
            where = (f" in {', '.join(event.scopes)}" if event.scopes else "") + _moment(", until", event.expires_at)
            return f"token {event.id} created for {event.acts_as}: {', '.join(event.verbs)}{where}"
        case TokenRevoked():
            return f"token {event.id} revoked{_moment(' from', event.at)}"
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
            return f"value {event.key} = {_json(event.value)}{_moment(', until', event.expires_at)}"
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
            since = _moment(" since", event.valid_from)
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


def _moment(words: str, at: int | None) -> str:
    return "" if at is None else f"{words} {to_datetime(Micros(at)).isoformat()}"


def _json(value: Any) -> str:
    return to_json(value).decode()
