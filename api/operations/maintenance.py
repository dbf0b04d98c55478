"""What concerns a store as a whole: its status, its backups, rebuilding its projections."""

from __future__ import annotations

from pathlib import Path

from mnemolog.domain.result import Results
from mnemolog.domain.scope import Boundary
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.runtime.paths import local_path
from mnemolog.observability.telemetry import Telemetry
from mnemolog.operations.backup import BackupReport, make_backup
from mnemolog.operations.nodes import Nodes
from mnemolog.operations.rebuild import Rebuildable, rebuild
from mnemolog.operations.status import Status, store_status
from mnemolog.projections.maintenance.results import RebuildReport
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.sql.snapshots import SnapshotStore


class Maintenance:
    """Maintains a whole store. Raises `OutsideScope` for a store that was opened for one scope."""

    def __init__(
        self,
        layout: StoreLayout,
        log: EventLog,
        projections: ProjectionSet,
        snapshots: SnapshotStore,
        nodes: Nodes,
        *,
        boundary: Boundary,
        telemetry: Telemetry,
    ) -> None:
        self._layout, self._log, self._projections, self._snapshots = layout, log, projections, snapshots
        self._nodes, self._boundary, self._telemetry = nodes, boundary, telemetry

    def status(self) -> Status:
        """Return the state of log, projections and projector. See `MemoryStore.status`."""
        self._boundary.require_none("status")
        return store_status(self._layout, self._log, self._projections, self._snapshots, self._nodes)

    def backup(
        self,
        target: str | Path,
        *,
        keys: str | Path | None,
        with_projections: bool,
        replace: bool,
        progress: Progress | None,
    ) -> BackupReport:
        """Copy the store into a new folder. See `MemoryStore.backup`."""
        self._boundary.require_none("backup")
        with self._telemetry.span("mnemolog.backup", {}):
            return make_backup(
                self._layout.folder,
                self._log,
                local_path("target", target),
                keys=None if keys is None else local_path("keys", keys),
                with_projections=with_projections,
                replace=replace,
                progress=progress,
            )

    def rebuild(
        self, projection: Rebuildable, *, dry_run: bool, from_scratch: bool, skip_bad: bool, progress: Progress | None
    ) -> Results[RebuildReport]:
        """Rebuild projections from the log. See `MemoryStore.rebuild`."""
        self._boundary.require_none("rebuild")
        with self._telemetry.span("mnemolog.rebuild", {"projection": projection}):
            reports = rebuild(
                projection,
                self._layout,
                self._log,
                self._projections,
                self._snapshots,
                dry_run=dry_run,
                from_scratch=from_scratch,
                skip_bad=skip_bad,
                progress=progress,
            )
        return Results(reports)
