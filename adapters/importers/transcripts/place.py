"""How far a transcript was read, and what of its sessions is needed to go on from there."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

SIDE: Final = "~"
"""Between the id of a transcript's session and the turn that a second line of it begins with."""


class Anchor(NamedTuple):
    """A turn that a line goes on from. Without a key: the end of the session, whatever that is."""

    session: str
    key: str
    at: int = 0
    """A log position in place of a turn, where that is known."""


class Tip(msgspec.Struct, array_like=True):
    """The last line of a session in a transcript."""

    line: str | None
    home: str | None
    """The session it was recorded in; None where it was a copy of another's."""
    anchor: Anchor | None


class Place(msgspec.Struct):
    """How far a transcript was read, and what is needed to go on from there."""

    format: str = ""
    offset: int = 0
    line: int = 0
    mark: bytes = b""
    """What the file holds before the offset (`mnemolog.adapters.importers.transcripts.tail`)."""
    reader: dict[str, Any] = {}
    tips: dict[str, Tip] = {}
    compacted: dict[str, list[str]] = {}
    """Sessions with the keys of compactions that no turn has followed yet."""
