"""The command that judges answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from mnemolog.adapters.support.store_access import log_of
from mnemolog.audit.judgements import Judgement, receipt_at
from mnemolog.cli import output
from mnemolog.cli.app import AsJson, Store, StoreCommand, app
from mnemolog.cli.arguments import open_store
from mnemolog.domain import errors
from mnemolog.domain.display import one_line
from mnemolog.domain.events import ContextServed, RecallServed


@app.command("judge", cls=StoreCommand)
def judge(
    store: Store,
    receipt: Annotated[
        int,
        typer.Argument(
            metavar="RECEIPT", help="Position of the receipt, as recall and context print it with --receipt."
        ),
    ],
    good: Annotated[
        list[int] | None,
        typer.Option(metavar="RANK", help="A hit that answers the question, by its number in the answer, from 1."),
    ] = None,
    bad: Annotated[
        list[int] | None,
        typer.Option(metavar="RANK", help="A hit that does not answer it, by its number in the answer."),
    ] = None,
    good_turn: Annotated[
        list[int] | None,
        typer.Option(metavar="POSITION", help="A turn that answers it, by its position: of a context, or not found."),
    ] = None,
    nothing: Annotated[bool, typer.Option("--nothing", help="No turn of the store answers it.")] = False,
    by: Annotated[str, typer.Option(metavar="NAME", help="Who judges.")] = "",
    as_json: AsJson = False,
) -> None:
    """Judge the answer of a receipt: which hits were good, which were bad. Options for hits may be repeated.

    Judgements are events in the log; the last one of a receipt counts.

    Example: mnemolog judge memory/ 9 --good 3 --bad 1
    """
    with open_store(store, create=False) as opened:
        served = receipt_at(log_of(opened), receipt)
        answer = opened.audit.judge(
            receipt,
            good=[*_ranked(served, "good", good or ()), *(good_turn or ())],
            bad=[*_ranked(served, "bad", bad or ())],
            nothing=nothing,
            by=by,
        )
    output.answer(answer, _show_judgement, as_json=as_json)


def _ranked(served: RecallServed | ContextServed, option: str, ranks: Sequence[int]) -> Iterator[int]:
    """Yield the positions of hits by their numbers in the answer. Raises `InvalidInput` for a number without a hit."""
    for rank in ranks:
        if isinstance(served, ContextServed):
            raise errors.InvalidInput(
                option, "the turns of a context have no numbers: name one by --good-turn POSITION"
            )
        if not 1 <= rank <= len(served.hits):
            raise errors.InvalidInput(option, f"there is no hit {rank}: the answer has {len(served.hits)}")
        yield served.hits[rank - 1]


def _show_judgement(judgement: Judgement) -> None:
    """Print what was recorded about an answer."""
    out = output.console()
    by = f" by {judgement.by}" if judgement.by else ""
    out.line(f"receipt @{judgement.receipt} judged{by}: {_verdict(judgement)}")
    out.line(f"   {one_line(judgement.query)}", style="dim")


def _verdict(judgement: Judgement) -> str:
    sides = [("good", judgement.good), ("bad", judgement.bad)]
    found = [f"{word} {', '.join(f'@{turn}' for turn in turns)}" for word, turns in sides if turns]
    return "; ".join([*found, *(["nothing answers it"] if judgement.nothing else [])])
