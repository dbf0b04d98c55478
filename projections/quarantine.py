"""The states of projections relative to their log, and the quarantine for files in states that make them unusable.

States are decided from metadata alone (manifests, names, sizes of files): never from file times, never by counting.
Each projection says what to do about a state (`ACTIONS` beside it). `docs/operations.md` shows the same tables, and a
test compares.

Files are renamed into the quarantine, with the reason beside them. Never deleted automatically: only `purge` deletes.
The reason is written first, then the item is renamed: a crash leaves the original in its place (and a reason without
an item, which is ignored), or both item and reason.
"""

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import filelock
import msgspec

from mnemolog.domain import errors, structured_log
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.result import Result
from mnemolog.domain.store_layout import DATABASE_PARTS, PROJECTIONS
from mnemolog.domain.values import Position, UtcTime
from mnemolog.infra.runtime import files


class Drift(StrEnum):
    """The state of a projection relative to its log."""

    CURRENT = "current"
    BEHIND = "behind"
    AHEAD = "ahead"
    OTHER_LOG = "other-log"
    DIVERGED = "diverged"
    DAMAGED = "damaged"
    MISSING = "missing"
    OTHER_MODEL = "other-model"
    REPLACED = "replaced"
    UNREADABLE = "unreadable"


NOTHING_TO_DO: Final = "Nothing to do."

Actions = Mapping[Drift, str]
"""What to do about each state that a projection can be in: sentences, most of them hints."""

LOST_HISTORY: Final = frozenset({Drift.AHEAD, Drift.DIVERGED})
"""States that are evidence against the log, not against the projection."""

UNCOVERED: Final = LOST_HISTORY | {Drift.OTHER_LOG}
"""States of what this log cannot rebuild. It is never used, and never renamed unless an operator says so."""

MEANS: Final[Mapping[Drift, str]] = {
    Drift.CURRENT: "It is up to date with the log.",
    Drift.BEHIND: "The log has newer events. Recall takes them in, or says how far the vectors reach.",
    Drift.AHEAD: "It was built from events that the log no longer has: the log has lost history.",
    Drift.OTHER_LOG: "It was built from another log and belongs to another store.",
    Drift.DIVERGED: "The log has another history up to the same offset: it was rewritten, or restored and continued.",
    Drift.DAMAGED: "Its bytes are not those that were written. It is not used.",
    Drift.MISSING: "It does not exist.",
    Drift.OTHER_MODEL: "It belongs to a model that is not the active one.",
    Drift.REPLACED: "A newer generation of the same model answers in its place.",
    Drift.UNREADABLE: "It cannot be read now: it is locked, or this user may not read it.",
}


ITEMS_MAX: Final = 64
"""Items that the quarantine holds. When it has that many, nothing more is moved into it."""
BYTES_MAX: Final = 4 << 30
"""When the quarantine has that many bytes, nothing more is moved into it. The last item may exceed the limit."""
LOCK_WAIT_S: Final = 10.0
"""How long to wait for another thread or process that renames. The lock is not held while deleting."""

PURGE: Final = errors.remedy("admin.quarantine().purge")
_LIST: Final = errors.remedy("admin.quarantine().items")
_NOTE: Final = ".reason.json"
_WHEN: Final = "%Y%m%dT%H%M%SZ"
_NAME: Final = re.compile(r"[^.].*")


class QuarantinedItem(Result, frozen=True, kw_only=True):
    """An item in quarantine. Fields are empty or None where nothing is known."""

    name: str
    was: str
    """Its path before, relative to the folder of the projections."""
    reason: str
    state: str
    """Why it was unusable: a value of `mnemolog.projections.quarantine.Drift`."""
    when: UtcTime | None
    """When it was moved to quarantine, by its reason file. UTC."""
    bytes: int
    log_id: str = ""
    after: Position | None = None
    upto: Position | None = None
    digest: str = ""
    """The log's digest at `upto`, hexadecimal: a witness of the log's history."""


class LogRange(NamedTuple):
    """The part of a log that a quarantined segment was built from."""

    log_id: str
    after: Position
    upto: Position
    digest: str
    """The log's digest at `upto`, hexadecimal."""


class QuarantineStatus(Result, frozen=True, kw_only=True):
    """How much is in quarantine."""

    items: int
    bytes: int
    full: bool
    """Nothing more is moved to quarantine: damaged files stay where they are, and are not used."""
    action: str


