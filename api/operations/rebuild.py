"""Status, rebuild and verification: what an operator and an auditor ask of a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Final, Literal, get_args

from pysqlite3 import dbapi2

from mnemolog.domain import errors, structured_log
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.forgetting import history as forgetting_record
from mnemolog.forgetting.results import ForgettingStatus
from mnemolog.infra.log.event_log import EventLog
from mnemolog.operations.status import caches, tables, views_status, wal_status
from mnemolog.projections.drift import LOST_HISTORY, UNCOVERED
from mnemolog.projections.indexer import Indexing
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.projector_status import ProjectorStatus
from mnemolog.projections.quarantine import Quarantine, QuarantineStatus
from mnemolog.projections.vectors.inventory import GenerationStatus, generations
from mnemolog.results import RebuildReport, Status, ViewsStatus, WalStatus

Rebuildable = Literal["vectors", "views", "all"]
REBUILDABLE: Final[tuple[Rebuildable, ...]] = get_args(Rebuildable)

INDEXER_WAIT_S: Final = 10.0
"""How long a catch-up that was asked for waits for another process that embeds."""


def status(folder: Path, log: EventLog, *, projector: ProjectorStatus, active: str | None = None) -> Status:
    """Return the state of a store. The log and the tags of the projections are read, nothing else.

    `active` is the fingerprint of the model that recalls use, where one is chosen.
    """
    head = log.head()
    layout = StoreLayout(folder)
    views, sessions, turns = views_status(layout.views, log)
    vectors = tuple(generations(layout.vectors, log, active=active))
    quarantine = Quarantine(StoreLayout(folder).quarantine).status()
    forgetting, wal = forgetting_record.status(log), wal_status(log)
    return Status(
        path=str(folder),
        log_id=log.log_id,
        log_format=log.identity.log_format,
        created_at=to_datetime(log.identity.created_at),
        head=head.position,
        digest=head.digest,
        log_bytes=log.size_bytes(),
        wal=wal,
        sessions=sessions,
        turns=turns,
        views=views,
        tables=tables(layout.projections, log),
        vectors=vectors,
        caches=caches(layout.projections),
        projector=projector,
        quarantined=quarantine.items,
        quarantine=quarantine,
        forgetting=forgetting,
        warnings=tuple(_warnings(views, vectors, quarantine, forgetting, wal, head=head.position)),
        sqlite_version=dbapi2.sqlite_version,
    )


def catch_up_vectors(log: EventLog, indexing: Indexing, *, progress: Progress | None = None) -> RebuildReport:
    """Embed what is new and write it, beside what is there. What comes before a text that is refused is written too.

    Raises `IndexerBusy` when another process embeds and does not end in time.
    """
    started = perf_counter()
    upto = log.head().position
    before = indexing.covers()
    expected = _turns(log, after=before, upto=upto)
    try:
        encoded = indexing.bring_up(upto, stop=lambda: False, wait_s=INDEXER_WAIT_S, progress=progress)
    finally:
        indexing.write(new_since=before if expected else None)
    covers = indexing.covers()
    return RebuildReport(
        projection="vectors",
        dry_run=False,
        upto=covers,
        expected_turns=expected,
        built_turns=_turns(log, after=before, upto=min(covers, upto)),
        encoded_texts=encoded,
        seconds=perf_counter() - started,
    )


def rebuild(
    projection: Rebuildable,
    *,
    log: EventLog,
    projections: ProjectionSet,
    dry_run: bool,
    from_scratch: bool,
    skip_bad: bool,
    progress: Progress | None,
) -> list[RebuildReport]:
    """Make projections anew from the log, or say what that would take."""
    if projection not in REBUILDABLE:
        raise errors.InvalidInput("projection", f"{projection!r} is none of {', '.join(REBUILDABLE)}")
    upto = log.head().position
    expected = _turns(log, after=ORIGIN, upto=upto)
    reports: list[RebuildReport] = []
    for name in ("views", "vectors") if projection == "all" else (projection,):
        started = perf_counter()
        built = encoded = skipped = 0
        if name == "views" and not dry_run:
            built = projections.rebuild_views(upto=upto, progress=progress)
        elif name == "vectors" and dry_run:
            encoded = projections.vectors().projection().missing(upto=upto, from_scratch=from_scratch)
        elif name == "vectors":
            leg = projections.vectors().projection()
            made = leg.rebuild(upto=upto, from_scratch=from_scratch, skip_bad=skip_bad, progress=progress)
            built, encoded, skipped = made.turns, made.encoded, made.skipped
        seconds = perf_counter() - started
        if not dry_run:
            facts = {"turns": built, "encoded": encoded, "skipped": skipped, "seconds": round(seconds, 3)}
            structured_log.info("projection.rebuilt", name=name, upto=upto, **facts)
        reports.append(
            RebuildReport(
                projection=name,
                dry_run=dry_run,
                upto=upto,
                expected_turns=expected,
                built_turns=built,
                encoded_texts=encoded,
                skipped_turns=skipped,
                seconds=seconds,
            )
        )
    projections.poke()
    return reports


def _turns(log: EventLog, *, after: Position, upto: Position) -> int:
    return log.count(topic=TurnRecorded.topic, after=after, upto=upto)


def _warnings(
    views: ViewsStatus,
    vectors: Iterable[GenerationStatus],
    quarantine: QuarantineStatus,
    forgetting: ForgettingStatus,
    log: WalStatus,
    *,
    head: Position,
) -> Iterator[str]:
    if forgetting.pending:
        which = ", ".join(forgetting.pending)
        yield f"requests to forget are not done yet: {which}; they are gone on with whenever the store is opened"
    if views.state in LOST_HISTORY:
        yield f"the log has lost history: the views have read to {views.position}, the log ends at {head}"
    for item in vectors:
        for segment in item.unused:
            if segment.state in LOST_HISTORY:
                yield f"the log has lost history: vectors {item.generation}/{segment.name}: {segment.why}"
            elif segment.state in UNCOVERED:
                yield f"vectors {item.generation}/{segment.name} belong to another store: {segment.why}"
    if log.why:
        yield f"the write-ahead log of log.db has {log.bytes:,} bytes: {log.why}"
    if quarantine.full:
        yield f"the quarantine is full ({quarantine.items} items, {quarantine.bytes:,} bytes): {quarantine.action}"
