"""Backing up a store that is in use: projections first if they are wanted, then the log, the content keys apart.

In that order no projection in a backup can have read more than its log has. A backup is built beside its final path and
renamed when every byte is durable and checked: a folder of that name is a complete backup, or does not exist.
"""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Final

from mnemolog.domain import errors, structured_log
from mnemolog.domain.clock import UtcTime
from mnemolog.domain.head import Head
from mnemolog.domain.hints import Hint, again
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.domain.store_layout import PROJECTIONS as PROJECTIONS_FOLDER
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.keys.engine import KeysEngine
from mnemolog.infra.keys.keyring import check
from mnemolog.infra.keys.keys_file import KEYS_FILE
from mnemolog.infra.keys.sqlite_keys import SqliteKeys
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.sqlite.log_file import LOG_FILE
from mnemolog.infra.runtime.atomic_files import make_folder, temporary_folder, write_synced
from mnemolog.infra.sqlite import copy_database
from mnemolog.infra.version import this_version
from mnemolog.operations import backup_manifest as manifests
from mnemolog.operations.backup_keys import KeysCopy, copied_keys, publish_keys, require_keys_folder
from mnemolog.operations.backup_manifest import BACKUP_FILE, FORMAT, BackupManifest
from mnemolog.operations.copied_log import opened_copy, verify_copy
from mnemolog.operations.known_backups import KnownBackup, backup_witnesses, remember_backup
from mnemolog.projections.health.verify import Verification, Witness
from mnemolog.projections.health.witnesses import witnesses_of
from mnemolog.projections.ports import Progress
from mnemolog.projections.quarantine import size_of
from mnemolog.projections.registry import PROJECTIONS
from mnemolog.projections.sql import checked_json
from mnemolog.projections.vectors.manifest import MANIFEST_FILE, read_manifest

LOOKS_MAX: Final = 5
"""The most times the segments are listed again because some were merged meanwhile."""
_TEMPORARY: Final = "backup"
_NOT_MADE: Final = "no backup was made, and an earlier one is as it was"
_CLEAR_TEXT: Final = (
    "The projections in this backup hold texts and vectors in clear text: anyone who can read the folder can read them "
    "without the keys, and forgetting does not reach them."
)
_NO_KEYS: Final = (
    f"The content keys ({KEYS_FILE}) are not in this backup: without a copy of them its content can "
    "never be read. `--keys FOLDER` copies them to a folder outside the backup."
)


class BackupReport(Result, frozen=True, kw_only=True):
    """The result of a backup."""

    target: str
    log_id: str
    head: Position
    """The last position of its log."""
    digest: str
    created_at: UtcTime
    files: int
    bytes: int
    with_projections: bool
    """Whether projections were copied. They hold clear text, also of a log whose content is encrypted."""
    left_out: tuple[str, ...]
    """Indexes that could not be copied, and why. They can be rebuilt from the log."""
    keys: str | None
    """Where the content keys were copied to; None if the store has none, or no folder was given."""
    notes: tuple[str, ...]
    """What to know when keeping the backup."""
    seconds: float


