"""Find the files to import, tell their formats, and read their turns."""

import os
import shlex
import shutil
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from mnemolog.adapters.extras import require
from mnemolog.adapters.importers.formats import coding_agents, exports, flat
from mnemolog.adapters.importers.message_reader import MessageReader, Turns, Walk, count, shown_fields
from mnemolog.adapters.importers.source import JsonValue, OnRefused, Source, objects_on, values
from mnemolog.adapters.importers.turn import (
    DEFAULT_MAP,
    FieldMap,
    Format,
    ImportedTurn,
    KeyMaker,
    Message,
    Reader,
    TurnMaker,
    stem_of,
    usual_names,
)
from mnemolog.domain.display import Bytes
from mnemolog.domain.encoding import to_json
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.domain.values import quoted
from mnemolog.infra.runtime.files import ScratchFolder, local_paths, write_pieces
from mnemolog.infra.runtime.files import open_file as open_archive
from mnemolog.infra.text_file import UNPACKED_TIMES_MAX, archive_of, is_zip, unpacked_max
from mnemolog.projections.ports import Progress, tell

DATABASE: Final = "chroma.sqlite3"
"""Its file in such a folder."""
PAGE: Final = 1_000
"""Documents that are read together."""


def save_collections(folder: Path, into: Path) -> list[Path]:
    """Save each collection in a file of its own, as `get()` returns its pages, one a line. Raises `ExtraMissing`."""
    require("chroma", "chromadb")
    chromadb: Any = import_module("chromadb")
    copy = shutil.copytree(folder, into / "copy", symlinks=True)
    client = chromadb.PersistentClient(str(copy), settings=chromadb.Settings(anonymized_telemetry=False))
    files = []
    for number, collection in enumerate(sorted(client.list_collections(), key=lambda found: found.name)):
        files.append(into / f"{number}.jsonl")
        write_pieces(files[-1], _pages(collection))
    return files


def _pages(collection: Any) -> Iterator[bytes]:
    """Yield the lines of a collection's file."""
    for offset in range(0, collection.count(), PAGE):
        page = collection.get(limit=PAGE, offset=offset, include=["documents", "metadatas"])
        kept = {name: page[name] for name in ("ids", "documents", "metadatas")}
        yield to_json({"collection": collection.name} | kept) + b"\n"


