"""A file to import: its lines, and its JSON values: elements of an array, one document, or one value a line."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from mnemolog.domain.encoding import UNDECODABLE
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.infra.text_file import UTF8_BOM, Progress, TextSource

OnRefused = Callable[[ImportRefused], None]

SAMPLES_MAX: Final = 100
DOCUMENT_BYTES_MAX: Final = 4 << 30
_DECODER: Final = msgspec.json.Decoder()
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
"""Splits an array; an element that is not UTF-8 raises when it is decoded."""
_PYTHON: Final = json.JSONDecoder()
_AT_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_BEGINNING: Final = re.compile(r'(?<![:\[,])(?<![:\[,] )\{"')
"""Where an object may begin that is not a value within another."""
_BEGINNINGS_MAX: Final = 100
_ODD: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?(?:NaN|Infinity)|-?\d[\d.]*[eE]\+?\d{3,}', re.DOTALL)
_ESCAPES: Final = re.compile(
    rb"(\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\[^u]|\\u(?![dD][89a-fA-F])....)|\\u....", re.DOTALL
)
"""Texts, and numbers that JSON does not have; escapes, of which those outside of the group are half a character."""
_EXPLAINED_BYTES_MAX: Final = 16 << 20


class Source(TextSource):
    """An open file to import. What concerns the whole file raises `ImportRefused`; a bad line goes to `refuse`."""

    def __init__(self, path: Path, *, progress: Progress | None = None, on_refused: OnRefused | None = None) -> None:
        super().__init__(path, progress=progress)
        self._on_refused = on_refused
        self._document: memoryview | None = None

    @property
    def is_array(self) -> bool:
        """Whether the file begins like a JSON array."""
        return next((line for line in self.head if line.strip()), b"").lstrip().startswith(b"[")

    def refuse(self, line: int, why: InvalidInput | str) -> None:
        """Raise `ImportRefused`, or pass it to `on_refused` if the caller gave that."""
        refused = ImportRefused(self.path, line, str(why), skippable=True)
        if self._on_refused is None:
            raise refused from (why if isinstance(why, InvalidInput) else None)
        self._on_refused(refused)

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the JSON objects of every line with its number. Other lines are refused."""
        for number, line in self.lines():
            rows, error = objects_on(line)
            for row in rows:
                yield number, row
            if error is not None:
                self.refuse(number, error)

    def document(self) -> memoryview:
        """Return the whole file, which is held in memory. Raises `ImportRefused` beyond `DOCUMENT_BYTES_MAX`."""
        if self._document is None:
            with self._failures(line=1):
                self._stream.seek(0)
                data = self._stream.read(DOCUMENT_BYTES_MAX + 1)
            if len(data) > DOCUMENT_BYTES_MAX:
                raise ImportRefused(self.path, 1, f"the document is larger than {DOCUMENT_BYTES_MAX:,} bytes")
            self._document = memoryview(data)[len(UTF8_BOM) if data.startswith(UTF8_BOM) else 0 :]
        return self._document


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


def values(source: Source, *, sample: bool = False) -> Iterator[JsonValue]:
    """Yield the values of a file, each decoded when the caller gets to it. One that is not JSON is refused.

    A `sample` has the first values, and refuses none. A broken array raises `ImportRefused`.
    """
    if source.is_array:
        yield from _elements(source, sample=sample)
        return
    whole = whole_document(source)
    if whole is not None:
        yield whole
        if not sample:
            source.tell(source.size)
        return
    for number, line in enumerate(source.head, start=1) if sample else source.lines():
        found, error = values_on(line)
        yield from (JsonValue(content, number, on_line=True, alone=False) for content in found)
        if error is not None and not sample:
            source.refuse(number, error)


def whole_document(source: Source) -> JsonValue | None:
    """Return the file as one value, None if it is an array or has values on lines.

    Raises `ImportRefused` for a broken document of several lines.
    """
    filled = [line for line in source.head if line.strip()]
    if not filled or source.is_array:
        return None
    name = source.path.name.lower().removesuffix(".gz")
    on_line = bool(values_on(filled[0])[0])
    if on_line:
        if len(filled) > 1 or name.endswith((".jsonl", ".ndjson")):
            return None
    elif not filled[0].lstrip().startswith(b"{"):
        return None  # Neither JSON nor the beginning of it: do not read a large file of another kind.
    try:
        return JsonValue(decode(source.document()), 1, on_line=on_line, alone=True)
    except BrokenDocument as error:
        if len(filled) > 1 and not any(values_on(line)[0] for line in filled):
            raise _broken(source, error) from error
        return None


