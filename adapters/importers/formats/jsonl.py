"""JSON Lines: one turn per line, with the field names of a `FieldMap`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mnemolog.adapters.importers.fields import usual_names
from mnemolog.adapters.importers.format import Format
from mnemolog.adapters.importers.rows import Row
from mnemolog.adapters.importers.source import Source


def recognizes(value: Any) -> bool:
    """Whether a value is an object with a text under a usual name."""
    return isinstance(value, dict) and any(
        isinstance(value[name], str | list) for name in usual_names(value).get("text", ())
    )


def rows(source: Source) -> Iterator[Row]:
    """Yield the object of every line."""
    for number, fields in source.rows():
        yield Row(number, f"line {number}", fields)


FORMAT = Format(name="jsonl", kind="JSON Lines, one turn a line", recognizes=recognizes, rows=rows)
