"""The data of a person's file (docs/subject.md): its turns. `import_files` records its facts after them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mnemolog.adapters.importers.format import Format, Message
from mnemolog.adapters.importers.source import Source


def _turns(source: Source) -> Iterator[Message]:
    return (Message(number, f"line {number}", row) for number, row in source.rows() if row.get("record") == "turn")


FORMAT: Final = Format(
    name="mnemolog",
    kind="a person's file of mnemolog",
    recognizes=lambda value: isinstance(value, dict) and value.keys() >= {"record", "position", "scope"},
    fields={
        "text": ["text"],
        "role": ["role"],
        "session": ["session"],
        "scope": ["scope"],
        "speaker": ["speaker"],
        "key": ["key", "place"],
        "time": ["said_at"],
        "tool_calls": ["tool_calls"],
        "metadata": ["metadata"],
    },
    links=("record", "place", "position", "version", "recorded_at", "redacted"),
    messages=_turns,
)
