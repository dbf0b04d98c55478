"""Recall on LoCoMo: how often a turn that answers the question is among the first ten.

    python benchmarks/locomo.py path/to/locomo [--json]

The folder holds `turns.jsonl` {conversation, session, session_time, turn_id, speaker, text[, image_caption]}
and `questions.jsonl` {conversation, question, evidence, adversarial}. Every question is asked in its own
conversation's scope. Questions without evidence and adversarial ones are left out and counted. hit@k: any
evidence turn among the first k.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from mnemolog import MemoryStore
from mnemolog.projections import fusion
from mnemolog.projections.question import MODES, Mode

FIELDS = (
    "text=text+image_caption,session=conversation+session,scope=conversation,"
    "speaker=speaker,key=turn_id,time=session_time"
)
CUTS = (1, 5, 10)


class Question(msgspec.Struct):
    """A question with the turns that answer it."""

    conversation: str
    question: str
    evidence: list[str]
    adversarial: bool = False


def ask(store: MemoryStore, questions: list[Question], mode: Mode) -> dict[str, float]:
    """Return hit@k and evidence recall@10 over `questions`, and the time one takes."""
    hits = dict.fromkeys(CUTS, 0)
    recalled = 0.0
    started = perf_counter()
    for item in questions:
        answer = store.recall(item.question, k=max(CUTS), scope=item.conversation, mode=mode)
        keys = [hit.key for hit in answer.hits]
        for cut in CUTS:
            hits[cut] += bool(set(keys[:cut]) & set(item.evidence))
        recalled += len(set(keys) & set(item.evidence)) / len(set(item.evidence))
    count = len(questions)
    figures = {f"hit@{cut}": hits[cut] / count for cut in CUTS}
    return figures | {"evidence recall@10": recalled / count, "ms": (perf_counter() - started) / count * 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with turns.jsonl and questions.jsonl")
    parser.add_argument("--store", type=Path, help="keep the store here and use it again")
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    parser.add_argument("--rank-constant", type=int, default=fusion.RANK_CONSTANT, help="of the fusion by rank")
    parser.add_argument("--retain-every", type=int, default=1, help="turns of a session that share a vector")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.rank_constant != fusion.RANK_CONSTANT:
        fusion.fuse.__kwdefaults__["constant"] = arguments.rank_constant
    lines = (arguments.data / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    everything = [msgspec.json.decode(line, type=Question) for line in lines]
    questions = [item for item in everything if item.evidence and not item.adversarial]
    results: dict[str, Any] = {"questions": len(questions), "left out": len(everything) - len(questions)}
    with (
        tempfile.TemporaryDirectory() as scratch,
        MemoryStore.open(
            arguments.store or Path(scratch) / "store",
            model=arguments.model,
            retain_every_n_turns=arguments.retain_every,
            background=False,
        ) as store,
    ):
        started = perf_counter()
        report = store.import_files([arguments.data / "turns.jsonl"], fields=[FIELDS], agent="locomo")
        results["turns"] = report.turns
        results["import s"] = round(perf_counter() - started, 2)
        embedded = store.catch_up_vectors()
        results["embed s"], results["texts"] = round(embedded.seconds, 1), embedded.encoded_texts
        for mode in MODES:
            results[mode] = {name: round(value, 4) for name, value in ask(store, questions, mode).items()}
    if arguments.json:
        json.dump(results, sys.stdout, indent=2)
        return
    print(f"{results['turns']} turns, {results['questions']} questions ({results['left out']} left out)")
    names = list(results[MODES[0]])
    print(f"| legs | {' | '.join(names)} |\n| --- |{' ---: |' * len(names)}")
    for mode in MODES:
        print(f"| {mode} | {' | '.join(f'{results[mode][name]:.3f}' for name in names)} |")


if __name__ == "__main__":
    main()
