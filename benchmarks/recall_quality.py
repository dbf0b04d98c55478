"""How well recall answers questions whose evidence is known.

    python -m benchmarks.recall_quality SET... [--ablation] [--weights-left-out FILE] [--store FOLDER] [--page PAGE]
    python -m benchmarks.recall_quality --read RESULTS.json --page PAGE

A set is a folder with `turns.jsonl` and `questions.jsonl`, whose fields show the shape
(benchmarks/quality/shapes.py); its name is the name of the set in the report. Or it is `NAME.jsonl` with
`NAME-questions.jsonl`, a conversation of our own. The pictures of the page are drawn beside it, and need matplotlib.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.quality import ablation, report
from benchmarks.quality.budget import BUDGETS, packer, tokens_of_model
from benchmarks.quality.intervals import RESAMPLES, SEED
from benchmarks.quality.left_out import has_fit, ranked_without
from benchmarks.quality.results import DatasetResult, Results
from benchmarks.quality.runner import DEPTH, run, strangers_of
from benchmarks.quality.shapes import Corpus, read_set
from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder


def main(argv: Sequence[str] | None = None, *, encoder: Any = None) -> None:
    """Run what the command line says. `encoder` stands in for the model it names."""
    found = parser()
    arguments = found.parse_args(argv)
    if bool(arguments.sets) is bool(arguments.read):
        found.error("give sets, or --read with the results of a run")
    if arguments.read:
        results = msgspec.json.decode(arguments.read.read_bytes(), type=Results)
    else:
        results = measured(arguments, encoder, command_line(sys.argv[1:] if argv is None else argv))
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    if arguments.page:
        if not arguments.no_plots:
            from benchmarks.quality.plot import draw_all

            draw_all(results, arguments.page.parent)
        arguments.page.write_text(report.as_page(results, plots=not arguments.no_plots), encoding="utf-8")
    report.show(results)


def measured(arguments: argparse.Namespace, encoder: Any, command: str) -> Results:
    """Measure all sets, `processes` of them at a time; larger ones first."""
    corpora = sorted(map(read_set, arguments.sets), key=lambda corpus: -len(corpus.questions))
    with ExitStack() as stack:
        where = arguments.store or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tasks = [(corpus, corpora, arguments, where, encoder) for corpus in corpora]
        if arguments.processes > 1:
            pool = ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn"))
            datasets = [*stack.enter_context(pool).map(_measured, tasks)]
        else:
            datasets = [*map(_measured, tasks)]
    order = [corpus.name for corpus in map(read_set, arguments.sets)]
    return Results(
        command=command,
        model=arguments.model if encoder is None else encoder.name,
        reranker=arguments.reranker,
        machine=machine(arguments.processes),
        depth=arguments.depth,
        resamples=RESAMPLES,
        seed=SEED,
        datasets=tuple(sorted(datasets, key=lambda dataset: order.index(dataset.name))),
    )


def _measured(task: tuple[Corpus, Sequence[Corpus], argparse.Namespace, Path, Any]) -> DatasetResult:
    corpus, corpora, arguments, where, encoder = task
    fits = arguments.weights_left_out
    return run(
        corpus,
        where / corpus.name,
        model=encoder or SentenceTransformerEncoder(arguments.model),
        settings=ablation.settings() if arguments.ablation else {},
        left_out=partial(ranked_without, fits, corpus.source) if fits and has_fit(fits, corpus.source) else None,
        strangers=strangers_of(corpus, corpora),
        pack=packer(None if encoder else tokens_of_model(arguments.model)),
        budgets=BUDGETS,
        depth=arguments.depth,
        **({"reranker": arguments.reranker} if arguments.reranker else {}),
    )


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(
        prog="recall_quality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("sets", type=Path, nargs="*", help="folder of a set, or a conversation of our own")
    found.add_argument("--read", type=Path, metavar="FILE", help="results of an earlier run, in place of sets")
    found.add_argument("--store", type=Path, help="keep the stores here: a second run embeds nothing")
    found.add_argument("--model", default="all-MiniLM-L6-v2", help="name or folder of a SentenceTransformer")
    found.add_argument("--reranker", help="name or folder of a reranker")
    found.add_argument("--depth", type=int, default=DEPTH, help="turns asked for, from which sessions are ranked")
    found.add_argument("--processes", type=int, default=1, metavar="N", help="measure N sets at a time")
    found.add_argument("--ablation", action="store_true", help="also ask without each ingredient of the ranking")
    found.add_argument(
        "--weights-left-out", type=Path, metavar="FILE", help="weights of fits that have not seen a set, by its source"
    )
    found.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    found.add_argument("--page", type=Path, metavar="PAGE", help="write the report there, and the pictures beside it")
    found.add_argument("--no-plots", action="store_true", help="a page without pictures")
    return found


def machine(processes: int) -> str:
    """Say what times were measured on, and how busy it was at the end."""
    return (
        f"{platform.machine()}, {os.cpu_count()} CPUs, {processes} sets at a time, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f} at the end"
    )


def command_line(argv: Sequence[str]) -> str:
    """Return the command without where on this machine things lie."""
    shown = [f"path/to/{Path(word).name}" if Path(word).is_absolute() else word for word in argv]
    return shlex.join(["python", "-m", "benchmarks.recall_quality", *shown])


if __name__ == "__main__":
    main()
