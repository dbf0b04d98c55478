"""What `doctor` does about an ailment. Nothing of the log is touched, nothing is deleted but leftovers and bad rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.store_layout import DATABASE_PARTS, StoreLayout
from mnemolog.infra.log.event_log import EventLog
from mnemolog.operations import maintenance
from mnemolog.projections.drift import Drift
from mnemolog.projections.health import stale_files
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.quarantine import Quarantine, identity
from mnemolog.projections.sql.opening import is_damage, opened
from mnemolog.projections.sql.snapshots import SnapshotStore
from mnemolog.projections.vectors.folders import prefix_of
from mnemolog.projections.vectors.inventory import FoundSegment, Validate, look
from mnemolog.projections.vectors.manifest import log_range_of


class Patient(NamedTuple):
    """A store that is examined."""

    folder: Path
    log: EventLog
    opened: ProjectionSet
    snapshots: SnapshotStore
    active: str | None
    """Fingerprint of the model that recalls use, where one is chosen."""
    has_model: bool
    """Whether the store was opened with a model, so that vectors can be made."""
    progress: Progress | None

    @property
    def projections(self) -> Path:
        """The folder of the projections."""
        return StoreLayout(self.folder).projections

    @property
    def vectors(self) -> Path:
        """The folder of the vectors."""
        return StoreLayout(self.folder).vectors

    def let_go(self) -> None:
        """Close the files of this process that may be renamed; they are opened again when needed."""
        self.opened.close()
        self.snapshots.let_go()

    def named(self, path: Path) -> str:
        """Return a path as findings name it."""
        return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else str(path)


def set_database_aside(patient: Patient, path: Path, *, why: str, state: str) -> str:
    """Move a database with its parts to quarantine."""
    judged = identity(path)
    patient.let_go()
    moved = Quarantine(StoreLayout(patient.folder).quarantine).add(
        path, reason=why, state=state, parts=DATABASE_PARTS, judged=judged
    )
    return _set_aside(patient, path, moved)


def make_views_anew(patient: Patient, *, aside: bool, why: str, state: str) -> str:
    """Rebuild the views, in place or, where the file is of no use or of evidence, in a new one."""
    done = ""
    if aside:
        path = StoreLayout(patient.folder).views
        done = set_database_aside(patient, path, why=why, state=state) + "; "
    turns = patient.opened.rebuild_views(progress=patient.progress)
    return f"{done}made anew from the log with {turns} turns"


def bring_views_up(patient: Patient) -> str:
    """Let the views read up to the head. One that is found damaged then is made anew."""
    try:
        return f"read to {patient.opened.current_views(patient.progress).position()}"
    except errors.ProjectionUnreadable as error:
        if not is_damage(error):
            raise
        return make_views_anew(patient, aside=True, why=error.cause, state=Drift.DAMAGED.value)


def delete_rows(patient: Patient, path: Path, keys: list[tuple[Any, ...]]) -> str:
    """Delete rows of a cache that do not fit their checksum."""
    from mnemolog.projections.health import rows_audit

    with opened(path) as database:
        count = rows_audit.delete(database, keys)
    return f"deleted {count} rows; what was in them is made anew when it is needed"


def set_segment_aside(patient: Patient, segment: FoundSegment, *, validate: Validate, why: str) -> str:
    """Move a segment to quarantine, if it is still what it was found to be while nobody writes vectors."""
    with stale_files.nobody_indexing(patient.vectors):
        judged = identity(segment.folder)
        now = look(segment.folder, patient.log, validate)
        if now is None or now.state is not segment.state:
            return "nothing was to be done: it has been replaced meanwhile"
        quarantine = Quarantine(StoreLayout(patient.folder).quarantine)
        moved = quarantine.add(
            segment.folder,
            reason=why,
            state=segment.state.value,
            judged=judged,
            built_from=log_range_of(segment.folder),
        )
        return _set_aside(patient, segment.folder, moved)


def set_generation_aside(patient: Patient, folder: Path, *, why: str, state: str) -> str:
    """Move a whole generation to quarantine."""
    with stale_files.nobody_indexing(patient.vectors):
        moved = Quarantine(StoreLayout(patient.folder).quarantine).add(folder, reason=why, state=state)
        return _set_aside(patient, folder, moved)


def catch_up_vectors(patient: Patient, prefix: str) -> str:
    """Bring the vectors of the store's model up to the head, from the cache where it knows the text."""
    vectors = patient.opened.vectors()
    if vectors.fingerprint[: len(prefix)] != prefix:
        raise errors.ModelMismatch(built_with=prefix, asked_with=prefix_of(vectors.fingerprint))
    report = maintenance.catch_up_vectors(patient.log, patient.opened.indexing, progress=patient.progress)
    return f"now to {report.upto}: {report.built_turns} turns, {report.encoded_texts} texts embedded by the model"


def remove_leftover(patient: Patient, path: Path, *, still: Callable[[], bool]) -> str:
    """Delete what a dead process left, if nobody writes vectors."""
    with stale_files.nobody_indexing(patient.vectors):
        if not still():
            return "nothing was to be done: it is gone, or somebody's again"
        stale_files.remove(path)
    return "removed"


def _set_aside(patient: Patient, path: Path, moved: Path | None) -> str:
    if moved is not None:
        return f"set aside as {patient.named(moved)}"
    if identity(path) is None:
        return "nothing was to be done: it is gone"
    full = Quarantine(StoreLayout(patient.folder).quarantine).status().full
    why = "the quarantine is full" if full else "the file system refuses, or it has been replaced meanwhile"
    raise errors.ProjectionUnreadable(path, f"it could not be set aside: {why}")
