"""Split texts and queries into words and stems for the text index.

Words are in lower case and without accents, `ß` is `ss`. Endings of one language are removed (Snowball), which leaves
words of other languages nearly unchanged. `ERR_42` is one word; a path is split into its parts. Scripts without spaces
between words are split into pairs of characters, as in Lucene's CJK analyzer.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final

import Stemmer

from mnemolog.domain.language import DEFAULT_LANGUAGE, LANGUAGES
from mnemolog.domain.unicode_normalization import normalized, without_accents, without_single_accents

TERMS_MAX: Final = 64
"""Maximum terms of a query. For a pasted page, only its first distinct words are searched."""

STEMMED_CHARACTERS_MAX: Final = 1_000
"""Longer words keep their endings: the stemmers of German and Spanish take quadratic time."""

REMEMBERED_MAX: Final = 50_000
"""Words whose stems a thread remembers, per language: about 6 MB."""

REMEMBERED_CHARACTERS_MAX: Final = 64
"""Stems of longer words are not remembered."""

_WORD: Final = re.compile(r"\w+")
_WHOLE_WORD: Final = re.compile(r"\b\w+")
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")

_BETWEEN: Final = "\x01"
"""What separates texts that are split together; in a text it would be no word."""
_ASCII_WORDS: Final = {
    code: ord(character.lower()) if _WORD.match(character) or character == _BETWEEN else ord(" ")
    for code, character in enumerate(map(chr, range(128)))
}

# Stop words. Dropped from queries only, so the index still contains every word.
STOP_WORDS: Final = frozenset(
    """a about after all also am an and any are as at be because been before being but by can could did do
    does doing for from had has have having he her here hers him his how i if in into is it its just me more
    most my no not of on or our out over own she so some such than that the their them then there these they
    this those to too under until up very was we were what when where which while who whom why will with
    would you your""".split()  # noqa: SIM905
)

_own: Final = threading.local()


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order."""
    return _split(text, _plain(text))


def stems_of(text: str, language: str = DEFAULT_LANGUAGE) -> list[str]:
    """Return the words of a text, in order, without their endings in a language."""
    return _stemmed(_words_to_stem(text, language), language)


def stems_of_each(texts: Sequence[str], language: str = DEFAULT_LANGUAGE) -> list[str]:
    """Return the stems of each text, in order, separated by spaces, with a leading and a trailing space.

    Texts in ASCII are split and stemmed as one, which takes a third of the time.
    """
    together = [text for text in texts if text.isascii() and _BETWEEN not in text]
    words = f" {_BETWEEN} ".join(together).translate(_ASCII_WORDS).split()
    rows = iter(f" {' '.join(_stemmed(words, language))} ".split(_BETWEEN))
    found = list[str]()
    for text in texts:
        if text.isascii() and _BETWEEN not in text:
            row = next(rows)
            found.append(row if len(row) > 1 else "  ")
        else:
            found.append(f" {' '.join(stems_of(text, language))} ")
    return found


def stems_among(texts: Sequence[str], wanted: Collection[str], language: str = DEFAULT_LANGUAGE) -> list[list[str]]:
    """Return the stems of each text that are among `wanted`, in order. Few words are stemmed, so it is fast."""
    if language != DEFAULT_LANGUAGE:
        words = [_words_to_stem(text, language) for text in texts]
    else:
        begin = {_beginning(stem) for stem in wanted}
        words = [_words_that_begin(begin, text) for text in texts]
    stems = iter(_stemmed([word for some in words for word in some], language))
    return [[stem for stem in islice(stems, len(some)) if stem in wanted] for some in words]


def _beginning(stem: str) -> str:
    """Return what all English words with this stem begin with: not `die`, because of `dying`."""
    return stem[:-1] if len(stem) > 3 else stem[:1]


def _words_that_begin(begin: Collection[str], text: str) -> list[str]:
    plain = _plain(text)
    if not text.isascii():
        return [word for word in _split(text, plain) if word.startswith(tuple(begin))]
    places = set[int]()
    for beginning in begin:  # To look for a few words is faster than to look at every word.
        at = plain.find(beginning)
        while at >= 0:
            places.add(at)
            at = plain.find(beginning, at + 1)
    return [found[0] for at in sorted(places) if (found := _WHOLE_WORD.match(plain, at))]


def terms_of(query: str, language: str = DEFAULT_LANGUAGE) -> list[str]:
    """Return the distinct stems to search for, in order; empty if the query contains no word."""
    words = _words_to_stem(query, language)
    dropped = STOP_WORDS if language == DEFAULT_LANGUAGE else frozenset[str]()
    telling = [word for word in words if word not in dropped] or words
    longer = [word for word in telling if len(word) > 1 or word.isdigit() or not word.isascii()] or telling
    return list(dict.fromkeys(_stemmed(longer, language)))[:TERMS_MAX]


def _words_to_stem(text: str, language: str) -> list[str]:
    # Endings of other languages have accents (`nações`): these are removed from the stems.
    return words_of(text) if language == DEFAULT_LANGUAGE else _split(text, _accented(text))


def _split(text: str, plain: str) -> list[str]:
    words = _WORD.findall(plain)
    if text.isascii() or not _UNSPACED.search(plain):
        return words
    return [part for word in words for part in _parts(word)]


def _plain(text: str) -> str:
    return text.lower() if text.isascii() else without_accents(text).casefold()


def _accented(text: str) -> str:
    """Return a text in lower case with those accents that make one character with their letter."""
    if text.isascii():
        return text.lower()
    return without_single_accents(normalized("NFKC", text.casefold()).casefold())


def _parts(word: str) -> list[str]:
    """Split a word: pairs of characters for scripts without spaces, and the parts between them; else the word."""
    parts, end = [], 0
    for run in _UNSPACED.finditer(word):
        if run.start() > end:
            parts.append(word[end : run.start()])
        text, end = run[0], run.end()
        parts += [text[n : n + 2] for n in range(len(text) - 1)] or [text]
    return [*parts, word[end:]] if end < len(word) else parts


def _stemmed(words: list[str], language: str) -> list[str]:
    known: dict[str, _Stems] | None = getattr(_own, "stems", None)
    if known is None:  # One each per thread, because stemmers are not thread-safe.
        known = _own.stems = {}
    stems = known.get(language)
    if stems is None:
        stems = known[language] = _Stems(language)
    return list(map(stems.__getitem__, words))


class _Stems(dict[str, str]):
    """The stems of words of one language. To look up a word takes a tenth of the time of stemming it."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._is_default = language == DEFAULT_LANGUAGE
        self._stemmer = Stemmer.Stemmer(LANGUAGES.get(language, LANGUAGES[DEFAULT_LANGUAGE]))

    def __missing__(self, word: str) -> str:
        stem = self._stem(word)
        if len(word) <= REMEMBERED_CHARACTERS_MAX:
            if len(self) >= REMEMBERED_MAX:
                self.clear()
            self[word] = stem
        return stem

    def _stem(self, word: str) -> str:
        if self._is_default:
            return str(self._stemmer.stemWords([word])[0])
        stem = self._stemmer.stemWords([word])[0] if len(word) <= STEMMED_CHARACTERS_MAX else ""
        return without_accents(stem or word)
