"""The folders of vectors: their names, the manifests of segments, the lock of the process that writes them, and states.

The folder of a generation is named by a prefix of the model's fingerprint and a serial number. The manifest of a
segment has its log, model, range of positions, and checksums of its files. The states of generations are read from
manifests.

Imports neither FAISS nor numpy, so that `status` can use it.
"""

import errno
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Final, NamedTuple, TypeVar

import filelock
import msgspec

from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.errors import ANY_MODEL, Hint, IndexerBusy, ProjectionUnreadable, remedy, with_model
from mnemolog.domain.result import Result
from mnemolog.domain.store_layout import PROJECTIONS
from mnemolog.domain.values import INTEGER_MAX, ORIGIN, TEXT_BYTES_MAX, Position
from mnemolog.infra.runtime import files, fork_guard
from mnemolog.projections.ports import Log
from mnemolog.projections.quarantine import LOST_HISTORY, NOTHING_TO_DO, Actions, Drift, LogRange, size_of
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
        raise ProjectionUnreadable(folder, str(error)) from error


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


class Damaged(ProjectionUnreadable):
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
    files.write_synced(folder / MANIFEST_FILE, checked_json.encode(manifest))


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
    except ProjectionUnreadable:
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
    differs = digest is None or digest.hex() != manifest.digest_at_upto
    return SegmentState.DIVERGED if differs else SegmentState.USABLE


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


def read_bytes(path: Path, *, size_max: int = files.DOCUMENT_BYTES_MAX) -> bytes:
    """Return the content of a file of a segment. Raises `Damaged` if there is no such file, `ProjectionUnreadable`."""
    with readable(path):
        return files.read_file(path, size_max=size_max, within=path.parent.parent)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise `Damaged` if there is no regular file of the right size, `ProjectionUnreadable` for another `OSError`."""
    try:
        yield
    except FileNotFoundError as error:
        raise Damaged(path, "it is missing") from error
    except OSError as error:
        kind = Damaged if error.errno in _NO_SUCH_FILE else ProjectionUnreadable
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
            files.require_file(folder / name)
            size = (folder / name).stat().st_size
        except OSError as error:
            return f"{name}: {error.strerror or error}"
        if size != tag.size_bytes:
            return f"{name} has {size:,} bytes, {tag.size_bytes:,} were written"
    return None


WAIT_S: Final = 10.0
"""How long a writer waits for another one, in seconds."""
POLL_S: Final = 0.02


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
            raise IndexerBusy(self.path, holder=self.holder())
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
            return str(_HOLDER.decode(files.read_file(self._note)))
        except (OSError, *UNDECODABLE):
            return "another process"

    def _acquire(self, wait_s: float) -> None:
        try:
            files.make_folder(self.path.parent, root=PROJECTIONS)
            self._lock.acquire(timeout=wait_s, poll_interval=POLL_S)
        except filelock.Timeout as error:
            raise IndexerBusy(self.path, holder=self.holder()) from error
        except OSError as error:
            raise ProjectionUnreadable(self.path, str(error)) from error
        with suppress(OSError):  # Disk full, no descriptors: harmless, only waiting processes cannot name the holder.
            files.write_unsynced(self._note, to_json(Holder(os.getpid(), socket.gethostname())))


LOOKS_MAX: Final = 3
"""How often a folder is listed again because segments were merged meanwhile."""

_FIX: Final = remedy("admin.doctor", fix=True)
_LOST: Final = Hint(
    *("Run ", remedy("verify"), ", find out what happened to log.db and restore the newest copy of it; "),
    *("to give up what the log has lost, run ", _FIX, "."),
)
_ONLY_NEW: Final = "the model embeds only texts without stored vectors."

ACTIONS: Final[Actions] = {
    Drift.CURRENT: NOTHING_TO_DO,
    Drift.BEHIND: Hint(
        remedy("admin.catch_up_vectors", with_model=ANY_MODEL), " makes the missing vectors; ", _ONLY_NEW
    ),
    Drift.AHEAD: _LOST,
    Drift.OTHER_LOG: Hint("Carry it to the store it is from, or run ", _FIX, " to move it to quarantine."),
    Drift.DIVERGED: _LOST,
    Drift.DAMAGED: Hint(
        remedy("admin.doctor", fix=True, with_model=ANY_MODEL),
        " moves the damaged segments to quarantine and embeds the texts whose vectors they lost.",
    ),
    Drift.MISSING: Hint(remedy("rebuild", "vectors", with_model=ANY_MODEL), " builds them; ", _ONLY_NEW),
    Drift.OTHER_MODEL: "Nothing to do: it is kept for going back to that model.",
    Drift.REPLACED: Hint("It is not needed: ", _FIX, " moves it to quarantine."),
}
"""What to do about each state of a generation."""

Validate = Callable[[Path, Manifest], str | None]
"""Returns why the files of a segment do not match its manifest; None if they do."""


class UnusedSegment(Result, frozen=True, kw_only=True):
    """A segment that no search uses."""

    name: str
    state: str
    """`usable` if other segments cover its range, or if there is a gap before it."""
    why: str
    covered: bool
    """Whether the log has the events that it was built from."""


class SkippedTurn(Result, frozen=True, kw_only=True):
    """A turn that the model refused. It has no vector; text recall finds it."""

    position: Position
    why: str


class GenerationStatus(Result, frozen=True, kw_only=True):
    """One model's vectors, as their manifests and the sizes of their files describe them."""

    generation: str
    """Empty for the active model when it has none."""
    model: str
    fingerprint: str
    recipe: str
    """The recipe that renders turns as texts to embed."""
    state: str
    """A state of `mnemolog.projections.quarantine`."""
    action: str
    """What to do."""
    covers: Position
    """The last position that the segments cover."""
    behind_events: int
    vectors: int
    segments: int
    """Segments that searches use."""
    bytes: int
    """Total size of its files."""
    skipped: tuple[SkippedTurn, ...] = ()
    unused: tuple[UnusedSegment, ...] = ()