def make_backup(
    store: Path,
    log: EventLog,
    target: Path,
    *,
    keys: Path | None,
    with_projections: bool,
    replace: bool,
    progress: Progress | None,
) -> BackupReport:
    """Copy the store in the folder `store` into the new folder `target`. See `MemoryStore.backup`."""
    began, log_id = perf_counter(), log.log_id
    witnesses = [Witness("the open store", log.head())]  # Raises for a store that is closed.
    _refuse_inside(store, target, keys)
    if not replace and (target / BACKUP_FILE).exists():
        refused = errors.BackupRefused(target, "it has an earlier backup")
        refused.hint = Hint("nothing was changed; name another folder, or replace that backup: ", again(replace=True))
        raise refused
    manifests.require_free(target, of=log_id if replace else None)
    if replace and (target / BACKUP_FILE).exists():
        earlier = manifests.read(target)
        witnesses.append(Witness("the earlier backup", Head(position=earlier.head, digest=earlier.digest)))
    if keys is not None and log.identity.is_sealed:
        require_keys_folder(keys, log_id)
    try:
        with temporary_folder(_TEMPORARY, target) as temporary:
            total = size_of(store) if with_projections else log.size_bytes()
            made = _Backup(store, temporary, progress, total=total)
            epoch = log.epoch()
            if with_projections:
                made.copy_projections()
            witnesses += backup_witnesses(store, log_id)
            witnesses += witnesses_of(store, log)  # Before the copy, which may be older than what comes after.
            log.copy_to(temporary / LOG_FILE, moved=made.moved)
            if with_projections and log.epoch() != epoch:  # The copied log may record it as purged.
                made.remove_projections("something was forgotten while they were copied")
            manifest, kept = _checked(made, log, keys, witnesses)
            manifests.publish(temporary, target.absolute(), of=log_id if replace else None)
    except errors.MnemologError as error:
        structured_log.error("backup.failed", target=target, error=error)
        raise
    head = Head(position=manifest.head, digest=manifest.digest, log_id=log_id)
    known = None if kept is None else str(kept.path.parent.absolute())
    made_now = KnownBackup(path=str(target.absolute()), keys=known, created_at=manifest.created_at, head=head)
    remember_backup(store, made_now)
    kept = None if kept is None else kept.caught_up()  # Last, so that it holds nothing forgotten before this returns.
    report = BackupReport(
        target=str(target),
        log_id=log_id,
        head=manifest.head,
        digest=manifest.digest,
        created_at=manifest.created_at,
        files=len(manifest.files),
        bytes=sum(item.size_bytes for item in manifest.files),
        with_projections=with_projections,
        left_out=tuple(made.left_out),
        keys=None if kept is None else str(kept.path),
        notes=_notes(manifest, kept),
        seconds=perf_counter() - began,
    )
    structured_log.info(
        "backup.made", target=target, head=report.head, bytes=report.bytes, left_out=len(report.left_out)
    )
    return report


def copy_projections(store: Path, target: Path) -> None:
    """Copy the projections of the store in the folder `store`, as far as they can be read."""
    _Backup(store, target, None, total=0).copy_projections()


def _checked(
    made: _Backup, log: EventLog, keys: Path | None, witnesses: list[Witness]
) -> tuple[BackupManifest, KeysCopy | None]:
    """Check what was copied, write the manifest, and put the copy of the keys in place of the earlier one.

    The keys are copied after the log, so that no key it needs is missing, and get their name before the backup gets
    its own, so that no backup is without keys. Raises `LogDamaged`.
    """
    own = None if log.keyring is None else log.keyring.engine.another()
    copying = nullcontext() if own is None or keys is None else copied_keys(own, keys)
    try:
        with copying as copied:
            opening, what = _opening(own, copied), "the copy of the log"
            with opened_copy(made.folder, what=what, outcome=_NOT_MADE, keys=opening) as copy:
                verified = verify_copy(
                    copy,
                    what=what,
                    outcome=_NOT_MADE,
                    contents=opening is not None,
                    witnesses=witnesses,
                    progress=made.verified,
                )
            manifest = made.finish(verified, log)
            kept = None if copied is None else publish_keys(copied)
    except errors.KeysMissing as error:
        raise errors.LogDamaged(f"{error}; {_NOT_MADE}") from error
    return manifest, kept


def _opening(own: KeysEngine | None, copied: KeysCopy | None) -> KeysEngine | None:
    """Return the keys to check a backup with: their copy, or the store's own; None where there are none."""
    if own is None or (copied is None and not own.is_there()):
        return None
    if copied is not None:
        return SqliteKeys(copied.path, log_id=own.log_id)
    check(own.another())
    return own


def _notes(manifest: BackupManifest, kept: KeysCopy | None) -> tuple[str, ...]:
    if not manifest.needs_keys:
        return ()
    notes = [] if kept is not None else [_NO_KEYS]
    if manifest.with_projections:
        notes.append(_CLEAR_TEXT)
    return tuple(notes)


