"""LMEB's LoCoMo by mteb's SearchProtocol, on a copy of the conversations: `make outside-lmeb DATA=folder`.

python -m benchmarks.outside.lmeb FOLDER... --json lmeb.json

A folder has turns.jsonl and questions.jsonl, in a shape of `benchmarks.quality.shapes`. Where the official data can
be had, `--official` has mteb load them instead. BM25 and MiniLM are run by the same code on the same copy. Every
system ranks the turns of the question's conversation; the measure is NDCG at 10, its mean for each kind of question,
and the mean of these.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
import uuid
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import datasets.fingerprint
import mteb
import numpy as np
from datasets import Dataset
from mteb.models.model_meta import ModelMeta

from benchmarks.outside.machine import machine
from mnemolog import MemoryStore
from mnemolog.infra.embedding import make_encoder

KINDS: Final = {4: "single_hop", 1: "multi_hop", 2: "temporal_reasoning", 3: "open_domain", 5: "adversarial"}
K: Final = 10


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def splits(folder: Path) -> dict[str, Any]:
    """Return a copy of the data in LMEB's shape, by kind of question."""
    turns = defaultdict(list)
    for turn in lines(folder / "turns.jsonl"):
        turns[turn["conversation"]].append(turn)
    corpus = [
        {"id": f"{name}/{turn['turn_id']}", "title": "", "text": f"{turn['speaker']}: {turn['text']}"}
        for name, said in turns.items()
        for turn in said
    ]
    asked = defaultdict(list)
    for question in lines(folder / "questions.jsonl"):
        if question["evidence"] and question["category"] in KINDS:
            asked[KINDS[question["category"]]].append(question)
    result = {}
    for kind, questions in asked.items():
        rows = [(f"{one['conversation']}#{one['question_id']}", one) for one in questions]
        result[kind] = {
            "test": {
                "corpus": Dataset.from_list(corpus),
                "queries": Dataset.from_list([{"id": id, "text": one["question"]} for id, one in rows]),
                "relevant_docs": {
                    id: {f"{one['conversation']}/{turn}": 1 for turn in one["evidence"]} for id, one in rows
                },
                "top_ranked": {
                    id: [f"{one['conversation']}/{turn['turn_id']}" for turn in turns[one["conversation"]]]
                    for id, one in rows
                },
            }
        }
    return result


class Ranked:
    """What a system answered: by question the ids of turns with their scores, best first."""

    def __init__(self, name: str) -> None:
        """Begin without answers."""
        self.name = name
        self.answers: dict[str, dict[str, float]] = {}

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """The name of the system."""
        return ModelMeta.create_empty({"name": f"local/{self.name}", "revision": "1"})

    def index(self, corpus: Any, **_: Any) -> None:
        """Take the turns."""

    def search(self, queries: Any, *, top_ranked: dict[str, list[str]], **_: Any) -> dict[str, dict[str, float]]:
        """Return up to ten turns for each question."""
        found = {one["id"]: self.ask(one["text"], top_ranked[one["id"]]) for one in queries}
        self.answers |= found
        return found

    def ask(self, question: str, candidates: list[str]) -> dict[str, float]:
        """Return up to ten of the candidates."""
        raise NotImplementedError


class Mnemolog(Ranked):
    """A store in which each conversation is a scope. `mode`: `text` without a model, `hybrid` with the default one."""

    def __init__(self, mode: str) -> None:
        super().__init__(f"mnemolog, {mode}")
        self.mode, self.store = mode, None

    def index(self, corpus, **_):
        if self.store is not None:
            return
        self.folder = tempfile.TemporaryDirectory()
        model = {"model": None} if self.mode == "text" else {}
        self.store = MemoryStore.open(Path(self.folder.name) / "memory", background=False, **model)
        self.ids = {}
        for turn in corpus:
            scope, (who, said) = turn["id"].split("/")[0], turn["text"].split(": ", 1)
            session = self.store.session(scope, scope=scope)
            self.ids[session.record("user", said or " ", speaker=who).position] = turn["id"]
        if self.mode != "text":
            self.store.admin.catch_up_vectors()

    def ask(self, question, candidates):
        hits = self.store.recall(question, K, scope=candidates[0].split("/")[0], mode=self.mode, min_relevance=0)
        return {self.ids[hit.position]: float(K - place) for place, hit in enumerate(hits)}


