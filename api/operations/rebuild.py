"""Rebuilding projections from the log."""

from __future__ import annotations

from time import perf_counter
from typing import Final, Literal, get_args

from mnemolog.domain import errors, structured_log
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.position import ORIGIN
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.forgetting.history import forgotten_turns
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.maintenance.context import RebuildReport, Rebuilt, StoreContext
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.registry import REBUILDABLE as PROJECTIONS

Rebuildable = Literal["vectors", "views", "all"]
VECTORS: Final = "vectors"
REBUILDABLE: Final[tuple[Rebuildable, ...]] = get_args(Rebuildable)


def rebuild(
    projection: Rebuildable,
    layout: StoreLayout,
    log: EventLog,
    projections: ProjectionSet,
    *,
    dry_run: bool,
    skip_bad: bool,
    progress: Progress | None,
) -> list[RebuildReport]:
    """Rebuild projections from the log, or with `dry_run` report what that would take.

    `all` leaves vectors out where the store was opened without a model.

    Raises `InvalidInput` for another name, and what the projection raises.
    """
    if projection not in REBUILDABLE:
        raise errors.InvalidInput("projection", f"{projection!r} is none of {', '.join(REBUILDABLE)}")
    if not dry_run:
        log.appends.require_writable()
    context = StoreContext(layout, log, projections, progress=progress)
    upto = log.head().position
    forgotten = sum(position <= upto for position in forgotten_turns(log))
    expected = log.count(topic=TurnRecorded.topic, after=ORIGIN, upto=upto) - forgotten
    reports: list[RebuildReport] = []
    every = [name for name in PROJECTIONS if name != VECTORS or projections.has_model]
    for name in every if projection == "all" else (projection,):
        started = perf_counter()
        if dry_run:
            built = Rebuilt(0, PROJECTIONS[name].to_encode(context, upto=upto))
        else:
            built = PROJECTIONS[name].rebuild(context, upto=upto, skip_bad=skip_bad)
        seconds = perf_counter() - started
        if not dry_run:
            facts = {**built._asdict(), "seconds": round(seconds, 3)}
            structured_log.info("projection.rebuilt", name=name, upto=upto, **facts)
        reports.append(
            RebuildReport(
                projection=name,
                dry_run=dry_run,
                upto=upto,
                expected_turns=expected,
                built_turns=built.turns,
                encoded_texts=built.encoded,
                skipped_turns=built.skipped,
                seconds=seconds,
            )
        )
    projections.poke()
    return reports
