"""Read a file to import, plain or gzip, by line or as a whole, and parse its JSON."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec

from mnemolog.domain.decoding import UNDECODABLE
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.infra.runtime.regular_files import open_file

Parsed = TypeVar("Parsed")
OnRefused = Callable[[ImportRefused], None]
Progress = Callable[[int, int], None]

LINE_BYTES_MAX: Final = 64 << 20
DOCUMENT_BYTES_MAX: Final = 4 << 30
HEAD_BYTES: Final = 1 << 20
HEAD_LINES: Final = 100
_PROGRESS_BYTES: Final = 1 << 20
_BUFFER_BYTES: Final = 1 << 20
_GZIP_MAGIC: Final = b"\x1f\x8b"
UTF8_BOM: Final = b"\xef\xbb\xbf"
_OTHER_BOMS: Final = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_DECODER: Final = msgspec.json.Decoder()
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_AT_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_EXPLAINED_BYTES_MAX: Final = 16 << 20


class TextSource:
    """An open file. What concerns the whole file raises `ImportRefused`; a bad line goes to `refuse`."""

    def __init__(
        self,
        path: Path,
        *,
        progress: Progress | None = None,
        on_refused: OnRefused | None = None,
        secret: bytes = b"",
    ) -> None:
        self.path, self.secret = path, secret
        self._progress, self._on_refused = progress, on_refused
        self._document: memoryview | None = None
        with self._failures(line=1):
            self._raw = open_file(path, follow=True)
            self.size = os.fstat(self._raw.fileno()).st_size
        try:
            self._stream, self.is_gzip = self._opened()
            self.head = self._read_head()
        except BaseException:
            self._raw.close()
            raise

    def __enter__(self) -> TextSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._raw.close()

    @property
    def stem(self) -> str:
        """The name of the file without its endings `.gz`, `.jsonl`, `.json`."""
        return stem_of(self.path)

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing in the file."""
        return not any(line.strip() for line in self.head)

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

    def lines(self, *, blank: bool = False) -> Iterator[tuple[int, bytes]]:
        """Yield every line with its number, blank ones only if asked for. One beyond `LINE_BYTES_MAX` is refused."""
        self._stream.seek(0)
        number = done = told = 0
        while line := self._next_line(number + 1):
            number += 1
            done += len(line)
            if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
                done += self._skip_rest(number)
                self.refuse(number, f"the line is longer than {LINE_BYTES_MAX:,} bytes")
                continue
            if done - told >= _PROGRESS_BYTES:
                told = done
                self.tell(self._raw.tell() if self.is_gzip else done)
            text = without_mark(line) if number == 1 else line
            if blank or (text and not text.isspace()):
                yield number, text
        self.tell(self.size)

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the JSON object of every line with its number. Other lines are refused."""
        for number, line in self.lines():
            try:
                row = decode(line)
                if not isinstance(row, dict):
                    raise InvalidInput("JSON", f"expected an object on the line, got {type(row).__name__}")
            except InvalidInput as error:
                self.refuse(number, error)
            else:
                yield number, row

    def turns_by_line(self, parse: Callable[[int, dict[str, Any]], list[Parsed]]) -> Iterator[Parsed]:
        """Yield the turns that `parse` finds in every line: all of a line, or none when it is refused."""
        for number, row in self.rows():
            try:
                turns = parse(number, row)
            except InvalidInput as error:
                self.refuse(number, error)
            else:
                yield from turns

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

    def tell(self, done: int) -> None:
        """Report how many bytes of the file were read."""
        if self._progress is not None:
            self._progress(min(done, self.size), self.size)

    def _opened(self) -> tuple[io.BufferedReader, bool]:
        with self._failures(line=1):
            is_gzip = self._raw.peek(2)[:2] == _GZIP_MAGIC
        if not is_gzip:
            return self._raw, False
        unpacked: Any = gzip.GzipFile(fileobj=self._raw, mode="rb")
        return io.BufferedReader(unpacked, _BUFFER_BYTES), True

    def _read_head(self) -> list[bytes]:
        lines: list[bytes] = []
        size = 0
        while len(lines) < HEAD_LINES and size < HEAD_BYTES and (line := self._next_line(len(lines) + 1)):
            lines.append(line if lines else without_mark(line))
            size += len(line)
        if lines and (encoding := foreign_encoding(lines[0])):
            raise ImportRefused(self.path, 1, f"the file is {encoding}; convert it to UTF-8")
        return lines

    def _next_line(self, number: int) -> bytes:
        try:
            return self._stream.readline(LINE_BYTES_MAX + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise self._unreadable(number, error) from error

    def _skip_rest(self, number: int) -> int:
        skipped = 0
        while line := self._next_line(number):
            skipped += len(line)
            if line.endswith(b"\n"):
                break
        return skipped

    @contextmanager
    def _failures(self, *, line: int) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, zlib.error) as error:
            raise self._unreadable(line, error) from error

    def _unreadable(self, line: int, error: Exception) -> ImportRefused:
        if isinstance(error, gzip.BadGzipFile | EOFError | zlib.error):
            return ImportRefused(self.path, line, f"the gzip file is damaged or cut short: {error}")
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if isinstance(error, OSError) and error.errno == errno.EINVAL:
            return ImportRefused(self.path, line, f"{reason}; save it to one first")
        return ImportRefused(self.path, line, f"the file cannot be read: {reason}")


def stem_of(path: Path) -> str:
    """Return the name of a file without its endings `.gz`, `.jsonl`, `.json`."""
    name = path.name
    return Path(name[:-3] if name.lower().endswith(".gz") else name).stem


def without_mark(line: bytes) -> bytes:
    """Return the first line of a file without a UTF-8 byte order mark."""
    return line.removeprefix(UTF8_BOM)


class BrokenDocument(InvalidInput):
    """Invalid JSON. `line` is where it is invalid, counted within the text."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__("JSON", why)
        self.line = line


