"""What an adapter of a memory implements, and the model that all of them are given. Needs the standard library alone.

`None` where a memory has no such thing: its scenario is *absent*, and nothing is built in its place. A method says
what went wrong by raising or warning; what a memory writes to a log as a warning counts as said, too.
"""

from __future__ import annotations

import math
import random
import re
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final

WIDTH: Final = 128


class Model:
    """An embedding model without weights: the vector of a text is the sum of its words', which are drawn by `seed`.

    Texts that share words are similar; two models of the same width and different seeds have nothing in common.
    """

    def __init__(self, width: int = WIDTH, seed: int = 1) -> None:
        """Take the number of dimensions and what the vectors of words are drawn by."""
        self.width, self.seed = width, seed
        self.name = f"hashed-{width}-{seed}"

    @classmethod
    def named(cls, name: str) -> Model:
        """Return the model with this name."""
        width, seed = name.split("-")[1:]
        return cls(int(width), int(seed))

    def __call__(self, text: str) -> list[float]:
        """Return the vector of a text, of length 1."""
        words = [_vector(word, self.width, self.seed) for word in re.findall(r"\w+", text.lower()) or [text]]
        row = [sum(numbers) for numbers in zip(*words, strict=True)]
        length = math.hypot(*row)
        return [number / length for number in row]


@lru_cache(1 << 14)
def _vector(word: str, width: int, seed: int) -> list[float]:
    drawn = random.Random(zlib.crc32(f"{seed} {word}".encode()))
    return [drawn.gauss(0, 1) for _ in range(width)]


class Memory:
    """One opened memory. A user is whom texts belong to, a session is a conversation of a user."""

    package: ClassVar[str]
    """The distribution whose version is printed."""
    how: ClassVar[dict[str, str]] = {}
    """By scenario: what the memory has for it, or instead of it, with the page or docstring that says so."""

    def __init__(self, folder: Path, model: Model) -> None:
        """Open what is in the folder, or make it, with the memory's own defaults."""

    def close(self) -> None:
        """Close it. It can be opened again."""

    def add(self, user: str, text: str, *, session: str = "s", source: str = "x", key: str | None = None) -> None:
        """Store a text. It is acknowledged when this returns. Called again with the same key, it adds nothing."""
        raise NotImplementedError

    def texts(self, user: str) -> list[str]:
        """Return all that is stored of a user, in the order in which it was added if the memory knows it."""
        raise NotImplementedError

    def find(self, user: str, question: str, k: int, *, session: str | None = None) -> list[str]:
        """Return up to `k` texts of a user that answer, best first; only those of one session if it is given."""
        raise NotImplementedError

    set: Callable[[str, str, str], None] | None = None
    """`set(user, subject, text)`: what holds of a subject from now on."""
    get: Callable[[str, str], str | None] | None = None
    """`get(user, subject)`: the text that holds."""
    history: Callable[[str, str], Sequence[str]] | None = None
    """`history(user, subject)`: all that ever held, also what was corrected."""
    moment: Callable[[], Any] | None = None
    """`moment()`: now, in the form that `find_as_of` takes."""
    find_as_of: Callable[[str, str, int, Any], list[str]] | None = None
    """`find_as_of(user, question, k, moment)`: what `find` would have returned then."""
    distrust: Callable[[str, str], None] | None = None
    """`distrust(user, source)`: nothing of this source is to come up from now on."""
    erase: Callable[[str], None] | None = None
    """`erase(user)`: destroy the content of a user, by all that the documentation says about it."""
    check: Callable[[], list[str]] | None = None
    """`check()`: what an audit finds wrong with what is stored."""
    index: Callable[[Path], list[Path]] | None = None
    """`index(folder)`: files and folders of a closed memory that are derived from what is stored and may be lost."""
    prefetch: Callable[[str, str], None] | None = None
    """`prefetch(user, question)`: start to look for an answer in the session where the agent of this user is."""
    prefetched: Callable[[str], list[str]] | None = None
    """`prefetched(user)`: that answer, if it is there and still fits."""
    enter: Callable[[str, str], None] | None = None
    """`enter(user, session)`: the agent of this user is in this session from now on."""
    edit: Callable[[Path, str, str], None] | None = None
    """`edit(folder, text, other)`: change a stored text of a closed memory past it. None: as `behind.py` does."""
    remove: Callable[[Path, str], None] | None = None
    """`remove(folder, text)`: remove it likewise."""
    keyed: ClassVar[bool] = True
    """Whether `add` passes on `key`: False where the memory has nothing to tell a retry by."""
    models: ClassVar[bool] = True
    """Whether the model is used: False where the memory has its own and takes no other here."""
