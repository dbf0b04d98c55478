"""The JSON values of a file: the elements of an array, one document, or one value a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.infra.text_file import BrokenDocument, TextSource, decode, elements

SAMPLES_MAX: Final = 100


class JsonValue(msgspec.Struct, frozen=True):
    """One value of a file."""

    content: Any
    number: int
    """The number of the line or of the element, from 1."""
    on_line: bool
    """Whether it has a line of its own, as in JSON Lines."""
    alone: bool
    """Whether the whole file is this value."""

    @property
    def where(self) -> str:
        """`line 12`, `element 12` or `the document`."""
        return "the document" if self.alone else f"{'line' if self.on_line else 'element'} {self.number}"


def values(source: TextSource) -> Iterator[JsonValue]:
    """Yield the values of a file, each decoded when the caller gets to it. One that is not JSON is refused."""
    if source.is_array:
        yield from _elements(source)
        return
    whole = whole_document(source)
    if whole is not None:
        yield whole
        source.tell(source.size)
        return
    for number, line in source.lines():
        try:
            content = decode(line)
        except InvalidInput as error:
            source.refuse(number, error)
        else:
            yield JsonValue(content, number, on_line=True, alone=False)


def samples(source: TextSource) -> Iterator[JsonValue]:
    """Yield the first values of a file, without refusing any. A broken array raises `ImportRefused`."""
    if source.is_array:
        for number, data in enumerate(_split(source)[:SAMPLES_MAX], start=1):
            yield from _decoded(data, number, on_line=False)
        return
    whole = whole_document(source)
    if whole is not None:
        yield whole
        return
    for number, line in enumerate(source.head, start=1):
        if line.strip():
            yield from _decoded(line, number, on_line=True)


def whole_document(source: TextSource) -> JsonValue | None:
    """Return the file as one value, None if it is an array or has values on lines.

    Raises `ImportRefused` for a broken document of several lines.
    """
    filled = [line for line in source.head if line.strip()]
    if not filled or source.is_array:
        return None
    name = source.path.name.lower().removesuffix(".gz")
    on_line = bool(_decoded(filled[0], 1, on_line=True))
    if on_line:
        if len(filled) > 1 or name.endswith((".jsonl", ".ndjson")):
            return None
    elif not filled[0].lstrip().startswith(b"{"):
        return None  # Neither JSON nor the beginning of it: do not read a large file of another kind.
    try:
        return JsonValue(decode(source.document()), 1, on_line=on_line, alone=True)
    except BrokenDocument as error:
        if len(filled) > 1 and not any(_decoded(line, 1, on_line=True) for line in filled):
            raise _broken(source, error) from error
        return None


def _elements(source: TextSource) -> Iterator[JsonValue]:
    items = _split(source)
    total = sum(len(item) for item in items) or 1
    done = 0
    for number, data in enumerate(items, start=1):
        try:
            content = decode(data)
        except InvalidInput as error:
            source.refuse(number, f"element {number}: {error}")
        else:
            yield JsonValue(content, number, on_line=False, alone=False)
        done += len(data)
        source.tell(done * source.size // total)
    source.tell(source.size)


def _split(source: TextSource) -> list[memoryview]:
    try:
        return elements(source.document())
    except BrokenDocument as error:
        raise _broken(source, error) from error


def _broken(source: TextSource, error: BrokenDocument) -> ImportRefused:
    return ImportRefused(source.path, error.line, f"the JSON document is broken: {error}")


def _decoded(data: bytes | memoryview, number: int, *, on_line: bool) -> list[JsonValue]:
    """Return the value in a list, an empty one if it is not JSON."""
    try:
        return [JsonValue(decode(data), number, on_line=on_line, alone=False)]
    except InvalidInput:
        return []
