"""Detect the format of a file from its content, never from its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from mnemolog.adapters.importers.fields import DEFAULT_FIELDS
from mnemolog.adapters.importers.formats import claude_code, codex, openai
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.infra.text_file import BrokenDocument, TextSource, decode, elements

JSONL: Final = "jsonl"
CLAUDE_CODE: Final = "claude-code"
CODEX: Final = "codex"
CHATGPT: Final = "chatgpt"
OPENAI: Final = "openai"
FORMATS: Final = (JSONL, CLAUDE_CODE, CODEX, CHATGPT, OPENAI)


_ROW: Final = '{"session": "trip", "role": "user", "text": "hello"}'


def detect_format(path: Path) -> str:
    """Return the format of a file, one of `FORMATS`.

    Raises `ImportRefused` if it has none of these formats or cannot be read.
    """
    with TextSource(path) as source:
        return format_of(source)


def format_of(source: TextSource) -> str:
    """Return the format of an open file. An empty file counts as JSON Lines."""
    filled = [line for line in source.head if line.strip()]
    if not filled:
        return JSONL
    if source.is_array:
        return _array_format(source)
    rows = [row for line in filled if (row := _row(line)) is not None]
    if _row(filled[0]) is None:
        # Either a document of many lines, or JSON Lines with a bad first line: try the whole document.
        found = _document_format(source) or _lines_format(rows)
        if found is None:
            raise _unknown(source, _why_bad(filled[0]))
        return found
    found = _lines_format(rows)
    if found is None:
        raise _unknown(source, f"the first line has the fields {', '.join(map(repr, list(rows[0])[:12])) or 'none'}")
    return found


def _lines_format(rows: list[dict[str, Any]]) -> str | None:
    """Return the format of the lines: by lines with messages first, then by bookkeeping lines."""
    for row in rows:
        if claude_code.is_transcript_line(row):
            return CLAUDE_CODE
        if codex.is_rollout_line(row):
            return CODEX
        if openai.messages_of(row) is not None:
            return OPENAI
        if isinstance(row.get("mapping"), dict):
            return CHATGPT
    if any(claude_code.is_side_line(row) for row in rows):
        return CLAUDE_CODE
    texts = DEFAULT_FIELDS["text"]
    if any(isinstance(row.get(name), str | list) for row in rows for name in texts):
        return JSONL
    return None


def _document_format(source: TextSource) -> str | None:
    try:
        value = decode(source.document())
    except InvalidInput:
        return None
    return _lines_format([value]) if isinstance(value, dict) else None


def _array_format(source: TextSource) -> str:
    try:
        items = elements(source.document())
    except BrokenDocument as error:
        raise ImportRefused(source.path, error.line, f"the JSON document is broken: {error}") from error
    if not items:
        return OPENAI
    try:
        first = decode(items[0])
    except InvalidInput as error:
        raise _unknown(source, f"the first element of its array is bad: {error}") from error
    if isinstance(first, dict) and isinstance(first.get("mapping"), dict):
        return CHATGPT
    if openai.messages_of(first) is not None or openai.is_message(first):
        return OPENAI
    raise _unknown(source, "it is one JSON array; write each element on a line of its own")


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = decode(line)
    except InvalidInput:
        return None
    return row if isinstance(row, dict) else None


def _why_bad(line: bytes) -> str:
    try:
        decode(line)
    except InvalidInput as error:
        return f"the first line is not a JSON object ({error.why})"
    return "the first line is not a JSON object"


def _unknown(source: TextSource, why: str) -> ImportRefused:
    if source.path.suffix.lower() in (".csv", ".tsv"):
        why = f"CSV and TSV are not read; write each row as a JSON object on a line of its own, like {_ROW}"
    return ImportRefused(
        source.path,
        1,
        f"the file has none of the formats {', '.join(FORMATS)}: {why}. "
        "For other JSON Lines files name the fields, e.g. --field text=body,session=room",
    )
