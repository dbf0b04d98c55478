"""30 statements, each corrected once: is the old value answered? python -m benchmarks.outside.corrections --json FILE.

The question is that of inspeximus' page; the statements are our own and were written for this: nothing was fitted on
them. They are asked by `recall` at 1 and by `context`, without facts, and with a fact for each statement.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.outside.machine import machine
from mnemolog import MemoryStore

PAIRS: Final[list[list[str]]] = json.loads(Path(__file__).with_name("corrections.json").read_text(encoding="utf-8"))


def asked(*, facts: bool, model: str | None) -> dict[str, list[list[int]]]:
    """Return for each way of asking, by question: whether the new and whether the old value is in the answer."""
    found: dict[str, list[list[int]]] = {"recall at 1": [], "context": []}
    with tempfile.TemporaryDirectory() as folder, MemoryStore.open(folder, model=model, background=False) as store:
        session = store.start_session("talk")
        for which in (0, 1):
            for number, pair in enumerate(PAIRS):
                turn = session.record("user", pair[which])
                if facts:
                    session.assert_fact(f"said/{number}", pair[3 + which], because=[turn])
        store.admin.catch_up_vectors()
        drop: dict[str, Any] = {"superseded": "drop"} if facts else {}
        for _, _, question, old, new in PAIRS:
            answers = {
                "recall at 1": "".join(hit.text for hit in store.recall(question, 1, **drop)),
                "context": store.context(question, **drop).text,
            }
            for way, text in answers.items():
                found[way].append([int(new in text), int(old in text)])
    return found


def main() -> None:
    """Run, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--model", default="all-MiniLM-L6-v2")
    arguments = parser.parse_args()
    made = {"date": time.strftime("%Y-%m-%d"), "machine": machine(), "model": arguments.model}
    answers = {}
    for facts in (False, True):
        for way, raw in asked(facts=facts, model=arguments.model).items():
            name = f"{way}, {'with' if facts else 'without'} facts"
            answers[name] = raw
            new, old = (sum(one[place] for one in raw) for place in (0, 1))
            print(f"{name}: new {new}, old {old} of {len(raw)}", flush=True)
    found = made | {"versions": {"mnemolog": version("mnemolog")}, "answers": answers}
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
