"""A word in every place that a projection keeps, and readers that note what they were answered."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from mnemolog import MemoryStore
from mnemolog.adapters.support.graph_checkpoints import Threads, Typed
from mnemolog.adapters.support.items import Items
from tests.children.workers import telling_failures
from tests.support import HashEncoder

READ_MAX = 1_000
DIMENSION = 16
OFTEN = 10
"""Reads of tables of adapters in a row: they take much less time than the others."""


class Answered(NamedTuple):
    """An answer, and the heads of the log before and after the call."""

    before: int
    named: int | None
    """The position that the answer itself names, of what is built behind the log."""
    words: list[str]
    after: int


def encoder(number: int) -> HashEncoder:
    return HashEncoder(fingerprint=f"hash-words/{number}", dimension=DIMENSION)


class Subject:
    """An open store with what adapters keep of it."""

    def __init__(self, folder: str) -> None:
        self.store = MemoryStore.open(folder, model=encoder(1), models=[encoder(2)], background=False)
        self.session = self.store.session("said")
        self.threads, self.items = Threads(self.store), Items(self.store)

    def __enter__(self) -> Subject:
        return self

    def __exit__(self, *_: object) -> None:
        self.threads.close()
        self.items.close()
        self.store.close()

    def tell(self, word: str) -> dict[str, int]:
        """Have a word kept by each kind of event; return the position of each."""
        positions = {"turn": self.session.record("user", f"Always mention {word}.").position}
        positions["fact"] = self.store.assert_fact(f"said/{word}", word).position
        self.session.set(word, word)
        positions["value"] = self.store.head().position
        with self.items.batch() as batch:
            batch.put(("said",), word, {"word": word})
        positions["item"] = self.store.head().position
        value = Typed("text", word.encode())
        self.threads.checkpoint(
            *("said", "", f"{positions['item']:06}"),
            parent=None,
            checkpoint=value,
            metadata=value,
            channels={"word": lambda: value},
            changed=["word"],
        )
        return positions | {"checkpoint": self.store.head().position}


def _searched(subject: Subject, mode: Any) -> tuple[int | None, list[str]]:
    found = subject.store.recall("mention", mode=mode, k=READ_MAX)
    return found.vectors_cover if mode == "vector" else None, [_word(hit.text) for hit in found]


def _word(text: str) -> str:
    return text.split()[-1].strip(".")


def _newest(subject: Subject) -> list[str]:
    found = subject.threads.find("said", "", None)
    return [] if found is None else [found.values["word"].data.decode()]


def _items(subject: Subject) -> list[str]:
    with subject.items.batch() as batch:
        return [item.value["word"] for item in batch.search((), limit=READ_MAX)]


NEWEST = "newest checkpoint"
PLACES: dict[str, tuple[str, Callable[[Subject], tuple[int | None, list[str]]]]] = {
    "turns": ("turn", lambda of: (None, [_word(turn.text) for turn in of.session.turns(limit=READ_MAX)])),
    "full text": ("turn", lambda of: _searched(of, "text")),
    "vectors": ("turn", lambda of: _searched(of, "vector")),
    "standing": ("turn", lambda of: (None, [_word(said.text) for said in of.store.standing()])),
    "facts": ("fact", lambda of: (None, [str(fact.value) for fact in of.store.facts("said/*")])),
    "values": ("value", lambda of: (None, list(of.session.all()))),
    "items": ("item", lambda of: (None, _items(of))),
    "checkpoints": (
        "checkpoint",
        lambda of: (None, [at.values["word"].data.decode() for at in of.threads.listed(thread="said")]),
    ),
    NEWEST: ("checkpoint", lambda of: (None, _newest(of))),
}
"""By name: the kind of event that keeps a word there, and how all words there are read."""


def read_until(over: Callable[[], bool], subject: Subject) -> dict[str, list[Answered]]:
    """Read in each place again and again, and return every answer."""
    answers: dict[str, list[Answered]] = {place: [] for place in PLACES}
    while not over():
        for place, (kind, ask) in PLACES.items():
            for _ in range(OFTEN if kind in ("item", "checkpoint") else 1):
                before = subject.store.head().position
                answers[place].append(Answered(before, *ask(subject), subject.store.head().position))
    return answers


@telling_failures
def read_meanwhile(pipe: Connection, folder: str, over: Any) -> None:
    """Read in a process of its own until told to stop; then tell every answer."""
    with Subject(folder) as subject:
        pipe.send("reading")
        pipe.send(read_until(over.is_set, subject))
