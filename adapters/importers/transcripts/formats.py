"""The supported transcripts. To add one, write a reader in `mnemolog.adapters.importers` and add a line here."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from mnemolog.adapters.importers.detection import CLAUDE_CODE, CODEX, JSONL, detect_format
from mnemolog.adapters.importers.formats.claude_code import ClaudeCodeReader
from mnemolog.adapters.importers.formats.codex import CodexReader
from mnemolog.adapters.importers.rows import RowReader
from mnemolog.adapters.importers.transcript import MakeReader
from mnemolog.domain.errors import ImportRefused


class Format(msgspec.Struct, frozen=True):
    """A kind of transcript."""

    agent: str
    """The agent of the sessions."""
    make: MakeReader


FORMATS: Final[dict[str, Format]] = {
    CLAUDE_CODE: Format("claude-code", ClaudeCodeReader),
    CODEX: Format("codex", CodexReader),
    JSONL: Format("imported", RowReader),
}
DETECTABLE: Final = (CLAUDE_CODE, CODEX)
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
