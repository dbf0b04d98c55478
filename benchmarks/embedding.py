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
SHORT, LONG = 200, 700
"""Characters of a short text at most; those that a long one is cut to, which the model reads whole."""
BUSY = """
import torch
a = torch.rand(1024, 1024)
print("busy", flush=True)
while True:
    a @ a
"""
OURS = f"""
import time; began = time.perf_counter()
from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder
SentenceTransformerEncoder({MINILM!r}).encode(["Where did Ana buy the tea?"])
"""
THEIRS = f"""
import time; began = time.perf_counter()
from sentence_transformers import SentenceTransformer
SentenceTransformer({str(resolve_model(MINILM))!r}, device="cpu").encode(["Where did Ana buy the tea?"])
"""
PEAK = """
seconds = time.perf_counter() - began
print(seconds, next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1])
"""
Embed = Callable[[Sequence[str]], Any]


def main() -> None:
    """Measure and print the report, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", type=Path, help="folder with questions.jsonl and turns.jsonl; else our conversations")
    parser.add_argument("--questions", type=int, default=200, help="questions to embed")
    parser.add_argument("--turns", type=int, default=1_000, help="short texts to embed; a fifth as many long ones")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the report there")
    arguments = parser.parse_args()
    questions, turns = read(arguments.set)
    short = [text for text in turns if len(text) <= SHORT]
    long = [text[:LONG] for text in turns if len(text) > SHORT]
    few, many = arguments.turns // 5, arguments.turns
    report = measured(questions[: arguments.questions], (short * many)[:many], (long * few)[:few])
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


def measured(questions: Sequence[str], short: Sequence[str], long: Sequence[str]) -> str:
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
    rates = [[f"{rate:.0f} a second" for rate in rates_of(pair, texts)] for texts in (short, long)]
    ours, theirs = (np.asarray(embed(short[:STEP])) for embed in pair)
    started = [start(program) for program in (OURS, THEIRS)]
    rows = [
        ("one question, p50", *(f"{np.median(spent):.1f} ms" for spent in alone)),
        ("one question, p95", *(f"{np.percentile(spent, 95):.1f} ms" for spent in alone)),
        ("with a busy second process, p50", *(f"{np.median(spent):.1f} ms" for spent in pressed)),
        ("with a busy second process, p95", *(f"{np.percentile(spent, 95):.1f} ms" for spent in pressed)),
        (f"{len(short):,} short texts", *rates[0]),
        (f"{len(long):,} long texts", *rates[1]),
        ("imports, loading and the first question", *(f"{seconds:.1f} s" for seconds, _ in started)),
        ("memory of that process", *(f"{megabytes} MB" for _, megabytes in started)),
    ]
    return "\n".join(
        [
            "# Speed of the default model",
            "",
            "Written by `make bench-embedding`. Both sides take turns on the same texts and one machine. The reasons:",
            "[ADR 52](../adr/0052-a-question-without-torch.md). Ratios hold on a busy machine better than times.",
            "",
            f"{len(questions)} questions; {machine()}.",
            "",
            "| | mnemolog | sentence-transformers |",
            "| --- | ---: | ---: |",
            *(f"| {what} | {one} | {other} |" for what, one, other in rows),
            "",
            f"A component of the two vectors of a text differs by {np.abs(ours - theirs).max():.0e} at most.",
            "",
        ]
    )


def rates_of(pair: tuple[Embed, Embed], texts: Sequence[str]) -> list[float]:
    """Return how many texts a second each side embeds, `STEP` at a time."""
    pieces = [texts[start : start + STEP] for start in range(0, len(texts), STEP)]
    return [1e3 * len(texts) / sum(spent) for spent in times(pair, pieces)]


def start(program: str) -> tuple[float, int]:
    """Return the seconds and the largest memory, in MB, of a process that embeds one question."""
    done = subprocess.run([sys.executable, "-c", program + PEAK], check=True, capture_output=True, text=True)
    seconds, kilobytes = done.stdout.split()
    return float(seconds), int(kilobytes) // 1024


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
