"""Terminal output of recalls and their audits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from mnemolog.audit.context_audit import AuditedContext
from mnemolog.audit.recall_audit import AuditedRecall
from mnemolog.audit.receipt_audit import AuditedReceipt, ReceiptAudit, Verdict
from mnemolog.cli.output import console, note
from mnemolog.domain.display import counted, dated, named, one_line
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.answer import Hit, Recall
from mnemolog.projections.recall.passages import marked
from mnemolog.projections.recall.phrases import Search
from mnemolog.projections.recall.question import TEXT, VECTOR

if TYPE_CHECKING:
    from mnemolog.cli.terminal import Terminal

TEXT_INDENT: Final = "   │ "
"""Begins every line of a hit's text: no text can look like another hit, or like a neighbour."""
BEFORE_PHRASE: Final = 40
"""Characters that are shown before a phrase."""
_BY: Final = {TEXT: "by words", VECTOR: "by meaning"}
_SAME_TURNS: Final = {AuditedRecall: "another order", AuditedContext: "the same turns, in another text"}
_COLOURS: Final = {Verdict.REPRODUCES: "green", Verdict.DIFFERS: "red", Verdict.UNKNOWN: "yellow"}


def show_recall(answer: Recall, *, full: bool) -> None:
    """Print hits, best first, with their source, and what the answer is based on."""
    out = console()
    for number, hit in enumerate(answer.hits, 1):
        place = (f"{number}.", "bold"), " ", (f"@{hit.position}", "cyan"), f" {dated(hit.said_at)} "
        who = f"{hit.role}/{hit.speaker}" if hit.speaker else hit.role.value
        found = ", ".join(f"{_BY[leg]} #{rank}" for leg, rank in hit.ranks.items())
        like = "" if hit.similarity is None else f", similarity {hit.similarity:.2f}"
        out.line(*place, (who, "dim"), "  ", (f"relevance {hit.relevance:.2f}", "green"), f" ({found}){like}")
        source = named(hit.session, hit.session_title) + (f" in {hit.scope}" if hit.scope else "")
        out.line(f"   {source}", style="dim")
        around = sorted({turn.position: turn for turn in (*hit.before, *hit.after, *hit.exchange)}.items())
        _show_neighbours(out, [turn for position, turn in around if position < hit.position], full=full)
        out.text(TEXT_INDENT, text=hit.text if full else _passage(hit), full=True, margin=TEXT_INDENT)
        _show_neighbours(out, [turn for position, turn in around if position > hit.position], full=full)
    out.line("; ".join(_basis(answer)), style="dim")
    if answer.next is not None:
        out.advice(f"next page: `--after {answer.next}`", style="dim")
    if answer.stale is not None:
        note(f"from projections alone, {answer.stale}")
    for leg, why in answer.unavailable_legs.items():
        note(f"not searched {_BY[leg]}: {why}" if leg in _BY else f"the {leg} did not answer: {why}")
    if answer.vectors_lag is not None:
        note(f"the vectors are behind: {answer.vectors_lag}")


def _passage(hit: Hit) -> str:
    left_out = len(hit.text) - len(hit.passage.text)
    rest = f" +{left_out:,} characters, --full shows them" if left_out else ""
    return f"{marked(hit.passage, hit.text)}{rest}"


def _basis(answer: Recall) -> Iterator[str]:
    """Yield what an answer is based on."""
    how = " and ".join(_BY[leg] for leg in answer.legs) or "by nothing"
    then = "" if answer.as_of is None else ", as of then"
    yield f"{counted(len(answer.hits), 'hit')}, searched {how} up to position {answer.head}{then}"
    if answer.vectors_cover is not None and answer.vectors_cover < answer.head:
        yield f"{_BY[VECTOR]} only up to {answer.vectors_cover}"
    if answer.left_out:
        yield f"left out: {answer.left_out} below {answer.filters['min_relevance']:g}"
    if answer.receipt is not None:
        yield f"receipt @{answer.receipt}"


def note_missing_vectors(missing: int, turns: int, command: str) -> None:
    """Print to stderr that a search by meaning did not see all turns, and the command that embeds the rest."""
    have = "has" if missing == 1 else "have"
    note(f"{missing:,} of {counted(turns, 'turn')} {have} no vector yet; {command} makes them")


def show_found(turns: Sequence[Turn], search: Search, *, full: bool, more: bool) -> None:
    """Print turns that hold a phrase: a line from shortly before the phrase on, or with `full` all of the text."""
    out = console()
    for turn in turns:
        place = (f"@{turn.position}", "cyan"), f" {dated(turn.said_at)} ", (f"{turn.session} ", "dim")
        who = (f"{turn.speaker or turn.role.value}: ", "bold")
        if full:
            out.text(*place, who, text=turn.text, full=True)
        else:
            out.line(*place, who, _from_phrase(turn.text, search(turn.text)))
    rest = f"; more: --after {turns[-1].position}" if more else ""
    out.line(f"{counted(len(turns), 'turn')}{rest}", style="dim")


def _from_phrase(text: str, at: int | None) -> str:
    start = max((at or 0) - BEFORE_PHRASE, 0)
    return ("…" if start else "") + one_line(text[start:])


def _show_neighbours(out: Terminal, turns: Sequence[Turn], *, full: bool) -> None:
    for turn in turns:
        who = f"   @{turn.position} {turn.speaker or turn.role.value}: "
        out.text((who, "dim"), text=turn.text, full=full, style="dim")


def show_audit(audit: ReceiptAudit, receipts: Sequence[AuditedReceipt]) -> None:
    """Print the verdict on every receipt, and how today's answer would differ."""
    out = console()
    for item in receipts:
        _show_verdict(out, item)
    out.line(
        f"{counted(len(receipts), 'receipt')}: {audit.reproduced:,} reproduce, {audit.differing:,} do not, "
        f"{audit.unknown:,} cannot be told; {audit.changed_today:,} would differ today",
        style="dim",
    )
    if audit.more:
        out.line(f"more receipts: --after {receipts[-1].position}", style="dim")


def _show_verdict(out: Terminal, item: AuditedReceipt) -> None:
    place = (f"@{item.position}", "cyan"), f" {dated(item.served_at)} as of {item.head} "
    out.line(*place, (item.verdict.value.replace("-", " "), _COLOURS[item.verdict]), f" {item.query}")
    if item.why:
        out.line(f"   {item.why}")
    _show_today(out, item)


def _show_today(out: Terminal, item: AuditedReceipt) -> None:
    if item.today:
        out.line(f"   today: cannot be told: {item.today}")
    elif item.would_differ_today:
        came, went = (", ".join(f"@{position}" for position in turns) for turns in (item.came, item.went))
        parts = [f"{came} came" if came else "", f"{went} went" if went else ""]
        out.line(f"   would differ today: {'; '.join(filter(None, parts)) or _SAME_TURNS[type(item)]}")
