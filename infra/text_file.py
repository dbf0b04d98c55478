"""Read a text file line by line, plain or gzip."""

import errno
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

from mnemolog.domain.display import Bytes
from mnemolog.domain.errors import ImportRefused
from mnemolog.infra.runtime.files import open_file

Progress = Callable[[int, int], None]

LINE_BYTES_MAX: Final = 64 << 20
HEAD_BYTES: Final = 1 << 20
HEAD_LINES: Final = 100
_PROGRESS_BYTES: Final = 1 << 16
_BUFFER_BYTES: Final = 1 << 20
UNPACKED_TIMES_MAX: Final = 50
"""How many times its size a gzip file may unpack to: conversations do to some 10, logs to 30."""
UNPACKED_BYTES_MIN: Final = 4 << 20
"""To so much any gzip file may unpack."""
_UNPACKERS: Final = {b"\x1f\x8b": "gunzip", b"\x28\xb5\x2f\xfd": "unzstd"}
UTF8_BOM: Final = b"\xef\xbb\xbf"
_OTHER_BOMS: Final = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


_UNREADABLE: Final = (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError, KeyError)
"""What the libraries raise for files that cannot be read, compressed or not."""


class _Unpacked(gzip.GzipFile):
    """The content of a gzip file. Raises `OSError` beyond `bytes_max`: what is small on disk is not to fill memory."""

    def __init__(self, file: io.BufferedReader, *, bytes_max: int) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._bytes_max = bytes_max

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, at most one full buffer, however many were requested."""
        data = super().read(_BUFFER_BYTES if size is None or size < 0 else min(size, _BUFFER_BYTES))
        if self.tell() > self._bytes_max:
            why = f"it unpacks to more than {self._bytes_max:,} bytes, {UNPACKED_TIMES_MAX} times its size"
            raise OSError(errno.EFBIG, f"{why}; if you know what is in it, unpack it with gunzip and import that")
        return data


class TextSource:
    """An open file, also one in a zip archive: `export.zip/conversations.json`. Raises `ImportRefused`."""

    def __init__(self, path: Path, *, progress: Progress | None = None) -> None:
        self.path, self._progress = path, progress
        with self._failures(line=1):
            archive = archive_of(path)
            self._raw = open_file(archive or path, follow=True)
            self.size = Bytes(os.fstat(self._raw.fileno()).st_size)
        try:
            self._stream, self.is_gzip = self._opened() if archive is None else (self._in_archive(archive), True)
            self.head = self._read_head()
        except BaseException:
            self._raw.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._raw.close()

    def refuse(self, line: int, why: str) -> None:
        """Raise `ImportRefused` for a line."""
        raise ImportRefused(self.path, line, why, skippable=True)

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

    def tell(self, done: int) -> None:
        """Report how many bytes of the file were read."""
        if self._progress is not None:
            self._progress(min(done, self.size), self.size)

    def _opened(self) -> tuple[io.BufferedReader, bool]:
        with self._failures(line=1):
            unpacker = unpacker_of(self._raw)
        if unpacker == "unzstd":
            raise ImportRefused(self.path, 1, f"it is compressed; unpack it with `unzstd --keep {self.path}` first")
        if not unpacker:
            return self._raw, False
        unpacked: Any = _Unpacked(self._raw, bytes_max=unpacked_max(self.size))
        return io.BufferedReader(unpacked, _BUFFER_BYTES), True

    def _in_archive(self, archive: Path) -> io.BufferedReader:
        name = self.path.relative_to(archive).as_posix()
        with self._failures(line=1):
            packed = zipfile.ZipFile(self._raw)
            if packed.getinfo(name).file_size > unpacked_max(self.size):  # It never gives more than that.
                raise OSError(errno.EFBIG, f"it unpacks to more than {UNPACKED_TIMES_MAX} times its size")
            return io.BufferedReader(cast("io.RawIOBase", packed.open(name)), _BUFFER_BYTES)

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
        except _UNREADABLE as error:
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
        except _UNREADABLE as error:
            raise self._unreadable(line, error) from error

    def _unreadable(self, line: int, error: Exception) -> ImportRefused:
        if isinstance(error, gzip.BadGzipFile | zipfile.BadZipFile | EOFError | zlib.error):
            kind = "zip archive" if archive_of(self.path) else "gzip file"
            return ImportRefused(self.path, line, f"the {kind} is damaged or cut short: {error}")
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if isinstance(error, OSError) and error.errno == errno.EINVAL:
            return ImportRefused(self.path, line, f"{reason}; save it to one first")
        return ImportRefused(self.path, line, f"the file cannot be read: {reason}")


def unpacker_of(file: io.BufferedReader) -> str:
    """Return the command that unpacks a file, which was not read from yet; empty if it is not compressed."""
    head = file.peek(4)
    return next((name for magic, name in _UNPACKERS.items() if head.startswith(magic)), "")


def unpacked_max(size: int) -> int:
    """Return how many bytes a compressed file of this size may unpack to."""
    return max(UNPACKED_BYTES_MIN, UNPACKED_TIMES_MAX * size)


def is_zip(path: Path) -> bool:
    """Whether a file is a zip archive."""
    try:
        with open_file(path, follow=True) as file:
            return file.peek(4).startswith(b"PK\x03\x04")
    except OSError:
        return False


def archive_of(path: Path) -> Path | None:
    """Return the zip archive that a path leads into, None for the path of a file."""
    if os.path.lexists(path):
        return None
    return next((parent for parent in path.parents if parent.is_file() and is_zip(parent)), None)


def without_mark(line: bytes) -> bytes:
    """Return the first line of a file without a UTF-8 byte order mark."""
    return line.removeprefix(UTF8_BOM)


def foreign_encoding(head: bytes) -> str | None:
    """Return the name of the encoding when a byte order mark says that it is not UTF-8."""
    return next((name for mark, name in _OTHER_BOMS.items() if head.startswith(mark)), None)
