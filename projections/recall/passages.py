"""The best passage of a long text for a question: chosen by the question's words, cut where a reader would cut.

A text is split into parts: sentences, lines, list items, blocks of code. A passage is a run of adjacent parts. No model
is called, and the time is linear in the length of the text.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mnemolog.domain.result import Result, brief
from mnemolog.domain.spelling import JOINER, STYLES
from mnemolog.projections.recall.text_search import Counts
from mnemolog.projections.sql.words import stems_among

PASSAGE_CHARACTERS_MAX: Final = 500
"""A longer turn has a passage of at most so many characters; a shorter one is its own passage."""
PIECES: Final = 4
"""A sentence longer than a passage, such as a page without a full stop, is cut into pieces so many times smaller."""
REPEATED: Final = 0.5
"""A word found n times counts n / (n + this) of its worth: its repetitions add little. Measured on assistant-dev."""
ROUNDED: Final = 9
"""Digits by which runs are compared: beyond them, sums differ by the order of adding."""

_LINE: Final = re.compile(r"[^\n]+")
_FENCE: Final = re.compile(r"\s{0,12}(```+|~~~+)")
_SENTENCE_END: Final = re.compile(
    r"[.!?\u2026][\"'\u201d\u2019\u00bb)\]*_`]{0,3}\s+"
    r"|[\u3002\uff01\uff1f\uff61][\u300d\u300f\u201d\u2019\uff09]{0,3}\s*"
    r"(?![\u3002\uff01\uff1f\uff61\u300d\u300f\u201d\u2019\uff09])"
)
"""A mark that ends a sentence, with the quotes and brackets that close it; in Chinese and Japanese no space follows."""
_NO_SENTENCE: Final = re.compile(
    r"(?:^\W*\d+|\b(?:[^\W\d]|e\.g|i\.e|z\.B|d\.h|p\.ej|vs|cf|ca|approx|no|nr|mr|mrs|ms|dr|prof|st))\.$", re.IGNORECASE
)
"""The number of a list item, an initial or an abbreviation: its full stop ends no sentence."""
_LONGEST_ABBREVIATION: Final = 12
_HEADING: Final = re.compile(r"\s*(?:#{1,6}\s|\*\*[^*]+\*\*:?\s*$)")
_WORD: Final = re.compile(r"\S+")
_MARKS: Final = ("Mn", "Mc", "Me")
_JOINS: Final = frozenset(
    ["\u200c", JOINER, *STYLES, *map(chr, range(0x1160, 0x1200)), *map(chr, range(0xDC00, 0xE000))]
)
"""Joiners, styles and skin tones of emoji, later parts of a Hangul syllable, second halves of a surrogate pair."""
_FLAGS: Final = frozenset(map(chr, range(0x1F1E6, 0x1F200)))
"""Regional indicators: two of them are a flag."""


class Passage(Result, frozen=True, kw_only=True):
    """A part of a text: `text` is `whole[start:end]`, offsets in characters."""

    text: str
    start: int
    end: int

    def _shown(self) -> Iterable[str]:
        return (brief(self.text), f"start={self.start}", f"end={self.end}")


class SoughtWords(NamedTuple):
    """The words of a question, by which passages are chosen."""

    worth: Mapping[str, float]
    """What each stem counts: the rarer it is among the turns, the more."""
    language: str
    """The language of the stems."""


def sought(stems: Iterable[str], counts: Counts, *, language: str) -> SoughtWords:
    """Return the stems of a question with their rarity. Where no turns were counted, all of them count the same."""
    if not counts.turns:
        return SoughtWords(dict.fromkeys(stems, 1.0), language)
    return SoughtWords({stem: counts.rarity(stem) for stem in stems if stem in counts.holding}, language)


def marked(passage: Passage, whole: str) -> str:
    """Return a passage of a text with `…` at each end where the text continues."""
    before, after = "… " if passage.start else "", " …" if passage.end < len(whole) else ""
    return f"{before}{passage.text}{after}"


class _Part(NamedTuple):
    """A part of a text, without the white space after it."""

    start: int
    end: int
    heads: bool
    """Whether it is a heading: it belongs to what follows it."""


def best_passage(text: str, words: SoughtWords, *, limit: int = PASSAGE_CHARACTERS_MAX) -> Passage:
    """Return the passage of at most `limit` characters that holds most of `words`; all of a text that is not longer.

    The beginning of a text that holds none of them.
    """
    if len(text) <= limit:
        return Passage(text=text, start=0, end=len(text))
    parts = list(_parts(text, limit))
    if not parts:  # Nothing but white space.
        return Passage(text=text[:limit], start=0, end=limit)
    first, last = _filled(parts, _best_start(parts, _held(text, parts, words), words, limit), limit)
    start, end = parts[first].start, parts[last].end
    return Passage(text=text[start:end], start=start, end=end)


def _held(text: str, parts: Sequence[_Part], words: SoughtWords) -> dict[int, list[str]]:
    """Return which of the words are in which part, by the numbers of the parts that hold any."""
    found = stems_among([text[part.start : part.end] for part in parts], words.worth, words.language)
    return {number: some for number, some in enumerate(found) if some}


def _best_start(parts: Sequence[_Part], held: Mapping[int, Sequence[str]], words: SoughtWords, limit: int) -> int:
    """Return the first part of the best run of at most `limit` characters; of equal ones, of the earliest.

    A word counts by its rarity, less where the text is full of it, and less each time it is repeated within the run. A
    run that begins before its first word is no better, so only those are compared that begin with one.
    """
    in_all = Counter(stem for some in held.values() for stem in some)
    worth = {stem: words.worth[stem] / math.sqrt(count) for stem, count in in_all.items()}
    within = Counter[str]()
    best = 0.0
    chosen = 0
    reached = 0
    holding = list(held)
    for first in holding:
        while reached < len(holding) and parts[holding[reached]].end - parts[first].start <= limit:
            within.update(held[holding[reached]])
            reached += 1
        score = sum(worth[stem] * count / (count + REPEATED) for stem, count in within.items())
        if round(score - best, ROUNDED) > 0:
            best, chosen = score, first
        within -= Counter(held[first])
    return chosen


def _filled(parts: Sequence[_Part], first: int, limit: int) -> tuple[int, int]:
    """Return a run that begins with `first` or, where there is room left, before it. It does not end with a heading."""
    last = first
    while last + 1 < len(parts) and parts[last + 1].end - parts[first].start <= limit:
        last += 1
    while last > first and last + 1 < len(parts) and parts[last].heads:
        last -= 1
    while first and parts[last].end - parts[first - 1].start <= limit:
        first -= 1
    return first, last


def _parts(text: str, limit: int) -> Iterator[_Part]:
    """Yield the parts of a text in order. No part is longer than `limit`."""
    for start, end, is_code in _blocks(text, limit):
        if is_code:
            yield from _cut(text, start, end, limit, limit, heads=False)
            continue
        heads = _HEADING.match(text, start, end) is not None
        for part_start, part_end in _sentences(text, start, end):
            yield from _cut(text, part_start, part_end, max(limit // PIECES, 1), limit, heads=heads)


def _blocks(text: str, limit: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the lines of a text that are not blank, and whether they are code; a block of code is one, if it fits."""
    fence, lines = "", list[tuple[int, int]]()
    for line in _LINE.finditer(text):
        found = _FENCE.match(line[0])
        if not fence:
            if found is None:
                if not line[0].isspace():
                    yield line.start(), line.end(), False
                continue
            fence = found[1]
        lines.append(line.span())
        if len(lines) > 1 and found is not None and line[0].strip().startswith(fence):
            yield from _code(lines, limit)
            fence, lines = "", []
    yield from _code(lines, limit)


