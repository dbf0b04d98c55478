"""Split texts and queries into words and stems for the text index.

Words are in lower case and without accents, `ß` is `ss`. Endings of one language are removed (Snowball), which leaves
words of other languages nearly unchanged. A name of a program such as `parseHttpHeader` or `ERR_42` is indexed as one
word, and as each of its parts. An emoji is a word, whatever its skin tone; one that is joined from others is indexed as
these too. Scripts without spaces between words, and Korean, whose particles follow a noun without one, are split into
pairs of characters, as in Lucene's CJK analyzer. Beside a number or an id stands its one spelling (`sql.numbers`).
"""

import re
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import Stemmer

from mnemolog.domain.choices import DEFAULT_LANGUAGE, LANGUAGES
from mnemolog.domain.spelling import (
    JOINER,
    STYLES,
    normalized,
    without_accents,
    without_single_accents,
)
from mnemolog.projections.sql.numbers import folded

TERMS_MAX: Final = 64
"""Maximum terms of a query. For a pasted page, only its first distinct words are searched."""

FORMS_MAX: Final = TERMS_MAX // 4
"""Maximum numbers and ids of a query that are searched in their one spelling."""

STEMMED_CHARACTERS_MAX: Final = 1_000
"""Longer words keep their endings: the stemmers of German and Spanish take quadratic time."""

REMEMBERED_MAX: Final = 50_000
"""Words whose stems a thread remembers, per language: about 6 MB."""

REMEMBERED_CHARACTERS_MAX: Final = 64
"""Stems of longer words are not remembered."""

_EMOJI: Final = re.compile(f"[\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff][{STYLES}]*")
WORD: Final = re.compile(
    rf"\w+|[\U0001f1e6-\U0001f1ff]{{2}}|{_EMOJI.pattern}(?:[\U000e0020-\U000e007f]+|(?:{JOINER}{_EMOJI.pattern})+)?"
)
"""Letters, digits and `_`; the two letters of a flag; an emoji, joined emoji, or an emoji with the tags of a region."""
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff]+"
)
_CAPITALS: Final = "".join(filter(str.isupper, map(chr, range(0x530))))
"""Latin, Greek and Cyrillic capitals."""
_SMALL: Final = rf"[^{_CAPITALS}_\d{JOINER}]"
_PART: Final = re.compile(rf"\d*[{_CAPITALS}]+s?(?!{_SMALL})\d*|\d*[{_CAPITALS}]?{_SMALL}+\d*|\d+")
"""A part of a name: `HTTP2`, `Server` of `HTTP2Server`, `User`, `IDs` of `UserIDs`, `max`, `42` of `max_42`."""
_RUN: Final = re.compile("[0-9]+|[a-z]+")
"""Letters or digits of `inv2047`."""
_PARTICLES: Final = frozenset(
    """은 는 이 가 을 를 의 에 도 만 로 와 과 나 랑 께 야 에서 에게 에는 에도 으로 한테 까지 부터 이나 이랑 처럼 보다
    마다 밖에 라도""".split()  # noqa: SIM905
)
"""What follows a Korean noun. After a noun of one character, that is indexed alone too."""

