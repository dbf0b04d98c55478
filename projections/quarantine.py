"""The quarantine: what cannot be used is renamed into a folder, with the reason beside it. Never deleted.

Only `purge` deletes, and only what an operator names. The reason is written first, then the thing is renamed:
a crash leaves the original in its place (and a reason without its item, which is passed over), or item and reason.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import filelock
import msgspec

from mnemolog.domain import errors, structured_log
from mnemolog.domain.decoding import UNDECODABLE
from mnemolog.domain.position import Position
from mnemolog.infra.runtime import atomic_files
from mnemolog.infra.runtime.os_errors import mapped_to_projection_errors
from mnemolog.projections.sql import file_checksum
from mnemolog.projections.vectors.manifest import Manifest, read_manifest

ITEMS_MAX: Final = 64
"""Things that may lie in quarantine. When there are so many, nothing more is set aside."""
BYTES_MAX: Final = 4 << 30
"""When so much lies in quarantine, nothing more is set aside. The last thing may go beyond."""
LOCK_WAIT_S: Final = 10.0
"""How long one waits for another who renames. Nobody holds the lock while deleting."""
DATABASE_PARTS: Final = ("-wal", "-shm", file_checksum.PART)
"""Suffixes of the files that belong to a database file and move with it."""

_NOTE: Final = ".reason.json"
_WHEN: Final = "%Y%m%dT%H%M%SZ"
_SEGMENTS: Final = "[0-9]*-[0-9]*"
_NAME: Final = re.compile(r"[^.].*")


class QuarantinedItem(msgspec.Struct, frozen=True, kw_only=True):
    """A thing in quarantine. A field is empty or None where nothing is known of it."""

    name: str
    was: str
    """Where it was, below the folder of the projections."""
    reason: str
    state: str
    """What made it unusable: a word of `mnemolog.projections.health.drift`."""
    when: datetime | None
    """When it was set aside, as the reason says. UTC."""
    bytes: int
    log_id: str = ""
    after: Position | None = None
    upto: Position | None = None
    digest: str = ""
    """The log's digest at `upto`, hexadecimal: a witness of the history that was."""


class QuarantineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How much lies in quarantine."""

    items: int
    bytes: int
    full: bool
    """Nothing more is set aside: what is damaged stays where it is, and is not used."""
    action: str


class Identity(NamedTuple):
    """Which file a name stands for. Another one of the same name has another."""

    device: int
    inode: int


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
    """Of the note without it: what a damaged one says of the log's history counts for nothing.

    Not the form of `checked_json`, which nothing of a damaged file is told from: a person reads what it was and why.
    """

    def checksum(self) -> str:
        """Return what `sha256` has to be."""
        return sha256(msgspec.json.encode(msgspec.structs.replace(self, sha256=""))).hexdigest()


def identity(path: Path) -> Identity | None:
    """Return which file `path` stands for now, None where there is none."""
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return Identity(found.st_dev, found.st_ino)


class Quarantine:
    """The quarantine in `folder`, which is made when it is first needed. Safe for threads and processes."""

    def __init__(self, folder: Path, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.folder = folder
        self._now = now

    def set_aside(
        self,
        path: Path,
        *,
        reason: str,
        state: str = "damaged",
        parts: Sequence[str] = (),
        judged: Identity | None = None,
    ) -> Path | None:
        """Rename `path` into the quarantine and return where it is now.

        `parts` are suffixes of files that move with it. With `judged`, the identity it had before it was looked
        at, a new thing under the old name is left alone.

        Returns None where nothing was renamed: somebody else was first, the quarantine is full (`ITEMS_MAX`,
        `BYTES_MAX`), or the file system refuses. What is there stays, and is not to be used.
        """
        note = _noted(path, reason=reason, state=state, root=self.folder.parent, now=self._now())
        try:
            with self._locked():
                self._forget_leftovers()
                if judged is not None and identity(path) != judged:
                    return None
                if self._is_full():
                    structured_log.error("quarantine.full", was=note.was, state=state)
                    return None
                moved = self._rename(path, note, parts)
        except (OSError, filelock.Timeout) as error:
            structured_log.error("quarantine.failed", was=note.was, state=state, error=error)
            return None
        if moved is not None:
            structured_log.warning("quarantine.set_aside", was=note.was, name=moved.name, state=state)
        return moved

    def items(self) -> list[QuarantinedItem]:
        """Return what lies in quarantine, in the order of names. A reason without its item is no item.

        Raises `ProjectionUnreadable`.
        """
        found = []
        with mapped_to_projection_errors(self.folder):
            paths = list(self._paths())
        for path in paths:
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

    def manifests(self) -> list[tuple[str, Manifest]]:
        """Return the readable manifests of segments that lie here, each with the name of its item."""
        found = []
        with mapped_to_projection_errors(self.folder):
            folders = [(path, folder) for path in self._paths() for folder in (path, *sorted(path.glob(_SEGMENTS)))]
        for path, folder in folders:
            with suppress(errors.ProjectionUnreadable):
                found.append((path.name, read_manifest(folder)))
        return found

    def status(self) -> QuarantineStatus:
        """Return how much lies here, and what is to be done about it."""
        items = self.items()
        size = sum(item.bytes for item in items)
        full = _reaches_a_limit(len(items), size)
        if full:
            action = "Nothing more is set aside: look with `mnemolog quarantine list DIR`, make room with `... purge`."
        elif items:
            action = "Look with `mnemolog quarantine list DIR`; `mnemolog quarantine purge DIR` deletes."
        else:
            action = "Nothing to do."
        return QuarantineStatus(items=len(items), bytes=size, full=full, action=action)

    def purge(
        self,
        names: Iterable[str] = (),
        *,
        older_than: timedelta | None = None,
        everything: bool = False,
        dry_run: bool = False,
    ) -> list[QuarantinedItem]:
        """Delete items for good: those named, those set aside longer than `older_than` ago, or `everything`.

        An item whose reason names no time is never "older". Returns what was deleted, or with `dry_run` would
        be. Raises `InvalidInput` for a name that is not there: nothing was deleted; `ProjectionUnreadable`
        where the file system refuses.
        """
        items, wanted = self.items(), set(names)
        if unknown := wanted - {item.name for item in items}:
            raise errors.InvalidInput("name", f"{sorted(unknown)[0]!r} is not in quarantine")
        before = None if older_than is None else self._now() - older_than
        chosen = [
            item
            for item in items
            if everything
            or item.name in wanted
            or (before is not None and item.when is not None and item.when < before)
        ]
        if chosen and not dry_run:
            try:
                self._delete(chosen)
            except (OSError, filelock.Timeout) as error:
                raise errors.ProjectionUnreadable(self.folder, str(error)) from error
        return chosen

    def _rename(self, path: Path, note: _Note, parts: Sequence[str]) -> Path | None:
        stamp = f"{note.when}.{secrets.token_hex(4)}"
        target = self.folder / f"{path.name}.{stamp}"
        written = _note_of(target)
        belonging = {suffix: identity(path.with_name(path.name + suffix)) for suffix in parts}
        try:
            atomic_files.write_synced(
                written, msgspec.json.encode(msgspec.structs.replace(note, sha256=note.checksum()))
            )
            atomic_files.sync(self.folder)
            path.rename(target)
        except OSError:
            written.unlink(missing_ok=True)
            return None
        for suffix, known in belonging.items():
            part = path.with_name(path.name + suffix)
            # Somebody may open a new database under the name at once: the parts of that one are not ours.
            if known is not None and identity(part) == known:
                with suppress(FileNotFoundError):
                    part.rename(target.with_name(target.name + suffix))
        atomic_files.sync(self.folder)
        atomic_files.sync(path.parent)
        return target

    def _delete(self, items: Iterable[QuarantinedItem]) -> None:
        """Rename under the lock, delete outside: others need not wait, and nobody sees half an item."""
        doomed = []
        with self._locked():
            self._forget_leftovers()
            for item in items:
                for part in _with_parts(self.folder / item.name):
                    removed = self.folder / atomic_files.temporary_name("removed")
                    with suppress(FileNotFoundError):
                        doomed.append(part.rename(removed))
                _note_of(self.folder / item.name).unlink(missing_ok=True)
                structured_log.info("quarantine.purged", name=item.name, was=item.was, bytes=item.bytes)
            atomic_files.sync(self.folder)
        for path in doomed:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _is_full(self) -> bool:
        paths = list(self._paths())
        return _reaches_a_limit(len(paths), sum(size_of(part) for path in paths for part in _with_parts(path)))

    def _forget_leftovers(self) -> None:
        """Remove reasons without their items. Under the lock nobody is between writing one and renaming."""
        for note in self.folder.glob(f"*{_NOTE}"):
            if identity(note.with_name(note.name.removesuffix(_NOTE))) is None:
                note.unlink(missing_ok=True)

    def _paths(self) -> Iterator[Path]:
        names = set()
        with suppress(FileNotFoundError):
            names = {path.name for path in self.folder.iterdir() if _NAME.fullmatch(path.name)}
        for name in sorted(names):
            is_part = any(name.endswith(suffix) and name.removesuffix(suffix) in names for suffix in DATABASE_PARTS)
            if not name.endswith(_NOTE) and not is_part:
                yield self.folder / name

    @contextmanager
    def _locked(self) -> Iterator[None]:
        atomic_files.make_folder(self.folder)
        # A new object each time: it has a descriptor of its own, so that threads exclude one another as well.
        path, mode = self.folder / ".lock", atomic_files.FILE_MODE
        with filelock.FileLock(path, LOCK_WAIT_S, mode, poll_interval=0.01, thread_local=False):
            yield


def size_of(path: Path) -> int:
    """Return how many bytes a file, or all files below a folder, have. What vanishes meanwhile counts nothing."""
    total = 0
    with suppress(OSError):
        if not path.is_dir() or path.is_symlink():
            return path.stat(follow_symlinks=False).st_size
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += (Path(folder) / name).stat(follow_symlinks=False).st_size
    return total


def _reaches_a_limit(items: int, size: int) -> bool:
    return items >= ITEMS_MAX or size >= BYTES_MAX


def _noted(path: Path, *, reason: str, state: str, root: Path, now: datetime) -> _Note:
    was = path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
    note = _Note(was=str(was), reason=reason, when=now.astimezone(UTC).strftime(_WHEN), state=state)
    if not path.is_dir():
        return note
    try:
        tag = read_manifest(path)
    except errors.ProjectionUnreadable:
        return note
    return msgspec.structs.replace(note, log_id=tag.log_id, after=tag.after, upto=tag.upto, digest=tag.digest_at_upto)


def _note_of(item: Path) -> Path:
    return item.with_name(item.name + _NOTE)


def _with_parts(item: Path) -> list[Path]:
    parts = (item.with_name(item.name + suffix) for suffix in DATABASE_PARTS)
    return [item, *(part for part in parts if identity(part) is not None)]


def _read_note(item: Path) -> _Note:
    try:
        note = msgspec.json.decode(_note_of(item).read_bytes(), type=_Note)
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
