"""Read a file of any known format as a stream of turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mnemolog.adapters.importers.detection import CHATGPT, CLAUDE_CODE, CODEX, FORMATS, JSONL, OPENAI, format_of
from mnemolog.adapters.importers.fields import FieldMap
from mnemolog.adapters.importers.formats import chatgpt, claude_code, codex, jsonl, openai
from mnemolog.adapters.importers.turn import ImportedTurn
from mnemolog.domain.errors import InvalidInput
from mnemolog.infra.text_file import OnRefused, Progress, TextSource


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

    Without `format` it is detected from the content; `fields` imply JSON Lines. JSON Lines and transcripts of Claude
    Code and Codex are read line by line; ChatGPT exports and OpenAI documents are held in memory as bytes. `progress`
    receives bytes read and bytes in all, as the file is on disk. `secret` goes into the keys of turns that have none
    (`mnemolog.adapters.importers.keys`).

    Raises `InvalidInput` at once for an unknown format, or for fields with another format. The first line that cannot
    be recorded raises `ImportRefused`; with `on_refused` the error goes there and reading continues. Errors of the file
    as a whole always raise: unreadable, not UTF-8, unknown format, a damaged gzip file, a document that is not JSON.
    """
    if format is not None and format not in FORMATS:
        raise InvalidInput("format", f"{format!r} is none of {', '.join(FORMATS)}")
    if fields is not None and fields.sources and format not in (None, JSONL):
        raise InvalidInput("field", f"only {JSONL} files have fields to name, not {format}")
    chosen = JSONL if format is None and fields is not None and fields.sources else format
    return _read(path, chosen, fields or FieldMap(), progress, on_refused, secret)


def _read(
    path: Path,
    chosen: str | None,
    fields: FieldMap,
    progress: Progress | None,
    on_refused: OnRefused | None,
    secret: bytes,
) -> Iterator[ImportedTurn]:
    with TextSource(path, progress=progress, on_refused=on_refused, secret=secret) as source:
        found = chosen or format_of(source)
        yield from jsonl.read(source, fields) if found == JSONL else _READERS[found](source)


_READERS: Final = {CLAUDE_CODE: claude_code.read, CODEX: codex.read, CHATGPT: chatgpt.read, OPENAI: openai.read}
