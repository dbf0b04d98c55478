"""The saved reading state of a transcript: how far it was read, and the data to resume there."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

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


class Place(msgspec.Struct):
    """The saved state of reading one transcript."""

    format: str = ""
    offset: int = 0
    line: int = 0
    mark: bytes = b""
    """Digest of the bytes before the offset (`mnemolog.adapters.importers.transcripts.tail`)."""
    reader: dict[str, Any] = {}
    cursors: dict[str, LineCursor] = msgspec.field(name="tips", default_factory=dict)
    compacted: dict[str, list[str]] = {}
    """By session, the keys of compactions that no turn has followed yet."""
