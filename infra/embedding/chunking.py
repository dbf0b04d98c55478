"""Split a text into chunks that fit a model's window, so that the model truncates nothing.

No input or output: the tokenizer is a function from a text to the character spans of its tokens. Cuts are between
tokens, at the start of a word where one is near. Adjacent pieces share some tokens, so that a thought at a cut stays
whole in one of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from mnemolog.domain.spelling import normalized

CHUNKER_VERSION: Final = "1"
"""Part of every model's fingerprint. Raise it with any change that moves a cut, OVERLAP_TOKENS included."""

OVERLAP_TOKENS: Final = 32

CharSpan = tuple[int, int]
"""The first character, and the one after the last."""

Tokenize = Callable[[str], Sequence[CharSpan]]
"""The spans of a text's tokens in their order, special tokens left out."""


def surely_fits(text: str, *, window: int) -> bool:
    """Whether `text` certainly has at most `window` tokens, judged by its bytes alone.

    A tokenizer returns at most one token per byte of the normalised text, and may put one mark before the first word.
    False means unknown: count the tokens.
    """
    if len(text) >= window:
        return False
    if text.isascii():
        return True
    # Normalising may lengthen a text (U+FDFA is 3 bytes, and 33 after NFKC) or shorten it (the Kelvin sign).
    # A model may normalise or not, so the longer of the two is the bound.
    return max(len(text.encode()), len(normalized("NFKD", text).encode())) < window


def spans(text: str, tokens: Sequence[CharSpan], *, window: int, overlap: int = OVERLAP_TOKENS) -> list[CharSpan]:
    """Return the pieces of `text`, each of at most `window` of the given tokens, as character spans.

    The first starts at 0, the last ends at the end, each starts at or before the end of the one before it:
    every character is in some piece, also those that belong to no token. `overlap` is reduced to a quarter of a small
    window. A piece is larger only where a single character (or ligature) has more tokens than `window`. Raises
    `ValueError` for a window below 1.
    """
    if window < 1:
        raise ValueError(f"a window of {window} tokens has no room for text; use 1 or more")
    if len(tokens) <= window:
        return [(0, len(text))]
    overlap = min(overlap, window // 4)
    cuts = _cuts(tokens)
    words = [cut for cut in cuts if _starts_word(text, tokens[cut][0])]
    pieces: list[CharSpan] = []
    first, start = 0, 0
    while first + window < len(tokens):
        limit = first + window
        end = _last(words, limit - window // 4, limit) or _last(cuts, first + 1, limit)
        if end is None and (end := _first(cuts, limit, len(tokens))) is None:
            break
        pieces.append((start, tokens[end][0]))
        back = max(first + 1, end - overlap)
        first = _first(words, back, end) or cuts[bisect_left(cuts, back)]
        start = tokens[first][0]
    pieces.append((start, len(text)))
    return pieces


def chunk(text: str, tokenize: Tokenize, *, window: int, overlap: int = OVERLAP_TOKENS) -> list[str]:
    """Cut `text` into pieces of at most `window` tokens each, counted by tokenizing the pieces themselves.

    A text that fits is returned as the only piece, unchanged. See `spans` for what the pieces cover and for the one
    exception to the limit.
    """
    if surely_fits(text, window=window):
        return [text]
    pieces = [text[start:end] for start, end in spans(text, tokenize(text), window=window, overlap=overlap)]
    if len(pieces) == 1:
        return pieces
    # A piece that starts inside a word may have other tokens than it had within the whole text. Each round
    # gives strictly shorter pieces, so this ends.
    return [part for piece in pieces for part in chunk(piece, tokenize, window=window, overlap=overlap)]


def _cuts(tokens: Sequence[CharSpan]) -> list[int]:
    """Return the tokens before which a cut is allowed: it must not split the tokens of one character."""
    cuts = [0]
    reached = tokens[0][1]
    for number, (start, end) in enumerate(tokens):
        if start >= reached and start > tokens[cuts[-1]][0]:
            cuts.append(number)
        reached = max(reached, end)
    return cuts


def _starts_word(text: str, at: int) -> bool:
    # Some tokenizers count the space to the word after it.
    return at == 0 or text[at - 1].isspace() or text[at : at + 1].isspace()


def _last(sorted_numbers: list[int], low: int, high: int) -> int | None:
    at = bisect_right(sorted_numbers, high) - 1
    return sorted_numbers[at] if at >= 0 and sorted_numbers[at] >= low else None


def _first(sorted_numbers: list[int], low: int, high: int) -> int | None:
    at = bisect_left(sorted_numbers, low)
    return sorted_numbers[at] if at < len(sorted_numbers) and sorted_numbers[at] <= high else None
