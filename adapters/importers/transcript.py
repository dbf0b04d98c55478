"""What a line of a coding agent's transcript says, and where it belongs: what `import` and `watch` both read.

A format is a reader: `entry` makes of one line after the other what is in them. It keeps what it needs of earlier lines
in `state`, JSON values alone, so that reading can go on later with the next line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from mnemolog.adapters.importers.keys import KeyMaker
from mnemolog.adapters.importers.turn import ImportedTurn
from mnemolog.infra.text_source import TextSource


class Compacted(msgspec.Struct, frozen=True):
    """The agent made a summary of what stands above, and goes on with that alone."""

    key: str
    """The same whenever this line is read."""


class Undone(msgspec.Struct, frozen=True):
    """The user went back: a turn, and all that follows it, no longer counts."""

    key: str
    """The same whenever this line is read."""
    first: str
    """The key of the first turn that no longer counts."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a transcript."""

    session: str
    turns: list[ImportedTurn] = []
    """What is said on it."""
    move: Compacted | Undone | None = None
    name: str | None = None
    """What later lines call it. Where it says something, the key of its first turn."""
    follows: str | None = None
    """The name of the line that it goes on from; None for the one before it."""
    asks: bool = False
    """Whether a user speaks: who goes on from an earlier line then has gone back to it."""
    works_for: str | None = None
    """The session that this one was started by, where an agent had another do a part of its work."""
    copied_from: str | None = None
    """The session whose turns this one may begin with, once more."""
    recounted: bool = False
    """Whether its keys are made of what is said: a copy then is one that also stands in the same place."""
    folder: str = ""
    """Where the work is done."""


class Reader(Protocol):
    """Reads one transcript, line by line."""

    state: dict[str, Any]
    """What it keeps of the lines that it has read."""

    def entry(self, line: int, row: dict[str, Any]) -> Entry | None:
        """Return what stands on a line, None where it is nothing to anybody. Raises `InvalidInput`."""
        ...


MakeReader = Callable[[Path, KeyMaker], Reader]


def turns_of(source: TextSource, make: MakeReader) -> Callable[[int, dict[str, Any]], list[ImportedTurn]]:
    """Return what finds the turns of a line, and nothing else of it, in an open file."""
    reader = make(source.path, KeyMaker(source.secret))

    def turns(line: int, row: dict[str, Any]) -> list[ImportedTurn]:
        entry = reader.entry(line, row)
        return [] if entry is None else entry.turns

    return turns


def name_of(session: str, folder: str) -> str:
    """Return the folder worked in and the first letters of the session: titles come too late, if at all."""
    last = re.split(r"[/\\]", folder.rstrip("/\\"))[-1]
    return f"{last} {session[:8]}" if last else session
