"""CSV with a header: a turn a row. The delimiter is detected; a row may go over several lines."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Container, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from mnemolog.adapters.importers.format import Format, Message, usual_names
from mnemolog.adapters.importers.source import Source, decode
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.infra.text_file import LINE_BYTES_MAX

_DELIMITERS: Final = ",;\t|"
_SEPARATOR: Final = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
ROWS_SHOWN: Final = 20
_JSON_TARGETS: Final = ("metadata", "tool_calls")


class _Header(NamedTuple):
    line: int
    delimiter: str
    names: list[str]


def _header(source: Source) -> _Header:
    """Return the header of a file. A line `sep=;` before it, of a spreadsheet, names the delimiter."""
    delimiter = ""
    for number, line in enumerate(source.head, start=1):
        text = line.decode(errors="replace").rstrip("\r\n")
        if not delimiter and (named := _SEPARATOR.fullmatch(text)):
            delimiter = named[1]
        elif text.strip():
            delimiter = delimiter or max(_DELIMITERS, key=lambda delimiter: len(_cells(text, delimiter)))
            return _Header(number, delimiter, _cells(text, delimiter))
    return _Header(0, ",", [])


def columns(source: Source, named: Container[str] = ()) -> list[str]:
    """Return the columns of a file that looks like CSV, empty for any other.

    One column is enough if it has a usual name for a text, or is in `named`.
    """
    if next((line for line in source.head if line.strip()), b"{").lstrip()[:1] in (b"{", b"[", b"<"):
        return []
    header = _header(source)
    if "text" in usual_names(header.names) or any(name in named for name in header.names):
        return header.names
    following = next((line for line in source.head[header.line :] if line.strip()), b"").decode(errors="replace")
    is_table = len(header.names) > 1 and all(header.names)
    return header.names if is_table and len(_cells(following, header.delimiter)) == len(header.names) else []


def rows(source: Source) -> list[dict[str, Any]]:
    """Return the first rows of a file, as far as they can be read."""
    header, found = _header(source), list[dict[str, Any]]()
    with suppress(ImportRefused):
        for _, cells in islice(_records(source, header, None), ROWS_SHOWN):
            found.append(dict(zip(header.names, cells, strict=False)))
    return found


def _messages(source: Source) -> Iterator[Message]:
    """Yield the records below the header, each with the line on which it begins."""
    # The limit is the module's own, 128 KiB by default; a turn may be longer, and a line is limited already.
    csv.field_size_limit(max(csv.field_size_limit(), LINE_BYTES_MAX))
    header = _header(source)
    names = header.names
    for begins, cells in _records(source, header, _escape(source.path, header)):
        if len(cells) > len(names):
            source.refuse(begins, f"{len(cells)} cells, but the header has {len(names)} columns; quote the text")
        elif cells:
            padded = (*cells, *[""] * (len(names) - len(cells)))
            yield Message(begins, f"line {begins}", dict(zip(names, map(_value, names, padded), strict=True)))


def _escape(path: Path, header: _Header) -> str | None:
    r"""Return what stands before a quote in a quoted cell: None for another quote, or `\\`.

    Raises `ImportRefused` if cells have no end with either, before anything of the file is read.
    """
    refused: list[ImportRefused] = []
    for escape in (None, "\\"):
        try:
            with Source(path) as source:
                deque(_records(source, header, escape), maxlen=0)
        except ImportRefused as error:
            if isinstance(error.__cause__, csv.Error):
                refused.append(error)
                continue
        return escape  # What else is wrong is reported when it is read.
    raise refused[0]


def _records(source: Source, header: _Header, escape: str | None) -> Iterator[tuple[int, list[str]]]:
    number, begins = 0, header.line + 1

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in source.lines(blank=True):
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                why = f"not UTF-8: byte 0x{line[error.start]:02x}; save the file as UTF-8"
                raise ImportRefused(source.path, number, why) from error
            if number > header.line:
                yield text

    try:
        for cells in csv.reader(lines(), delimiter=header.delimiter, escapechar=escape, strict=True):
            yield begins, cells
            begins = number + 1
    except csv.Error as error:
        why = f"not CSV: {error}; nothing tells where a quoted cell of the row that begins here ends: close its quote"
        raise ImportRefused(source.path, begins, why) from error


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return []


@lru_cache
def _json_target(name: str) -> str | None:
    return next((target for target in _JSON_TARGETS if target in usual_names([name])), None)


def _value(name: str, cell: str) -> Any:
    """Return a cell as it is, but lists and objects in the columns for them as JSON values."""
    target = _json_target(name)
    if target is None or not cell:
        return cell
    try:
        value = decode(cell.encode())
    except InvalidInput:
        value = None
    return value if isinstance(value, dict | list) else {name: cell} if target == "metadata" else cell


FORMAT: Final = Format(name="csv", kind="CSV with a header", messages=_messages)
