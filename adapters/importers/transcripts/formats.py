"""The transcripts that can be recorded. A further one is a reader in `mnemolog.adapters.importers`, and a line here."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from mnemolog.adapters.importers.detection import CLAUDE_CODE, CODEX, JSONL, detect_format
from mnemolog.adapters.importers.formats.claude_code import ClaudeCodeReader
from mnemolog.adapters.importers.formats.codex import CodexReader
from mnemolog.adapters.importers.formats.jsonl import LineReader
from mnemolog.adapters.importers.transcript import MakeReader
from mnemolog.domain.errors import ImportRefused


class Format(msgspec.Struct, frozen=True):
    """A kind of transcript."""

    agent: str
    """Whose sessions they are."""
    make: MakeReader


FORMATS: Final[dict[str, Format]] = {
    CLAUDE_CODE: Format("claude-code", ClaudeCodeReader),
    CODEX: Format("codex", CodexReader),
    JSONL: Format("imported", LineReader),
}
TOLD_BY_CONTENT: Final = (CLAUDE_CODE, CODEX)
"""The others are read where they are asked for: nearly every file of JSON Lines could be one."""


def format_of(path: Path) -> str:
    """Return the format of a file, nothing where it is none of those that are told by their content."""
    try:
        found = detect_format(path)
    except ImportRefused:
        return ""
    return found if found in TOLD_BY_CONTENT else ""


def order_of(path: Path, modified_ns: int) -> tuple[int, str, int]:
    """Return what puts files into an order in which sessions come before those that go on from them, as far as it goes.

    Subagents' files lie deeper; a rollout's name begins with when it was begun; of others it is known when they were
    last written.
    """
    return len(path.parts), path.name if path.name.startswith("rollout-") else "", modified_ns
