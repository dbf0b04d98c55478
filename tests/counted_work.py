"""Work that is counted instead of timed."""

import sys
import threading
import unicodedata
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import Stemmer

from mnemolog.domain.choices import DEFAULT_LANGUAGE, LANGUAGES
from mnemolog.projections.sql import words

NORMALIZE = unicodedata.normalize
RUN = 64
"""Shorter texts are normalised at once, whatever they are."""


def marks_exchanged(form, text):
    """How many pairs of marks Python exchanges to put the marks of a text in order: the square of a run, at worst."""
    apart = "NFKD" if "K" in form else "NFD"
    total, before = 0, [0] * 256
    for character in text:
        for part in character if character.isascii() else NORMALIZE(apart, character):
            if kind := unicodedata.combining(part):
                total += sum(before[kind + 1 :])
                before[kind] += 1
            elif any(before):
                before = [0] * 256
    return total


def counted_calls(call):
    """Return how often each function was called, by the last two parts of the path of its file and its name."""
    found = Counter()

    def count(frame, event, argument):
        if event == "call":
            file = "/".join(frame.f_code.co_filename.split("/")[-2:])
            found[f"{file}:{frame.f_code.co_name}"] += 1

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


class Work:
    """Counts calls, to Python and to C, and what some of those to C hide: work that is more than linear.

    That is pairs of marks that normalisation exchanges, and characters that stemmers move.
    """

    def __init__(self):
        self.done = 0

    def _called(self, frame, event, argument):
        if event in ("call", "c_call"):
            self.done += 1

    @contextmanager
    def counting(self):
        """Count what this thread does."""
        sys.setprofile(self._called)
        try:
            yield self
        finally:
            sys.setprofile(None)

    def hidden(self, count, *arguments):
        """Add the result of a function, without counting the calls that it makes itself."""
        profile = sys.getprofile()
        sys.setprofile(None)
        try:
            self.done += count(*arguments)
        finally:
            sys.setprofile(profile)

    def watch(self, monkeypatch):
        """Look into normalisation and stemmers."""

        def normalize(form, text):
            if len(text) > RUN and not text.isascii():
                self.hidden(marks_exchanged, form, text)
            return NORMALIZE(form, text)

        for module in [*sys.modules.values()]:
            if getattr(module, "__name__", "").startswith("mnemolog") and vars(module).get("normalize") is NORMALIZE:
                monkeypatch.setattr(module, "normalize", normalize)
        monkeypatch.setattr(unicodedata, "normalize", normalize)
        monkeypatch.setattr(words, "Stemmer", SimpleNamespace(Stemmer=lambda name, _: _Stemmer(name, self)))
        monkeypatch.setattr(words, "_own", threading.local())


class _Stemmer:
    """Stemmers of some languages move the rest of a word whenever they change a letter."""

    def __init__(self, name, work):
        self._stemmer, self._work = Stemmer.Stemmer(name), work
        self._moves = name != LANGUAGES[DEFAULT_LANGUAGE]

    def stemWord(self, word):  # noqa: N802
        if self._moves:
            self._work.hidden(lambda: len(word) ** 2 if len(word) > 1_000 else 0)
        return self._stemmer.stemWord(word)