class MiniLM(Ranked):
    """The model alone: all candidates by the cosine of their vectors."""

    def __init__(self) -> None:
        super().__init__("all-MiniLM-L6-v2")
        self.model, self.rows = make_encoder("all-MiniLM-L6-v2", recipe="alone"), {}

    def index(self, corpus, **_):
        if not self.rows:
            texts = [turn["text"] for turn in corpus]
            for begin in range(0, len(texts), 64):
                rows = self.model.encode(texts[begin : begin + 64])
                self.rows |= dict(zip(corpus["id"][begin : begin + 64], rows, strict=True))

    def ask(self, question, candidates):
        scores = np.array([self.rows[one] for one in candidates]) @ self.model.encode([question])[0]
        return {candidates[place]: float(scores[place]) for place in np.argsort(-scores)[:K]}


class BM25(Ranked):
    """bm25s as mteb's own baseline calls it: stemmed English words without stop words, over the candidates."""

    def __init__(self) -> None:
        import bm25s
        import Stemmer

        super().__init__("BM25 (bm25s)")
        self.bm25s, self.stemmer, self.texts, self.made = bm25s, Stemmer.Stemmer("english"), {}, {}

    def index(self, corpus, **_):
        self.texts = {turn["id"]: turn["text"] for turn in corpus}

    def words(self, texts):
        return self.bm25s.tokenize(texts, stopwords="en", stemmer=self.stemmer, show_progress=False)

    def ask(self, question, candidates):
        key = candidates[0].split("/")[0]
        if key not in self.made:
            self.made[key] = self.bm25s.BM25()
            self.made[key].index(self.words([self.texts[one] for one in candidates]), show_progress=False)
        places, scores = self.made[key].retrieve(self.words([question]), k=K, show_progress=False)
        return {candidates[place]: float(score) for place, score in zip(places[0], scores[0], strict=True)}


def measured(system: Ranked, data: dict[str, Any] | None) -> dict[str, float]:
    """Return NDCG at 10 by kind of question, as mteb computes it."""
    task = mteb.get_task("LoCoMo")
    if data is not None:
        task.dataset, task.data_loaded = data, True
        task.load_data = task.unload_data = lambda *_, **__: None
    result = mteb.evaluate(system, task, cache=None, overwrite_strategy="always")
    scores = result.task_results[0].scores["test"]
    kinds = {one["hf_subset"]: one["ndcg_at_10"] for one in scores}
    return kinds | {"mean of kinds": sum(kinds.values()) / len(kinds)}


def write(path: Path, found: dict[str, Any], answers: dict[str, Any]) -> None:
    """Write what came out so far: scores, and beside them the ids that were answered."""
    path.write_text(json.dumps(found, indent=1) + "\n")
    packed = gzip.compress(json.dumps(answers, separators=(",", ":")).encode(), mtime=0)
    path.with_name(f"{path.stem}-answers.json.gz").write_bytes(packed)


def main() -> None:
    """Run, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--official", action="store_true", help="the data of the model hub, which has to be reachable")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    # Some releases of pyarrow hold types that cannot be pickled, by which datasets makes fingerprints.
    datasets.fingerprint.Hasher.hash = staticmethod(lambda _: uuid.uuid4().hex)
    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "machine": machine(), "sets": {}}
    answers: dict[str, Any] = {}
    found["versions"] = {name: version(name) for name in ("mteb", "bm25s", "mnemolog")}
    for folder in [None] if arguments.official else arguments.folders:
        data = None if folder is None else splits(folder)
        name = "official" if folder is None else folder.name
        of, raw = found["sets"].setdefault(name, {"scores": {}}), answers.setdefault(name, {})
        if data is not None:
            of["questions"] = {kind: len(split["test"]["queries"]) for kind, split in data.items()}
        for system in (BM25(), Mnemolog("text"), MiniLM(), Mnemolog("hybrid")):
            of["scores"][system.name] = {kind: round(score, 4) for kind, score in measured(system, data).items()}
            print(system.name, of["scores"][system.name], flush=True)
            raw[system.name] = {
                question: [[id, round(score, 4)] for id, score in answer.items()]
                for question, answer in system.answers.items()
            }
            if arguments.json:
                write(arguments.json, found, answers)


if __name__ == "__main__":
    main()
