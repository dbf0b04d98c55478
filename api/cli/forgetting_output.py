"""Terminal output of forgetting."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mnemolog.cli.output import console, counted, dated, table_of
from mnemolog.forgetting.results import ForgetReport, ForgottenEvent


def show_forget(report: ForgetReport) -> None:
    """Print what was forgotten, or would be."""
    out = console()
    for session in report.sessions:
        out.print(f"session {session}", markup=False)
    for topic, count in report.counts.items():
        out.print(f"{count:>8}  {topic}")
    if report.along:
        out.print(
            f"{report.along} of them were not named: they depend on events that were, and are forgotten with them"
        )
    what = counted(report.events, "event")
    if report.dry_run:
        out.print(f"{what} would be forgotten")
    elif report.request is None:
        out.print("nothing to forget: no event matches, or all that match were forgotten before")
    else:
        out.print(f"{what} forgotten by request {report.request} at position {report.position}")
    if report.pending is not None:
        print(f"not done yet: {report.pending}", file=sys.stderr)


def show_forgotten(events: Sequence[ForgottenEvent]) -> None:
    """Print a table of what was forgotten."""
    table = table_of("position", "what", "stream", "requested", "request", "why")
    for item in events:
        when = dated(item.requested_at)
        table.add_row(str(item.position), item.topic, item.stream, when, item.request, item.reason)
    console().print(table)