def _code(lines: Sequence[tuple[int, int]], limit: int) -> Iterator[tuple[int, int, bool]]:
    if lines and lines[-1][1] - lines[0][0] <= limit:
        yield lines[0][0], lines[-1][1], True
    else:
        yield from ((start, end, True) for start, end in lines)


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the sentences of a line, with the white space between them."""
    for found in _SENTENCE_END.finditer(text, start, end):
        stop, follows = found.start() + 1, found.end()
        if follows == end or text[follows].islower() or _continues(text, start, follows):
            continue
        if found[0][0] == "." and _NO_SENTENCE.search(text[max(start, stop - _LONGEST_ABBREVIATION) : stop]):
            continue
        yield start, follows
        start = follows
    yield start, end


def _cut(text: str, start: int, end: int, wanted: int, limit: int, *, heads: bool) -> Iterator[_Part]:
    """Yield a part without the white space after it; if it is longer than `limit`, in pieces of about `wanted`.

    Pieces end between words. Only a word that is longer than `limit` is cut itself.
    """
    if end - start <= limit:
        if length := len(text[start:end].rstrip()):
            yield _Part(start, start + length, heads)
        return
    begin = at = -1
    for word in _WORD.finditer(text, start, end):
        if begin >= 0 and word.end() - begin > wanted:
            yield _Part(begin, at, heads)
            begin = -1
        if word.end() - word.start() > limit:
            yield from (_Part(*piece, heads) for piece in _pieces(text, *word.span(), wanted))
            continue
        begin, at = (word.start() if begin < 0 else begin), word.end()
    if begin >= 0:
        yield _Part(begin, at, heads)


def _pieces(text: str, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the pieces of one long word. No character is separated from its accents, and no emoji is cut."""
    while end - start > size:
        at = next((at for at in range(start + size, start, -1) if not _continues(text, start, at)), start + size)
        yield start, at
        start = at
    yield start, end


def _continues(text: str, start: int, at: int) -> bool:
    """Whether the character at `at` belongs to the one before it: an accent, a part of an emoji, half of a flag."""
    here, before = text[at], text[at - 1]
    if here in _JOINS or before == JOINER or unicodedata.category(here) in _MARKS:
        return True
    if before in _FLAGS and here in _FLAGS:
        flags = next((n for n in range(at - 1 - start) if text[at - 2 - n] not in _FLAGS), at - 1 - start)
        return flags % 2 == 0
    return False
