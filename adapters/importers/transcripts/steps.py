"""The steps that the interpreter derives from a transcript, to be applied to a store."""

from __future__ import annotations

import msgspec

from mnemolog.adapters.importers.turn import ImportedTurn
from mnemolog.domain.position import Position


class Settle(msgspec.Struct, frozen=True):
    """Flush: the next step depends on what was said so far, so it has to be in the log."""


class Say(msgspec.Struct, frozen=True):
    """Record turns in a session. They may be batched until the next `Settle`."""

    session: str
    turns: list[ImportedTurn]


class AlreadyThere(msgspec.Struct, frozen=True):
    """Turns are already in the log, in this session or in the one they were copied from."""

    turns: int


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Start a session; the agent stays in its current one."""

    session: str
    title: str
    scope: str
    parent: str | None = None
    """The session that started it as a subagent. It sees no turns of that session."""


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """Branch a session from another; the agent stays in its current one."""

    session: str
    title: str
    left: str
    at: Position


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """Switch the agent (docs/sessions.md)."""

    reason: str
    """`new`, `branch`, `compress` or `rewind`."""
    to: str | None = None
    """The session to start; None if the session in `left` continues."""
    left: str | None = None
    at: Position | None = None
    title: str | None = None
    scope: str | None = None
    key: str | None = None


Step = Settle | Say | AlreadyThere | Start | Branch | Switch
