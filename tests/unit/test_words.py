"""What search makes of a text: the same words for what is indexed and for what is asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog.domain.unicode_normalization import without_accents
from mnemolog.projections.sql.words import (
    STEMMED_CHARACTERS_MAX,
    TERMS_MAX,
    stems_among,
    stems_of,
    stems_of_each,
    terms_of,
    words_of,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The ferry's leaving", ["the", "ferry", "s", "leaving"]),
        ("ERR_42 in src/app/main.py", ["err_42", "in", "src", "app", "main", "py"]),
        ("Café, naïve, Ångström", ["cafe", "naive", "angstrom"]),
        ("Straße, STRASSE, ẞ", ["strasse", "strasse", "ss"]),
        ("日本語です", ["日本", "本語", "語で", "です"]),
        ("第5章", ["第", "5", "章"]),
        ("GPT4を使う", ["gpt4", "を使", "使う"]),
        ("чай и мёд", ["чаи", "и", "мед"]),
        ("한국어 텍스트", ["한국어", "텍스트"]),
        ("🍵 ?!", []),
    ],
)
def test_words(text, words):
    """Letters without accents in lower case; pairs of characters where there are no spaces."""
    assert words_of(text) == words


def test_endings_are_cut_off_alike_in_texts_and_queries():
    """So that who asks for one finds the other."""
    assert stems_of("She moved; they are moving, a move") == ["she", "move", "they", "are", "move", "a", "move"]
    assert terms_of("who was moving to lisbon") == ["move", "lisbon"]


TEXTS = st.text() | st.text("aZ9_ .,\n\x00\x01\x02\x1f\x7f'é日ß", max_size=20)


@given(st.lists(TEXTS, max_size=6), st.sampled_from(["en", "de"]))
def test_texts_that_are_split_together_have_the_stems_of_each(texts, language):
    """Whatever characters they have, also the one that separates them."""
    assert stems_of_each(texts, language) == [f" {' '.join(stems_of(text, language))} " for text in texts]


def test_a_query_of_nothing_but_small_words_is_looked_up_by_them():
    """Better some answer than none."""
    assert terms_of("what is it") == ["what", "is", "it"]
    assert terms_of("x") == ["x"]
    assert terms_of("a 7 b ferry") == ["7", "ferri"]


def test_a_pasted_page_is_looked_up_by_its_first_distinct_words():
    """However long it is."""
    assert terms_of(" ".join(f"w{n} w{n}" for n in range(1_000))) == [f"w{n}" for n in range(TERMS_MAX)]


@given(st.text(max_size=80))
def test_any_text_has_words_without_spaces_or_none(text):
    """The index parts them at spaces, and must find as many."""
    for word in (*words_of(text), *stems_of(text), *terms_of(text)):
        assert word
        assert not any(character.isspace() for character in word)
        assert all(character == "_" or character.isalnum() or not character.isascii() for character in word)


@pytest.mark.parametrize(("language", "letter"), [("de", "ü"), ("de", "ae"), ("es", "é"), ("es", "í")])
def test_an_endless_word_keeps_its_ending(language, letter):
    """Some stemmers take quadratic time: seconds for a word of 1 MiB."""
    word = letter * STEMMED_CHARACTERS_MAX + "en"
    assert stems_of(word, language) == [without_accents(word)]


ENDINGS = ["", "s", "es", "ies", "ed", "ied", "ing", "ying", "er", "est", "ly", "ily", "ational", "ization", "ability"]
LIKE_ENGLISH = st.builds(str.__add__, st.text("abcdeghilnoprstuvy", max_size=5), st.sampled_from(ENDINGS))
WORDS = st.lists(
    LIKE_ENGLISH | st.sampled_from(["dying", "skies", "Caf\u00e9", "\u65e5\u672c\u8a9e", "ERR_42", "don't"])
)


@given(WORDS, st.sets(LIKE_ENGLISH, max_size=4), st.sampled_from(["en", "de", "fr"]))
def test_the_stems_among_some_are_those_of_all_words(words, wanted, language):
    """In their order, with repetitions: what makes it fast leaves nothing out."""
    text = " ".join(words)
    stems = {*stems_of(" ".join(wanted), language), *stems_of(text, language)[::2]}
    expected = [stem for stem in stems_of(text, language) if stem in stems]
    assert stems_among([text, "", text], stems, language) == [expected, [], expected]
