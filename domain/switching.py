"""Switch an agent between sessions: one decision, appended to all affected streams or to none.

`from` is the session that is left and `to` the one that is entered. The events below are appended first to `to`, then
to `from`; the last one is always `session.switched` in the agent's stream.

| reason   | from             | to                | events of sessions                                            |
| -------- | ---------------- | ----------------- | ------------------------------------------------------------- |
| new      | none, or known   | new               | `to` started; `from` stays as it is                           |
| reset    | known            | new               | `to` started; `from` ended, unless it has                     |
| resume   | none, or known   | known             | `to` resumed, if it had ended                                 |
| resume   | itself           | `from`            | `to` resumed, if it had ended                                 |
| branch   | known            | new               | `to` started at position `at` of `from`, by default the head  |
| compress | itself, not ended | `from`           | none                                                          |
| compress | known            | new               | `to` started at the head of `from`; `from` ended, unless it has |
| rewind   | itself, not ended | `from`           | turns of `to` rewound to `at`, where any is after it          |
| rewind   | known            | new               | `to` started at position `at` of `from`; `from` stays as it is |

| refused                                                          | error                              |
| ---------------------------------------------------------------- | ---------------------------------- |
| `from` or, to resume it, `to` was never started                  | UnknownSession                     |
| `to` must be new and exists                                      | SessionExists                      |
| new, reset or branch with `to` = `from`                          | SwitchRefused                      |
| reset, branch, compress or rewind without a `from`               | SwitchRefused                      |
| rewind without `at`; `at` with new, reset, resume or compress    | SwitchRefused                      |
| compress or rewind in place of an ended session                  | SessionAlreadyEnded                |
| `at` after the head                                              | InvalidInput                       |
| `at` before `from` was started                                   | OutsideSession                     |
| `at` hidden from the session, rewinding in place                 | OutsideSession                     |

A retry writes nothing if the agent's last switch was between the same sessions for the same reason, and `to` was
started in the same way. The ancestors of a session are always older than it, so lineage has no cycles.
"""

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from mnemolog.domain import session
from mnemolog.domain.errors import InvalidInput, OutsideSession, SessionExists, SwitchRefused
from mnemolog.domain.event import named_streams
from mnemolog.domain.events import Event, RecordedEvent, SessionEnded, SessionStarted, SessionSwitched
from mnemolog.domain.request import without_actor
from mnemolog.domain.session import SessionState
from mnemolog.domain.values import Position, checked_position

agent_stream, agent_of = named_streams("agent/")
"""The stream that holds the switches of an agent, and the agent whose stream it is."""


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that has switched at least once."""

    last: SessionSwitched
    generation: int
    """How many switches there were."""
    touched: Map[str, Position]
    """The position of the last switch that left or entered a session, by its id.

    It marks requests made before a switch, so that a late answer cannot reach another session.
    """

    @property
    def current(self) -> str:
        """The session it is in."""
        return self.last.to


def evolve_agent(state: AgentState | None, recorded: RecordedEvent, _past: object = None) -> AgentState | None:
    """Return the state after an event; None before the first switch. Events of other kinds change nothing."""
    event = recorded.event
    if not isinstance(event, SessionSwitched):
        return state
    touched: Map[str, Position] = Map() if state is None else state.touched
    for entered_or_left in {event.from_ or event.to, event.to}:
        touched = touched.set(entered_or_left, recorded.position)
    return AgentState(last=event, generation=1 if state is None else state.generation + 1, touched=touched)


class SwitchReason(StrEnum):
    """Why an agent leaves a session for another."""

    NEW = "new"
    RESET = "reset"
    RESUME = "resume"
    BRANCH = "branch"
    COMPRESS = "compress"
    REWIND = "rewind"


SWITCH_REASONS: Final = {reason.value: reason for reason in SwitchReason}

_TO_MUST_BE_NEW: Final = {SwitchReason.NEW, SwitchReason.RESET, SwitchReason.BRANCH}
_WITHOUT_FROM: Final = {SwitchReason.NEW, SwitchReason.RESUME}
_ENDS_FROM: Final = {SwitchReason.RESET, SwitchReason.COMPRESS}
INHERITING: Final = frozenset({SwitchReason.BRANCH, SwitchReason.COMPRESS, SwitchReason.REWIND})
"""A session started for one of these reasons continues the session that is left."""


class SwitchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to switch."""

    agent: str
    reason: SwitchReason
    from_: str | None
    to: str
    at: int | None = None
    """Where to branch or rewind: the log position of the last event that `to` will see."""
    title: str | None = None
    """The title of a session that is started; by default that of `from`, if that is in the same scope."""
    scope: str | None = None
    """The scope of a session that is started; by default that of `from`, or else the root."""


class Addressed(NamedTuple):
    """An event and the stream that it goes to."""

    stream: str
    event: Event


def parse_switch_reason(value: str) -> SwitchReason:
    """Return the reason called `value`. Raises `InvalidInput` for any other word."""
    reason = SWITCH_REASONS.get(value)
    if reason is None:
        raise InvalidInput("reason", f"{value!r} is none of {', '.join(SWITCH_REASONS)}")
    return reason


