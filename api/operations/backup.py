"""Backing up a store that is in use: indexes first, the log last, the content keys apart.

In that order no index in a backup can have read more than its log has. A backup is built beside its final path and
renamed when every byte is durable: a folder of that name is a complete backup, or does not exist.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Final

from mnemolog.domain import errors, structured_log
from mnemolog.domain.head import Head
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.copy_database import copy_database
from mnemolog.infra.keys.keys_file import KEYS_FILE
from mnemolog.infra.log.event_log import LOG_FILE, EventLog
from mnemolog.infra.log.sqlite.log_file import head_of_copy
from mnemolog.infra.runtime.atomic_files import make_folder, temporary_folder, write_synced
from mnemolog.infra.version import this_version
from mnemolog.operations import backup_manifest as manifests
from mnemolog.operations.backup_keys import copy_keys, require_keys_folder
from mnemolog.operations.backup_manifest import BACKUP_FILE, FORMAT, BackupManifest
from mnemolog.operations.known_backups import KnownBackup, remember_backup
from mnemolog.projections.ports import Progress
from mnemolog.projections.quarantine import size_of
from mnemolog.projections.registry.all_projections import PROJECTIONS
from mnemolog.projections.sql import checked_json
from mnemolog.projections.vectors.manifest import MANIFEST_FILE, read_manifest

LOOKS_MAX: Final = 5
"""The most times the segments are listed again because some were merged meanwhile."""
_TEMPORARY: Final = "backup"
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
    created_at: datetime
    files: int
    bytes: int
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
    projections: bool,
    replace: bool,
    progress: Progress | None,
) -> BackupReport:
    """Copy the store in the folder `store` into the new folder `target`. See `MemoryStore.backup`."""
    began, log_id = perf_counter(), log.log_id
    log.head()  # Raises for a store that is closed.
    _refuse_inside(store, target, keys)
    manifests.require_free(target, of=log_id if replace else None)
    if keys is not None:
        require_keys_folder(keys, log_id)
    try:
        with temporary_folder(_TEMPORARY, target) as temporary:
            made = _Backup(store, temporary, progress, total=size_of(store))
            if projections:
                made.copy_projections()
            manifest = made.finish(log, needs_keys=(store / KEYS_FILE).exists())
            # After the log, so that no key it needs is missing; before the rename, so that no backup is without keys.
            kept = None if keys is None else copy_keys(store, keys, log_id=log_id)
            manifests.publish(temporary, target.absolute(), of=log_id if replace else None)
    except errors.MnemologError as error:
        structured_log.error("backup.failed", target=target, error=error)
        raise
    remember_backup(
        store,
        KnownBackup(
            path=str(target.absolute()),
            keys=None if kept is None else str(kept.parent.absolute()),
            created_at=manifest.created_at,
            head=Head(position=manifest.head, digest=manifest.digest, log_id=log_id),
        ),
    )
    report = BackupReport(
        target=str(target),
        log_id=log_id,
        head=manifest.head,
        digest=manifest.digest,
        created_at=manifest.created_at,
        files=len(manifest.files),
        bytes=sum(item.size_bytes for item in manifest.files),
        left_out=tuple(made.left_out),
        keys=None if kept is None else str(kept),
        notes=(_NO_KEYS,) if manifest.needs_keys and kept is None else (),
        seconds=perf_counter() - began,
    )
    structured_log.info(
        "backup.made", target=target, head=report.head, bytes=report.bytes, left_out=len(report.left_out)
    )
    return report


def copy_projections(store: Path, target: Path) -> None:
    """Copy the projections of the store in the folder `store`, as far as they can be read."""
    _Backup(store, target, None, total=0).copy_projections()


class _Backup:
    """A backup in progress."""

    def __init__(self, store: Path, folder: Path, progress: Progress | None, *, total: int) -> None:
        self._store, self._folder, self._progress = store, folder, progress
        self._done, self._total = 0, total
        self.left_out: list[str] = []
        self._tried: set[Path] = set()

    def copy_projections(self) -> None:
        """Copy databases and segments. What cannot be copied is left out: it is rebuilt from the log."""
        layout = StoreLayout(self._store)
        for projection in PROJECTIONS:
            for _ in range(LOOKS_MAX):
                copied = [self._copy(path) for path in projection.backup_paths(layout)]
                if all(copied):
                    break

    def finish(self, log: EventLog, *, needs_keys: bool) -> BackupManifest:
        """Copy the log, and write the manifest."""
        copied = self._folder / LOG_FILE
        log.copy_to(copied, moved=self._moved)
        head = head_of_copy(copied)
        files = sorted(path for path in self._folder.rglob("*") if path.is_file())
        manifest = BackupManifest(
            format=FORMAT,
            mnemolog=this_version(),
            log_id=log.log_id,
            head=head.position,
            digest=head.digest,
            created_at=datetime.now(UTC),
            needs_keys=needs_keys,
            files=tuple(manifests.described(self._folder, path) for path in files),
        )
        write_synced(self._folder / BACKUP_FILE, checked_json.encode(manifest))
        return manifest

    def _copy(self, source: Path) -> bool:
        """Copy a database or a segment, once. False: it was merged into another segment that exists by now."""
        name = source.relative_to(self._store)
        if name in self._tried:
            return True
        if source.suffix == ".db":
            self._copy_database(source, self._folder / name)
        elif not self._copy_segment(source, self._folder / name):
            return False
        self._tried.add(name)
        return True

    def _copy_database(self, source: Path, target: Path) -> None:
        make_folder(target.parent)
        try:
            copy_database(source, target, moved=self._moved)
        except errors.MnemologError as error:
            if isinstance(error, errors.StorageFull | errors.OutOfDescriptors | errors.StoreNotWritable):
                raise  # The backup cannot be written.
            target.unlink(missing_ok=True)
            self._leave_out(source.relative_to(self._store).as_posix(), error)

    def _copy_segment(self, part: Path, target: Path) -> bool:
        """Copy a segment, its manifest last. False: it was merged into another segment that exists by now."""
        try:
            files = read_manifest(part).files
            for name in (*sorted(files), MANIFEST_FILE):
                size = files[name].size_bytes if name in files else None
                manifests.copy_file(part / name, target / name, within=self._store, size_bytes=size, moved=self._moved)
        except (errors.ProjectionUnreadable, OSError) as error:
            if isinstance(error, OSError) and error.filename != str(part / name):
                raise  # The backup cannot be written.
            shutil.rmtree(target, ignore_errors=True)
            if not part.exists():
                return False
            self._leave_out(part.relative_to(self._store).as_posix(), error)
        return True

    def _leave_out(self, name: str, why: Exception) -> None:
        structured_log.warning("backup.left_out", name=name, error=why)
        if (line := f"{name}: {why}") not in self.left_out:
            self.left_out.append(line)

    def _moved(self, size: int) -> None:
        self._done += size
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
