"""What a file format is: how to recognize a value of it, and how to get turns from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from mnemolog.adapters.importers.fields import FieldMap, Names, NamesOf, usual_names
from mnemolog.adapters.importers.keys import KeyMaker
from mnemolog.adapters.importers.rows import Row, RowReader, read_rows
from mnemolog.adapters.importers.source import OnRefused, Source, values
from mnemolog.adapters.importers.turn import ImportedTurn
from mnemolog.domain.errors import ImportRefused, InvalidInput

Found = dict[str, Any] | InvalidInput | None
"""What a message is: a row, why it cannot be one, or nothing to record."""
RowsOf = Callable[[Any, str], Iterable[Found]]
"""Returns what the messages in a JSON value are. The second argument names a session that has no id of its own.
Raises `InvalidInput` for a value without messages."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A file format. It has rows, from JSON values or in another way, whose fields `--field` can name; or turns."""

    name: str
    kind: str
    """What a file of it is, for people."""
    recognizes: Callable[[Any], bool]
    """Whether a JSON value is of this format: a line, a document or an element of an array."""
    rows_of: RowsOf | None = None
    """The rows in a JSON value of the file."""
    rows: Callable[[Source], Iterator[Row]] | None = None
    """The rows of a file that is read in a way of its own."""
    names_of: NamesOf = usual_names
    keeps_all: bool = False
    """Whether the metadata of a turn has all fields that are no other part of it."""
    read: Callable[[Source], Iterator[ImportedTurn]] | None = None
    """The turns of a file without rows."""
    mapping: Names = {}
    """For a format without rows: by part of a turn, the fields that it comes from."""

    @property
    def has_rows(self) -> bool:
        """Whether `--field` can name its fields."""
        return self.read is None


class FileReader:
    """The turns of one file, and the fields that they come from."""

    def __init__(self, format: Format, turns: Iterator[ImportedTurn], reader: RowReader | None = None) -> None:  # noqa: A002
        self.format, self.turns = format, turns
        self._reader = reader

    def mapping(self) -> dict[str, str]:
        """Return by part of a turn the fields that it comes from. For rows: as far as they were read."""
        if self._reader is not None:
            return self._reader.lookup.mapping()
        return {target: " or ".join(names) for target, names in self.format.mapping.items()}

    def unread(self) -> list[str]:
        """Return the fields of the rows so far that fill no part of a turn."""
        return [] if self._reader is None or self.format.keeps_all else self._reader.lookup.unread()


def each_message(messages: Iterable[Any], row_of: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Iterator[Found]:
    """Yield what each message is. One that is no object, or that `row_of` refuses, does not hide the others."""
    for message in messages:
        if not isinstance(message, dict):
            yield InvalidInput("message", f"expected an object, got {type(message).__name__}")
            continue
        try:
            found = row_of(message)
        except InvalidInput as error:
            yield error
        else:
            yield found


def open_format(source: Source, form: Format, fields: FieldMap) -> FileReader:
    """Return the reader of an open file of a format."""
    if form.read is not None:
        return FileReader(form, form.read(source))
    reader = RowReader(source.path, KeyMaker(source.secret), fields, form.names_of)
    if form.rows is not None:
        rows = form.rows(source)
    else:
        rows = _rows(source, form.rows_of) if form.rows_of is not None else iter(())
    return FileReader(form, read_rows(rows, reader, source.refuse), reader)


def open_database(
    path: Path, form: Format, rows: Iterator[Row], fields: FieldMap, *, on_refused: OnRefused | None, secret: bytes
) -> FileReader:
    """Return the reader of the rows of a database."""
    reader = RowReader(path, KeyMaker(secret), fields, form.names_of)

    def refuse(line: int, why: InvalidInput | str) -> None:
        refused = ImportRefused(path, line, str(why), skippable=True)
        if on_refused is None:
            raise refused
        on_refused(refused)

    return FileReader(form, read_rows(rows, reader, refuse), reader)


def _rows(source: Source, rows_of: RowsOf) -> Iterator[Row]:
    ordinal = 0
    for value in values(source):
        by_line = value.on_line and not value.alone
        try:
            for found in rows_of(value.content, source.stem if value.alone else f"{source.stem}-{value.number}"):
                ordinal += 1
                number, where = (value.number, value.where) if by_line else (ordinal, f"message {ordinal}")
                if not (value.on_line or value.alone or value.number == ordinal):
                    where += f", in element {value.number}"
                if isinstance(found, InvalidInput):
                    source.refuse(number, found if by_line else f"{where}: {found}")
                elif found is not None:
                    yield Row(number, where, found)
        except InvalidInput as error:
            source.refuse(value.number, error if by_line else f"{value.where}: {error}")