class FoundSegment(NamedTuple):
    """A segment on disk, and whether it is usable with this log."""

    folder: Path
    manifest: Manifest | None
    state: SegmentState
    why: str
    covered: bool
    """Whether the log has the events that it was built from."""

    @property
    def range(self) -> tuple[Position, Position] | None:
        """The positions `(after, upto]`, from the manifest or else from the name."""
        return range_of(self.folder) if self.manifest is None else (self.manifest.after, self.manifest.upto)


class FoundGeneration(NamedTuple):
    """A generation on disk."""

    folder: Path
    serial: int
    segments: tuple[FoundSegment, ...]
    chain: tuple[FoundSegment, ...]
    """The segments that searches use: from 0 on, each begins where the one before ends."""
    replaced: bool
    """Whether a newer generation of the same model is in use."""

    @property
    def prefix(self) -> str:
        """The fingerprint prefix, from the name."""
        return self.folder.name.split("-")[0]

    @property
    def tag(self) -> Manifest | None:
        """The manifest that describes the generation: that of its newest segment in use, or else of any segment."""
        manifests = [segment.manifest for segment in self.chain or self.segments if segment.manifest is not None]
        return manifests[-1] if manifests else None

    @property
    def model(self) -> str:
        """The name of its model; empty if no manifest is readable."""
        tag = self.tag
        return tag.model if tag else ""

    @property
    def covers(self) -> Position:
        """The position where the segments in use end."""
        return self.chain[-1].manifest.upto if self.chain and self.chain[-1].manifest else ORIGIN

    def state(self, head: Position) -> Drift:
        """Return its state, independently of other generations."""
        states = {segment.state for segment in self.segments}
        # Evidence against the log comes first, however much of the generation is usable.
        for worth in (SegmentState.AHEAD, SegmentState.DIVERGED, SegmentState.OTHER_LOG):
            if worth in states:
                return Drift(worth.value)
        if self.replaced:
            return Drift.REPLACED
        if any(self._is_missed(segment) for segment in self.segments):
            return Drift.DAMAGED
        return Drift.BEHIND if self.covers < head else Drift.CURRENT

    def _is_missed(self, segment: FoundSegment) -> bool:
        # A damaged segment whose positions others cover is no loss: it stays until it is quarantined.
        unfit = segment.state in (SegmentState.DAMAGED, SegmentState.OTHER_MODEL)
        return unfit and (segment.range is None or segment.range[1] > self.covers)


def survey(root: Path, log: Log, *, validate: Validate = why_size_invalid) -> list[FoundGeneration]:
    """Return every generation below `root`. For each model, the newest one with usable segments is in use."""
    found: list[FoundGeneration] = []
    newest: dict[str, int] = {}
    for prefix, serial, folder in reversed(generation_folders(root)):
        segments = tuple(_segments(folder, log, validate))
        chain = _chain(segments)
        found.append(FoundGeneration(folder, serial, segments, chain, replaced=serial < newest.get(prefix, 0)))
        if chain:
            newest.setdefault(prefix, serial)
    return found[::-1]


def generations(root: Path, log: Log, *, active: str | None = None) -> list[GenerationStatus]:
    """Return the state of every generation below `root`.

    `active` is the fingerprint of the model that recalls use; those of others are then `other-model`, and the
    active one is `missing` if it has none. With None, each generation is judged independently.
    """
    found, head = survey(root, log), log.head().position
    statuses = [_status(item, head=head, active=active) for item in found]
    if active is not None and head > ORIGIN and not any(item.prefix == prefix_of(active) for item in found):
        statuses.append(
            GenerationStatus(
                generation="",
                model="",
                fingerprint=active,
                recipe="",
                state=Drift.MISSING.value,
                action=action_of(Drift.MISSING, ""),
                covers=ORIGIN,
                behind_events=head,
                vectors=0,
                segments=0,
                bytes=0,
            )
        )
    return statuses


