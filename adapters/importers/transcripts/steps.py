"""What is kept of the lines that were read, and the steps that the interpreter derives from the next one."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from mnemolog.adapters.importers.keys import Places
from mnemolog.adapters.importers.turn import ImportedTurn
from mnemolog.domain.position import Position

SIDE: Final = "~"
"""Separates the id of a transcript's session from the key of the turn that a branch of it begins with."""


class Anchor(NamedTuple):
    """The turn that a line continues. Without a key: the end of the session, wherever that is."""

    session: str
    key: str
    at: int = 0
    """A log position instead of a turn, 0 if unknown."""


class LineCursor(msgspec.Struct, array_like=True):
    """The last line of a session in a transcript."""

    line: str | None
    home: str | None
    """The session it was recorded in; None if it was a copy of another session's line."""
    anchor: Anchor | None


class ReadState(msgspec.Struct):
    """The saved state of reading one transcript."""

    format: str = ""
    offset: int = 0
    line: int = 0
    mark: bytes = b""
    """Digest of the bytes before the offset (`mark_at`)."""
    reader: dict[str, Any] = {}
    cursors: dict[str, LineCursor] = {}
    compacted: dict[str, list[str]] = {}
    """By session, the keys of compactions that no turn has followed yet."""
    places: Places = {}
    """Where the numbering of turns without ids continues."""
    is_first_pass: bool = False
    """Whether turns of earlier runs are still being recognised. If it is interrupted, it starts over."""


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
