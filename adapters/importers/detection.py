"""Detect the format of a file from its content, never from its name."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from mnemolog.adapters.importers.fields import DEFAULT_MAP, FieldMap, usual_names
from mnemolog.adapters.importers.format import Format
from mnemolog.adapters.importers.formats import chatgpt, claude_ai, claude_code, codex, csv_table, flat
from mnemolog.adapters.importers.message_reader import shown_fields
from mnemolog.adapters.importers.source import JsonValue, Source, decode, samples
from mnemolog.domain.errors import ImportRefused, InvalidInput

# Formats of one program each, before those that hold anything.
_OF_PROGRAMS: Final = (
    claude_code.FORMAT,
    codex.FORMAT,
    chatgpt.FORMAT,
    claude_ai.FORMAT,
    flat.ZEP,
    flat.MEM0,
    flat.OPENAI,
)
BY_NAME: Final = {form.name: form for form in (flat.JSONL, flat.JSON, csv_table.FORMAT, *_OF_PROGRAMS)}
FORMATS: Final = tuple(BY_NAME)
PROGRAMS: Final = frozenset(form.name for form in _OF_PROGRAMS if form is not flat.OPENAI)

_ROW: Final = '{"session": "trip", "role": "user", "text": "hello"}'
_ARCHIVES: Final = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"%PDF": "a PDF",
    b"SQLite format 3": "a database of SQLite",
    b"<": "HTML or XML",
}


def detect_format(path: Path) -> str:
    """Return the format of a file, one of `FORMATS`.

    Raises `ImportRefused` if it has none of these formats or cannot be read.
    """
    with Source(path) as source:
        return format_of(source).name


def format_of(source: Source, fields: FieldMap = DEFAULT_MAP) -> Format:
    """Return the format of an open file. An empty file counts as JSON Lines.

    If `fields` names its fields, any CSV file, JSON document or JSON Lines file will do.
    Raises `ImportRefused` for a file of no known format.
    """
    named = {name for names in fields.values() for name in names}
    if source.is_blank:
        return flat.JSONL
    if columns := csv_table.columns(source, named):
        if named or "text" in usual_names(columns):
            return csv_table.FORMAT
        raise _unknown(
            source,
            f"it looks like CSV, and none of its columns has a usual name for a text: {shown_fields(columns)}",
            csv_table.rows(source),
        )
    found = list(samples(source))
    form = _of_program(found) or _general(found)
    if named and (form is None or form.transcript is not None):
        is_lines = found[0].on_line if found else not source.is_array
        return flat.JSONL if is_lines else flat.JSON
    if form is not None:
        return form
    if source.is_array and not found:
        return flat.JSON
    raise _unknown(source, _looks_like(source, found), [row.content for row in found if isinstance(row.content, dict)])


def checked_format(format: str | None, fields: FieldMap) -> None:  # noqa: A002
    """Raise `InvalidInput` for an unknown format, or for fields of a transcript."""
    if format is not None and format not in BY_NAME:
        raise InvalidInput("format", f"{format!r} is none of {', '.join(FORMATS)}")
    if fields and format is not None and BY_NAME[format].transcript is not None:
        named = ", ".join(name for name, form in BY_NAME.items() if form.transcript is None)
        raise InvalidInput("field", f"{format} has no fields to name; these formats have: {named}")


def _of_program(found: Iterable[JsonValue]) -> Format | None:
    """Return the format that a value shows: one with messages first, then lines of bookkeeping."""
    for value in found:
        for form in _OF_PROGRAMS:
            if form.recognizes(value.content):
                return form
    if any(isinstance(value.content, dict) and claude_code.is_side_line(value.content) for value in found):
        return claude_code.FORMAT
    return None


def _general(found: Iterable[JsonValue]) -> Format | None:
    """Return the format of JSON that is of no particular program."""
    for value in found:
        if value.on_line and flat.JSONL.recognizes(value.content):
            return flat.JSONL
        if not value.on_line and flat.is_message(value.content) and "session" not in usual_names(value.content):
            return flat.OPENAI
        if flat.JSON.recognizes(value.content):
            return flat.JSON
    return None


def _looks_like(source: Source, found: list[JsonValue]) -> str:
    """Return what an unknown file seems to be."""
    first = source.head[0].lstrip()
    for begins, kind in _ARCHIVES.items():
        if first.startswith(begins):
            return f"it looks like {kind}; import the messages in it, as JSON or CSV"
    if not found:
        return f"it looks like {'broken JSON' if first[:1] in (b'{', b'[') else 'plain text'} ({_why_bad(first)})"
    content = found[0].content
    if found[0].on_line:
        return f"it looks like JSON Lines, {_fields_of('the first line', content)}"
    what = "one JSON document" if found[0].alone else "one JSON array"
    return f"it looks like {what}, {_fields_of('it' if found[0].alone else 'its first element', content)}"


def _fields_of(what: str, content: Any) -> str:
    if isinstance(content, dict):
        return f"and {what} has the fields {shown_fields(content)}"
    return f"but {what} is not an object"


def _why_bad(line: bytes) -> str:
    try:
        decode(line)
    except InvalidInput as error:
        return f"the first line is not a JSON object: {error.why}"
    return "the first line is not a JSON object"


def _unknown(source: Source, why: str, rows: list[dict[str, Any]]) -> ImportRefused:
    return ImportRefused(
        source.path,
        1,
        f"the file has none of the formats {', '.join(FORMATS)}: {why}. Name the fields of CSV, JSON or JSON Lines, "
        f"e.g. --field {shlex.quote(_suggestion(rows))}, or write each turn as a line like {_ROW}",
    )


def _suggestion(rows: Iterable[dict[str, Any]]) -> str:
    """Return a map of fields for these rows: the text is the field with the longest texts."""
    lengths: Counter[str] = Counter()
    for row in rows:
        lengths.update({name: len(value) for name, value in row.items() if isinstance(value, str)})
    return f"text={max(lengths, key=lengths.__getitem__)}" if lengths else "text=body,role=kind,session=room"
