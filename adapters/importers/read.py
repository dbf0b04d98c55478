"""Read a file of any known format as a stream of turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mnemolog.adapters.importers.detection import BY_NAME, checked_format, format_of
from mnemolog.adapters.importers.entry import Reader
from mnemolog.adapters.importers.fields import DEFAULT_MAP, FieldMap
from mnemolog.adapters.importers.format import Format, Message
from mnemolog.adapters.importers.message_reader import MessageReader
from mnemolog.adapters.importers.source import OnRefused, Source, values
from mnemolog.adapters.importers.turn import ImportedTurn, KeyMaker, TurnMaker
from mnemolog.domain.errors import InvalidInput
from mnemolog.infra.text_file import Progress


class OpenFile(NamedTuple):
    """A file that is being read."""

    format: Format
    turns: Iterator[ImportedTurn]
    reader: MessageReader | None
    """Which fields were read so far; None for a transcript."""
    left_out: Counter[str]
    """By reason, how much was left out so far."""

    @property
    def unread(self) -> tuple[str, ...]:
        """Fields that are not read, where the fields are guessed from their names."""
        return () if self.reader is None or self.format.fields else tuple(self.reader.lookup.unread())


def read_turns(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002
    fields: FieldMap = DEFAULT_MAP,
    progress: Progress | None = None,
    on_refused: OnRefused | None = None,
) -> Iterator[ImportedTurn]:
    """Yield the turns of a file in its order, each checked by the rules of the log.

    Without `format` it is detected from the content. `fields` names fields of a format that has them: any CSV file,
    JSON document or JSON Lines file, and most exports. JSON Lines, CSV and transcripts of Claude Code and Codex are
    read line by line; JSON documents are held in memory as bytes. `progress` receives bytes read and bytes in all, as
    the file is on disk.

    Raises `InvalidInput` at once for an unknown format, or for fields of a transcript. The first line that cannot be
    recorded raises `ImportRefused`; with `on_refused` the error goes there and reading continues. Errors of the file as
    a whole always raise: unreadable, not UTF-8, unknown format, a damaged gzip file, a document that is not JSON.
    """
    checked_format(format, fields)

    def turns() -> Iterator[ImportedTurn]:
        with open_file(path, format=format, fields=fields, progress=progress, on_refused=on_refused) as opened:
            yield from opened.turns

    return turns()


@contextmanager
def open_file(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002
    fields: FieldMap = DEFAULT_MAP,
    progress: Progress | None = None,
    on_refused: OnRefused | None = None,
) -> Iterator[OpenFile]:
    """Open a file to read its turns, with the arguments of `read_turns`."""
    maker = TurnMaker(path, KeyMaker())
    with Source(path, progress=progress, on_refused=on_refused) as source:
        form = format_of(source, fields) if format is None else BY_NAME[format]
        if form.transcript is not None:
            yield OpenFile(form, _turns_by_line(source, form.transcript(maker)), None, maker.left_out)
            return
        reader = MessageReader(maker, form, fields)
        messages = form.messages(source) if form.messages is not None else messages_in(source, form, maker.left_out)
        yield OpenFile(form, reader.turns(messages, source.refuse), reader, maker.left_out)


def messages_in(source: Source, form: Format, left_out: Counter[str]) -> Iterator[Message]:
    """Yield the messages in the JSON values of a file, and count what is left out. Other values are refused."""
    number_of_message = 0
    for value in values(source):
        by_line = value.on_line and not value.alone
        name = source.stem if value.alone else f"{source.stem}-{value.number}"
        try:
            for conversation in form.conversations_in(value.content, name):
                left_out.update(conversation.left_out)
                for content in conversation.messages:
                    number_of_message += 1
                    number, where = value.number, value.where
                    if not by_line:
                        number, where = number_of_message, f"message {number_of_message}"
                        if not (value.on_line or value.alone or value.number == number):
                            where += f", in element {value.number}"
                    yield Message(number, where, content, conversation.shared, conversation.session)
        except InvalidInput as error:
            source.refuse(value.number, error if by_line else f"{value.where}: {error}")


def _turns_by_line(source: Source, reader: Reader) -> Iterator[ImportedTurn]:
    """Yield the turns in the lines of a transcript: all of a line, or none if it is refused."""
    for number, row in source.rows():
        try:
            entry = reader.entry(number, row)
        except InvalidInput as error:
            source.refuse(number, error)
        else:
            yield from () if entry is None else entry.turns
