"""Parsed lines of coding agents' transcripts, for `import` and `watch`.

Each format has a reader, whose `entry` converts one line after the other. What it needs of earlier lines is in `state`,
as JSON values, so that a later run can resume with the next line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from mnemolog.adapters.importers.turn import ImportedTurn, TurnMaker, redacted
from mnemolog.domain.message import left_out_of
from mnemolog.domain.redaction import Redaction

_RECALLING: Final = re.compile(r".*(?:memory|mnemolog)\w*__(?:recall|context|timeline)")


class Compacted(msgspec.Struct, frozen=True):
    """The agent replaced its context by a summary."""

    key: str
    """The same in every run."""


class Undone(msgspec.Struct, frozen=True):
    """The user undid a turn and everything after it."""

    key: str
    """The same in every run."""
    first: str
    """The key of the first turn that was undone."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a transcript."""

    session: str
    turns: list[ImportedTurn] = []
    """Its turns."""
    move: Compacted | Undone | None = None
    name: str | None = None
    """The name by which later lines refer to it; for a line with turns, the key of the first."""
    follows: str | None = None
    """The name of the line that it continues; None for the line before it."""
    asks: bool = False
    """Whether a user speaks. If such a line continues an earlier one, the user has gone back to it."""
    works_for: str | None = None
    """The session that started this one as a subagent."""
    copied_from: str | None = None
    """The session whose turns this one may start with as copies."""
    recounted: bool = False
    """Whether keys are places in the session. A copy then has another key: it is found by its text, in its place."""
    folder: str = ""
    """The working folder."""

    def redacted(self, redaction: Redaction) -> Entry:
        """Return the entry with its turns as the log stores them."""
        if not redaction.on:
            return self
        return msgspec.structs.replace(self, turns=[redacted(turn, redaction) for turn in self.turns])


class Reader(Protocol):
    """Reads one transcript, line by line."""

    state: dict[str, Any]
    """What it needs of earlier lines."""

    def entry(self, line: int, row: dict[str, Any]) -> Entry | None:
        """Return the entry of a line, None if it has none. Raises `InvalidInput`."""


MakeReader = Callable[[TurnMaker], Reader]


def name_of(session: str, folder: str) -> str:
    """Return the working folder and the start of the session id: titles come too late, if at all."""
    last = re.split(r"[/\\]", folder.rstrip("/\\"))[-1]
    return f"{last} {session[:8]}" if last else session


def typed_content(content: Any, typed: Callable[[str], str]) -> Any:
    """Return the content of a message of the user, its texts cut to what was typed: programs add words of their own."""
    if isinstance(content, str):
        return typed(content)
    if not isinstance(content, list):
        return content
    return [
        part | {"text": typed(part["text"])} if isinstance(part, dict) and isinstance(part.get("text"), str) else part
        for part in content
    ]


def why_left_out(content: object, turns: Sequence[ImportedTurn], *, said: bool = True) -> Sequence[str]:
    """Return why a message with these turns is left out, or parts of it. `said` is False for what programs write."""
    reasons = tuple(left_out_of(content)) if said else ()
    return reasons if turns or reasons else ("empty" if said and not content else "not said",)


def is_recalling(tool: object) -> bool:
    """Whether a tool with this name answers with what a memory already holds."""
    return isinstance(tool, str) and _RECALLING.fullmatch(tool) is not None