def decode(data: bytes | memoryview) -> Any:
    """Return the JSON value. Raises `BrokenDocument` that says what is wrong and where."""
    try:
        return _DECODER.decode(data)
    except UNDECODABLE as error:
        raise _broken(bytes(data), error) from error


def elements(data: bytes | memoryview) -> list[memoryview]:
    """Return the elements of a JSON array as text, each to be decoded on its own.

    Raises `BrokenDocument` when this is not an array. An element that is not UTF-8 raises when it is decoded.
    """
    try:
        return [memoryview(element) for element in _ELEMENTS.decode(data)]
    except UNDECODABLE as error:
        raise _broken(bytes(data), error) from error


def foreign_encoding(head: bytes) -> str | None:
    """Return the name of the encoding when a byte order mark says that it is not UTF-8."""
    return next((name for mark, name in _OTHER_BOMS.items() if head.startswith(mark)), None)


def _broken(data: bytes, error: Exception) -> BrokenDocument:
    """Return why `data` is refused. Only for text that was refused already, so it may take its time."""
    at = _AT_BYTE.search(str(error))
    line = data.count(b"\n", 0, int(at[1]) if at else len(data.rstrip())) + 1
    try:
        text = data.decode()
    except UnicodeDecodeError as bad:
        line = data.count(b"\n", 0, bad.start) + 1
        return BrokenDocument(f"not UTF-8: byte 0x{data[bad.start]:02x} at byte {bad.start}", line)
    if isinstance(error, RecursionError):
        return BrokenDocument("nested too deeply", 1)
    if len(data) <= _EXPLAINED_BYTES_MAX:
        try:
            # msgspec calls a lone surrogate "truncated input". The standard library reads it, so it can be named.
            json.dumps(json.loads(text.rstrip()), ensure_ascii=False).encode()
        except UnicodeEncodeError as bad:
            surrogate = f"\\u{ord(bad.object[bad.start]):04x}"
            return BrokenDocument(f"not valid Unicode: lone surrogate {surrogate}", line)
        except json.JSONDecodeError as bad:
            return BrokenDocument(f"invalid JSON: {bad.msg} at column {bad.colno}", bad.lineno)
        except (ValueError, RecursionError):
            pass  # A number that only msgspec refuses.
    return BrokenDocument(f"invalid JSON: {error}", line)
