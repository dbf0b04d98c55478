"""The command that prints what the memory has on a question, for a prompt."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Unpack

import typer

from mnemolog.cli import output
from mnemolog.cli.app import AsJson, ModelName, Store, StoreCommand, app
from mnemolog.cli.arguments import session_called, store_with_model
from mnemolog.cli.progress import bar
from mnemolog.cli.recall import AsOf, Query, QuestionFlags, question_of
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.display import cut, dated, visible_lines
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.domain.options import takes_options
from mnemolog.projections.context.answer import Context, WhyLeftOut
from mnemolog.projections.context.service import TOKENS
from mnemolog.projections.read_models import StandingStatement

_REASONS = {
    WhyLeftOut.NO_ROOM: "did not fit",
    WhyLeftOut.BELOW_MIN_RELEVANCE: "not relevant enough",
    WhyLeftOut.REPETITION: "repeated later",
}


@app.command("context", cls=StoreCommand)
@takes_options
def context(
    store: Store,
    query: Query,
    tokens: Annotated[
        int, typer.Option("--tokens", "-t", metavar="N", min=0, max=INTEGER_MAX, help="Maximum size, in tokens.")
    ] = TOKENS,
    session: Annotated[str | None, typer.Option(help="Only in this session. Adds its task, values and notes.")] = None,
    cover: Annotated[
        bool | None,
        typer.Option("--cover/--no-cover", help="Much on the topic, each turn in short. Default: as asked."),
    ] = None,
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
    **asked: Unpack[QuestionFlags],
) -> None:
    """Print what the memory has on a question, as a text for a prompt. What was left out is noted on stderr.

    Example: mnemolog context memory/ "where does she live?" --tokens 1000 --session trip
    """
    with store_with_model(store, model) as opened, bar("searching"):
        of = None if session is None else session_called(opened, session)
        found = opened.context(query, tokens, session=of, cover=cover, **question_of(asked))
    output.answer(found, _show, as_json=as_json)


STANDING: output.Columns[StandingStatement] = {
    "kind": lambda said: said.kind.value,
    "text": lambda said: cut(f"{said.key}: {said.text}" if said.key else said.text, full=False),
    "said": lambda said: dated(said.said_at),
    "position": lambda said: str(said.position),
    "speaker": lambda said: said.speaker or "",
    "scope": lambda said: said.scope or "/",
}


@app.command("standing", cls=StoreCommand)
def standing(
    store: Store,
    query: Annotated[str | None, typer.Argument(metavar="[QUERY]", help="Only what holds for this question.")] = None,
    scope: Annotated[str, typer.Option(metavar="PATH", help="Only what was said at or below this scope.")] = "",
    session: Annotated[str | None, typer.Option(help="Only in this session.")] = None,
    as_of: AsOf = None,
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """List what users said that should hold for every answer, and the facts below standing/.

    Example: mnemolog standing memory/ "what shall I cook?" --scope acme/support
    """
    with store_with_model(store, model) as opened:
        of = None if session is None else session_called(opened, session)
        found = opened.standing(query, scope=scope, session=of, as_of=as_of)
    last = "" if found else "no standing statements"
    output.print_list(found, STANDING, as_json=as_json, last=last)


def _show(found: Context) -> None:
    if found.text:
        print(visible_lines(found.text))
    left_out = Counter(item.why for item in found.left_out)
    parts = [f"{count:,} {_REASONS[why]}" for why, count in sorted(left_out.items())]
    output.note("; ".join([f"{found.tokens:,} of {found.budget:,} tokens ({found.counted_by})", *parts]))
    if not found.fits:
        output.note("nothing fits the question well")
    if found.stale is not None:
        output.note(f"from projections alone, {found.stale}")
    for leg, why in found.unavailable_legs.items():
        output.note(f"the {leg} did not answer: {why}")
    if found.receipt is not None:
        output.note(f"receipt @{found.receipt}")
