"""Commands that measure recall: judge an answer, ask questions whose answers are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from mnemolog.adapters.support.store_access import log_of
from mnemolog.audit.judgements import receipt_at
from mnemolog.cli import output
from mnemolog.cli.app import AsJson, Store, StoreCommand, app
from mnemolog.cli.arguments import open_store
from mnemolog.cli.evaluation_output import show_judgement
from mnemolog.domain import errors


@app.command("judge", cls=StoreCommand)
def judge(
    store: Store,
    receipt: Annotated[int, typer.Argument(help="Position of the receipt, as `mnemolog recall --receipt` prints it.")],
    good: Annotated[
        list[int] | None,
        typer.Option(
            metavar="RANK", min=1, help="A hit that answers the question, by its number in the answer, from 1."
        ),
    ] = None,
    bad: Annotated[
        list[int] | None,
        typer.Option(metavar="RANK", min=1, help="A hit that does not answer it, by its number in the answer."),
    ] = None,
    good_turn: Annotated[
        list[int] | None,
        typer.Option(metavar="POSITION", help="A turn that answers it and was not found, by its position."),
    ] = None,
    nothing: Annotated[bool, typer.Option("--nothing", help="No turn of the store answers it.")] = False,
    by: Annotated[str, typer.Option(metavar="NAME", help="Who judges.")] = "",
    as_json: AsJson = False,
) -> None:
    """Judge the answer of a receipt: which hits were good, which were bad. The options may be repeated.

    Judgements are events in the log; the last one of a receipt counts. `mnemolog eval --judged` measures with them.

    Example: mnemolog judge memory/ 9 --good 3 --bad 1
    """
    with open_store(store, create=False) as opened:
        hits = receipt_at(log_of(opened), receipt).hits
        answer = opened.audit.judge(
            receipt,
            good=[*_ranked(hits, "good", good or ()), *(good_turn or ())],
            bad=[*_ranked(hits, "bad", bad or ())],
            nothing=nothing,
            by=by,
        )
    output.answer(answer, show_judgement, as_json=as_json)


def _ranked(hits: Sequence[int], option: str, ranks: Sequence[int]) -> Iterator[int]:
    """Yield the positions of hits by their numbers in the answer. Raises `InvalidInput` for a number without a hit."""
    for rank in ranks:
        if rank > len(hits):
            raise errors.InvalidInput(option, f"there is no hit {rank}: the answer has {len(hits)}")
        yield hits[rank - 1]