class _Backup:
    """A backup in progress."""

    def __init__(self, store: Path, folder: Path, progress: Progress | None, *, total: int) -> None:
        self.store, self.folder, self._progress = store, folder, progress
        self._done, self._total = 0, 2 * total  # To be copied, then to be verified.
        self.left_out: list[str] = []
        self._tried: set[Path] = set()

    def copy_projections(self) -> None:
        """Copy databases and segments. What cannot be copied is left out: it is rebuilt from the log."""
        layout = StoreLayout(self.store)
        for projection in PROJECTIONS:
            for _ in range(LOOKS_MAX):
                copied = [self._copy(path) for path in projection.backup_paths(layout)]
                if all(copied):
                    break

    def remove_projections(self, why: str) -> None:
        """Leave out all projections."""
        shutil.rmtree(self.folder / PROJECTIONS_FOLDER, ignore_errors=True)
        self._leave_out(PROJECTIONS_FOLDER, why)

    def finish(self, verified: Verification, log: EventLog) -> BackupManifest:
        """Write the manifest of everything that was copied."""
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        manifest = BackupManifest(
            format=FORMAT,
            mnemolog=this_version(),
            log_id=log.log_id,
            head=verified.head,
            digest=verified.digest,
            created_at=datetime.now(UTC),
            needs_keys=log.identity.is_sealed,
            with_projections=any(path.parent != self.folder for path in files),
            files=tuple(manifests.described(self.folder, path) for path in files),
        )
        write_synced(self.folder / BACKUP_FILE, checked_json.encode(manifest))
        return manifest

    def _copy(self, source: Path) -> bool:
        """Copy a database or a segment, once. False: it was merged into another segment that exists by now."""
        name = source.relative_to(self.store)
        if name in self._tried:
            return True
        if source.suffix == ".db":
            self._copy_database(source, self.folder / name)
        elif not self._copy_segment(source, self.folder / name):
            return False
        self._tried.add(name)
        return True

    def _copy_database(self, source: Path, target: Path) -> None:
        make_folder(target.parent)
        try:
            copy_database(source, target, moved=self.moved)
        except errors.MnemologError as error:
            if isinstance(error, errors.StorageFull | errors.OutOfDescriptors | errors.StoreNotWritable):
                raise  # The backup cannot be written.
            target.unlink(missing_ok=True)
            self._leave_out(source.relative_to(self.store).as_posix(), error)

    def _copy_segment(self, part: Path, target: Path) -> bool:
        """Copy a segment, its manifest last. False: it was merged into another segment that exists by now."""
        try:
            files = read_manifest(part).files
            for name in (*sorted(files), MANIFEST_FILE):
                size = files[name].size_bytes if name in files else None
                manifests.copy_file(part / name, target / name, within=self.store, size_bytes=size, moved=self.moved)
        except (errors.ProjectionUnreadable, OSError) as error:
            if isinstance(error, OSError) and error.filename != str(part / name):
                raise  # The backup cannot be written.
            shutil.rmtree(target, ignore_errors=True)
            if not part.exists():
                return False
            self._leave_out(part.relative_to(self.store).as_posix(), error)
        return True

    def _leave_out(self, name: str, why: Exception | str) -> None:
        structured_log.warning("backup.left_out", name=name, error=why)
        if (line := f"{name}: {why}") not in self.left_out:
            self.left_out.append(line)

    def moved(self, size: int) -> None:
        """Report bytes that were copied."""
        self._report(self._done + size)

    def verified(self, done: int, total: int) -> None:
        """Report how far the copy of the log was verified."""
        half = self._total // 2
        self._report(half + half * done // total)

    def _report(self, done: int) -> None:
        self._done = max(self._done, done)
        if self._progress is not None:
            self._progress(self._done, max(self._total, self._done))


def _refuse_inside(store: Path, target: Path, keys: Path | None) -> None:
    """Raise `BackupRefused` if a folder is inside another that it must not be in."""
    inside, around = target.resolve(), store.resolve()
    if inside.is_relative_to(around):
        raise errors.BackupRefused(target, "it is in the store's own folder")
    if keys is None:
        return
    apart = keys.resolve()
    if apart.is_relative_to(inside) or inside.is_relative_to(apart):
        raise errors.BackupRefused(keys, "the keys are kept apart from the backup, not in the same folder")
    if apart.is_relative_to(around):
        raise errors.BackupRefused(keys, "it is in the store's own folder")
