"""Words of a text: the same for what is indexed and for what is asked, standing statements, resembling labels."""

import json
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog.domain.spelling import CHARACTERS_MAX, MEASURED_MAX, closest, without_accents
from mnemolog.domain.standing import SENTENCE_CHARACTERS_MAX, TURN_CHARACTERS_MAX, standing_in
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


SETS = Path(__file__).parents[2] / "benchmarks" / "conversations"


def read(text):
    return [(text[item.start : item.end], item.kind) for item in standing_in(text)]


@pytest.mark.parametrize(
    ("text", "said", "kind"),
    [
        ("Thanks! Always answer in metric.", "Always answer in metric", "instruction"),
        ("ok, please never book anything before 9.", "never book anything before 9", "instruction"),
        ("could you always add a summary?", "always add a summary", "instruction"),
        ("From now on, no tables please.", "From now on, no tables please", "instruction"),
        ("Answer in German from now on.", "Answer in German from now on", "instruction"),
        ("No emojis. Thanks", "No emojis", "instruction"),
        ("Use British spelling", "Use British spelling", "instruction"),
        ("you can call me Tom", "call me Tom", "instruction"),
        ("Remember that I work nights", "Remember that I work nights", "instruction"),
        ("When I ask for code, use Python", "When I ask for code, use Python", "conditional"),
        ("So for every function you write, add a test", "for every function you write, add a test", "conditional"),
        ("Use grams whenever I ask for a recipe", "Use grams whenever I ask for a recipe", "conditional"),
        ("I'm vegetarian, what could I cook?", "I'm vegetarian", "preference"),
        ("Well, I prefer trains to planes but can you find a flight?", "I prefer trains to planes", "preference"),
        ("I\u2019d rather walk.", "I\u2019d rather walk", "preference"),
        ("my favourite colour is green", "my favourite colour is green", "preference"),
        ("I can't stand coriander!", "I can't stand coriander", "preference"),
        ("I don't eat pork; and you?", "I don't eat pork", "preference"),
    ],
)
def test_a_statement_is_read_from_where_it_begins_to_the_request_behind_it(text, said, kind):
    """What comes before it, and what is asked, is no part of it."""
    assert read(text) == [(said, kind)]


@pytest.mark.parametrize(
    "text",
    [
        "Never give up!",
        "Do I prefer tea?",
        "What would I prefer?",
        "He says I prefer tea.",
        "From now on I'm on the early shift.",
        "Could you call me a taxi?",
        "When I asked for code, you gave me Java.",
        "I don't like any of these.",
        "I avoid salt, I love jazz, I like rain, I enjoy walks.",
        'The sign says "Always answer in French".',
        "> Always answer in French",
        "```\nAlways answer in French\n```",
        "`always answer in French` does not parse",
        "Antworte immer auf Deutsch.",
    ],
)
def test_what_sounds_like_one_is_none(text):
    """Nor is what somebody else says, or what is quoted."""
    assert read(text) == []


def test_a_pasted_text_is_not_read():
    """Nor is a very long sentence."""
    said = "Always answer in metric."
    assert read(said + " " * (TURN_CHARACTERS_MAX - len(said) - 1))
    assert not read(said + " " * (TURN_CHARACTERS_MAX - len(said)))
    assert not read("Always answer in metric, " + "and " * (SENTENCE_CHARACTERS_MAX // 4) + "so on.")


def test_the_sentences_of_a_turn_are_read_in_order():
    """Each by itself, at its place in the text."""
    text = "Hi!\nI prefer aisle seats. Version 2.5 is out; never use emojis."
    assert [said for said, _ in read(text)] == ["I prefer aisle seats", "never use emojis"]


@given(st.text(max_size=200), st.sampled_from(["Always answer in metric", "I'm vegan", "no emojis"]))
def test_any_text_is_read(before, said):
    """Every statement lies in the text, and none is empty."""
    text = f"{before}\n{said}"
    found = list(standing_in(text))
    assert all(0 <= item.start < item.end <= len(text) for item in found)
    assert [item.start for item in found] == sorted(item.start for item in found)


def test_most_statements_of_the_set_are_read_and_little_else():
    """All that the rules were chosen on; of what was written afterwards 15 of 24, and 3 of 24 others."""
    lines = {
        name: [json.loads(line) for line in (SETS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("standing", "standing-questions")
    }
    standing = {key for question in lines["standing-questions"] for key in question["evidence"]}
    said = {turn["key"]: read(turn["text"]) for turn in lines["standing"] if turn["role"] == "user"}
    early, late = ({key for key in said if key.startswith(part)} for part in ("early", "late"))
    assert (len(early & standing), len(late & standing)) == (40, 24)
    assert all(bool(said[key]) == (key in standing) for key in early)
    assert sum(bool(said[key]) for key in late & standing) >= 15
    assert sum(bool(said[key]) for key in late - standing) <= 3


def test_the_labels_that_begin_alike_come_first_and_then_the_most_similar():
    """In any case."""
    labels = ["bob", "Alice-2", "alise", "zoe", "malice"]
    assert closest("ALICE", labels, count=2) == ["Alice-2", "malice"]
    assert closest("alcie", labels, count=1) == ["alise"]
    assert closest("x", []) == []


def test_many_labels_and_a_long_name_are_compared_soon(monkeypatch):
    """Only the beginning of a name is measured, and only labels that share characters with it."""
    measured = []

    def counted(matcher):
        measured.append((len(matcher.a), len(matcher.b)))
        return 0.5

    monkeypatch.setattr("mnemolog.domain.spelling.SequenceMatcher.ratio", counted)
    closest("ab" * 100_000, (f"{number}{'ba' * 1_000}" for number in range(2_000)))
    assert measured == [(CHARACTERS_MAX, CHARACTERS_MAX)] * MEASURED_MAX
