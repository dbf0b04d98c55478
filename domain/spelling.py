"""How a name is spelled in a log: as something that exists has it, else composed (NFC). And the names like it.

The only module that normalises, in time linear in the size of the text.
"""

import heapq
import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from functools import partial
from itertools import groupby, islice
from typing import Final, Literal
from unicodedata import combining, normalize

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

RUN_MAX: Final = 30
"""Combining marks in a row that are normalised as they are: as many as Unicode's Stream-Safe Text Format allows."""

# Letters, spaces, punctuation, symbols and emoji are left out: none is a mark, nor decomposes to marks alone. The only
# letters that do are the two of `_HALF_WIDTH`.
_LONG_RUN: Final = re.compile(rf"[^\w\x00-\u02ff\u2000-\u20cf\u2100-\u2cee\U0001f000-\U0010ffff]{{{RUN_MAX + 1},}}")
_VOICING: Final = "\u3099\u309a"
"""Japanese voicing marks. Unlike accents, they make a different letter."""
STYLES: Final = "\ufe0e\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
"""How an emoji is drawn: as text, in colour, or with a skin tone. To readers these are accents of an emoji."""
JOINER: Final = "\u200d"
"""What joins emoji to one."""
_HALF_WIDTH: Final = tuple(zip("\uff9e\uff9f", _VOICING, strict=True))
_CHARACTERS_KEPT: Final = 1 << 14


def normalized(form: Form, text: str) -> str:
    """Return what `unicodedata.normalize` returns, for every text, in time linear in its length.

    Normalising sorts each run of combining marks by class. Python exchanges neighbours to do so, which takes quadratic
    time: minutes for 1 MiB of marks, with the interpreter locked. So long runs are sorted first.
    """
    if text.isascii():
        return text
    if "K" in form:
        for narrow, mark in _HALF_WIDTH:
            text = text.replace(narrow, mark)
    return normalize(form, _LONG_RUN.sub(lambda run: _in_order(form, run[0]), text))


def without_accents(text: str) -> str:
    """Return a text with each character in its simplest form (NFKC), and without accents."""
    # The voicing marks that are left have the same class: there is nothing to sort.
    return text if text.isascii() else normalize("NFC", text.translate(_BARE))


def without_single_accents(text: str) -> str:
    """Return a text without those accents that are characters of their own."""
    return text if text.isascii() else text.translate(_UNACCENTED)


def in_one_case(text: str) -> str:
    """Return a text in lower case, each character as one: what differs in case only is equal, at the same places."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def _in_order(form: Form, run: str) -> str:
    """Return characters decomposed, and each run of marks sorted by class; those of one class stay in their order."""
    apart_form: Form = "NFKD" if "K" in form else "NFD"
    apart = "".join(normalize(apart_form, character) for character in run)
    groups = groupby(apart, key=lambda character: combining(character) > 0)
    return "".join("".join(sorted(group, key=combining) if are_marks else group) for are_marks, group in groups)


def _unaccented(text: str) -> str:
    kept = (character for character in text if not combining(character) or character in _VOICING)
    return "".join(character for character in kept if character not in STYLES)


def _lower(character: str) -> str:
    lower = character.lower()[0]  # U+0130 alone becomes two.
    again = lower.upper().lower()  # The final sigma and the long s become their usual forms.
    return again if len(again) == 1 else lower


class _Table(dict[int, str]):
    """What becomes of each character, computed when it is first seen."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self._change = change

    def __missing__(self, code: int) -> str:
        changed = self._change(chr(code))
        if len(self) < _CHARACTERS_KEPT:
            self[code] = changed
        return changed


_UNACCENTED: Final = _Table(_unaccented)
_LOWER: Final = _Table(_lower)
_BARE: Final = _Table(lambda character: _unaccented(normalize("NFKD", character)))


Has = Callable[[str], bool]
"""Whether something has a name, or a name below it."""


def spelled(name: str, has: Has) -> str:
    """Return a name as the log has it, or would get it.

    As it was given, if something has it; else composed, if something has that. A new one is composed, unless it lies
    below something that is not: who is bound to that must find it.
    """
    if (composed := normalized("NFC", name)) == name or has(name):
        return name
    return name if not has(composed) and _is_below(name, has) else composed


def _is_below(name: str, has: Has) -> bool:
    """Whether something has the shortest beginning of a path that is not composed."""
    parts = name.split("/")
    above = ("/".join(parts[:end]) for end in range(1, len(parts)))
    first = next((path for path in above if normalized("NFC", path) != path), None)
    return first is not None and has(first)


COMPARED_MAX: Final = 10_000
"""Comparing more would take seconds."""
MEASURED_MAX: Final = 100
CHARACTERS_MAX: Final = 128
"""How many labels are measured, and how much of each: that takes up to the cube of the length."""


def closest(given: str, labels: Iterable[str], *, count: int = 3) -> list[str]:
    """Return up to `count` of the labels, those that begin like `given` first, then the most similar ones."""
    wanted = given.casefold()
    matcher = SequenceMatcher(b=wanted[:CHARACTERS_MAX], autojunk=False)

    def likeness(label: str, measure: Callable[[], float]) -> tuple[bool, float]:
        folded = label.casefold()
        matcher.set_seq1(folded[:CHARACTERS_MAX])
        return folded.startswith(wanted) or wanted.startswith(folded), measure()

    # By the characters that they share, which is cheap to count; then by their order.
    likely = heapq.nlargest(
        max(count, MEASURED_MAX), islice(labels, COMPARED_MAX), key=partial(likeness, measure=matcher.quick_ratio)
    )
    return heapq.nlargest(count, likely, key=partial(likeness, measure=matcher.ratio))
