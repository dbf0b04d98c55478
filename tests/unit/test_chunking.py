"""Long texts are cut so that the model reads every word of them."""

import re
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog.infra.embedding.chunking import CharSpan, chunk, spans, surely_fits

LIGATURE = "\ufdfa"  # One character that NFKC makes eighteen of.
TEXTS = st.text(alphabet="ab c\n\u4e2d\u0301\u200b\uac01" + LIGATURE, max_size=400)


def words(text: str) -> list[CharSpan]:
    """A tokenizer in which a word is a token."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def letters(text: str) -> list[CharSpan]:
    """A tokenizer in which a word's start weighs one token more than the rest, and a ligature three."""
    tokens = []
    for at, letter in enumerate(text):
        weight = 3 if letter == LIGATURE else 2 if at == 0 or text[at - 1].isspace() else 1
        if not letter.isspace() and not unicodedata.combining(letter):
            tokens += [(at, at + 1)] * weight
    return tokens


def test_a_text_that_fits_is_its_only_piece():
    """Up to the window a text comes back unchanged, white space included."""
    text = "  one two three \n"
    assert chunk(text, words, window=3) == [text]
    assert chunk("", words, window=3) == [""]


def test_one_word_too_many_makes_two_pieces():
    """Beyond the window a text is cut before a word, and only there."""
    assert chunk("one two three four", words, window=3, overlap=0) == ["one two three ", "four"]


def test_neighbours_share_the_overlap():
    """The last tokens of a piece are the first of the next."""
    text = " ".join(f"w{number}" for number in range(40))
    pieces = chunk(text, words, window=20, overlap=5)
    assert [piece.split()[0] for piece in pieces] == ["w0", "w15", "w30"]
    assert [piece.split()[-1] for piece in pieces] == ["w19", "w34", "w39"]


def test_a_large_overlap_never_stops_progress():
    """Overlap is at most a quarter of the window, so the number of pieces stays in proportion."""
    pieces = chunk("a " * 1_000, words, window=8, overlap=500)
    assert len(pieces) <= 1_000 / 6 + 1


def test_a_cut_keeps_accents_with_their_letter():
    """A combining mark has no token of its own; it goes with the letter before it."""
    pieces = chunk("e\u0301" * 50, letters, window=10, overlap=0)
    assert all(piece.startswith("e") and piece.endswith("\u0301") for piece in pieces)


def test_tokens_of_one_character_are_not_parted():
    """Several tokens may stand for one character, which can be in one piece only."""
    pieces = chunk(LIGATURE * 20, letters, window=8, overlap=0)
    assert "".join(pieces) == LIGATURE * 20
    assert all(len(letters(piece)) <= 8 for piece in pieces)


def test_a_character_beyond_the_window_ends_the_cutting():
    """What cannot be made smaller comes back as it is instead of being cut for ever."""
    assert chunk(LIGATURE * 3, letters, window=2, overlap=0) == [LIGATURE] * 3


def test_a_window_that_holds_nothing_is_refused():
    """A window of zero tokens cannot make progress."""
    with pytest.raises(ValueError, match="has no room for text"):
        spans("a b", words("a b"), window=0)


@given(text=TEXTS, window=st.integers(4, 40), overlap=st.integers(0, 40))
def test_pieces_cover_every_character_in_order(text, window, overlap):
    """The first piece starts the text, the last ends it, and no piece starts after the end of the former."""
    found = spans(text, letters(text), window=window, overlap=overlap)
    assert found[0][0] == 0
    assert found[-1][1] == len(text)
    for (start, end), (next_start, next_end) in pairwise(found):
        assert start < next_start <= end < next_end


@given(text=TEXTS, window=st.integers(4, 40), overlap=st.integers(0, 40))
def test_every_piece_fits_when_it_is_tokenized_alone(text, window, overlap):
    """A piece that begins inside a word weighs more alone than within the text, and is cut again."""
    pieces = chunk(text, letters, window=window, overlap=overlap)
    assert all(len(letters(piece)) <= window for piece in pieces)
    assert covers(text, pieces)


def covers(text: str, pieces: list[str]) -> bool:
    """Whether the pieces, in order, lie in `text` without a hole between them."""
    covered = 0
    for piece in pieces:
        # The latest place that leaves no hole; an earlier one would only cover less.
        at = text.rfind(piece, 0, covered + len(piece))
        if at < 0:
            return False
        covered = max(covered, at + len(piece))
    return covered == len(text)


@pytest.mark.parametrize("text", ["a" * 254, LIGATURE, LIGATURE * 14, "\uac01" * 85, "\u212a" * 85])
def test_bytes_alone_do_not_promise_too_much(text):
    """A text that may have as many tokens as the window is counted, not guessed."""
    assert not surely_fits(text, window=33)


def test_short_texts_need_no_tokenizer():
    """Bytes are enough to know that a short text fits."""
    assert surely_fits("a" * 253, window=254)
    assert surely_fits("\u00fc" * 80, window=254)
    assert chunk("a short turn", lambda text: pytest.fail("tokenized"), window=254) == ["a short turn"]
