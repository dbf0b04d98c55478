"""Terminal output of forgetting."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mnemolog.cli.output import console
from mnemolog.domain.display import counted, dated, visible
from mnemolog.forgetting.results import ForgetReport, ForgottenEvent


def show_forget(report: ForgetReport) -> None:
    """Print what was forgotten, or would be."""
    out = console()
    for session in report.sessions:
        out.line(f"session {session}")
    for topic, count in report.counts.items():
        out.line(f"{count:>8,}  {topic}")
    if report.along:
        out.line(
            f"{counted(report.along, 'event')} of them not named: they depend on events that were, and are forgotten "
            "with them"
        )
    what = counted(report.events, "event")
    if report.dry_run:
        out.line(f"{what} would be forgotten")
    elif report.request is None:
        out.line("nothing to forget: no event matches, or all that match were forgotten before")
    else:
        out.line(f"{what} forgotten by request {report.request} at position {report.position}")
    if report.pending is not None:
        print(f"not done yet: {visible(report.pending)}", file=sys.stderr)


def show_forgotten(events: Sequence[ForgottenEvent]) -> None:
    """Print a table of what was forgotten."""
    columns = ("position", "what", "stream", "requested", "request", "why")
    rows = [
        (str(item.position), item.topic, item.stream, dated(item.requested_at), item.request, item.reason)
        for item in events
    ]
    console().rows(columns, rows)
