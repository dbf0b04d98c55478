"""Whether the new value of a changed fact stands above the old one: python -m benchmarks.changed_facts SET...

A set is a folder or a conversation of our own, as for `benchmarks.recall_quality`. A question with `older` is about a
fact that changed; one with `other` has a later turn that sounds like a change and is none; one with `newer` is about
the past.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.quality.shapes import read_set
from mnemolog import MemoryStore
from mnemolog.adapters.importers import import_files

NAMES = {"older": "changed facts", "other": "no change", "newer": "about the past"}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("sets", type=Path, nargs="+")
parser.add_argument("--model", default="all-MiniLM-L6-v2")
arguments = parser.parse_args()
for path in arguments.sets:
    corpus, right, asked = read_set(path), Counter[str](), Counter[str]()
    file = path / "questions.jsonl" if path.is_dir() else path.with_name(f"{path.stem}-questions.jsonl")
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryStore.open(folder, model=arguments.model, background=False) as store,
    ):
        import_files(store, corpus.file, fields=corpus.fields, agent="bench")
        store.admin.catch_up_vectors()
        for item in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            if (kind := next((kind for kind in NAMES if item.get(kind)), None)) is not None:
                scope = item.get("conversation") or item["scope"]
                found = [str(hit.key) for hit in store.recall(item["question"], k=50, scope=scope, min_relevance=0)]
                places = {
                    name: min((found.index(key) for key in item[name] if key in found), default=len(found))
                    for name in ("evidence", kind)
                }
                asked[kind] += 1
                right[kind] += places["evidence"] < places[kind]
    print(corpus.name, *(f"{NAMES[kind]}: {right[kind]} of {asked[kind]}" for kind in asked), sep="; ")
