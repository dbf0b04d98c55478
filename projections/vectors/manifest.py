"""The tag of a segment: which log, which model, which offsets, which bytes.

Needs neither FAISS nor numpy, so that `status` can read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Final, TypeVar

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.infra.runtime.atomic_files import write_synced
from mnemolog.projections.ports import Log
from mnemolog.projections.quarantine import LogRange
from mnemolog.projections.sql import checked_json
from mnemolog.projections.vectors.folders import named

Kept = TypeVar("Kept")

MANIFEST_FILE: Final = "manifest.json"
FORMAT: Final = 5
NO_INDEX: Final = "exact"
"""What a manifest says of a segment that is small enough to be read through for every answer."""


class Damaged(errors.ProjectionUnreadable):
    """A file is not what was written. Unlike one that cannot be read just now, it never will be again."""


class FileTag(msgspec.Struct, frozen=True, kw_only=True):
    """What a file of a segment must look like."""

    sha256: str
    """Hexadecimal. Of the exact vectors that of their blocks' checksums, which are looked at one by one."""
    size_bytes: int


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that has no vector, because the model refused its text and `skip_bad` was given."""

    position: Position
    topic: str
    why: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Written last: a segment without one was never finished.

    Manifests of earlier versions have further fields, which are ignored: they count groups of turns.
    """

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
    """Turns that have their vector here."""
    vectors: int
    skipped: tuple[Skipped, ...]
    index: str
    """How the FAISS index was made, or `exact` where there is none."""
    probes: int
    """How many of its lists a search looks at; 0 where there is no index."""
    candidates: int
    """How many rows a search asks it for at least; 0 where there is no index."""
    block_rows: int
    """Rows of the exact vectors that share a checksum."""
    files: dict[str, FileTag]
    faiss_version: str

    @property
    def of_groups(self) -> bool:
        """Whether earlier versions made it, of several turns to a vector. Nothing searches such vectors any more."""
        return _GROUPED in self.recipe


_GROUPED: Final = " group/"
_NAME: Final = re.compile(r"(\d{12})-(\d{12})-[0-9a-f]{8}")


class SegmentState(StrEnum):
    """How a segment relates to this log and model. Decided from tags alone, never from times."""

    USABLE = "usable"
    OTHER_MODEL = "other-model"
    OTHER_LOG = "other-log"
    AHEAD = "ahead"
    """It covers offsets that the log does not have: the log has lost history."""
    DIVERGED = "diverged"
    """The log tells another history up to the same offset."""
    DAMAGED = "damaged"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a segment, durably."""
    write_synced(folder / MANIFEST_FILE, sealed(manifest))


def sealed(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest file.

    A manifest is a witness of the log's history: one flipped bit of its digest must not accuse the log.
    """
    return checked_json.encode(manifest)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest in `folder`.

    Raises `Damaged` if it is not as it was written, `ProjectionUnreadable` if it cannot be read now.
    """
    path = folder / MANIFEST_FILE
    try:
        manifest = checked_json.decode(read_bytes(path), Manifest)
    except checked_json.NotAsWritten as error:
        raise Damaged(path, str(error)) from error
    if manifest.format != FORMAT:
        raise Damaged(path, f"manifest format {manifest.format} is not known here")
    return manifest


def log_range_of(segment: Path) -> LogRange | None:
    """Return the part of the log that a segment was built from, None where its manifest cannot be read."""
    try:
        tag = read_manifest(segment)
    except errors.ProjectionUnreadable:
        return None
    return LogRange(tag.log_id, tag.after, tag.upto, tag.digest_at_upto)


def segment_name(after: Position, upto: Position) -> str:
    """Return a name for a segment of `(after, upto]`, which no other segment ever has."""
    return f"{after:012d}-{upto:012d}-{token_hex(4)}"


def range_of(folder: Path) -> tuple[Position, Position] | None:
    """Return the range a segment's name states, None for a name that is no segment's."""
    match = _NAME.fullmatch(folder.name)
    return None if match is None else (Position(int(match[1])), Position(int(match[2])))


def segment_folders(generation: Path) -> list[Path]:
    """Return the folders of segments in a generation, in the order of their ranges. Raises `ProjectionUnreadable`."""
    return sorted(generation / match[0] for match, _ in named(generation, _NAME))


def state_of(manifest: Manifest, *, log: Log, fingerprint: str | None) -> SegmentState:
    """Return what `manifest` says of itself is worth here. `fingerprint` None asks about any model."""
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
    """Return the bytes of a file of a segment, only if they are the ones that were written.

    Raises `Damaged` otherwise. FAISS has no checksum of its own, so nothing is parsed before this.
    """
    data = read_bytes(folder / name)
    if tag_of(data) != tag:
        raise Damaged(folder / name, "its bytes are not those that were written")
    return data


def read_bytes(path: Path) -> bytes:
    """Return what a file holds. Raises `Damaged` where there is none, `ProjectionUnreadable`."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise Damaged(path, "it is missing") from error
    except OSError as error:
        raise errors.ProjectionUnreadable(path, str(error)) from error


def next_of_chain(found: Iterable[tuple[Manifest, Kept]], reached: Position) -> tuple[Manifest, Kept] | None:
    """Return which of these segments continues from `reached`, None where none does.

    Ranges overlap where a merge was cut off before it removed what it had merged: the longest is taken.
    """
    options = [(manifest, kept) for manifest, kept in found if manifest.after == reached and manifest.upto > reached]
    return max(options, key=lambda option: option[0].upto) if options else None


def covered_by(log: Log, what: Manifest | tuple[Position, Position]) -> bool:
    """Whether `log` can tell again what a segment was made of, so that nothing is lost with the segment.

    True for a manifest of this log that reaches no further than the log and agrees with its digest there. Of a
    segment whose manifest cannot be read, the range its folder is named by must lie within the log.
    """
    if isinstance(what, Manifest):
        return state_of(what, log=log, fingerprint=None) is SegmentState.USABLE
    after, upto = what
    return ORIGIN <= after < upto <= log.head().position


def why_size_invalid(folder: Path, manifest: Manifest) -> str | None:
    """Return why the files of a segment cannot be the ones that were written, by their sizes alone.

    None where the sizes fit. Contents are not read: a flipped bit is found by `read_checked`.
    """
    for name, tag in sorted(manifest.files.items()):
        try:
            size = (folder / name).stat().st_size
        except OSError as error:
            return f"{name}: {error.strerror or error}"
        if size != tag.size_bytes:
            return f"{name} has {size:,} bytes, {tag.size_bytes:,} were written"
    return None
