"""Terminal output of recalls and their audits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from mnemolog.audit.receipt_audit import AuditedRecall, RecallAudit, Verdict
from mnemolog.cli.output import console, counted, dated
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.answer import Recall

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS: Final = {Verdict.REPRODUCES: "green", Verdict.DIFFERS: "red", Verdict.UNKNOWN: "yellow"}


def show_recall(answer: Recall) -> None:
    """Print hits, best first, with their source, and what the answer is based on."""
    out = console()
    for number, hit in enumerate(answer.hits, 1):
        who = f"{hit.role}/{hit.speaker}" if hit.speaker else hit.role.value
        legs = " ".join(f"{leg} #{rank}" for leg, rank in hit.ranks.items())
        out.print(f"[bold]{number}.[/bold] [cyan]@{hit.position}[/cyan] {dated(hit.said_at)} ", end="")
        out.print(f"{hit.scope} {hit.session} {who}", style="dim", markup=False, end="")
        out.print(f"  [green]{hit.score:.4f}[/green] ({legs})")
        _show_neighbours(out, hit.before)
        out.print(f"   {hit.text}", markup=False)
        _show_neighbours(out, hit.after)
    covered = "none" if answer.vectors_cover is None else f"to {answer.vectors_cover}"
    legs = ", ".join(answer.legs) or "none"
    head = f"head {answer.head}" if answer.as_of is None else f"as of {answer.as_of}"
    receipt = "" if answer.receipt is None else f", receipt @{answer.receipt}"
    out.print(f"{len(answer.hits)} hits; {head}, vectors {covered}, legs: {legs}{receipt}", style="dim")
    if answer.next is not None:
        out.print(f"next page: --after {answer.next}", style="dim", markup=False)
    for leg, why in answer.unavailable_legs.items():
        print(f"note: the {leg} leg did not answer: {why}", file=sys.stderr)
    if answer.vectors_lag is not None:
        print(f"note: the vectors are behind: {answer.vectors_lag}", file=sys.stderr)


def _show_neighbours(out: Console, turns: tuple[Turn, ...]) -> None:
    for turn in turns:
        out.print(f"   @{turn.position} {turn.speaker or turn.role.value}: {turn.text}", style="dim", markup=False)


def show_audit(answer: RecallAudit) -> None:
    """Print the verdict on every receipt, and how today's answer would differ."""
    out = console()
    for item in answer.recalls:
        out.print(f"[cyan]@{item.position}[/cyan] {dated(item.served_at)} as of {item.head} ", end="")
        out.print(item.verdict.value.replace("-", " "), style=_COLOURS[item.verdict], end=" ")
        out.print(item.query, markup=False)
        if item.why:
            out.print(f"   {item.why}", markup=False)
        _show_today(out, item)
    out.print(
        f"{counted(len(answer.recalls), 'receipt')}: {answer.reproduced} reproduce, {answer.differing} do not, "
        f"{answer.unknown} cannot be told; {answer.changed_today} would differ today",
        style="dim",
    )
    if answer.more:
        out.print(f"more receipts: --after {answer.recalls[-1].position}", style="dim")


def _show_today(out: Console, item: AuditedRecall) -> None:
    if item.today:
        out.print(f"   today: cannot be told: {item.today}", markup=False)
    elif item.would_differ_today:
        came, went = (", ".join(f"@{position}" for position in turns) for turns in (item.came, item.went))
        parts = [f"{came} came" if came else "", f"{went} went" if went else ""]
        out.print(f"   would differ today: {'; '.join(filter(None, parts)) or 'another order'}", markup=False)
