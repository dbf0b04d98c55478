"""Make a store of receipts: python -m tests.golden.make_receipts tests/golden/receipts/NAME-OF-THE-RANKING

Run it before a ranking is replaced by another version. Every later version repeats these receipts, with the ranking
that they name, to the last digit (tests/faults/test_golden.py). Only the log is kept: the rest is made again.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from mnemolog import MemoryStore, Weights
from tests.golden.make_store import counted_ids
from tests.support import FakeClock

DIMENSION: Final = 64
TOPICS: Final = {
    "ferry": "When does the ferry leave? The ferry leaves at nine. So early, and from which pier? From the third one.",
    "dog": "My dog is called Nero. What does Nero eat? "
    "He eats fish and nothing else. Poor Nero! Olá, Inês, and thanks.",
    "flat": "We look for a flat in Lisbon. How many rooms? "
    "Three, on the fourth floor. ERR_42 came up in the form again.",
    "tea": "I like green tea. You? I like black tea, with milk, and a long walk to the harbour with friends after it.",
    "work": "The build failed twice. Did you read the log? It says ERR_42, src/app/main.py. Then take the cache away.",
}
FIRST: Final = datetime(2023, 5, 1, 9, tzinfo=UTC)
QUERIES: Final = (
    *(
        "When does the ferry leave?",
        "what does Ann like to drink",
        "ERR_42",
        "where did Bob look for a flat in May 2023",
    ),
    *("the dog's name", "last month's tea", "green tea with milk and friends", "zebra", "What did you say about Nero?"),
)
DATED: Final = "When did Ann like tea in June?"


class SignEncoder:
    """A model without weights. Every component is 1/8 or -1/8, so similarities are exact on every machine."""

    name, fingerprint, dimension = "signs", "golden-signs/1", DIMENSION

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        if not texts:
            return np.empty((0, DIMENSION), dtype=np.float32)
        return np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> np.ndarray:
        words = re.findall(r"\w+", text.lower()) or [text]
        bits = [np.unpackbits(np.frombuffer(sha256(word.encode()).digest()[:8], dtype=np.uint8)) for word in words]
        return np.where(2 * np.sum(bits, axis=0) >= len(bits), 0.125, -0.125).astype(np.float32)


class ByVowels:
    """A reranker."""

    name = "by vowels"

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        return [sum(letter in "aeiou" for letter in text) / len(text) for text in texts]


def options() -> dict[str, Any]:
    """Return how a store has to be opened for its receipts to be repeated."""
    return {"model": SignEncoder(), "reranker": ByVowels(), "background": False}


def make(folder: Path) -> None:
    """Make the store in place of what is in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    clock = FakeClock(step=60_000_000)
    with counted_ids():
        with MemoryStore.open(folder / "store", clock=clock, encrypt=False, **options() | {"reranker": None}) as store:
            talk(store)
            ask(store)
        with MemoryStore.open(folder / "store", clock=clock, **options()) as store:
            ask_again(store)
            print(store.audit.recalls())
    shutil.rmtree(folder / "store" / "projections")
    for note in (*folder.rglob("*.lock"), *folder.rglob("*.holder.json")):
        note.unlink()


def talk(store: MemoryStore) -> None:
    """Record 300 turns in ten sessions of three scopes, of four speakers, with questions and dates."""
    for number in range(10):
        session = store.start_session(f"s{number}", agent="ada", scope=f"acme/{'abc'[number % 3]}")
        lines = [line for text in TOPICS.values() for line in re.split(r"(?<=[.?!]) ", text)]
        for place in range(30):
            line = lines[(7 * place + 3 * number) % len(lines)]
            session.record(
                "assistant" if place % 2 else "user",
                f"{line} {lines[(place * number) % len(lines)]}" if place % 3 else line,
                speaker=("Ann Lee", "Bob", "Cleo", None)[(place + number) % 4],
                said_at=FIRST + timedelta(days=17 * number, minutes=place),
                metadata={"n": place % 4},
            )
        if number == 4:
            session.rewind(turns=2)


def ask(store: MemoryStore) -> None:
    """Leave receipts of every mode, of pages, of filters, of lineage, of weights, of earlier positions."""
    for query in QUERIES:
        for mode in ("hybrid", "text", "vector"):
            store.recall(query, k=10, mode=mode, receipt=True)
    branch = store.session("s4").branch("s4-b")
    branch.record("user", "The ferry again: and the dog?")
    branch.recall("the ferry and the dog", mode="vector", receipt=True)
    after = None
    for _ in range(4):  # More than the first stage of candidates.
        page = store.recall("ferry tea dog flat", k=60, after=after, receipt=True)
        after = page.next
    for given in (
        {"scope": "acme/a"},
        {"roles": ["user"]},
        {"speakers": ["Bob"], "metadata": {"n": 1}},
        {"since": FIRST + timedelta(days=30), "until": FIRST + timedelta(days=90)},
        {"as_of": 100},
        {"weights": Weights(neighbours=0.5, question=0, recency=1, recency_days=100)},
        {"weights": Weights(distinct=True)},
        {"weights": Weights(vector=0, speaker=3, date=0.25)},
    ):
        store.recall(DATED, k=8, receipt=True, **given)


def ask_again(store: MemoryStore) -> None:
    """Leave receipts of answers that the reranker ordered."""
    for query in QUERIES:
        store.recall(query, k=5, receipt=True)
    store.session("s4-b").recall("the ferry and the dog", receipt=True)
    store.recall(DATED, k=8, as_of=100, receipt=True)


if __name__ == "__main__":
    make(Path(sys.argv[-1]))