_BETWEEN: Final = "\x01"
"""What separates texts that are split together; in a text it would be no word."""
_ASCII_WORDS: Final = {
    code: character if WORD.match(character) or character == _BETWEEN else " "
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
    """Return the words of a text, in order. A name of a program is one word."""
    if text.isascii():
        return WORD.findall(text.lower())
    return [piece.casefold() for word in _split(text, DEFAULT_LANGUAGE) for piece in _pieces(word)]


def stems_of(text: str, language: str = DEFAULT_LANGUAGE) -> list[str]:
    """Return the words of a text and the parts of names, in order, without their endings in a language."""
    bare = _bare(text, language)
    return " ".join(_stemmed([*WORD.findall(bare), *_forms(bare)], language)).split()


def stems_of_each(texts: Sequence[str], language: str = DEFAULT_LANGUAGE) -> list[str]:
    """Return the stems of each text, in order, separated by spaces, with a leading and a trailing space.

    Two spaces are before the spellings of its numbers and ids: these do not count in its length. Texts in ASCII are
    split and stemmed as one, which takes a third of the time.
    """
    together = [text for text in texts if text.isascii() and _BETWEEN not in text]
    words = f" {_BETWEEN} ".join(together).translate(_ASCII_WORDS).split()
    rows = iter(f" {' '.join(_stemmed(words, language))} ".split(_BETWEEN))
    found = list[str]()
    for text in texts:
        bare = _bare(text, language)
        is_one = text.isascii() and _BETWEEN not in text
        row = next(rows) if is_one else f" {' '.join(_stemmed(WORD.findall(bare), language))} "
        forms = " ".join(_stemmed(_forms(bare), language))
        found.append(f"{row} {forms} " if forms else row if len(row) > 1 else "  ")
    return found


def stems_among(texts: Sequence[str], wanted: Collection[str], language: str = DEFAULT_LANGUAGE) -> list[list[str]]:
    """Return the stems of each text that are among `wanted`, in order."""
    return [[stem for stem in row.split() if stem in wanted] for row in stems_of_each(texts, language)]


def terms_of(query: str, language: str = DEFAULT_LANGUAGE) -> list[str]:
    """Return the distinct stems to search for, in order; empty if the query contains no word."""
    forms = _forms(_bare(query, language))[:FORMS_MAX]
    # A long question says few words many times.
    words = dict.fromkeys([*forms, *_parts(dict.fromkeys(_split(query, language)))])
    dropped = STOP_WORDS if language == DEFAULT_LANGUAGE else frozenset[str]()
    telling = [word for word in words if word not in dropped] or list(words)
    longer = [word for word in telling if len(word) > 1 or word.isdigit() or not word.isascii()] or telling
    return list(dict.fromkeys(map(_stems_in(language).stem, longer)))[:TERMS_MAX]


def wholes_of(query: str, language: str = DEFAULT_LANGUAGE) -> dict[str, str]:
    """Return the name that each part of a name or number in a query belongs to, as stems. An emoji belongs to itself.

    Ranking takes each of these as optional, because users write `youtube` for `YouTube`, and emoji for decoration.
    """
    stem = _stems_in(language).stem
    words = [word for word in dict.fromkeys(_split(query, language)) if not _is_plain(word)]
    names = list(map(_in_parts, dict.fromkeys(piece for word in words for piece in _pieces(word))))
    numbers = folded(_bare(query, language))
    names += [[form, *(_RUN.findall(said) if said == form else _parts(WORD.findall(said)))] for said, form in numbers]
    return {stem(part): stem(name) for name, *parts in names for part in parts or [name] if parts or _EMOJI.match(name)}


def _split(text: str, language: str) -> list[str]:
    """Return the words of a text as they are written, without accents if the language is English."""
    return WORD.findall(_bare(text, language))


def _bare(text: str, language: str) -> str:
    """Return a text without accents if the language is English."""
    if text.isascii():
        return text
    # Endings of other languages have accents (`nações`): these are removed from the stems.
    return without_accents(text) if language == DEFAULT_LANGUAGE else without_single_accents(normalized("NFKC", text))


def _forms(text: str) -> list[str]:
    """Return the other spellings of the numbers and ids of a text."""
    found = (_RUN.findall(said) if said == form else [form] for said, form in folded(text))
    return list(dict.fromkeys(chain.from_iterable(found)))


def _parts(words: Iterable[str]) -> list[str]:
    """Return what is indexed for words: pairs of characters, and names as a whole and in parts."""
    in_pieces = ([word] if _is_plain(word) else _pieces(word) for word in words)
    return [part for pieces in in_pieces for piece in pieces for part in _in_parts(piece)]


def _is_plain(word: str) -> bool:
    """Whether a word is indexed as one, as most words are: English letters, of which at most the first is a capital."""
    return word.isascii() and word.isalpha() and (len(word) == 1 or word[1:].islower())


def _in_parts(piece: str) -> list[str]:
    """Return a word in lower case and, if it is a name of several parts, each of them; of `Id2` also `id`."""
    if _is_plain(piece) or (piece.isalpha() and piece == piece.lower()):
        return [piece.casefold()]
    parts = _PART.findall(piece)
    if parts == [piece]:
        parts = []
    letters = (part.rstrip("0123456789") for part in parts)
    return [part.casefold() for part in dict.fromkeys([piece, *parts, *letters]) if part]


def _pieces(word: str) -> Iterator[str]:
    """Split a word: pairs of characters for scripts without spaces, and the parts between them; else the word."""
    end = 0
    for run in _UNSPACED.finditer(word):
        if run.start() > end:
            yield word[end : run.start()]
        text, end = run[0], run.end()
        if run.start() and text in _PARTICLES:
            continue
        if len(text) == 1 or text[1:] in _PARTICLES:
            yield text[0]
        for n in range(len(text) - 1):
            yield text[n : n + 2]
    if end < len(word):
        yield word[end:]


def _stemmed(words: list[str], language: str) -> list[str]:
    """Return the stems of each word, separated by spaces."""
    return list(map(_stems_in(language).__getitem__, words))


def _stems_in(language: str) -> "_Stems":
    known: dict[str, _Stems] | None = getattr(_own, "stems", None)
    if known is None:  # One each per thread, because stemmers are not thread-safe.
        known = _own.stems = {}
    stems = known.get(language)
    if stems is None:
        stems = known[language] = _Stems(language)
    return stems


class _Stems(dict[str, str]):
    """The stems of words of one language, separated by spaces. To look one up takes a tenth of the time of stemming."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self._is_default = language == DEFAULT_LANGUAGE
        self._stemmer = Stemmer.Stemmer(
            LANGUAGES.get(language, LANGUAGES[DEFAULT_LANGUAGE]), 0
        )  # 0: no cache of its own.

    def __missing__(self, word: str) -> str:
        lower = word.lower()
        if not word.isascii() or word[1:] != lower[1:] or "_" in word:
            stems = self._bare(" ".join(map(self._with_accents, _parts([word]))))
        else:  # Most words have no parts.
            stems = self.stem(word) if word == lower else self[lower]
        if len(word) <= REMEMBERED_CHARACTERS_MAX:
            if len(self) >= REMEMBERED_MAX:
                self.clear()
            self[word] = stems
        return stems

    def stem(self, word: str) -> str:
        """Return a word in lower case without its ending and its accents."""
        return self._bare(self._with_accents(word))

    def _bare(self, stems: str) -> str:
        return stems if self._is_default else without_accents(stems)  # English words have lost theirs before.

    def _with_accents(self, word: str) -> str:
        if self._is_default or len(word) <= STEMMED_CHARACTERS_MAX:
            return str(self._stemmer.stemWord(word)) or word
        return word
