"""Result types of the views: the same in the library, in JSON and on the command line."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec

from mnemolog.domain.display import counted
from mnemolog.domain.event import TO_EVENT, TO_SESSION, ShownAt
from mnemolog.domain.events import RecordedEvent, TurnRecorded
from mnemolog.domain.message import Role
from mnemolog.domain.result import Result, brief
from mnemolog.domain.standing import StandingKind
from mnemolog.domain.values import Micros, Position, UtcTime, Version, to_datetime


class Turn(Result, frozen=True, kw_only=True):
    """A recorded turn, with its place in the log."""

    position: ShownAt
    """The position in the log, to cite the turn by."""
    session: str
    scope: str
    version: Version
    """Place in its session's stream."""
    role: Role
    text: str
    speaker: str | None
    key: str | None
    said_at: UtcTime
    """When it was said; when it was recorded, if the caller gave no time. UTC."""
    recorded_at: UtcTime
    tool_calls: list[Any] = msgspec.field(default_factory=list)
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    distrusted: Position | None = None
    """The position of the newest distrust of it that lasts, now: then no answer shows it (docs/provenance.md)."""
    redacted: dict[str, int] = msgspec.field(default_factory=dict)
    """How many secrets were replaced in it before it was recorded, by kind (docs/redaction.md)."""

    def _shown(self) -> Iterable[str]:
        yield from (f"@{self.position}", f"{self.speaker or self.role.value}: {brief(self.text)}")
        if self.distrusted is not None:
            yield "distrusted"


FactState = Literal["holds", "asserted", "superseded", "later", "retracted", "distrusted"]


class Fact(Result, frozen=True, kw_only=True):
    """What a key of a scope has, and how that is known."""

    key: str
    value: Any
    """Any JSON value; in a history, None for the end of what was."""
    scope: str
    valid_from: UtcTime
    """Since when it is true: where this value began, in a history of this assertion. UTC."""
    assumed: bool
    """Whether it was not said since when: then since it was said, or recorded."""
    until: UtcTime | None = None
    """In a history, where the next one begins: this moment is not part of it. Equal to `valid_from` if it is empty."""
    checked_at: UtcTime
    """When it was last said or confirmed: when the newest turn that it rests on was said, else when it was recorded."""
    state: FactState
    """`asserted`: by this call, which is not to say that it holds. `later`: from a later time on."""
    position: ShownAt
    """The position in the log of the assertion that decides."""
    assertions: tuple[ShownAt, ...]
    """The positions of all assertions that say so one after the other, that one included."""
    because: tuple[Annotated[Position, TO_EVENT], ...]
    """The positions of the turns that this assertion rests on. Some of them may have been forgotten."""
    recorded_at: UtcTime
    maker: str = ""
    """The program that found it; empty if none was named."""
    session: Annotated[str, TO_SESSION] | None = None
    """The session that it was asserted in."""
    actor: str = ""
    """Who asserted it, or approved that; empty if none was given."""
    proposal: Annotated[Position, TO_EVENT] | None = None
    """The position of the proposal that was approved by it; None for none."""
    proposed_by: str = ""
    """Who proposed it."""
    retracted: Position | None = None
    """In a history, the position of its retraction."""
    reason: str = ""
    """Of the retraction."""
    distrusted: Position | None = None
    """In a history, the position of the distrust of it, or of all turns that it rests on (docs/provenance.md)."""
    nearest: tuple[str, ...] = ()
    """Of a new key that was asserted: keys there were already that resemble it, most alike first."""

    def _shown(self) -> Iterable[str]:
        yield from (f"@{self.position}", f"{self.key} = {brief(self.value)}", f"since {brief(self.valid_from)}")
        if self.state != "holds":
            yield self.state


