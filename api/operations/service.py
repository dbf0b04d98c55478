"""What an operator and an auditor ask of a store: status, verification, rebuilds, and a doctor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mnemolog.domain.position import Position
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.log.event_log import EventLog
from mnemolog.observability.telemetry import Telemetry
from mnemolog.operations import maintenance
from mnemolog.operations.backup import BackupReport, make_backup
from mnemolog.operations.doctor import run as doctor
from mnemolog.operations.doctor.report import Diagnosis
from mnemolog.projections.health.verify import Verification
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import OpenedProjections
from mnemolog.projections.projector_status import ProjectorStatus
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.sql.snapshots import SnapshotStore
from mnemolog.results import RebuildReport, Status


class Operations:
    """The part of a store's face that looks after it."""

    path: Path
    _log: EventLog
    _projections: OpenedProjections
    _snapshots: SnapshotStore
    _telemetry: Telemetry

    def verify(
        self,
        *,
        expect_head: str | None = None,
        heads: str | Path | None = None,
        contents: bool = False,
        progress: Progress | None = None,
    ) -> Verification:
        """Check the whole history. `expect_head` is a `position:digest` that was noted down before, `heads` a
        file of such heads (`note_head`), each of which is asked.

        The chain is over what is stored, and needs no keys. With `contents` everything encrypted is opened as well,
        which takes longer. What is wrong is in `Verification.findings`; nothing raises for it, unless the file cannot
        be read at all (`LogDamaged`) or keys are missing (`KeysMissing`). Raises `InvalidInput` or
        `WitnessUnreadable` (naming the line) for what is no head.
        """
        return maintenance.verify_store(
            self.path,
            self._log,
            expect_head=expect_head,
            heads=None if heads is None else Path(heads),
            contents=contents,
            progress=progress,
        )

    def status(self) -> Status:
        """Return the state of log, projections and projector. Quick, and changes nothing."""
        return maintenance.status(
            self.path,
            self._log,
            projector=self._projections.projector_status(),
            active=self._projections.active_fingerprint(),
        )

    def watch_projector(self, told: Callable[[ProjectorStatus], None]) -> None:
        """Have `told` called, in the projector's thread, with every new state. It must be quick and not raise."""
        if self._projections.projector is not None:
            self._projections.projector.watch(told)

    def doctor(self, *, deep: bool = False, fix: bool = False, progress: Progress | None = None) -> Diagnosis:
        """Say what is wrong with log and projections; `fix` mends what can be, `deep` reads everything.

        docs/operations.md has the states, what is done about each, and what never is.
        """
        patient = doctor.patient(
            self.path,
            self._log,
            self._projections,
            self._snapshots,
            progress,
            active=self._projections.active_fingerprint(),
        )
        return doctor.examine(patient, deep=deep, fix=fix)

    def quarantine(self) -> Quarantine:
        """Return the quarantine: list its items, purge them. What is there was not deleted by anybody yet."""
        return Quarantine(StoreLayout(self.path).quarantine)

    def backup(
        self,
        target: str | Path,
        *,
        keys: str | Path | None = None,
        projections: bool = True,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> BackupReport:
        """Copy the store, as it is in this moment, into the new folder `target`, while any process goes on writing.

        With `replace` an earlier backup of this log there is replaced, once the new one is whole.

        Without `projections` the log alone: what is read from it is made anew after a restore, vectors by the
        model. The content keys, if the store has any, are never in `target`; with `keys` they are copied to that
        folder, over the copy of an earlier backup. `restore_backup` is the way back (docs/backup.md).

        Raises `BackupRefused`, `BackupUnusable` (what is to be replaced), `StorageFull`, `StoreNotWritable`,
        `LogDamaged`: no backup was made.
        """
        with self._telemetry.span("mnemolog.backup", {}):
            return make_backup(
                self.path,
                self._log,
                Path(target),
                keys=None if keys is None else Path(keys),
                projections=projections,
                replace=replace,
                progress=progress,
            )

    def catch_up_views(self, *, progress: Progress | None = None) -> Position:
        """Bring tables and text index up to the head. Every read does it too; this shows progress."""
        return self._projections.current_views(progress).position()

    def catch_up_vectors(self, *, progress: Progress | None = None) -> RebuildReport:
        """Bring the vectors up to the head: embed what is new and write it to disk.

        Raises `ModelUnavailable`, `EncodingFailed` (naming the position), `IndexerBusy`.
        """
        return maintenance.catch_up_vectors(self._log, self._projections.indexing, progress=progress)

    def rebuild(
        self,
        projection: maintenance.Rebuildable = "all",
        *,
        dry_run: bool = False,
        from_scratch: bool = False,
        skip_bad: bool = False,
        progress: Progress | None = None,
    ) -> list[RebuildReport]:
        """Make `vectors`, `views` or `all` anew from the log. The old ones answer until the new are done.

        Vectors come from the embedding cache where it knows the text, else from the model; a rebuild that was
        cut off is gone on with. `from_scratch` does without both. A text that the model refuses stops the
        rebuild, or with `skip_bad` is set aside and listed in `status`. Raises `ModelUnavailable`,
        `EncodingFailed` (naming the position), `IndexerBusy`, `UndecodableEvent`.
        """
        with self._telemetry.span("mnemolog.rebuild", {"projection": projection}):
            return maintenance.rebuild(
                projection,
                log=self._log,
                projections=self._projections,
                dry_run=dry_run,
                from_scratch=from_scratch,
                skip_bad=skip_bad,
                progress=progress,
            )
