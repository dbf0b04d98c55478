"""Speed of the default model as mnemolog runs it, against sentence-transformers: `make bench-embedding`.

Both embed the same texts in turns, so that a change in the machine's load meets both. Questions are embedded one at a
time, alone and while a second process keeps all cores busy with torch.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder
from mnemolog.infra.embedding.model_files import MINILM, resolve_model

CONVERSATIONS = Path(__file__).parent / "conversations"
STEP = 128
"""Texts that an index step embeds."""
BUSY = """
import torch
a = torch.rand(1024, 1024)
print("busy", flush=True)
while True:
    a @ a
"""
Embed = Callable[[Sequence[str]], Any]


def main() -> None:
    """Measure and print the report, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", type=Path, help="folder with questions.jsonl and turns.jsonl; else our conversations")
    parser.add_argument("--questions", type=int, default=200, help="questions to embed")
    parser.add_argument("--turns", type=int, default=1024, help="turns to embed")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the report there")
    arguments = parser.parse_args()
    questions, turns = read(arguments.set)
    report = measured(questions[: arguments.questions], turns[: arguments.turns])
    if arguments.write is None:
        print(report)
    else:
        arguments.write.write_text(report)


def read(folder: Path | None) -> tuple[list[str], list[str]]:
    """Return the texts of questions and of turns."""
    asked = sorted(CONVERSATIONS.glob("*-questions.jsonl")) if folder is None else [folder / "questions.jsonl"]
    told = sorted(set(CONVERSATIONS.glob("*.jsonl")) - set(asked)) if folder is None else [folder / "turns.jsonl"]
    questions = [json.loads(line)["question"] for file in asked for line in file.read_text().splitlines()]
    lines = [json.loads(line) for file in told for line in file.read_text().splitlines()]
    return questions, [line.get("text") or line["content"] for line in lines if line.get("text") or line.get("content")]


def measured(questions: Sequence[str], turns: Sequence[str]) -> str:
    """Return the report."""
    from sentence_transformers import SentenceTransformer

    library = SentenceTransformer(str(resolve_model(MINILM)), device="cpu")
    encoder = SentenceTransformerEncoder(MINILM)
    pair: tuple[Embed, Embed] = encoder.encode, lambda texts: library.encode(list(texts), show_progress_bar=False)
    for embed in pair:
        embed(questions[:5])
    alone = times(pair, questions)
    with busy_process():
        pressed = times(pair, questions)
    pieces = [turns[start : start + STEP] for start in range(0, len(turns), STEP)]
    rates = [STEP / np.median(spent) * 1e3 for spent in times(pair, [piece for piece in pieces if len(piece) == STEP])]
    ours, theirs = (np.asarray(embed(turns[:STEP]), dtype=np.float64) for embed in pair)
    rows = [
        ("one question, p50", *(f"{np.median(spent):.1f} ms" for spent in alone)),
        ("one question, p95", *(f"{np.percentile(spent, 95):.1f} ms" for spent in alone)),
        ("with a busy second process, p50", *(f"{np.median(spent):.1f} ms" for spent in pressed)),
        ("with a busy second process, p95", *(f"{np.percentile(spent, 95):.1f} ms" for spent in pressed)),
        (f"turns, {STEP} at a time, p50", *(f"{rate:.0f} a second" for rate in rates)),
    ]
    furthest = 1 - (ours * theirs).sum(1).min()
    return "\n".join(
        [
            "# Speed of the default model",
            "",
            "Written by `make bench-embedding`. Both sides take turns on the same texts and one machine. The reasons:",
            "[ADR 37](../adr/0037-packed-weights.md). Ratios hold on a busy machine better than times.",
            "",
            f"{len(questions)} questions, {len(pieces) * STEP} turns; {machine()}.",
            "",
            "| | mnemolog | sentence-transformers |",
            "| --- | ---: | ---: |",
            *(f"| {what} | {one} | {other} |" for what, one, other in rows),
            "",
            f"The cosine of the two vectors of a turn is 1 within {max(furthest, 0.0):.0e}.",
            "",
        ]
    )


def times(pair: tuple[Embed, Embed], given: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Return the milliseconds that both sides take for each text, or list of texts."""
    spent: tuple[list[float], list[float]] = [], []
    for texts in given:
        for embed, kept in zip(pair, spent, strict=True):
            started = time.perf_counter()
            embed([texts] if isinstance(texts, str) else texts)
            kept.append(1e3 * (time.perf_counter() - started))
    return spent


@contextmanager
def busy_process() -> Iterator[None]:
    """Keep all cores busy with a process that multiplies matrices."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        try:
            if process.stdout is not None:
                process.stdout.readline()
            yield
        finally:
            process.kill()


def machine() -> str:
    """Say what the times were measured on, and how busy it was."""
    return f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} at the end"


if __name__ == "__main__":
    main()
