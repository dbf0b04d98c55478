"""Requests and standing statements read by a linear model, against the patterns: python -m benchmarks.reading DATA.

`conversations/requests.jsonl` and `statements.jsonl` have 60 examples of each kind in five styles, and some that are of
no kind. DATA is a folder with `bulk/gitter.jsonl.gz`, `assistant-dev`, `longmemeval-pool` and `qmsum-dev`. The model
sees words, pairs and letters, hashed by CRC-32 into 2**14 places. It is fitted on four styles and reads the fifth. Its
thresholds let through one in a hundred texts that it was not fitted on; false ones are counted on others.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from mnemolog.domain.standing import SENTENCE, standing_in
from mnemolog.projections.recall.question import Question, Whose, request_of

FOLDER = Path(__file__).parent / "conversations"
PLACES = 1 << 14
RIDGE = 1e-5
FALSE = 0.01
STYLES = ("terse", "chatty", "formal", "non-native", "typo")
_WORD = re.compile(r"\w+|[?!:,]")


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of lines of JSON."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in content.splitlines()]


def places_of(text: str) -> set[int]:
    """Return the places of the features of a text."""
    words = _WORD.findall(text.casefold().replace("\u2019", "'"))
    joined = f" {' '.join(words)} "
    features = {f"first {' '.join(words[:1])}", f"last {' '.join(words[-1:])}", f"two {' '.join(words[:2])}"}
    features |= {f"word {word}" for word in words}
    features |= {f"pair {one} {two}" for one, two in pairwise(words)}
    features |= {f"gap {one} {two}" for one, two in zip(words, words[2:], strict=False)}
    features |= {joined[at : at + size] for size in (3, 4, 5) for at in range(len(joined) - size + 1)}
    return {zlib.crc32(feature.encode()) % PLACES for feature in features}


def matrix(texts: Iterable[str]) -> Any:
    """Return a row of length 1 for each text."""
    rows = [sorted(places_of(text)) for text in texts]
    starts = np.cumsum([0, *map(len, rows)])
    values = np.concatenate([np.full(len(row), len(row) ** -0.5) for row in rows])
    return sp.csr_matrix((values, np.concatenate(rows), starts), shape=(len(rows), PLACES))


def fitted(features: Any, wanted: Any) -> Any:
    """Return weights and, last, the base of a logistic regression."""
    sign = 2 * wanted - 1
    share = np.where(wanted > 0, min((len(wanted) - wanted.sum()) / wanted.sum(), 20), 1.0)
    share /= share.sum()

    def loss(model: Any) -> tuple[Any, Any]:
        margin = (features @ model[:-1] + model[-1]) * sign
        slope = -sign * share / (1 + np.exp(np.clip(margin, -50, 50)))
        value = (share * np.logaddexp(0, -margin)).sum() + RIDGE * model[:-1] @ model[:-1] / 2
        return value, np.append(features.T @ slope + RIDGE * model[:-1], slope.sum())

    return minimize(loss, np.zeros(PLACES + 1), jac=True, method="L-BFGS-B", options={"maxiter": 80}).x


def by_patterns(text: str) -> set[str]:
    """Return what the patterns read from a request."""
    request = request_of(Question(query=text), "en")
    whose = {"whose"} if request.whose in (Whose.ASSISTANT, Whose.ADVICE) else set()
    return {str(request.kind)} | whose | ({"now"} if request.present else set())


def report(
    name: str,
    read: Callable[[str], set[str]],
    others: Sequence[str],
    unseen: Sequence[str],
    counted: dict[str, Sequence[str]],
) -> None:
    """Print what a model reads of each style that it has not seen, and what it reads wrongly."""
    rows = lines_of(FOLDER / f"{name}.jsonl")
    kinds = [*dict.fromkeys(row["kind"] for row in rows if row["kind"] != "none")]
    examples = [row for row in rows if row["kind"] != "none"]
    none = matrix([row["text"] for row in rows if row["kind"] == "none"] + list(others))
    known, threshold_on = matrix(row["text"] for row in examples), matrix(unseen)
    counted_on = {where: matrix(texts) for where, texts in counted.items()}
    right = Counter[str]()
    for style in STYLES:
        seen = np.array([row["style"] != style for row in examples])
        models = []
        for kind in kinds:
            wanted = np.array([row["kind"] == kind for row in examples], float)[seen]
            model = fitted(sp.vstack([known[seen], none]), np.append(wanted, np.zeros(none.shape[0])))
            model[-1] -= np.quantile(threshold_on @ model[:-1] + model[-1], 1 - FALSE / len(kinds))
            models.append(model)
        both = np.stack(models)
        scores = known[~seen] @ both[:, :-1].T + both[:, -1]
        found = [kinds[row.argmax()] if row.max() > 0 else None for row in scores]
        hits = [row["kind"] for row, kind in zip(np.array(examples)[~seen], found, strict=True) if row["kind"] == kind]
        right.update(hits)
        false = {
            where: round(float(((features @ both[:, :-1].T + both[:, -1]).max(axis=1) > 0).mean()), 4)
            for where, features in counted_on.items()
        }
        print(f"{name} without {style}: {len(hits)} of {len(found)} read; false {false}")
    each = Counter(row["kind"] for row in examples)
    listed = Counter(row["kind"] for row in examples if row["kind"] in read(row["text"]))
    print(name, *(f"{kind} {right[kind]}, by patterns {listed[kind]} of {each[kind]}" for kind in kinds), sep="; ")
    print(f"in all {sum(right.values())}, by patterns {sum(listed.values())} of {len(examples)}")


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    data, mixed = parser.parse_args().data, random.Random(7)
    chat = [row["text"] for row in lines_of(data / "bulk/gitter.jsonl.gz")]
    mixed.shuffle(chat)
    turns = {
        name: [row["text"] for row in lines_of(data / name / "turns.jsonl") if row["speaker"] == "user"]
        for name in ("assistant-dev", "longmemeval-pool")
    }
    known, others = turns["assistant-dev"], turns["longmemeval-pool"]
    foreign = [text for text in others if text not in set(known)]
    asked = {
        name: [row["question"] for row in lines_of(data / name / "questions.jsonl")]
        for name in ("longmemeval-pool", "qmsum-dev")
    }
    meetings = [text for text in asked["qmsum-dev"] if "ummar" not in text]
    own = [
        row["question"]
        for row in lines_of(data / "assistant-dev/questions.jsonl")
        if row["category"] in ("user-fact", "temporal", "multi", "user-asked")
    ]
    report(
        "requests",
        by_patterns,
        chat[:1500] + known[:700] + own[::2],
        chat[1500:5500] + known[700:] + own[1::2],
        {
            "chat": chat[6000:12000],
            "turns": foreign,
            "questions": asked["longmemeval-pool"],
            "of meetings": meetings,
        },
    )

    def sentences(texts: Sequence[str]) -> list[str]:
        found = (part[0] for text in texts if len(text) < 6000 for part in SENTENCE.finditer(text))
        return [part for part in found if 8 <= len(part) <= 600]

    def without(texts: Sequence[str]) -> list[str]:
        return [text for text in texts if not any(standing_in(text))]

    said = sentences(known)
    mixed.shuffle(said)
    report(
        "statements",
        lambda text: {str(found.kind) for found in standing_in(text)},
        without(chat[:1500] + said[:2500]),
        without(chat[1500:5500] + said[2500:]),
        {"chat": chat[6000:12000], "sentences": sentences(foreign)},
    )
    began = process_time()
    for text in chat[:1000]:
        places_of(text)
    print(f"the features of a text take {process_time() - began:.3f} ms")


if __name__ == "__main__":
    main()
