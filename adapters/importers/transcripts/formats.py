"""The supported transcripts. To add one, write a reader in `mnemolog.adapters.importers` and add a line here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from mnemolog.adapters.importers.detection import detect_format
from mnemolog.adapters.importers.format import Message
from mnemolog.adapters.importers.formats import claude_code, codex, flat
from mnemolog.adapters.importers.message_reader import MessageReader
from mnemolog.adapters.importers.transcript import Entry, MakeReader
from mnemolog.adapters.importers.turn import TurnMaker
from mnemolog.domain.errors import ImportRefused


class Format(msgspec.Struct, frozen=True):
    """A kind of transcript."""

    agent: str
    """The agent of the sessions."""
    make: MakeReader


class JsonLinesReader:
    """Reads a file of JSON Lines that grows: one turn a line."""

    def __init__(self, maker: TurnMaker) -> None:
        self._reader = MessageReader(maker, flat.JSONL)
        self.state: dict[str, Any] = {}

    def entry(self, line: int, row: dict[str, Any]) -> Entry | None:
        """Return the entry of a line. Raises `InvalidInput`."""
        turn = self._reader.turn(Message(line, f"line {line}", row))
        return None if turn is None else Entry(session=turn.session, turns=[turn], recounted=True)


FORMATS: Final[dict[str, Format]] = {
    claude_code.FORMAT.name: Format("claude-code", claude_code.ClaudeCodeReader),
    codex.FORMAT.name: Format("codex", codex.CodexReader),
    flat.JSONL.name: Format("imported", JsonLinesReader),
}
DETECTABLE: Final = (claude_code.FORMAT.name, codex.FORMAT.name)
"""Formats that content identifies. Others have to be named: nearly every JSON Lines file could be one."""


def format_of(path: Path) -> str:
    """Return the format of a file, empty if its content does not identify one."""
    try:
        found = detect_format(path)
    except ImportRefused:
        return ""
    return found if found in DETECTABLE else ""


def reading_order(path: Path, modified_ns: int) -> tuple[int, str, int]:
    """Sort key: parent sessions before their continuations, as far as file metadata shows.

    Files of subagents are in deeper folders. The name of a rollout starts with its start time. For all others only the
    time of the last write is known.
    """
    return len(path.parts), path.name if path.name.startswith("rollout-") else "", modified_ns
