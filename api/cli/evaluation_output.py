"""Terminal output of judgements and measurements of recall."""

from __future__ import annotations

from collections.abc import Sequence

from mnemolog.audit.judgements import Judgement
from mnemolog.cli.output import console
from mnemolog.domain.display import one_line


def show_judgement(judgement: Judgement) -> None:
    """Print what was recorded about an answer."""
    out = console()
    by = f" by {judgement.by}" if judgement.by else ""
    out.line(f"receipt @{judgement.receipt} judged{by}: {_verdict(judgement)}")
    out.line(f"   {one_line(judgement.query)}", style="dim")


def _verdict(judgement: Judgement) -> str:
    sides = [("good", judgement.good), ("bad", judgement.bad)]
    found = [f"{word} {_places(turns)}" for word, turns in sides if turns]
    return "; ".join([*found, *(["nothing answers it"] if judgement.nothing else [])])


def _places(turns: Sequence[int]) -> str:
    return ", ".join(f"@{turn}" for turn in turns)
