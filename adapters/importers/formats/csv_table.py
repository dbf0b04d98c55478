"""CSV with a header: a turn a row. The delimiter is detected; a row may go over several lines."""

from __future__ import annotations

import csv
from collections.abc import Container, Iterator
from typing import Any, Final

from mnemolog.adapters.importers.fields import usual_names
from mnemolog.adapters.importers.format import Format, Message
from mnemolog.adapters.importers.source import Source, decode
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.infra.text_file import LINE_BYTES_MAX

_DELIMITERS: Final = ",;\t|"
_JSON_TARGETS: Final = ("metadata", "tool_calls")


def columns(source: Source, named: Container[str] = ()) -> list[str]:
    """Return the columns of a file that looks like CSV, empty for any other.

    One column is enough if it has a usual name for a text, or is in `named`.
    """
    lines = [line for line in source.head if line.strip()]
    if not lines or lines[0].lstrip()[:1] in (b"{", b"[", b"<"):
        return []
    header, *following = (line.decode(errors="replace") for line in lines[:2])
    delimiter = _delimiter(header)
    found = _cells(header, delimiter)
    if "text" in usual_names(found) or any(name in named for name in found):
        return found
    is_table = len(found) > 1 and all(found) and following and len(_cells(following[0], delimiter)) == len(found)
    return found if is_table else []


def _messages(source: Source) -> Iterator[Message]:
    """Yield the records below the header, each with the line on which it begins. Empty ones are left out."""
    # The limit is the module's own, 128 KiB by default; a turn may be longer, and a line is limited already.
    csv.field_size_limit(max(csv.field_size_limit(), LINE_BYTES_MAX))
    lines = _Lines(source)
    header = next((line for line in lines if line.strip()), "")
    delimiter = _delimiter(header)
    names = _cells(header, delimiter)
    begins = lines.number + 1
    try:
        for cells in csv.reader(lines, delimiter=delimiter):
            if len(cells) > len(names):
                source.refuse(begins, f"{len(cells)} cells, but the header has {len(names)} columns; quote the text")
            elif any(cells):
                yield Message(begins, f"line {begins}", dict(zip(names, map(_value, names, cells), strict=False)))
            begins = lines.number + 1
    except csv.Error as error:
        raise ImportRefused(source.path, begins, f"not CSV: {error}") from error


class _Lines(Iterator[str]):
    """The lines of a file as text. `number` is that of the last one."""

    def __init__(self, source: Source) -> None:
        self._path, self._lines = source.path, source.lines(blank=True)
        self.number = 0

    def __next__(self) -> str:
        self.number, line = next(self._lines)
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise ImportRefused(
                self._path, self.number, f"not UTF-8: byte 0x{line[error.start]:02x}; save the file as UTF-8"
            ) from error


def _delimiter(header: str) -> str:
    """Return the delimiter that gives the most columns."""
    return max(_DELIMITERS, key=lambda delimiter: len(_cells(header, delimiter)))


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return []


def _value(name: str, cell: str) -> Any:
    """Return a cell as it is, but lists and objects in the columns for them as JSON values."""
    target = next((target for target in _JSON_TARGETS if name in usual_names([name]).get(target, ())), None)
    if target is None or not cell:
        return cell
    try:
        value = decode(cell.encode())
    except InvalidInput:
        value = None
    return value if isinstance(value, dict | list) else {name: cell} if target == "metadata" else cell


FORMAT: Final = Format(name="csv", kind="CSV with a header", messages=_messages)
