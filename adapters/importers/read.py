"""Read a file of any known format as turns. The format is detected from its content, never from its name."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from mnemolog.adapters.importers import unread
from mnemolog.adapters.importers.entry import Reader
from mnemolog.adapters.importers.format import DEFAULT_MAP, FieldMap, Format, Message, usual_names
from mnemolog.adapters.importers.formats import claude_code, codex, csv_table, exports, flat, subject
from mnemolog.adapters.importers.message_reader import MessageReader, shown_fields
from mnemolog.adapters.importers.source import JsonValue, OnRefused, Source, objects_on, values
from mnemolog.adapters.importers.turn import ImportedTurn, KeyMaker, TurnMaker, stem_of
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.domain.limits import quoted
from mnemolog.infra.text_file import Progress

# Formats of one program each, before those that hold anything.
_OF_PROGRAMS: Final = (
    subject.FORMAT,
    claude_code.FORMAT,
    codex.FORMAT,
    exports.CHATGPT,
    exports.CLAUDE_AI,
    flat.ZEP,
    flat.MEM0,
    flat.CHROMA,
    flat.LANGGRAPH,
    flat.LETTA,
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
    found = list(values(source, sample=True))
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
        wrong = objects_on(first)[1]
        why = f"the first line is not a JSON object{f': {wrong.why}' if wrong else ''}"
        return f"it looks like {'broken JSON' if first[:1] in (b'{', b'[') else 'plain text'} ({why})"
    content, is_document = found[0].content, found[0].alone
    kind, part = ("one JSON document", "it") if is_document else ("one JSON array", "its first element")
    if found[0].on_line:
        kind, part = "JSON Lines", "the first line"
    is_object = isinstance(content, dict)
    has = f"and {part} has the fields {shown_fields(content)}" if is_object else f"but {part} is not an object"
    return f"it looks like {kind}, {has}"


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


class OpenFile(NamedTuple):
    """A file that is being read."""

    format: Format
    turns: Iterator[ImportedTurn]
    reader: MessageReader | None
    """What filled the parts of turns so far; None for a transcript."""
    left_out: Counter[str]
    """By reason, how much was left out so far."""


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
            yield OpenFile(
                form, _turns_by_line(source, form.transcript(maker), form.links, maker.left_out), None, maker.left_out
            )
            return
        reader = MessageReader(maker, form, fields)
        messages = form.messages(source) if form.messages is not None else messages_in(source, form, maker.left_out)
        yield OpenFile(form, reader.turns(messages, source.refuse), reader, maker.left_out)


def messages_in(source: Source, form: Format, left_out: Counter[str]) -> Iterator[Message]:
    """Yield the messages in the JSON values of a file, and count what is left out. Other values are refused."""
    stem = stem_of(source.path)
    number_of_message = 0
    for value in values(source):
        by_line = value.on_line and not value.alone
        name = stem if value.alone else f"{stem}-{value.number}"
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
                    yield Message(
                        number, where, content, conversation.shared, conversation.session, conversation.around
                    )
        except InvalidInput as error:
            source.refuse(value.number, error if by_line else f"{value.where}: {error}")


def _turns_by_line(
    source: Source, reader: Reader, read: Sequence[str], left_out: Counter[str]
) -> Iterator[ImportedTurn]:
    """Yield the turns in the lines of a transcript: all of a line, or none if it is refused."""
    walk = unread.Walk(read)
    for number, row in source.rows():
        before = left_out.total()
        try:
            entry = reader.entry(number, row)
        except InvalidInput as error:
            source.refuse(number, error)
            continue
        if entry is not None and entry.turns:
            links = (entry.name, entry.follows, entry.works_for, entry.copied_from, entry.folder)
            unread.count(left_out, {reason for reason, _ in walk.unread(row, unread.Turns(entry.turns, links))})
            yield from entry.turns
        elif left_out.total() == before:
            unread.count(left_out, [f"line {quoted(row.get('type'))}"])
