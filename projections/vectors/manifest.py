"""The tag of a segment: which log, which model, which offsets, which bytes.

Needs neither FAISS nor numpy, so that `status` can read it.
"""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.durable import write_synced
from mnemolog.projections.ports import Log

MANIFEST_FILE: Final = "manifest.json"
FORMAT_SINGLE_TURNS: Final = 1
"""Every vector is of one turn."""
FORMAT_GROUPS: Final = 2
"""Vectors are of groups of turns, which further files list."""

_NO_SEAL: Final = "0" * 64
_SEGMENT_NAME: Final = re.compile(r"(\d{1,18})-(\d{1,18})(?:-[0-9a-f]+)?")


class FileTag(msgspec.Struct, frozen=True, kw_only=True):
    """What a file of a segment must look like."""

    sha256: str
    size_bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Written last: a segment without one was never finished."""

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
    files: dict[str, FileTag]
    faiss_version: str
    groups: int | None = None
    """Groups the turns are in. None, and not stored, in the format of single turns; so is the next."""
    open_turns: int | None = None
    """Turns up to `upto` whose group closes later; they have their vector in a later segment."""
    seal: str | None = None
    """Checksum of the manifest's own bytes (`sealed`). None, and not stored, of those written before there was one."""


class SegmentState(StrEnum):
    """What a segment is to the log and model at hand. Decided from tags alone, never from times."""

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


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest in `folder`. Raises `ProjectionUnreadable`."""
    path = folder / MANIFEST_FILE
    try:
        data = path.read_bytes()
        manifest = msgspec.json.decode(data, type=Manifest)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.ProjectionUnreadable(path, str(error)) from error
    if manifest.format not in (FORMAT_SINGLE_TURNS, FORMAT_GROUPS):
        raise errors.ProjectionUnreadable(path, f"manifest format {manifest.format} is not known here")
    if manifest.seal is not None and manifest.seal != _seal_of(data, manifest.seal):
        raise errors.ProjectionUnreadable(path, "its bytes are not those that were written")
    return manifest


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

    Raises `ProjectionUnreadable`. FAISS has no checksum of its own, so nothing is parsed before this.
    """
    path = folder / name
    try:
        data = path.read_bytes()
    except OSError as error:
        raise errors.ProjectionUnreadable(path, str(error)) from error
    if tag_of(data) != tag:
        raise errors.ProjectionUnreadable(path, "its bytes are not those that were written")
    return data


def covered_by(log: Log, what: Manifest | tuple[Position, Position]) -> bool:
    """Whether `log` can tell again what a segment was made of, so that nothing is lost with the segment.

    True for a manifest of this log that reaches no further than the log and agrees with its digest there. Of a
    segment whose manifest cannot be read, the range its folder is named by must lie within the log.
    """
    if isinstance(what, Manifest):
        return state_of(what, log=log, fingerprint=None) is SegmentState.USABLE
    after, upto = what
    return ORIGIN <= after < upto <= log.head().position


def range_of(folder: Path) -> tuple[Position, Position] | None:
    """Return the offsets `(after, upto]` that the folder of a segment is named by, None where it is not."""
    match = _SEGMENT_NAME.fullmatch(folder.name)
    return None if match is None else (Position(int(match[1])), Position(int(match[2])))


def size_misfit(folder: Path, manifest: Manifest) -> str | None:
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


def sealed(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest with the checksum over them in their midst.

    A manifest is a witness of the log's history: one flipped bit of its digest must not accuse the log.
    """
    open_ = msgspec.structs.replace(manifest, seal=_NO_SEAL)
    data = msgspec.json.format(msgspec.json.encode(open_), indent=2)
    return data.replace(_NO_SEAL.encode(), _seal_of(data, _NO_SEAL).encode())


def _seal_of(data: bytes, seal: str) -> str:
    return sha256(data.replace(seal.encode(), _NO_SEAL.encode())).hexdigest()