def left_by(agent: AgentState | None, *, reason: SwitchReason, to: str) -> str | None:
    """Return the session that a switch leaves where the caller names none: the one that the agent is in.

    If the agent came to `to` by just such a switch, that is the session it left then: a retry must not
    look like a switch from `to` to itself.
    """
    if agent is None:
        return None
    if reason in _TO_MUST_BE_NEW and (agent.last.to, agent.last.reason) == (to, reason.value):
        return agent.last.from_
    return agent.current


def switch(
    asked: SwitchRequest,
    *,
    agent: AgentState | None,
    old: SessionState | None,
    new: SessionState | None,
    head: Position,
    old_head: Position,
) -> list[Addressed]:
    """Decide to switch: the events in the order in which they are to be appended; none for a retry.

    `old` and `new` are the states of `from` and `to`, None where they were never started; `head` is the
    position of the last event of the log, `old_head` that of the last one in the stream of `from`.
    Raises as in the table above, and `InvalidInput` for invalid ids, titles or scopes.
    """
    session.checked_session_id(asked.to)
    _check_combination(asked)
    if asked.from_ is not None:
        old = session.known(asked.from_, old)
    if asked.to == asked.from_:
        changes = _in_place(asked, old, head=old_head)
    elif asked.reason is SwitchReason.RESUME:
        changes = [Addressed(session.session_stream(asked.to), event) for event in session.resume(asked.to, new)]
    else:
        started = _started(asked, old, new, head=head)
        if new is not None:
            if (
                without_actor(new.started) == started
                and agent is not None
                and without_actor(agent.last) == _switched(asked)
            ):
                return []
            raise SessionExists(asked.to)
        changes = [Addressed(session.session_stream(asked.to), started)]
        if asked.reason in _ENDS_FROM and old is not None and not old.ended:
            ended = SessionEnded(reason=asked.reason.value)
            changes.append(Addressed(session.session_stream(old.session), ended))
    return [*changes, Addressed(agent_stream(asked.agent), _switched(asked))]


def branch(
    asked: SwitchRequest, *, old: SessionState | None, new: SessionState | None, head: Position
) -> list[Addressed]:
    """Decide to start `to` as a branch of `from`, where the agent stays. A retry writes nothing.

    Raises as `switch` with the reason `branch` does.
    """
    session.checked_session_id(asked.to)
    _check_combination(asked)
    started = _started(asked, session.known(asked.from_ or "", old), new, head=head)
    if new is not None:
        if without_actor(new.started) == started:
            return []
        raise SessionExists(asked.to)
    return [Addressed(session.session_stream(asked.to), started)]


def _check_combination(asked: SwitchRequest) -> None:
    reason = asked.reason
    if asked.from_ is None and reason not in _WITHOUT_FROM:
        raise SwitchRefused(reason.value, "the agent is in no session; use 'new' or 'resume', or name the one to leave")
    if asked.to == asked.from_ and reason in _TO_MUST_BE_NEW:
        raise SwitchRefused(
            reason.value,
            f"{asked.to!r} is the session to leave; choose a new id, or use 'resume', 'compress' or 'rewind'",
        )
    if reason is SwitchReason.REWIND and asked.at is None:
        raise SwitchRefused(reason.value, "pass the position as `at`")
    if asked.at is not None and reason not in (SwitchReason.BRANCH, SwitchReason.REWIND):
        raise SwitchRefused(reason.value, "leave out `at`, or use 'branch' or 'rewind'")


def _in_place(asked: SwitchRequest, state: SessionState | None, *, head: Position) -> list[Addressed]:
    match asked.reason:
        case SwitchReason.RESUME:
            events = session.resume(asked.to, state)
        case SwitchReason.REWIND:
            events = session.rewind(asked.to, state, to=asked.at or 0, head=head)
        case _:
            session.opened(asked.to, state)
            events = []
    return [Addressed(session.session_stream(asked.to), event) for event in events]


def _started(
    asked: SwitchRequest, old: SessionState | None, new: SessionState | None, *, head: Position
) -> SessionStarted:
    """Return the start of `to`. Without `at`, a retry uses the position of the first attempt."""
    scope = asked.scope if asked.scope is not None else "" if old is None else old.started.scope
    title = asked.title
    if title is None:  # That of another scope is not for those who read this one.
        title = "" if old is None or old.started.scope != scope else old.started.title
    started = session.new_session(title=title, agent=asked.agent, scope=scope)
    if old is None or asked.reason not in INHERITING:
        return msgspec.structs.replace(started, reason=asked.reason.value)
    if asked.at is not None:
        at = checked_position("at", asked.at, head=head)
        if not old.started_position <= at <= head:
            raise OutsideSession(old.session, position=at, first=old.started_position, last=head)
    else:
        tried = None if new is None else new.started.branched_at
        at = head if tried is None else Position(tried)
    return msgspec.structs.replace(started, reason=asked.reason.value, parent=old.session, branched_at=at)


def _switched(asked: SwitchRequest) -> SessionSwitched:
    return SessionSwitched(from_=asked.from_, to=asked.to, reason=asked.reason.value)
