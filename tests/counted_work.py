"""Work that is counted instead of timed."""

from __future__ import annotations

import unicodedata


def marks_exchanged(form, text):
    """How many pairs of marks Python exchanges to put the marks of a text in order: the square of a run, at worst."""
    apart = "NFKD" if "K" in form else "NFD"
    total, before = 0, [0] * 256
    for character in text:
        for part in unicodedata.normalize(apart, character):
            if kind := unicodedata.combining(part):
                total += sum(before[kind + 1 :])
                before[kind] += 1
            else:
                before = [0] * 256
    return total
