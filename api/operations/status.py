"""The state of a store, from the log and the metadata of its projections. Read-only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pysqlite3 import dbapi2

from mnemolog.domain import errors
from mnemolog.domain.display import counted
from mnemolog.domain.errors import install_command
from mnemolog.domain.hints import Hint, remedy
from mnemolog.domain.position import Position, UtcTime, to_datetime
from mnemolog.domain.result import Result, Stale, brief
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.forgetting import history
from mnemolog.forgetting.results import ForgettingStatus, NodeStatus
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.postgres.address import read_address
from mnemolog.infra.log.sqlite import wal_checkpointer
from mnemolog.infra.log.sqlite.engine import SqliteEngine
from mnemolog.operations.doctor import missing_keys
from mnemolog.operations.known_backups import after_findings, noted_witnesses, put_keys_back
from mnemolog.operations.nodes import Nodes
from mnemolog.projections.history.verify import FINDINGS_MAX, quick_verify
from mnemolog.projections.maintenance.context import CacheStatus, LogAtHead, StoreContext, TablesStatus, ViewsStatus
from mnemolog.projections.maintenance.tables import Cache
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.projector import ProjectorStatus
from mnemolog.projections.quarantine import LOST_HISTORY, UNCOVERED, QuarantineStatus
from mnemolog.projections.registry import PROJECTIONS
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.database import tracked
from mnemolog.projections.vectors.folders import GenerationStatus

_UNPROVED: Final = "unproved"
_PROVED_LATER: Final = "Nothing to do: they are compared with the log when it answers again."
WITHOUT_ONNX_RUNTIME: Final = "sentence-transformers runs every model, the default one at half the speed or less"


class WalStatus(Result, frozen=True, kw_only=True):
    """The write-ahead log of `log.db`: commits not yet moved into its pages, or moved and not yet overwritten."""

    bytes: int
    waiting_frames: int
    """Pages not yet moved into `log.db`."""
    readers: tuple[int, ...]
    """Ids of the processes that read from it now, where the operating system reports them."""
    why: str
    """Why it is large; empty if it is not."""


class Status(Result, frozen=True, kw_only=True):
    """The state of a store. Nothing is repaired, and only `views.db` is read in full, to compare its checksum."""

    path: str
    read_only: bool
    """Whether the store was opened with `read_only`: then the projections are copies in a temporary folder."""
    log_id: str
    log_format: int
    created_at: UtcTime
    stale: Stale | None = None
    """Set if the log does not answer. Then `head` is how far the views have read, and what only the log tells is left
    out: requests to forget, its size, tables and vectors."""
    head: Position
    digest: str
    """The log's digest at `head`, hexadecimal."""
    database: str
    """Where the log is in PostgreSQL: its name and the URL without a password, and that of its keys if they are in
    another database; empty if it is `log.db`."""
    moved_to: str = ""
    """Where the log was moved: it takes no more events. Empty if it does."""
    log_bytes: int = 0
    """In PostgreSQL of all logs of the database."""
    wal: WalStatus | None = None
    """None for a log in PostgreSQL."""
    sessions: int
    turns: int
    """Sessions and turns as far as the views have read the log."""
    views: ViewsStatus
    tables: tuple[TablesStatus, ...] = ()
    """The tables that exist."""
    vectors: tuple[GenerationStatus, ...] = ()
    caches: tuple[CacheStatus, ...]
    projector: ProjectorStatus
    """This store's own projector, or if it has none, that of another process."""
    quarantine: QuarantineStatus
    forgetting: ForgettingStatus
    nodes: tuple[NodeStatus, ...] = ()
    """The nodes of a log in PostgreSQL, this one among them; none of a log in a folder."""
    warnings: tuple[str, ...]
    """Problems that need attention: lost history, a full quarantine, a model that cannot be loaded."""
    sqlite_version: str

    def _shown(self) -> Iterable[str]:
        yield from (brief(self.path), f"head={self.head}")
        yield from (counted(self.sessions, "session"), counted(self.turns, "turn"))
        if self.warnings:
            yield counted(len(self.warnings), "warning")


def store_status(layout: StoreLayout, log: EventLog, projections: ProjectionSet, nodes: Nodes) -> Status:
    """Return the state of a store at the head that its log has now."""
    try:
        at_head = LogAtHead(log)
    except errors.LogUnreachable:
        return _status_alone(layout, log, projections, nodes)
    head = at_head.head()
    active = projections.active_fingerprint(upto=head.position)
    context = StoreContext(layout, at_head, projections, active)
    found = [status for projection in PROJECTIONS for status in projection.status(context)]
    (views,) = (item for item in found if isinstance(item, ViewsStatus))
    vectors = tuple(item for item in found if isinstance(item, GenerationStatus))
    forgetting = history.status(log)
    wal = wal_status(log)
    quarantine = context.quarantine.status()
    address, moved_to = read_address(layout.folder), log.usable_engine.moved_to()
    projector = projections.projector_status()
    return Status(
        path=str(layout.folder),
        read_only=log.is_read_only,
        log_id=at_head.log_id,
        log_format=log.identity.log_format,
        created_at=to_datetime(log.identity.created_at),
        head=head.position,
        digest=head.digest,
        database="" if address is None else address.shown(),
        moved_to=moved_to,
        log_bytes=log.usable_engine.size_bytes(),
        wal=wal,
        sessions=views.sessions,
        turns=views.turns,
        views=views,
        tables=tuple(item for item in found if isinstance(item, TablesStatus)),
        vectors=vectors,
        caches=tuple(item for item in found if isinstance(item, CacheStatus)),
        projector=projector,
        quarantine=quarantine,
        forgetting=forgetting,
        nodes=tuple(nodes.all()),
        warnings=(
            *_lost_events(log),
            *((f"the log takes no more events: it was moved to {moved_to}",) if moved_to else ()),
            *_warnings(views, vectors, quarantine, forgetting, wal, head=head.position),
            *_backup_warnings(layout.folder, log, missing_keys(log)),
            *_model_warnings(projections, projector),
        ),
        sqlite_version=dbapi2.sqlite_version,
    )


