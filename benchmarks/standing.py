"""What is read as a standing statement, and what of it a context shows: python benchmarks/standing.py [MODEL].

`conversations/standing.jsonl` has what users said; what they said about a thesis, in `conversations/bats.jsonl`, is put
into the same scopes. The rules were chosen on the keys that begin with `early`; those with `late` were written after.
`liftings.jsonl` has what lifts such a statement, and what users say later of something else: with a model it is counted
how often the later one comes first, and the older one points to it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import mean
from time import process_time

from mnemolog import MemoryStore
from mnemolog.domain.standing import standing_in
from mnemolog.projections.context.answer import BlockKind

FOLDER = Path(__file__).parent / "conversations"


def lines_of(name: str) -> list[dict[str, str]]:
    """Return the objects of a file of lines of JSON."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


turns, questions = lines_of("standing"), lines_of("standing-questions")
standing = {key for question in questions for key in question["evidence"]}
user_turns = [turn for turn in [*turns, *lines_of("bats")] if turn["role"] == "user"]
began = process_time()
read = {turn["key"] for turn in user_turns if any(standing_in(turn["text"]))}
print(f"reading a user's turn takes {(process_time() - began) / len(user_turns) * 1_000:.3f} ms")
for part in ("early", "late"):
    said = {turn["key"] for turn in turns if turn["role"] == "user" and turn["key"].startswith(part)}
    lost, wrong = sorted(said & standing - read), sorted(said & read - standing)
    print(
        f"{part}: read {len(said & standing & read)} of {len(said & standing)}, and {len(wrong)} others", *lost, *wrong
    )

with (
    tempfile.TemporaryDirectory() as folder,
    MemoryStore.open(folder, model=(*sys.argv[1:], None)[0], background=False) as store,
):
    scopes = sorted({turn["scope"] for turn in turns})
    filler = [turn | {"scope": scope, "key": f"{scope}:{turn['key']}"} for scope in scopes for turn in lines_of("bats")]
    at = {}
    for turn in [*turns, *filler]:
        chat = store.session(f"{turn['scope']}:{turn['session']}", scope=turn["scope"])
        made = chat.record(turn["role"], turn["text"], speaker=turn["speaker"], said_at=turn["time"])
        at[turn["key"]] = made.position
    if sys.argv[1:]:
        store.admin.catch_up_vectors()
    for part in ("early", "late"):
        found: dict[str, list[float]] = {"passages": [], "block": [], "either": [], "others": [], "tokens": []}
        for question in questions:
            (key,) = question["evidence"]
            if not key.startswith(part):
                continue
            context = store.context(question["question"], scope=question["scope"])
            blocks = [block for block in context if block.kind == BlockKind.STANDING]
            shown = [position for block in blocks for position in block.positions]
            passages = [at[key] in block.positions for block in context if block.kind == BlockKind.PASSAGE]
            found["passages"].append(any(passages))
            found["block"].append(at[key] in shown)
            found["either"].append(any(passages) or at[key] in shown)
            found["others"].append(len(shown) - (at[key] in shown))
            found["tokens"].append(sum(block.tokens for block in blocks))
        sums = ", ".join(f"{name} {sum(found[name]):g}" for name in ("passages", "block", "either"))
        rest = ", ".join(f"{name} {mean(found[name]):.1f}" for name in ("others", "tokens"))
        print(f"{part}: of {len(found['block'])} statements {sums}; for each question {rest}")

if sys.argv[1:]:
    pairs = lines_of("liftings")
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryStore.open(folder, model=sys.argv[1], background=False) as store,
    ):
        for number, pair in enumerate(pairs):
            chat = store.session(f"s{number}", scope=f"u{number}")
            for text in (pair["standing"], "What is on at the cinema tonight?", pair["later"], "Is it far from here?"):
                chat.record("user", text)
        store.admin.catch_up_vectors()
        marked: dict[tuple[str, bool], list[bool]] = {}
        for number, pair in enumerate(pairs):
            asked = " ".join(reversed(pair["standing"].split()))  # What the question says itself is not shown.
            context = str(store.context(asked, scope=f"u{number}"))
            first, second = context.find(pair["later"].rstrip(".")), context.find("(see also @")
            marked.setdefault((pair["part"], pair["lifts"]), []).append(0 <= first < second)
    for (part, lifts), found in marked.items():
        print(f"{part}: {sum(found)} of {len(found)} that {'lift' if lifts else 'do not lift'} one come first")
