"""Status, rebuild and verification: what an operator and an auditor ask of a store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Final, Literal, get_args

from pysqlite3 import dbapi2

from mnemolog import bootstrap
from mnemolog.domain import errors
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.indexing import Indexing
from mnemolog.infra.log import EventLog
from mnemolog.opened import OpenedProjections
from mnemolog.projections import queries
from mnemolog.projections.database import ProjectionDatabase
from mnemolog.projections.ports import Progress
from mnemolog.projections.vectors.inventory import generations
from mnemolog.projections.vectors.manifest import read_manifest
from mnemolog.projections.verify import Verification, Witness, verify
from mnemolog.projections.views import ViewsState, standing
from mnemolog.projector_state import ProjectorStatus
from mnemolog.results import RebuildReport, Status, ViewsStatus

Rebuildable = Literal["vectors", "views", "all"]
REBUILDABLE: Final[tuple[Rebuildable, ...]] = get_args(Rebuildable)

INDEXER_WAIT_S: Final = 10.0
"""How long a catch-up that was asked for waits for another process that embeds."""

_HEAD: Final = re.compile(r"(\d{1,18}):([0-9a-fA-F]{64})")


def status(folder: Path, log: EventLog, *, projector: ProjectorStatus) -> Status:
    """Return the state of a store. The log and the tags of the projections are read, nothing else."""
    head = log.head()
    projections = folder / bootstrap.PROJECTIONS
    views, sessions, turns = _views_status(projections / bootstrap.VIEWS_FILE, log)
    quarantine = projections / bootstrap.QUARANTINE
    return Status(
        path=str(folder),
        log_id=log.log_id,
        log_format=log.identity.log_format,
        created_at=to_datetime(log.identity.created_at),
        head=head.position,
        digest=head.digest.hex(),
        log_bytes=log.size_bytes(),
        sessions=sessions,
        turns=turns,
        views=views,
        vectors=tuple(generations(projections / bootstrap.VECTORS, log)),
        projector=projector,
        quarantined=sum(1 for _ in quarantine.glob("*.reason.json")),
        sqlite_version=dbapi2.sqlite_version,
    )


def _views_status(path: Path, log: EventLog) -> tuple[ViewsStatus, int, int]:
    head = log.head().position
    if not path.exists():
        return ViewsStatus(state=ViewsState.MISSING, position=ORIGIN, behind_events=head), 0, 0
    engine = bootstrap.open_engine(path)
    try:
        with ProjectionDatabase(engine, path).reading() as connection:
            state, position = standing(connection, log)
            sessions, turns = (0, 0) if state is ViewsState.MISSING else queries.counts(connection)
    except errors.ProjectionUnreadable:
        return ViewsStatus(state="damaged", position=ORIGIN, behind_events=head), 0, 0
    finally:
        engine.dispose()
    behind = max(0, head - position)
    word = state.value if state is not ViewsState.USABLE else "behind" if behind else "current"
    return ViewsStatus(state=word, position=position, behind_events=behind), sessions, turns


def verify_store(folder: Path, log: EventLog, *, expect_head: str | None, progress: Progress | None) -> Verification:
    """Verify the log against every witness there is: the segments' manifests, and a head noted elsewhere."""
    witnesses = list(_manifest_witnesses(folder, log))
    if expect_head is not None:
        position, digest = parse_head(expect_head)
        witnesses.append(Witness("the expected head", position, digest))
    return verify(log, witnesses=witnesses, progress=progress)


def parse_head(value: str) -> tuple[Position, bytes]:
    """Return position and digest of `position:digest`. Raises `InvalidInput`."""
    match = _HEAD.fullmatch(value.strip())
    if match is None:
        raise errors.InvalidInput("expect_head", f"{value!r} is not POSITION:DIGEST as `mnemolog head` prints it")
    return Position(int(match[1])), bytes.fromhex(match[2])


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
        indexing.write()
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
    projections: OpenedProjections,
    dry_run: bool,
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
        built = encoded = 0
        if name == "views" and not dry_run:
            built = projections.views().rebuild(upto=upto, progress=progress)
        elif name == "vectors" and dry_run:
            encoded = projections.vectors().projection().missing(upto=upto)
        elif name == "vectors":
            coverage = projections.vectors().projection().rebuild(upto=upto, progress=progress).coverage
            built, encoded = coverage.turns, coverage.encoded
        reports.append(
            RebuildReport(
                projection=name,
                dry_run=dry_run,
                upto=upto,
                expected_turns=expected,
                built_turns=built,
                encoded_texts=encoded,
                seconds=perf_counter() - started,
            )
        )
    projections.poke()
    return reports


def _turns(log: EventLog, *, after: Position, upto: Position) -> int:
    return log.count(topic=TurnRecorded.topic, after=after, upto=upto)


def _manifest_witnesses(folder: Path, log: EventLog) -> Iterator[Witness]:
    root = folder / bootstrap.PROJECTIONS / bootstrap.VECTORS
    for part in sorted(root.glob("[0-9a-f]*-[0-9]*/[0-9]*-[0-9]*")):
        try:
            manifest = read_manifest(part)
            digest = bytes.fromhex(manifest.digest_at_upto)
        except (errors.ProjectionUnreadable, ValueError):
            continue  # A damaged manifest witnesses nothing; `status` reports it.
        if manifest.log_id == log.log_id:
            yield Witness(f"segment {part.parent.name}/{part.name}", manifest.upto, digest)
