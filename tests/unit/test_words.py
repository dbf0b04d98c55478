"""What search makes of a text: the same words for what is indexed and for what is asked."""

from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog.domain.spelling import without_accents
from mnemolog.projections.sql.words import (
    STEMMED_CHARACTERS_MAX,
    STOP_WORDS,
    TERMS_MAX,
    stems_among,
    stems_of,
    stems_of_each,
    terms_of,
    wholes_of,
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
        ("한국어 텍스트", ["한국", "국어", "텍스", "스트"]),
        ("물을 Notion에 3월에", ["물", "물을", "notion", "3", "월", "월에"]),
        ("🍵 ?!", ["🍵"]),
        ("👍🏽👍 ❤️ 🇩🇪🇫🇷 👩🏽‍🚀", ["👍", "👍", "❤", "🇩🇪", "🇫🇷", "👩‍🚀"]),
    ],
)
def test_words(text, words):
    """Letters without accents in lower case; pairs of characters where no spaces are; emoji in any skin tone."""
    assert words_of(text) == words


def test_endings_are_cut_off_alike_in_texts_and_queries():
    """So that who asks for one finds the other."""
    assert stems_of("She moved; they are moving, a move") == ["she", "move", "they", "are", "move", "a", "move"]
    assert terms_of("who was moving to lisbon") == ["move", "lisbon"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("parseHttpHeader", "parsehttpheader parse http header"),
        ("HTTP2Server", "http2server http2 server http"),
        ("UserIDs", "userids user ids"),
        ("sha256Digest", "sha256digest sha256 digest sha"),
        ("__init__", "__init__ init"),
        ("MAX_RETRIES를", "max_retries max retries"),
        ("größeÄndern", "grosseandern grosse andern"),
        ("перваяСтрока", "перваястрока первая строка"),
        ("GPT4 5K", "gpt4 5k"),
        ("👩🏽‍🚀", "👩‍🚀 👩 🚀"),
    ],
)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_names_are_indexed_as_a_whole_and_in_parts(text, words, form):
    """So that they are found by either. The parts of an emoji are what it is joined from."""
    assert stems_of(normalize(form, text)) == [stem for word in words.split() for stem in stems_of(word)[:1]]
    wholes = {part: whole for whole, *parts in [stems_of(text)] for part in parts}
    assert len(text.split()) > 1 or wholes_of(text) == wholes


PART = st.text("bdglrtäéл", min_size=2, max_size=6).filter(lambda part: STOP_WORDS.isdisjoint(words_of(part)))
PARTS = st.lists(PART, min_size=2, max_size=5)


@given(PARTS, st.sampled_from(["en", "de"]))
def test_a_name_is_found_by_its_parts_however_it_is_written(parts, language):
    """In each style, by words with spaces or by a name in another style; and the whole by the whole."""
    words, camel = set(terms_of(" ".join(parts), language)), "".join(part.capitalize() for part in parts)
    for name in ("_".join(parts), "_".join(parts).upper(), "-".join(parts), camel, parts[0] + camel[len(parts[0]) :]):
        assert words <= set(stems_of(name, language))
        assert words <= set(terms_of(name, language))
        assert set(terms_of(name.lower(), language)) <= set(stems_of(name, language))


TEXTS = st.text() | st.text("aZ9_ .,\n\x00\x01\x02\x1f\x7f'é日ß", max_size=20)


@given(st.lists(TEXTS, max_size=6), st.sampled_from(["en", "de"]))
def test_texts_that_are_split_together_have_the_stems_of_each(texts, language):
    """Whatever characters they have, also the one that separates them."""
    together = stems_of_each(texts, language)
    assert [row.split() for row in together] == [stems_of(text, language) for text in texts]
    assert all(row[0] == row[-1] == " " for row in together)


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
