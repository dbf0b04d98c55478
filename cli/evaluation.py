"""Commands that measure recall: judge an answer, ask questions whose answers are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from mnemolog.adapters.support.store_access import log_of
from mnemolog.audit.judgements import Judgement, receipt_at
from mnemolog.audit.service import EVALUATION_K
from mnemolog.cli import output
from mnemolog.cli.app import EXIT_USAGE, AsJson, ModelName, Refused, Store, StoreCommand, app, typed
from mnemolog.cli.arguments import open_store, store_with_model
from mnemolog.cli.output import console, note
from mnemolog.cli.progress import bar
from mnemolog.cli.recall import Modes, note_unembedded, unembedded
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain import errors
from mnemolog.domain.display import counted, one_line
from mnemolog.domain.events import ContextServed, RecallServed
from mnemolog.projections.recall.question import Mode

if TYPE_CHECKING:  # Imports numpy, which a judgement does not need.
    from mnemolog.evaluation.evaluation import Evaluation, Scores
    from mnemolog.evaluation.intervals import Interval

MISSED_MAX: Final = 10
"""Missed questions that are printed; the rest is counted."""


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
        typer.Option(metavar="POSITION", help="A turn that answers it, by its position: of a context, or not found."),
    ] = None,
    nothing: Annotated[bool, typer.Option("--nothing", help="No turn of the store answers it.")] = False,
    by: Annotated[str, typer.Option(metavar="NAME", help="Who judges.")] = "",
    as_json: AsJson = False,
) -> None:
    """Judge the answer of a receipt: which hits were good, which were bad. Options for hits may be repeated.

    Judgements are events in the log; the last one of a receipt counts. `mnemolog eval --judged` measures with them.

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


@app.command("eval", cls=StoreCommand)
def evaluate(
    store: Store,
    questions: Annotated[
        Path | None, typer.Argument(metavar="[QUESTIONS]", help="File of questions, a JSON object in each line.")
    ] = None,
    judged: Annotated[bool, typer.Option("--judged", help="Ask the questions of judged receipts instead.")] = False,
    k: Annotated[int, typer.Option("-k", "--k", help="How many hits to ask for, up to 1,000.")] = EVALUATION_K,
    mode: Modes = "hybrid",
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """Measure recall with questions whose answers are known, by category, with 95 % intervals.

    A line of QUESTIONS is {"question": "...", "evidence": ["key of a turn", 12], "scope": "...", "category": "..."}.
    Evidence is keys or positions of turns, [] if nothing answers; scope, session and category may be left out.

    Example: mnemolog eval memory/ questions.jsonl
    """
    if (questions is None) is not judged:
        why = "give a file of questions or --judged" + (", not both" if judged else "")
        raise Refused(why, hint=f"{typed('eval --help')} explains both", status=EXIT_USAGE)
    with store_with_model(store, model) as opened, bar("asking") as progress:
        answer = opened.audit.evaluate(questions, k=k, mode=cast(Mode, mode), progress=progress)
        missing = None if as_json else unembedded(opened, answer.vectors_cover, answer.head)
    output.answer(answer, _show_evaluation, as_json=as_json)
    if missing is not None:
        note_unembedded(missing, store, model)


def _ranked(served: RecallServed | ContextServed, option: str, ranks: Sequence[int]) -> Iterator[int]:
    """Yield the positions of hits by their numbers in the answer. Raises `InvalidInput` for a number without a hit."""
    for rank in ranks:
        if isinstance(served, ContextServed):
            raise errors.InvalidInput(
                option, "the turns of a context have no numbers: name one by --good-turn POSITION"
            )
        if rank > len(served.hits):
            raise errors.InvalidInput(option, f"there is no hit {rank}: the answer has {len(served.hits)}")
        yield served.hits[rank - 1]


def _show_judgement(judgement: Judgement) -> None:
    """Print what was recorded about an answer."""
    out = console()
    by = f" by {judgement.by}" if judgement.by else ""
    out.line(f"receipt @{judgement.receipt} judged{by}: {_verdict(judgement)}")
    out.line(f"   {one_line(judgement.query)}", style="dim")


def _show_evaluation(answer: Evaluation) -> None:
    """Print the measures by category, then what was missed."""
    out = console()
    kinds = f"{counted(answer.answerable, 'question')} with an answer, {answer.unanswerable:,} that nothing answers"
    out.line((kinds, "bold"), f"; {counted(answer.k, 'hit')} each, {answer.mode}")
    if answer.overall is not None:
        names = [name.replace("evidence recall", "recall") for name in answer.overall.metrics]
        parts = [*answer.categories.items(), ("all", answer.overall)]
        out.rows(("category", "asked", *names), [_row(name or "(none)", scores) for name, scores in parts])
        out.line("in percent; in brackets where 95 % of other choices of questions would lie", style="dim")
    if answer.auroc is not None:
        low, mean, high = (f"{value:.2f}" for value in (answer.auroc.low, answer.auroc.mean, answer.auroc.high))
        why = "how often the best hit of a question with an answer is more relevant than that of one without"
        out.line(f"told apart: {mean} [{low}, {high}], {why}")
    out.line(f"time of a recall: half in {answer.p50_ms:.1f} ms, 95 % in {answer.p95_ms:.1f} ms, the model included")
    if missed := answer.missed:
        out.line(f"no evidence among the hits of {counted(len(missed), 'question')}:")
        for item in missed[:MISSED_MAX]:
            out.line(f"   {_places(item.evidence)} {one_line(item.question)}")
        if len(missed) > MISSED_MAX:
            out.line(f"   ... and {len(missed) - MISSED_MAX:,} more; --json lists them", style="dim")
    for reason, count in answer.left_out.items():
        note(f"{counted(count, 'judged receipt')} not asked: {reason}")
    for leg, why in answer.unavailable_legs.items():
        note(f"the {leg} leg did not answer: {why}")


def _row(name: str, scores: Scores) -> tuple[str, ...]:
    return one_line(name), f"{scores.questions:,}", *map(_percent, scores.metrics.values())


def _percent(interval: Interval) -> str:
    mean, low, high = (round(100 * value) for value in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}-{high}]"


def _verdict(judgement: Judgement) -> str:
    sides = [("good", judgement.good), ("bad", judgement.bad)]
    found = [f"{word} {_places(turns)}" for word, turns in sides if turns]
    return "; ".join([*found, *(["nothing answers it"] if judgement.nothing else [])])


def _places(turns: Sequence[int]) -> str:
    return ", ".join(f"@{turn}" for turn in turns)
