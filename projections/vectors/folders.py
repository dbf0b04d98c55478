"""The folders of vectors: their names, the manifests of segments, and the lock of the process that writes them.

The folder of a generation is named by a prefix of the model's fingerprint and a serial number. The manifest of a
segment has its log, model, range of positions, and checksums of its files.

Imports neither FAISS nor numpy, so that `status` can use it.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple, TypeVar

import filelock
import msgspec

from mnemolog.domain import errors
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.limits import INTEGER_MAX, TEXT_BYTES_MAX
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.store_layout import PROJECTIONS
from mnemolog.infra.runtime import files, fork_guard
from mnemolog.infra.runtime.files import DOCUMENT_BYTES_MAX, read_file, require_file, write_synced
from mnemolog.projections.ports import Log
from mnemolog.projections.quarantine import LogRange
from mnemolog.projections.sql import checked_json

FOLDER_DIGITS: Final = 16
"""Length of the fingerprint prefix in names of a model's files, in hexadecimal digits."""

_GENERATION: Final = re.compile(rf"([0-9a-f]{{{FOLDER_DIGITS}}})-(\d{{4,18}})")


class GenerationFolder(NamedTuple):
    """A folder with the name of a generation. Sorts by model, then by serial number."""

    prefix: str
    serial: int
    path: Path


def prefix_of(fingerprint: str) -> str:
    """Return the prefix of the names of a model's files."""
    return fingerprint[:FOLDER_DIGITS]


def generation_name(fingerprint: str, serial: int) -> str:
    """Return the folder name of a model's generation."""
    return f"{prefix_of(fingerprint)}-{serial:04d}"


def generation_folders(root: Path, fingerprint: str = "") -> list[GenerationFolder]:
    """Return the generations below `root`, of all models or of one. Within a model, the oldest comes first.

    Raises `ProjectionUnreadable` if the folder cannot be read now. That does not mean that it is empty.
    """
    prefix = prefix_of(fingerprint)
    return sorted(
        GenerationFolder(match[1], int(match[2]), root / match[0])
        for match, entry in named(root, _GENERATION)
        if match[1].startswith(prefix) and entry.is_dir()
    )