class StandingStatement(Result, frozen=True, kw_only=True):
    """What a user said that should hold for answers to come."""

    called_by = "position"

    kind: StandingKind
    text: str
    """The characters `start` to `end` of the turn; of a fact its value, as JSON unless it is text."""
    start: int = 0
    end: int = 0
    of: int = 0
    """Characters of the turn's text."""
    key: str = ""
    """Of a fact."""
    position: ShownAt
    """The position in the log of the turn, or of the assertion of the fact that decides."""
    session: str | None
    scope: str
    speaker: str | None = None
    said_at: UtcTime
    """When it was said; of a fact since when it is true. UTC."""
    relevance: float | None = None
    """The cosine similarity of its turn to the question; without vectors, the number of words that they share."""
    newer: Annotated[Position, TO_EVENT] | None = None
    """The most similar thing that the user said later, if that may lift or change it: it comes first."""
    ended: Annotated[Position, TO_EVENT] | None = None
    """Where `end_standing` ended it; such are in no list, and a context names them as left out."""

    @property
    def always(self) -> bool:
        """Whether it holds for every answer, whatever the question is."""
        return self.kind in (StandingKind.FACT, StandingKind.INSTRUCTION)

    def _shown(self) -> Iterable[str]:
        return (f"@{self.position}", self.kind.value, brief(self.text))


class FactChange(Result, frozen=True, kw_only=True):
    """What the key of a fact had at one position, and what it has at another: each at the time there."""

    scope: str
    key: str
    change: Literal["added", "changed", "ended", "retracted", "distrusted"]
    """`retracted`: the record was wrong, and nothing else is known; `ended`: from some time on nothing is known.

    `distrusted`: nothing that is trusted says what it is."""
    before: Any
    """Its value; None if nothing was known."""
    after: Any
    position: ShownAt
    """The position of the assertion that decides afterwards, or of the retraction or the distrust."""


class SessionSummary(Result, frozen=True, kw_only=True):
    """A session as the list shows it."""

    session: str
    title: str
    """Empty if it has none, or if it was forgotten."""
    agent: str
    scope: str
    parent: Annotated[str, TO_SESSION] | None
    """The session that this one was branched from, or works for."""
    branched_at: Position | None
    """The last position of the parent's history that this session shares; None if it shares none."""
    reason: str
    """Why it was started: `new`, `branch`, `compress` and so on."""
    turns: int
    """Number of its own turns, including hidden ones, without forgotten ones."""
    forgotten_turns: int = 0
    started_at: UtcTime
    ended_at: UtcTime | None
    """None while it is open, also after it was resumed."""
    said_from: UtcTime | None = None
    """When its first turn was said; None without turns. Of an imported session this is before `started_at`."""
    said_until: UtcTime | None = None
    """When its last turn was said."""
    started_position: ShownAt
    last_position: Position
    """Position of its last event of any kind."""

    @property
    def is_of_the_past(self) -> bool:
        """Whether its first turn was said a minute or more before the session was started here."""
        return self.said_from is not None and self.started_at - self.said_from >= timedelta(minutes=1)

    def _shown(self) -> Iterable[str]:
        yield from (brief(self.session), counted(self.turns, "turn"), f"scope={brief(self.scope)}")
        if self.title:
            yield f"title={brief(self.title)}"


class ScopeSummary(Result, frozen=True, kw_only=True):
    """A scope that sessions were started in."""

    scope: str
    """Empty for sessions without a scope."""
    sessions: int
    """Number of sessions of exactly this scope, those of scopes below it not included."""
    turns: int
    """Number of their own turns, without forgotten ones."""


class AgentSummary(Result, frozen=True, kw_only=True):
    """An agent that started sessions."""

    agent: str
    sessions: int
    turns: int
    """Number of the turns of these sessions, without forgotten ones."""
    current: str | None
    """Id of the session that it was last switched to; None before any switch."""


class Switch(Result, frozen=True, kw_only=True):
    """An agent left one session for another."""

    position: Position
    agent: str
    from_: str | None = msgspec.field(name="from")
    """None when the agent was in no session."""
    to: str
    reason: str
    at: UtcTime
    """When it was recorded. UTC."""


def turn_of(recorded: RecordedEvent, *, session: str, scope: str) -> Turn:
    """Return the turn that an event recorded in `session`, which is of `scope`. It must be a `TurnRecorded`."""
    event = recorded.event
    if not isinstance(event, TurnRecorded):
        raise TypeError(f"{event.topic} records no turn")
    recorded_at = to_datetime(recorded.recorded_at)
    return Turn(
        position=recorded.position,
        session=session,
        scope=scope,
        version=recorded.version,
        role=event.role,
        text=event.text,
        speaker=event.speaker,
        key=recorded.key,
        said_at=recorded_at if event.said_at is None else to_datetime(Micros(event.said_at)),
        recorded_at=recorded_at,
        tool_calls=event.tool_calls,
        metadata=event.metadata,
        redacted=event.redacted or {},
    )
