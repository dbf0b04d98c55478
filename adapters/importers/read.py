"""Read a file of any known format as a stream of turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from mnemolog.adapters.importers.detection import BY_NAME, FORMATS, format_of
from mnemolog.adapters.importers.fields import FieldMap
from mnemolog.adapters.importers.format import FileReader, open_database, open_format
from mnemolog.adapters.importers.formats import chroma
from mnemolog.adapters.importers.source import OnRefused, Source
from mnemolog.adapters.importers.turn import ImportedTurn
from mnemolog.domain.errors import InvalidInput
from mnemolog.infra.text_file import Progress


def read_turns(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002
    fields: FieldMap | None = None,
    progress: Progress | None = None,
    on_refused: OnRefused | None = None,
    secret: bytes = b"",
) -> Iterator[ImportedTurn]:
    """Yield the turns of a file in its order, each checked by the rules of the log.

    Without `format` it is detected from the content. `fields` names fields of a format that has rows: any CSV file,
    JSON document or JSON Lines file, and most exports. JSON Lines, CSV and transcripts of Claude Code and Codex are
    read line by line; JSON documents are held in memory as bytes. `progress` receives bytes read and bytes in all, as
    the file is on disk. `secret` goes into the keys of turns that have none (`mnemolog.adapters.importers.keys`).

    Raises `InvalidInput` at once for an unknown format, or for fields of a format without rows. The first line that
    cannot be recorded raises `ImportRefused`; with `on_refused` the error goes there and reading continues. Errors of
    the file as a whole always raise: unreadable, not UTF-8, unknown format, a damaged gzip file, a document that is not
    JSON.
    """
    checked_format(format, fields)
    return _turns(path, format, fields, progress, on_refused, secret)


def checked_format(format: str | None, fields: FieldMap | None) -> None:  # noqa: A002
    """Raise `InvalidInput` for an unknown format, or for fields of a format without rows."""
    if format is not None and format not in BY_NAME:
        raise InvalidInput("format", f"{format!r} is none of {', '.join(FORMATS)}")
    if fields is not None and fields.sources and format is not None and not BY_NAME[format].has_rows:
        named = ", ".join(name for name, form in BY_NAME.items() if form.has_rows)
        raise InvalidInput("field", f"{format} has no fields to name; these formats have: {named}")


@contextmanager
def open_file(
    path: Path,
    *,
    format: str | None = None,  # noqa: A002
    fields: FieldMap | None = None,
    progress: Progress | None = None,
    on_refused: OnRefused | None = None,
    secret: bytes = b"",
) -> Iterator[FileReader]:
    """Open a file to read its turns, with the arguments of `read_turns`."""
    chosen = fields or FieldMap()
    database = chroma.database_in(path) if format in (None, chroma.FORMAT.name) else None
    if database is not None:
        with closing(chroma.database_rows(database)) as rows:
            yield open_database(database, chroma.FORMAT, rows, chosen, on_refused=on_refused, secret=secret)
        return
    with Source(path, progress=progress, on_refused=on_refused, secret=secret) as source:
        form = format_of(source, chosen) if format is None else BY_NAME[format]
        yield open_format(source, form, chosen)


def _turns(
    path: Path,
    format: str | None,  # noqa: A002
    fields: FieldMap | None,
    progress: Progress | None,
    on_refused: OnRefused | None,
    secret: bytes,
) -> Iterator[ImportedTurn]:
    with open_file(
        path, format=format, fields=fields, progress=progress, on_refused=on_refused, secret=secret
    ) as reader:
        yield from reader.turns
