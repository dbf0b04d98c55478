"""What a line of a transcript has a store do, step by step."""

from __future__ import annotations

import msgspec

from mnemolog.adapters.importers.turn import ImportedTurn
from mnemolog.domain.position import Position


class Settle(msgspec.Struct, frozen=True):
    """What was said so far is to be in the log: the next step depends on it."""


class Say(msgspec.Struct, frozen=True):
    """Turns are to be recorded in a session. They may wait for more, until the next step of another kind."""

    session: str
    turns: list[ImportedTurn]


class AlreadyThere(msgspec.Struct, frozen=True):
    """Turns are in the log already, of this session or of the one they were copied from."""

    turns: int


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A session begins, and the agent stays where it is."""

    session: str
    name: str
    scope: str
    parent: str | None = None
    """The session that it works for, and of which it sees nothing."""


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A session begins where it leaves another one, and the agent stays where it is."""

    session: str
    name: str
    left: str
    at: Position


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """The agent is switched (docs/sessions.md)."""

    reason: str
    """`new`, `branch`, `compress` or `rewind`."""
    to: str | None = None
    """The session that begins with it; None where the one that is left goes on."""
    left: str | None = None
    at: Position | None = None
    name: str | None = None
    scope: str | None = None
    key: str | None = None


Step = Settle | Say | AlreadyThere | Start | Branch | Switch