class _Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    was: str = ""
    reason: str = "no reason was noted"
    when: str = ""
    state: str = "damaged"
    log_id: str = ""
    after: Position | None = None
    upto: Position | None = None
    digest: str = ""
    sha256: str = ""
    """Of the note without this field: the log's history in a damaged note is ignored.

    Not `checked_json`, which reads nothing from a damaged file: here people still want to see what it was and why.
    """

    def checksum(self) -> str:
        """Return what `sha256` has to be."""
        return sha256(to_json(msgspec.structs.replace(self, sha256=""))).hexdigest()


# Made at import: `checked_json` has the reason.
_DECODER: Final = msgspec.json.Decoder(_Note)


def identity(path: Path) -> tuple[int, int] | None:
    """Return which file `path` refers to now, None if it does not exist. A new file is another one."""
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Quarantine:
    """The quarantine in `folder`, which is created when first needed. Safe for threads and processes.

    If it `is_kept`, nothing in it is deleted: the store is only read.
    """

    def __init__(self, folder: Path, *, is_kept: bool = False) -> None:
        self.folder = folder
        self._is_kept = is_kept

    def add(
        self,
        path: Path,
        *,
        reason: str,
        state: str = "damaged",
        parts: Sequence[str] = (),
        judged: tuple[int, int] | None = None,
        built_from: LogRange | None = None,
    ) -> Path | None:
        """Rename a file or folder into the quarantine and return where it is now.

        - `path`: the file or folder
        - `reason`: why, for people
        - `state`: what is wrong with it, in a word
        - `parts`: suffixes of files that move with it
        - `judged`: the identity that it had before it was examined; a new file under the old name stays
        - `built_from`: a segment's witness of the log's history, which is kept

        Returns None if nothing was renamed: another process was first, the quarantine is full (`ITEMS_MAX`,
        `BYTES_MAX`), or the file system refuses. The file stays, and must not be used.
        """
        note = self._note(path, reason=reason, state=state, built_from=built_from)
        try:
            with self._locked():
                self._remove_stale_notes()
                if judged is not None and identity(path) != judged:
                    return None
                if self.status().full:
                    structured_log.error("quarantine.full", was=note.was, state=state)
                    return None
                moved = self._rename(path, note, parts)
        except (OSError, errors.ProjectionUnreadable, filelock.Timeout) as error:
            structured_log.error("quarantine.failed", was=note.was, state=state, error=error)
            return None
        if moved is not None:
            structured_log.warning("quarantine.added", was=note.was, name=moved.name, state=state)
        return moved

    def items(self) -> list[QuarantinedItem]:
        """Return what is in quarantine, ordered by name. A reason without its item is ignored.

        Raises `ProjectionUnreadable`.
        """
        found = []
        for path in self.paths():
            note = _read_note(path)
            found.append(
                QuarantinedItem(
                    name=path.name,
                    was=note.was or path.name,
                    reason=note.reason,
                    state=note.state,
                    when=_moment(note.when),
                    bytes=sum(size_of(part) for part in _with_parts(path)),
                    log_id=note.log_id,
                    after=note.after,
                    upto=note.upto,
                    digest=note.digest,
                )
            )
        return found

    def paths(self) -> list[Path]:
        """Return the paths of the items, ordered by name. Raises `ProjectionUnreadable`."""
        names = set()
        with files.mapped_to_projection_errors(self.folder), suppress(FileNotFoundError):
            names = {path.name for path in self.folder.iterdir() if _NAME.fullmatch(path.name)}

        def is_part(name: str) -> bool:
            return any(name.endswith(suffix) and name.removesuffix(suffix) in names for suffix in DATABASE_PARTS)

        return [self.folder / name for name in sorted(names) if not name.endswith(_NOTE) and not is_part(name)]

    def status(self) -> QuarantineStatus:
        """Return how much is in quarantine, and what to do about it."""
        items = self.items()
        size = sum(item.bytes for item in items)
        full = len(items) >= ITEMS_MAX or size >= BYTES_MAX
        if full:
            action: str = errors.Hint("It takes nothing more: ", _LIST, " shows what is in it, ", PURGE, " makes room.")
        else:
            action = errors.Hint(_LIST, " shows what is in it, ", PURGE, " deletes it.") if items else NOTHING_TO_DO
        return QuarantineStatus(items=len(items), bytes=size, full=full, action=action)

    def purge(self, *, dry_run: bool = False) -> list[QuarantinedItem]:
        """Delete all items. Return what was deleted. Raises `ProjectionUnreadable`, `StoreNotWritable`.

        - `dry_run`: delete nothing; the items are what would be deleted
        """
        items = self.items()
        if not dry_run:
            self.delete(items)
        return items

    def delete(self, items: Sequence[QuarantinedItem]) -> None:
        """Delete items.

        - `items`: some of `items()`

        Raises `ProjectionUnreadable` where the file system refuses, `StoreNotWritable` if the store is only read.
        """
        if self._is_kept:
            raise errors.StoreNotWritable(self.folder, "the store was opened read-only")
        try:
            if items:
                self._delete(items)
        except (OSError, filelock.Timeout) as error:
            raise errors.ProjectionUnreadable(self.folder, str(error)) from error

    def _note(self, path: Path, *, reason: str, state: str, built_from: LogRange | None) -> _Note:
        root = self.folder.parent
        was = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
        when = datetime.now(UTC).strftime(_WHEN)
        known = {} if built_from is None else built_from._asdict()
        return _Note(was=str(was), reason=reason, when=when, state=state, **known)

    def _rename(self, path: Path, note: _Note, parts: Sequence[str]) -> Path | None:
        target = self.folder / f"{path.name}.{note.when}.{secrets.token_hex(4)}"
        written = _note_of(target)
        belonging = {suffix: identity(path.with_name(path.name + suffix)) for suffix in parts}
        try:
            files.write_synced(written, to_json(msgspec.structs.replace(note, sha256=note.checksum())))
            files.sync(self.folder)
            path.rename(target)
        except OSError:
            written.unlink(missing_ok=True)
            return None
        for suffix, known in belonging.items():
            part = path.with_name(path.name + suffix)
            # Another process may create a new database under the name at once: its parts must stay.
            if known is not None and identity(part) == known:
                with suppress(FileNotFoundError):
                    part.rename(target.with_name(target.name + suffix))
        files.sync(self.folder)
        files.sync(path.parent)
        return target

    def _delete(self, items: Iterable[QuarantinedItem]) -> None:
        """Rename under the lock, delete outside it: others do not wait, and never see half an item."""
        doomed = []
        with self._locked():
            self._remove_stale_notes()
            for item in items:
                for part in _with_parts(self.folder / item.name):
                    removed = self.folder / files.temporary_name("removed")
                    with suppress(FileNotFoundError):
                        doomed.append(part.rename(removed))
                _note_of(self.folder / item.name).unlink(missing_ok=True)
                structured_log.info("quarantine.purged", name=item.name, was=item.was, bytes=item.bytes)
            files.sync(self.folder)
        for path in doomed:
            files.remove(path)

    def _remove_stale_notes(self) -> None:
        """Remove reasons without their items. Under the lock no other process is between writing one and renaming."""
        for note in self.folder.glob(f"*{_NOTE}"):
            if identity(note.with_name(note.name.removesuffix(_NOTE))) is None:
                note.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        files.make_folder(self.folder, root=PROJECTIONS)
        # A new object each time: it has its own descriptor, so that threads exclude one another as well.
        with files.lock_file(self.folder / ".lock", wait_s=LOCK_WAIT_S):
            yield


def size_of(path: Path) -> int:
    """Return the size in bytes of a file, or of all files below a folder. Files that vanish meanwhile count 0."""
    total = 0
    with suppress(OSError):
        if not path.is_dir() or path.is_symlink():
            return path.stat(follow_symlinks=False).st_size
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += (Path(folder) / name).stat(follow_symlinks=False).st_size
    return total


def _note_of(item: Path) -> Path:
    return item.with_name(item.name + _NOTE)


def _with_parts(item: Path) -> list[Path]:
    parts = (item.with_name(item.name + suffix) for suffix in DATABASE_PARTS)
    return [item, *(part for part in parts if identity(part) is not None)]


def _read_note(item: Path) -> _Note:
    try:
        note = _DECODER.decode(files.read_file(_note_of(item)))
    except (OSError, *UNDECODABLE):
        return _Note()
    if note.sha256 == note.checksum():
        return note
    return _Note(was=note.was, reason=note.reason, when=note.when, state=note.state)


def _moment(when: str) -> datetime | None:
    try:
        return datetime.strptime(when, _WHEN).replace(tzinfo=UTC)
    except ValueError:
        return None
