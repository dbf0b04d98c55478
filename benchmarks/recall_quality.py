"""How well recall answers questions whose evidence is known.

    python -m benchmarks.recall_quality FOLDER... [--ablation] [--store FOLDER] [--json FILE] [--write PAGE]

A folder holds `turns.jsonl` and `questions.jsonl` in the shape of LoCoMo or of LongMemEval; which one is told by the
fields (benchmarks/quality/shapes.py). A folder's name is the name of the data in the report.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.quality import report
from benchmarks.quality.ablation import ALL, settings
from benchmarks.quality.results import Results
from benchmarks.quality.runner import DEPTH, run
from benchmarks.quality.shapes import read_corpus
from mnemolog.evaluation.bootstrap import RESAMPLES, SEED
from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder


def main(argv: Sequence[str] | None = None, *, encoder: Any = None) -> None:
    """Run what the command line says. `encoder` stands in for the model it names."""
    arguments = parser().parse_args(argv)
    chosen = settings() if arguments.ablation else {ALL: {}}
    options = {"reranker": arguments.reranker} if arguments.reranker else {}
    with ExitStack() as stack:
        where = arguments.store or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        datasets = tuple(
            run(
                read_corpus(data),
                where / data.resolve().name,
                model=encoder or SentenceTransformerEncoder(arguments.model),
                settings=chosen,
                depth=arguments.depth,
                **options,
            )
            for data in arguments.data
        )
    results = Results(
        command=command_line(sys.argv[1:] if argv is None else argv),
        model=arguments.model if encoder is None else encoder.name,
        reranker=arguments.reranker,
        machine=machine(),
        tuned_on=arguments.tuned_on,
        depth=arguments.depth,
        resamples=RESAMPLES,
        seed=SEED,
        datasets=datasets,
    )
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    if arguments.write:
        page = report.as_page(results, targets=arguments.targets, plot=arguments.plot)
        arguments.write.write_text(page, encoding="utf-8")
    if arguments.plot:
        from benchmarks.quality.plot import draw

        draw(msgspec.to_builtins(results.datasets[0]), arguments.plot)
    report.show(results, targets=arguments.targets)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    found = argparse.ArgumentParser(
        prog="recall_quality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("data", type=Path, nargs="+", help="folder with turns.jsonl and questions.jsonl")
    found.add_argument("--store", type=Path, help="keep the stores here: a second run embeds nothing")
    found.add_argument("--model", default="all-MiniLM-L6-v2", help="name or folder of a SentenceTransformer")
    found.add_argument("--reranker", help="name or folder of a reranker")
    found.add_argument("--depth", type=int, default=DEPTH, help="turns asked for, from which sessions are ranked")
    found.add_argument("--ablation", action="store_true", help="also ask without each ingredient of the ranking")
    found.add_argument("--tuned-on", metavar="NAME", help="the data that the ranking was tuned on")
    found.add_argument("--targets", action="store_true", help="say which targets hold (benchmarks/quality/targets.py)")
    found.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    found.add_argument("--write", type=Path, metavar="PAGE", help="write the report there")
    found.add_argument("--plot", type=Path, metavar="SVG", help="draw the ablation there; needs matplotlib")
    return found


def machine() -> str:
    """Say what times were measured on, and how busy it was at the end."""
    return (
        f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, "
        f"load {os.getloadavg()[0]:.1f} at the end"
    )


def command_line(argv: Sequence[str]) -> str:
    """Return the command without where on this machine things lie."""
    shown = [f"path/to/{Path(word).name}" if Path(word).is_absolute() else word for word in argv]
    return shlex.join(["python", "-m", "benchmarks.recall_quality", *shown])


if __name__ == "__main__":
    main()