# Formats of one program each, before those that hold anything.
_OF_PROGRAMS: Final = (
    flat.SUBJECT,
    coding_agents.CLAUDE_CODE,
    coding_agents.CODEX,
    exports.CHATGPT,
    exports.CLAUDE_AI,
    flat.ZEP,
    flat.MEM0,
    flat.CHROMA,
    flat.LANGGRAPH,
    flat.LETTA,
    flat.OPENAI,
)
BY_NAME: Final = {form.name: form for form in (flat.JSONL, flat.JSON, flat.CSV, *_OF_PROGRAMS)}
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
    if not any(line.strip() for line in source.head):
        return flat.JSONL
    if columns := flat.columns(source, named):
        if named or "text" in usual_names(columns):
            return flat.CSV
        raise _unknown(
            source,
            f"it looks like CSV, and none of its columns has a usual name for a text: {shown_fields(columns)}",
            flat.rows(source),
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
    if any(isinstance(value.content, dict) and coding_agents.is_side_line(value.content) for value in found):
        return coding_agents.CLAUDE_CODE
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
                    yield Message(number, where, content, conversation)
        except InvalidInput as error:
            source.refuse(value.number, error if by_line else f"{value.where}: {error}")


def _turns_by_line(
    source: Source, reader: Reader, read: Sequence[str], left_out: Counter[str]
) -> Iterator[ImportedTurn]:
    """Yield the turns in the lines of a transcript: all of a line, or none if it is refused."""
    walk = Walk(read)
    for number, row in source.rows():
        before = left_out.total()
        try:
            entry = reader.entry(number, row)
        except InvalidInput as error:
            source.refuse(number, error)
            continue
        if entry is not None and entry.turns:
            links = (entry.name, entry.follows, entry.works_for, entry.copied_from, entry.folder)
            count(left_out, {reason for reason, _ in walk.unread(row, Turns(entry.turns, links))})
            yield from entry.turns
        elif left_out.total() == before:
            count(left_out, [f"line {quoted(row.get('type'))}"])


_ENDINGS: Final = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt", ".gz")
"""Other files of folders and archives are not looked at: pictures, sounds, pages."""
_EXPORTED: Final = "conversations"
"""How the files of ChatGPT and claude.ai with conversations begin; beside them lie those about the account."""


class Files(NamedTuple):
    """What there is to import."""

    found: list[Path]
    """The files, those of folders and archives by name."""
    skipped: list[str]
    """Files without conversations, of folders, archives and patterns."""
    scratch: list[ScratchFolder]
    """What was saved from folders of databases; it exists as long as this object."""


def files_in(
    given: str | Path | Iterable[str | Path],
    *,
    format: str | None,  # noqa: A002
    fields: FieldMap,
) -> Files:
    """Return the files to import, and those among them without conversations.

    A file in an archive has the path `export.zip/conversations.json`. If there is an export of a program among them,
    other JSON and tables in it are about the account, and skipped. So they are among several files of one folder and
    ending, as a shell's pattern names them, if one is `conversations….json`; files of no known format always are.
    Raises `InvalidInput` for an unknown format or fields of a transcript, and `ImportRefused` for a folder or an
    archive without conversations, and for an archive that unpacks to more than 50 times its size.
    """
    checked_format(format, fields)
    files = Files([], [], [])
    named: dict[tuple[Path, str], list[Path]] = defaultdict(list)
    for path in local_paths("paths", given):
        if (path / DATABASE).is_file():
            files.scratch.append(ScratchFolder())
            files.found.extend(save_collections(path, files.scratch[-1].path))
            continue
        inside = _inside(path)
        if inside is None:
            named[path.parent, path.suffix].append(path)
            continue
        chosen = _with_conversations(inside, format, fields)
        if not chosen:
            raise ImportRefused(path, 1, f"none of the {len(inside)} files in it holds conversations of a known format")
        files.found.extend(chosen)
        files.skipped.extend(str(file) for file in inside if file not in chosen)
    for given_files in named.values():
        one_by_one = len(given_files) == 1 or format is not None or not all(map(Path.is_file, given_files))
        chosen = (
            given_files if one_by_one else _with_conversations(given_files, format, fields, named=True) or given_files
        )
        files.found.extend(chosen)
        files.skipped.extend(str(file) for file in given_files if file not in chosen)
    return files


def _with_conversations(
    files: list[Path],
    format: str | None,  # noqa: A002
    fields: FieldMap,
    *,
    named: bool = False,
) -> list[Path]:
    """Return the files of a folder with conversations; among files that are `named`, an export has its usual name."""
    formats = {file: _format_in(file, fields) for file in files}
    programs = PROGRAMS.intersection(formats[file] for file in files if not named or file.name.startswith(_EXPORTED))
    wanted = {format} if format else programs or {*formats.values()} - {""}
    return [file for file in formats if formats[file] in wanted]


def counted_files(files: Sequence[Path], progress: Progress | None) -> Iterator[tuple[Path, Progress]]:
    """Yield each file with the callback for the bytes that are read of it: `progress` gets those of all files."""
    done, total = 0, Bytes(sum(map(_size_of, files)))
    for path in files:
        yield path, lambda read, _size, before=done: tell(progress, before + read, total)
        done += _size_of(path)


def _size_of(path: Path) -> int:
    """Return the bytes of a file as it is on disk, of the whole archive for a file in one. 0 if there is none."""
    path = archive_of(path) or path
    return path.stat().st_size if path.exists() else 0


def _inside(path: Path) -> list[Path] | None:
    """Return the files in a folder or an archive, None for a file."""
    if path.is_dir():
        inside = (Path(at, name) for at, _, names in os.walk(path) for name in names if _is_looked_at(name))
        return sorted(file for file in inside if not file.is_symlink())
    if not is_zip(path):
        return None
    try:
        with open_archive(path, follow=True) as file, zipfile.ZipFile(file) as archive:
            files = [info for info in archive.infolist() if _is_looked_at(info.filename)]
    except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
        raise ImportRefused(path, 1, f"the zip archive cannot be read: {error}") from error
    bytes_max = unpacked_max(path.stat().st_size)
    if sum(info.file_size for info in files) > bytes_max:
        why = f"it unpacks to more than {bytes_max:,} bytes, {UNPACKED_TIMES_MAX} times its size"
        raise ImportRefused(path, 1, f"{why}; if you know what is in it, unpack it and import the folder")
    if any(info.flag_bits & 1 for info in files):
        raise ImportRefused(path, 1, "the zip archive is encrypted; unpack it and import the folder")
    return sorted({path / info.filename for info in files})


def _is_looked_at(name: str) -> bool:
    """Whether a file may hold conversations. In an archive it must lie within: no `..`, no absolute path."""
    plain = PurePosixPath(name)
    is_within = str(plain) == name and not plain.is_absolute() and ".." not in plain.parts
    return is_within and name.lower().endswith(_ENDINGS)


def _format_in(path: Path, fields: FieldMap) -> str:
    """Return the format of a file, empty if it has none or is empty."""
    try:
        with Source(path) as source:
            is_empty = b"".join(source.head).strip() in (b"", b"[]", b"{}")
            return "" if is_empty else format_of(source, fields).name
    except ImportRefused:
        return ""