def named(folder: Path, pattern: re.Pattern[str]) -> list[tuple[re.Match[str], os.DirEntry[str]]]:
    """Return the matching entries of a folder, but no symbolic links; none if it does not exist.

    Raises `ProjectionUnreadable`.
    """
    try:
        with os.scandir(folder) as entries:
            matching = [(match, entry) for entry in entries if (match := pattern.fullmatch(entry.name))]
            return [(match, entry) for match, entry in matching if not entry.is_symlink()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise errors.ProjectionUnreadable(folder, str(error)) from error


Kept = TypeVar("Kept")

MANIFEST_FILE: Final = "manifest.json"
VECTORS_FILE: Final = "vectors.q12"
BLOCKS_FILE: Final = "blocks.bin"
ROWS_FILE: Final = "rows.i64"
CONTENTS_FILE: Final = "contents.bin"
"""Which text each turn has (layout: `segment.py`). Only look-ups by text read it."""
INDEX_FILE: Final = "index.faiss"
FILES: Final = frozenset({VECTORS_FILE, BLOCKS_FILE, ROWS_FILE, CONTENTS_FILE, INDEX_FILE})
"""Every file that a manifest may name. Another name is no part of a segment: a store may come from an untrusted source,
and a name such as `../../keys.db` leads out of the folder."""
FORMAT: Final = 7
NO_INDEX: Final = "exact"
"""The index kind of a segment small enough to be scanned for every answer."""
DIMENSION_MAX: Final = 1 << 16
SEARCHED_MAX: Final = 1 << 20
"""The most lists to probe, or candidates to request, that a manifest may ask a search for."""


class Damaged(errors.ProjectionUnreadable):
    """A file differs from what was written. Unlike a file that cannot be read just now, this is permanent."""


class FileTag(msgspec.Struct, frozen=True, kw_only=True):
    """The expected size and checksum of a file of a segment."""

    sha256: str
    """Hexadecimal. For the exact vectors, the digest of the checksums of their blocks, which are checked one by one."""
    size_bytes: int


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that has no vector, because the model refused its text and `skip_bad` was given."""

    position: Position
    topic: str
    why: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a segment. Written last: a segment without one was never finished."""

    format: int
    log_id: str
    fingerprint: str
    model: str
    recipe: str
    dimension: int
    metric: str
    after: Position
    upto: Position
    digest_at_upto: str
    turns: int
    """Turns that have a vector here."""
    vectors: int
    skipped: tuple[Skipped, ...]
    index: str
    """The FAISS factory string of the index, or `exact` if there is none."""
    probes: int
    """Lists that a search probes; 0 without an index."""
    candidates: int
    """Minimum rows that a search requests from the index; 0 without an index."""
    block_rows: int
    """Rows of the exact vectors per checksum."""
    files: dict[str, FileTag]
    faiss_version: str


_DECODER: Final = msgspec.json.Decoder(Manifest)  # Made at import: `checked_json` has the reason.
_NO_SUCH_FILE: Final = (errno.EINVAL, errno.EFBIG, errno.ENOTDIR, errno.ELOOP)
"""`files` refuses the file, and will refuse it again, unlike a file that cannot be read just now."""
_NAME: Final = re.compile(r"(\d{12})-(\d{12})-[0-9a-f]{8}")


class SegmentState(StrEnum):
    """How a segment relates to this log and model. Decided from manifests alone, never from times."""

    USABLE = "usable"
    OTHER_MODEL = "other-model"
    OTHER_LOG = "other-log"
    AHEAD = "ahead"
    """It covers positions that the log does not have: the log has lost history."""
    DIVERGED = "diverged"
    """The log has a different history up to the same position."""
    DAMAGED = "damaged"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a segment, durably.

    A manifest is a witness of the log's history. With its checksum, a flipped bit cannot accuse the log.
    """
    write_synced(folder / MANIFEST_FILE, checked_json.encode(manifest))


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest in `folder`.

    Raises `Damaged` if it differs from what was written, `ProjectionUnreadable` if it cannot be read now.
    """
    path = folder / MANIFEST_FILE
    try:
        manifest = checked_json.decode(read_bytes(path), _DECODER)
    except checked_json.NotAsWritten as error:
        raise Damaged(path, str(error)) from error
    if manifest.format != FORMAT:
        raise Damaged(path, f"manifest format {manifest.format} is not known here")
    if (why := _why_impossible(manifest)) is not None:
        raise Damaged(path, why)
    return manifest


def _why_impossible(manifest: Manifest) -> str | None:
    """Return what no writer of a manifest would have written; None if all of it is possible."""
    if foreign := sorted(manifest.files.keys() - FILES):
        return f"it names a file that no segment has: {foreign[0][:200]!r}"
    numbers = {
        "positions": ORIGIN <= manifest.after < manifest.upto <= INTEGER_MAX,
        "turns": 0 <= manifest.turns <= manifest.upto - manifest.after,
        "vectors": 0 <= manifest.vectors <= manifest.turns * TEXT_BYTES_MAX,
        "dimension": 0 <= manifest.dimension <= DIMENSION_MAX,
        "probes": 0 <= manifest.probes <= SEARCHED_MAX,
        "candidates": 0 <= manifest.candidates <= SEARCHED_MAX,
        "sizes": all(0 <= tag.size_bytes <= INTEGER_MAX for tag in manifest.files.values()),
        "skipped": all(ORIGIN < item.position <= INTEGER_MAX for item in manifest.skipped),
    }
    return next((f"its {what} are impossible" for what, possible in numbers.items() if not possible), None)


def log_range_of(segment: Path) -> LogRange | None:
    """Return the part of the log that a segment was built from; None if its manifest cannot be read."""
    try:
        tag = read_manifest(segment)
    except errors.ProjectionUnreadable:
        return None
    return LogRange(tag.log_id, tag.after, tag.upto, tag.digest_at_upto)


def segment_name(after: Position, upto: Position) -> str:
    """Return a unique name for a segment of `(after, upto]`."""
    return f"{after:012d}-{upto:012d}-{token_hex(4)}"


def range_of(folder: Path) -> tuple[Position, Position] | None:
    """Return the range in the name of a segment; None if it is not the name of a segment."""
    match = _NAME.fullmatch(folder.name)
    return None if match is None else (Position(int(match[1])), Position(int(match[2])))


def segment_folders(generation: Path) -> list[Path]:
    """Return the folders of segments in a generation, in the order of their ranges. Raises `ProjectionUnreadable`."""
    return sorted(generation / match[0] for match, _ in named(generation, _NAME))


def state_of(manifest: Manifest, *, log: Log, fingerprint: str | None) -> SegmentState:
    """Compare a manifest with the log and a model. With `fingerprint` None, any model matches."""
    if manifest.log_id != log.log_id:
        return SegmentState.OTHER_LOG
    if fingerprint is not None and manifest.fingerprint != fingerprint:
        return SegmentState.OTHER_MODEL
    if manifest.upto > log.head().position:
        return SegmentState.AHEAD
    digest = log.digest_at(manifest.upto)
    if digest is None or digest.hex() != manifest.digest_at_upto:
        return SegmentState.DIVERGED
    return SegmentState.USABLE


def tag_of(data: bytes) -> FileTag:
    """Return the tag of a file that holds `data`."""
    return FileTag(sha256=sha256(data).hexdigest(), size_bytes=len(data))


def read_checked(folder: Path, name: str, tag: FileTag) -> bytes:
    """Return the bytes of a file of a segment, checked against its tag; another size is seen before it is read.

    Raises `Damaged` if they differ. FAISS has no checksums, so files are checked before they are parsed.
    """
    data = read_bytes(folder / name, size_max=tag.size_bytes)
    if tag_of(data) != tag:
        raise Damaged(folder / name, "its bytes are not those that were written")
    return data


def read_bytes(path: Path, *, size_max: int = DOCUMENT_BYTES_MAX) -> bytes:
    """Return the content of a file of a segment. Raises `Damaged` if there is no such file, `ProjectionUnreadable`."""
    with readable(path):
        return read_file(path, size_max=size_max, within=path.parent.parent)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise `Damaged` if there is no regular file of the right size, `ProjectionUnreadable` for another `OSError`."""
    try:
        yield
    except FileNotFoundError as error:
        raise Damaged(path, "it is missing") from error
    except OSError as error:
        kind = Damaged if error.errno in _NO_SUCH_FILE else errors.ProjectionUnreadable
        raise kind(path, error.strerror or str(error)) from error


def next_of_chain(found: Iterable[tuple[Manifest, Kept]], reached: Position) -> tuple[Manifest, Kept] | None:
    """Return the segment that continues from `reached`; None if there is none.

    Ranges overlap if a merge was interrupted before it deleted its sources. The longest one is taken.
    """
    options = [(manifest, kept) for manifest, kept in found if manifest.after == reached and manifest.upto > reached]
    return max(options, key=lambda option: option[0].upto) if options else None


def covered_by(log: Log, span: tuple[Position, Position]) -> bool:
    """Whether `log` has the events in the range that a segment's folder names, so that deleting it loses nothing.

    This is all that is known of a segment whose manifest cannot be read.
    """
    after, upto = span
    return ORIGIN <= after < upto <= log.head().position


def why_size_invalid(folder: Path, manifest: Manifest) -> str | None:
    """Compare the sizes of a segment's files with its manifest. Return what is wrong.

    None if the sizes match. Contents are not read: `read_checked` detects flipped bits.
    """
    for name, tag in sorted(manifest.files.items()):
        try:
            require_file(folder / name)
            size = (folder / name).stat().st_size
        except OSError as error:
            return f"{name}: {error.strerror or error}"
        if size != tag.size_bytes:
            return f"{name} has {size:,} bytes, {tag.size_bytes:,} were written"
    return None


WAIT_S: Final = 10.0
"""How long a writer waits for another one, in seconds."""
POLL_S: Final = 0.02
_UNKNOWN: Final = "another process"


class Holder(msgspec.Struct, frozen=True):
    """The holder of a lock. Written beside it, for people only: nothing depends on it."""

    pid: int
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


# Made at import: `mnemolog.projections.sql.checked_json` has the reason.
_HOLDER: Final = msgspec.json.Decoder(Holder)


class IndexerLock:
    """The right to write the vectors of one model, for one thread of one process. Not reentrant.

    An advisory lock on a file (flock), which the system releases when its holder ends.
    Locks with different `purpose` are independent: the holder of one may take the other.
    """

    def __init__(self, root: Path, fingerprint: str, *, purpose: str = "") -> None:
        name = f".{prefix_of(fingerprint)}{purpose and '.'}{purpose}"
        self.path = root / f"{name}.lock"
        self._note = root / f"{name}.holder.json"
        self._lock = files.lock_file(self.path)
        # The file lock belongs to the process, which may take it twice. This lock excludes its threads.
        self._thread = fork_guard.lock()

    @contextmanager
    def held(self, *, wait_s: float = WAIT_S) -> Iterator[None]:
        """Hold the lock. Raises `IndexerBusy` if it is not free within `wait_s` seconds."""
        end = time.monotonic() + wait_s
        if not self._thread.acquire(timeout=wait_s):
            raise errors.IndexerBusy(self.path, holder=self.holder())
        try:
            self._acquire(max(0.0, end - time.monotonic()))
            yield
        finally:
            # Also if the lock was taken and the note of its holder could not be written.
            if self._lock.is_locked:
                with suppress(OSError):  # A note that stays is one of a process that did not end well.
                    self._note.unlink(missing_ok=True)
                self._lock.release()
            self._thread.release()

    def holder(self) -> str:
        """Return a description of the current holder, or of one that was killed."""
        try:
            return str(_HOLDER.decode(read_file(self._note)))
        except (OSError, *UNDECODABLE):
            return _UNKNOWN

    def _acquire(self, wait_s: float) -> None:
        try:
            files.make_folder(self.path.parent, root=PROJECTIONS)
            self._lock.acquire(timeout=wait_s, poll_interval=POLL_S)
        except filelock.Timeout as error:
            raise errors.IndexerBusy(self.path, holder=self.holder()) from error
        except OSError as error:
            raise errors.ProjectionUnreadable(self.path, str(error)) from error
        with suppress(OSError):  # Disk full, no descriptors: harmless, only waiting processes cannot name the holder.
            files.write_unsynced(self._note, to_json(Holder(os.getpid(), socket.gethostname())))
