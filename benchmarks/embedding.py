"""Time of the processor that the default model takes in mnemolog and in sentence-transformers: `make bench-embedding`.

Both embed the same texts in turns, so that a change in the machine's load meets both, and torch has one thread. Turns
are embedded alone and beside as many processes that multiply matrices as there are cores.
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
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder
from mnemolog.infra.embedding.model_files import MINILM, resolve_model

CONVERSATIONS = Path(__file__).parent / "conversations"
TURN = 20
"""Calls before the other side's turn, so that most do not find the other's weights in the processor's cache."""
STEP = 120
"""Texts that are embedded together."""
LONG = 700
"""Characters of a long text; a turn of a chat has fewer."""
BUSY = """
import numpy as np
a = np.random.rand(300, 300)
print("busy", flush=True)
while True:
    a @ a
"""
OURS = f"""
import time
from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder
SentenceTransformerEncoder({MINILM!r}).encode(["Where did Ana buy the tea?"])
"""
THEIRS = f"""
import time
from sentence_transformers import SentenceTransformer
SentenceTransformer({str(resolve_model(MINILM))!r}, device="cpu").encode(["Where did Ana buy the tea?"])
"""
PEAK = """
print(time.process_time(), next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1])
"""
Embed = Callable[[Sequence[str]], Any]


def main() -> None:
    """Measure and print the report, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", type=Path, action="append", help="folder with questions.jsonl and turns.jsonl")
    parser.add_argument("--questions", type=int, default=200, help="questions to embed")
    parser.add_argument("--turns", type=int, default=600, help="turns to embed; a tenth as many long texts")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the report there")
    arguments = parser.parse_args()
    questions, turns = read(arguments.set)
    chat = [text for text in turns if len(text) < LONG]
    long = [text[:LONG] for text in turns if len(text) >= LONG] or [
        "".join(chat[at : at + 9])[:LONG] for at in range(60)
    ]
    report = measured(questions[: arguments.questions], chat[: arguments.turns], long[: arguments.turns // 10])
    if arguments.write is None:
        print(report)
    else:
        arguments.write.write_text(report)


def read(folders: Sequence[Path] | None) -> tuple[list[str], list[str]]:
    """Return the texts of questions and of turns: of these folders, else of our conversations."""
    asked = sorted(CONVERSATIONS.glob("*-questions.jsonl"))
    told = sorted(set(CONVERSATIONS.glob("*.jsonl")) - set(asked))
    if folders is not None:
        asked, told = ([folder / name for folder in folders] for name in ("questions.jsonl", "turns.jsonl"))
    questions = [json.loads(line)["question"] for file in asked for line in file.read_text().splitlines()]
    lines = [json.loads(line) for file in told for line in file.read_text().splitlines()]
    return questions, [line.get("text") or line["content"] for line in lines if line.get("text") or line.get("content")]


def measured(questions: Sequence[str], chat: Sequence[str], long: Sequence[str]) -> str:
    """Return the report."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    library = SentenceTransformer(str(resolve_model(MINILM)), device="cpu")
    encoder = SentenceTransformerEncoder(MINILM)
    pair: tuple[Embed, Embed] = encoder.encode, lambda texts: library.encode(list(texts), show_progress_bar=False)
    for embed in pair:
        embed(questions[:5])
    rows = []
    for where, around in (("", nullcontext), (", beside busy processes", busy_processes)):
        with around():
            spent = times(pair, questions)
            rows += [
                (f"a question{where}, p50", *(f"{np.median(each):.1f} ms" for each in spent)),
                (f"a question{where}, p95", *(f"{np.percentile(each, 95):.1f} ms" for each in spent)),
                *(
                    (f"{len(texts)} {what}{where}", *(f"{rate:.0f} a second" for rate in rates_of(pair, texts)))
                    for what, texts in (("turns of a chat", chat), (f"texts of {LONG} characters", long))
                ),
            ]
    ours, theirs = (np.asarray(embed(chat[:STEP])) for embed in pair)
    started = [start(program) for program in (OURS, THEIRS)]
    rows += [
        ("imports, loading and the first question", *(f"{seconds:.1f} s" for seconds, _ in started)),
        ("memory of that process", *(f"{megabytes} MB" for _, megabytes in started)),
    ]
    return "\n".join(
        [
            "# Speed of the default model",
            "",
            "Written by `make bench-embedding`. Times are of the processor. Both sides take turns of 20 calls;",
            "torch has one thread. The reasons: [ADR 68](../adr/0068-onnx-runtime.md).",
            "",
            f"{len(questions)} questions; {machine()}.",
            "",
            "| | mnemolog | sentence-transformers |",
            "| --- | ---: | ---: |",
            *(f"| {what} | {one} | {other} |" for what, one, other in rows),
            "",
            f"A component of the two vectors of a text differs by {np.abs(ours - theirs).max():.0e} at most.",
            "",
            "The busy processes are as many as the machine has cores. A machine without AVX-512 was not tried.",
            "",
        ]
    )


def rates_of(pair: tuple[Embed, Embed], texts: Sequence[str]) -> list[float]:
    """Return how many texts a second of the processor each side embeds, `STEP` at a time."""
    pieces = [texts[start : start + STEP] for start in range(0, len(texts), STEP)]
    return [1e3 * len(texts) / sum(spent) for spent in times(pair, pieces)]


def start(program: str) -> tuple[float, int]:
    """Return the seconds of the processor and the largest memory, in MB, of a process that embeds one question."""
    done = subprocess.run([sys.executable, "-c", program + PEAK], check=True, capture_output=True, text=True)
    seconds, kilobytes = done.stdout.split()
    return float(seconds), int(kilobytes) // 1024


def times(pair: tuple[Embed, Embed], given: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Return the milliseconds of the processor that both sides take for each text, or list of texts."""
    spent: tuple[list[float], list[float]] = [], []
    for start in range(0, len(given), TURN):
        for embed, kept in zip(pair, spent, strict=True):
            for texts in given[start : start + TURN]:
                started = time.process_time()
                embed([texts] if isinstance(texts, str) else texts)
                kept.append(1e3 * (time.process_time() - started))
    return spent


@contextmanager
def busy_processes() -> Iterator[None]:
    """Keep all cores busy with processes that multiply matrices."""
    command = [sys.executable, "-c", BUSY]
    one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, env=one_thread))
            stack.callback(process.kill)
            if process.stdout is not None:
                process.stdout.readline()
        yield


def machine() -> str:
    """Say what the times were measured on, and how busy it was."""
    return f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} at the end"


if __name__ == "__main__":
    main()