def _status_alone(layout: StoreLayout, log: EventLog, projections: ProjectionSet, nodes: Nodes) -> Status:
    """Return the state of a store whose log does not answer. Raises `LogUnreachable` where it has no views."""
    views, position, stale = projections.to_answer()
    if stale is None:  # It answers again.
        return store_status(layout, log, projections, nodes)
    with views.database.reading() as connection:
        digest, (sessions, turns) = tracked(connection, views.name).digest, queries.counts(connection)
    context = StoreContext(layout, log, projections)
    address = read_address(layout.folder)
    caches = [cache for cache in PROJECTIONS if isinstance(cache, Cache)]
    return Status(
        path=str(layout.folder),
        read_only=log.is_read_only,
        log_id=log.log_id,
        log_format=log.identity.log_format,
        created_at=to_datetime(log.identity.created_at),
        stale=stale,
        head=position,
        digest=digest.hex(),
        database="" if address is None else address.shown(),
        sessions=sessions,
        turns=turns,
        views=ViewsStatus(
            state=_UNPROVED, position=position, behind_events=0, action=_PROVED_LATER, sessions=sessions, turns=turns
        ),
        caches=tuple(status for cache in caches for status in cache.status(context)),
        projector=projections.projector_status(),
        quarantine=context.quarantine.status(),
        forgetting=ForgettingStatus(requests=0, events=0, pending=()),
        warnings=(f"nothing can be recorded, and recalls are answered from projections alone, {stale}",),
        sqlite_version=dbapi2.sqlite_version,
    )


def _lost_events(log: EventLog) -> Iterator[str]:
    """Yield what is known to be wrong with the log."""
    seen = log.engine.seen
    if seen.lost:
        reports = remedy("admin.doctor"), " reports what was lost and what to do"
        yield Hint(f"{seen.lost}; nothing is read or recorded: ", *reports)
    yield from seen.warnings.values()


def _backup_warnings(folder: Path, log: EventLog, keys: errors.KeysMissing | None) -> Iterator[str]:
    """Yield what is lost, and how to get it back from a backup."""
    if keys is not None:
        yield Hint(f"{keys}; content can be neither read nor recorded: ", put_keys_back(folder, keys))
    with log.reading() as reads:
        damage = log.damage(reads)[:FINDINGS_MAX]
    for finding in (*quick_verify(log, noted_witnesses(folder, log.log_id)), *damage):
        yield Hint(f"{finding.detail}; ", after_findings(folder, [finding]))


def _model_warnings(projections: ProjectionSet, projector: ProjectorStatus) -> Iterator[str]:
    if (trouble := projections.models.trouble) is not None:
        yield Hint(f"recalls search by words only: {trouble}; ", trouble.hint)
    elif (why := projector.trouble) is not None:
        yield f"vectors are not updated: {why}"
    named = isinstance(projections.models.own, str | Path)
    if named and find_spec("onnxruntime") is None and find_spec("sentence_transformers") is not None:
        yield Hint(WITHOUT_ONNX_RUNTIME, f": `{install_command('minilm')}`")


def wal_status(log: EventLog) -> WalStatus | None:
    """Return the state of the log's write-ahead log, and why it is large if it is; None if it is not in SQLite."""
    if not isinstance(log.engine, SqliteEngine):
        return None
    size, found = wal_checkpointer.size_bytes(log.path), log.engine.checkpointed()
    readers, why = wal_checkpointer.readers_of(log.path), ""
    if size >= wal_checkpointer.WARN_BYTES and found.waiting:
        who = f"process {', '.join(map(str, readers))}" if readers else "a process"
        why = (
            f"{who} reads it in a transaction that does not end, so {found.waiting:,} pages cannot be moved into "
            "log.db; end that transaction, and the file is emptied within seconds"
        )
    elif size >= wal_checkpointer.WARN_BYTES:
        why = "a reader has just ended; the next commits empty it"
    return WalStatus(bytes=size, waiting_frames=found.waiting, readers=readers, why=why)


def _warnings(
    views: ViewsStatus,
    vectors: Iterable[GenerationStatus],
    quarantine: QuarantineStatus,
    forgetting: ForgettingStatus,
    wal: WalStatus | None,
    *,
    head: int,
) -> Iterator[str]:
    if forgetting.pending:
        which = ", ".join(forgetting.pending)
        yield f"requests to forget are not complete: {which}; any open store tries again"
    if views.state in LOST_HISTORY:
        yield f"the log has lost history: the views have read to {views.position}, the log ends at {head}"
    for item in vectors:
        for segment in item.unused:
            if segment.state in LOST_HISTORY:
                yield f"the log has lost history: vectors {item.generation}/{segment.name}: {segment.why}"
            elif segment.state in UNCOVERED:
                yield f"vectors {item.generation}/{segment.name} belong to another store: {segment.why}"
    if wal is not None and wal.why:
        yield f"the write-ahead log of log.db has {wal.bytes:,} bytes: {wal.why}"
    if quarantine.full:
        size = f"{counted(quarantine.items, 'item')}, {counted(quarantine.bytes, 'byte')}"
        yield Hint(f"the quarantine is full ({size}): ", quarantine.action)