def _elements(source: Source, *, sample: bool) -> Iterator[JsonValue]:
    try:
        items = [memoryview(element) for element in _decoded_by(_ELEMENTS, source.document())]
    except BrokenDocument as error:
        raise _broken(source, error) from error
    total, done = sum(map(len, items)) or 1, 0
    for number, data in enumerate(items[:SAMPLES_MAX] if sample else items, start=1):
        try:
            content = decode(data)
        except InvalidInput as error:
            if not sample:
                source.refuse(number, f"element {number}: {error}")
        else:
            yield JsonValue(content, number, on_line=False, alone=False)
        done += len(data)
        if not sample:
            source.tell(source.size if number == len(items) else done * source.size // total)


def _broken(source: Source, error: "BrokenDocument") -> ImportRefused:
    return ImportRefused(source.path, error.line, f"the JSON document is broken: {error}")


class BrokenDocument(InvalidInput):
    """Invalid JSON. `line` is where it is invalid, counted within the text."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__("JSON", why)
        self.line = line


def decode(data: bytes | memoryview) -> Any:
    """Return the JSON value. Half an emoji becomes a replacement character; `NaN` and numbers out of range become null.

    Raises `BrokenDocument` that says what is wrong and where.
    """
    return _decoded_by(_DECODER, data)


def _decoded_by(decoder: msgspec.json.Decoder[Any], data: bytes | memoryview) -> Any:
    try:
        return decoder.decode(data)
    except UNDECODABLE as error:
        try:
            return decoder.decode(_ODD.sub(_mended, data))
        except UNDECODABLE:
            raise _explained(bytes(data), error) from error


def _mended(found: re.Match[bytes]) -> bytes:
    if not found[0].startswith(b'"'):
        return b"null"
    return _ESCAPES.sub(lambda escape: escape[1] or rb"\ufffd", found[0])


def objects_on(line: bytes) -> tuple[list[dict[str, Any]], InvalidInput | None]:
    """Return the JSON objects on a line, and what is wrong with the rest of it, as `values_on`."""
    found, wrong = values_on(line)
    if found and not isinstance(found[0], dict):
        return [], InvalidInput("JSON", f"expected an object on the line, got {type(found[0]).__name__}")
    return found, wrong


def values_on(line: bytes) -> tuple[list[Any], InvalidInput | None]:
    """Return the JSON value on a line, or the objects on it, and what is wrong with the rest of it.

    There are several objects if two programs wrote at once, or if one stopped in the middle of a line and another
    continued.
    """
    if line.isspace():
        return [], None
    try:
        return [decode(line)], None
    except InvalidInput as error:
        wrong = error
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return [], wrong
    found = list[Any]()
    reached = 0
    begin = 0
    gaps = ""
    for _ in range(_BEGINNINGS_MAX):
        if (began := _BEGINNING.search(text, begin)) is None:
            break
        try:
            _, end = _PYTHON.raw_decode(text, began.start())
            found.append(decode(text[began.start() : end].encode()))
        except (ValueError, RecursionError, InvalidInput):
            begin = began.end()
        else:
            gaps += text[reached : began.start()].strip()
            reached = begin = end
    return found, wrong if not found or gaps or text[reached:].strip() else None


def _explained(data: bytes, error: Exception) -> BrokenDocument:
    """Return why `data` is refused. Only for text that was refused already, so it may take its time."""
    at = _AT_BYTE.search(str(error))
    line = data.count(b"\n", 0, int(at[1]) if at else len(data.rstrip())) + 1
    try:
        json.loads(data.decode().rstrip()) if len(data) <= _EXPLAINED_BYTES_MAX else None
    except UnicodeDecodeError as bad:
        line = data.count(b"\n", 0, bad.start) + 1
        return BrokenDocument(f"not UTF-8: byte 0x{data[bad.start]:02x} at byte {bad.start}", line)
    except json.JSONDecodeError as bad:
        return BrokenDocument(f"invalid JSON: {bad.msg} at column {bad.colno}", bad.lineno)
    except RecursionError:
        return BrokenDocument("nested too deeply", 1)
    except ValueError:
        pass  # A number that only msgspec refuses.
    return BrokenDocument(f"invalid JSON: {error}", line)