def _status(found: FoundGeneration, *, head: Position, active: str | None) -> GenerationStatus:
    used = [segment.manifest for segment in found.chain if segment.manifest is not None]
    tag = found.tag
    state = found.state(head)
    covers = found.covers
    of_other_model = active is not None and found.prefix != prefix_of(active)
    if of_other_model and state not in LOST_HISTORY | {Drift.OTHER_LOG}:
        state = Drift.OTHER_MODEL
    return GenerationStatus(
        generation=found.folder.name,
        model=found.model,
        fingerprint=tag.fingerprint if tag else found.prefix,
        recipe=tag.recipe if tag else "",
        state=state.value,
        action=action_of(state, found.model),
        covers=covers,
        behind_events=max(0, head - covers),
        vectors=sum(manifest.vectors for manifest in used),
        segments=len(found.chain),
        bytes=size_of(found.folder),
        skipped=tuple(
            SkippedTurn(position=item.position, why=item.why) for manifest in used for item in manifest.skipped
        ),
        unused=tuple(_unused(found)),
    )


def name_in_quarantine(quarantine: Path, fingerprint: str) -> str:
    """Return the name of a model from its segments in quarantine, if no segment is left; empty if it is unknown."""
    for manifest in sorted(quarantine.glob(f"*/{MANIFEST_FILE}"), reverse=True):
        try:
            tag = read_manifest(manifest.parent)
        except ProjectionUnreadable:
            continue
        if tag.fingerprint.startswith(fingerprint):
            return tag.model
    return ""


def action_of(state: Drift, model: str) -> str:
    """Return what to do about a state of the vectors of a model, whose name is empty if it is unknown."""
    return with_model(ACTIONS[state], model)


def _unused(found: FoundGeneration) -> Iterable[UnusedSegment]:
    for segment in found.segments:
        if segment in found.chain:
            continue
        why = segment.why
        if segment.state is SegmentState.USABLE:
            span = segment.range
            why = "other segments cover its offsets" if span and span[1] <= found.covers else "nothing leads up to it"
        yield UnusedSegment(name=segment.folder.name, state=segment.state.value, why=why, covered=segment.covered)


def _segments(folder: Path, log: Log, validate: Validate) -> Sequence[FoundSegment]:
    found: list[FoundSegment] = []
    for _ in range(LOOKS_MAX):
        seen = [look(part, log, validate) for part in segment_folders(folder)]
        found = [segment for segment in seen if segment is not None]
        # A segment that vanished was merged into a new one: list again, or both would be missed.
        if len(found) == len(seen):
            break
    return found


def look(part: Path, log: Log, validate: Validate = why_size_invalid) -> FoundSegment | None:
    """Examine one segment; None if it has vanished meanwhile."""
    span = range_of(part)
    try:
        manifest = read_manifest(part)
    except ProjectionUnreadable as error:
        covered = span is not None and covered_by(log, span)
        return FoundSegment(part, None, SegmentState.DAMAGED, error.cause, covered) if part.exists() else None
    state, why = state_of(manifest, log=log, fingerprint=None), ""
    covered = state is SegmentState.USABLE
    match state:
        case SegmentState.OTHER_LOG:
            why = f"it is of log {manifest.log_id}"
        case SegmentState.AHEAD:
            why = f"it reaches to {manifest.upto}, the log to {log.head().position}: the log has lost history"
        case SegmentState.DIVERGED:
            why = f"the log's digest at {manifest.upto} is another: the log's history was changed"
        case _ if not manifest.fingerprint.startswith(part.parent.name.split("-")[0]):
            state, why = (
                SegmentState.OTHER_MODEL,
                f"it is of model {manifest.model!r} {prefix_of(manifest.fingerprint)}",
            )
        case _ if span != (manifest.after, manifest.upto):
            state, why = SegmentState.DAMAGED, "its name and its manifest have different positions"
        case _ if invalid := validate(part, manifest):
            state, why = SegmentState.DAMAGED, invalid
    return FoundSegment(part, manifest, state, why, covered) if part.exists() else None


def _chain(segments: Iterable[FoundSegment]) -> tuple[FoundSegment, ...]:
    """Return the segments to use: from 0 on, always the longest that begins where the one before ends."""
    usable = [(s.manifest, s) for s in segments if s.state is SegmentState.USABLE and s.manifest is not None]
    chain: list[FoundSegment] = []
    reached = ORIGIN
    while (following := next_of_chain(usable, reached)) is not None:
        manifest, segment = following
        chain.append(segment)
        reached = manifest.upto
    return tuple(chain)


class Rebuilt(NamedTuple):
    """What a rebuild of one projection built."""

    turns: int
    encoded: int = 0
    """Texts the model was called for."""
    skipped: int = 0
    """Turns whose text the model refused."""
