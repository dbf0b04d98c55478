"""Words of a text: the same for what is indexed and for what is asked, standing statements, resembling labels.

Where long texts are cut: pieces for the model, which reads every word, and the best passage for a question.
"""

import json
import random
import re
import unicodedata
from itertools import pairwise
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog.domain.spelling import CHARACTERS_MAX, MEASURED_MAX, closest, without_accents
from mnemolog.domain.standing import SENTENCE_CHARACTERS_MAX, TURN_CHARACTERS_MAX, standing_in
from mnemolog.infra.embedding.chunking import CharSpan, chunk, spans, surely_fits
from mnemolog.projections.recall.passages import PASSAGE_CHARACTERS_MAX, SoughtWords, best_passage, marked, sought
from mnemolog.projections.recall.text_search import Counts
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


LIGATURE = "\ufdfa"  # One character that NFKC makes eighteen of.
LONG_TEXTS = st.text(alphabet="ab c\n\u4e2d\u0301\u200b\uac01" + LIGATURE, max_size=400)


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
    assert len(chunk("a " * 1_000, words, window=8, overlap=500)) <= 1_000 / 6 + 1


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


@given(text=LONG_TEXTS, window=st.integers(4, 40), overlap=st.integers(0, 40))
def test_pieces_cover_every_character_in_order(text, window, overlap):
    """The first piece starts the text, the last ends it, and no piece starts after the end of the former."""
    found = spans(text, letters(text), window=window, overlap=overlap)
    assert found[0][0] == 0
    assert found[-1][1] == len(text)
    for (start, end), (next_start, next_end) in pairwise(found):
        assert start < next_start <= end < next_end


@given(text=LONG_TEXTS, window=st.integers(4, 40), overlap=st.integers(0, 40))
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


FILLER = "The meeting went on for a while and nobody said anything new. "
FAMILY = "\U0001f469\u200d\U0001f467"
CLUSTERS = [
    "a",
    "\u00e9",
    "e\u0301",
    "\u65e5",
    "\U0001f44d\U0001f3fd",
    FAMILY,
    "\U0001f1f3\U0001f1f4",
    "\u1112\u1161\u11ab",
]


def random_words(*terms, language="en"):
    return SoughtWords({stem: 1.0 for term in terms for stem in terms_of(term, language)}, language)


def passage_of(text, *terms, limit=PASSAGE_CHARACTERS_MAX, language="en"):
    """The text of the best passage; its offsets are checked."""
    found = best_passage(text, random_words(*terms, language=language), limit=limit)
    assert text[found.start : found.end] == found.text
    assert len(found.text) <= limit
    return found.text


def test_a_short_text_is_its_own_passage():
    """With its white space, and whatever was sought."""
    text = " tea \n" + "x" * (PASSAGE_CHARACTERS_MAX - 6)
    assert passage_of(text, "coffee") == text


def test_the_words_of_the_question_choose_the_passage():
    """In whatever form they were written."""
    text = FILLER * 30 + "The ferries leave at nine, at noon and at six. " + FILLER * 30
    assert "The ferries leave at nine" in passage_of(text, "When does the ferry leave?")


def test_a_text_without_a_word_of_the_question_begins_at_its_beginning():
    """As a reader would begin."""
    text = "This is the first sentence. " + FILLER * 30
    assert passage_of(text, "submarine").startswith("This is the first sentence.")
    assert passage_of(text).startswith("This is the first sentence.")


def test_a_rare_word_counts_more_than_a_common_one():
    """Rarity is that of all turns of the store."""
    text = f"A meeting about the plan. {FILLER * 20}The plan names Porto. {FILLER * 20}"
    counts = Counts(1_000, {"meet": 800, "porto": 2})
    assert "Porto" in best_passage(text, sought(["meet", "porto", "unknown"], counts, language="en")).text
    assert sought(["meet"], Counts(0, {}), language="en").worth == {"meet": 1.0}


def test_different_words_count_more_than_one_word_again_and_again():
    """A passage about one word only is seldom the answer."""
    text = f"Tea, tea, tea, tea and tea. {FILLER * 20}They drank tea in Porto. {FILLER * 20}"
    assert "They drank tea in Porto." in passage_of(text, "tea porto")


def test_a_passage_is_cut_between_sentences():
    """Not after an abbreviation, an initial or the number of a list item."""
    text = f"{FILLER * 20}Dr. J. Eide said, e.g. on Monday, that the ramp is steep. {FILLER * 20}"
    found = passage_of(text, "ramp", limit=100)
    assert found.startswith("Dr. J. Eide said, e.g. on Monday, that the ramp is steep.")
    assert found[-1] == "."
    listed = "".join(f"{number}. Item number {number} is about something.\n" for number in range(1, 90))
    assert passage_of(listed, "70", limit=100).startswith("70. Item number 70")


def test_a_passage_is_cut_between_list_items_and_paragraphs():
    """Each item whole, with its mark."""
    text = "Colours:\n\n" + "".join(f"- the {name} one, which we saw\n" for name in map("c{}".format, range(200)))
    lines = passage_of(text, "c77", limit=120).splitlines()
    assert lines[0] == "- the c77 one, which we saw"
    assert all(line.startswith("- the c") and line.endswith("which we saw") for line in lines)


def test_a_passage_does_not_end_with_a_heading():
    """The heading belongs to what follows it."""
    text = "".join(
        f"## Part {n}\n\nThe {word} text of this part is not long.\n\n" for n, word in enumerate(["red"] * 40)
    )
    assert not passage_of(text, "red", limit=115).splitlines()[-1].startswith("##")


def test_a_block_of_code_that_fits_stays_whole():
    """From fence to fence; a longer one is cut between lines."""
    code = "```python\n" + "".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(8)) + "```"
    text = f"{FILLER * 10}\n\n{code}\n\n{FILLER * 10}"
    assert code in passage_of(text, "f5")
    lines = passage_of(text, "f5", limit=60).splitlines()
    assert lines[0] == "def f5(x):"
    assert set(lines) <= set(code.splitlines())
    assert passage_of(f"{FILLER * 10}\n```\n" + "let x = 1;\n" * 90, "let", limit=60).count("let x = 1;") == 5


def test_no_word_is_cut_that_fits():
    """Also in a text without any full stop or line."""
    names = [f"word{number}" for number in range(2_000)]
    found = passage_of(" ".join(names), "word1234").split()
    assert set(found) <= set(names)
    assert "word1234" in found


def test_chinese_and_japanese_are_cut_after_their_full_stops():
    """No space follows these."""
    text = (
        "\u4eca\u65e5\u306f\u3044\u3044\u5929\u6c17\u3067\u3059\u3002" * 60 + "\u732b\u304c\u3044\u307e\u3059\u3002" * 3
    )
    found = passage_of(text, "\u732b\u304c", limit=50)
    assert "\u732b\u304c\u3044\u307e\u3059\u3002" in found
    assert found[-1] == "\u3002"


@given(st.lists(st.sampled_from(CLUSTERS), min_size=60, max_size=200), st.integers(20, 50))
def test_a_cut_word_keeps_its_characters_whole(clusters, limit):
    """No accent is separated from its letter, no emoji, flag or syllable is cut."""
    text = "".join(clusters)
    ends = {0, len(text)}
    at = 0
    for cluster in clusters:
        at += len(cluster)
        ends.add(at)
    found = best_passage(text, random_words("tea"), limit=limit)
    assert {found.start, found.end} <= ends


@given(st.text(alphabet=st.sampled_from("ab .!?\n`~#-*1\u3002\u65e5\u0301\t"), max_size=400), st.integers(1, 60))
def test_any_text_has_a_passage_within_the_limit(text, limit):
    """Of no more than the limit, at its offsets; the same one each time."""
    found = best_passage(text, random_words("a", "b", "ab"), limit=limit)
    assert text[found.start : found.end] == found.text
    assert len(found.text) <= limit or len(text) <= limit
    assert found == best_passage(text, random_words("ab", "b", "a"), limit=limit)
    assert found.text or not text


def test_a_passage_begins_and_ends_at_words_whatever_the_text():
    """Of words that fit, none is cut."""
    chance = random.Random(5)
    for _ in range(50):
        text = "".join(
            chance.choice(["tea", "ferry.", "no", "\n", "\n\n", "- ", "Porto!", " "]) + " " for _ in range(900)
        )
        found = best_passage(text, random_words("ferry", "porto"), limit=chance.randrange(8, 300))
        assert found.start == 0 or text[found.start - 1].isspace()
        assert found.end == len(text) or text[found.end].isspace()


@pytest.mark.parametrize(
    "text",
    ["." * 200_000, " " * 200_000, "\u0301" * 200_000, "`" * 200_000, "```\n" * 50_000, "**" * 100_000, ". " * 100_000],
)
def test_a_hostile_text_takes_linear_time(text):
    """Ends within the limit of a test."""
    assert len(best_passage(text, random_words("tea")).text) <= PASSAGE_CHARACTERS_MAX


def test_marks_say_where_the_text_continues():
    """At the beginning, at the end, at both or at neither."""
    text = FILLER * 30 + "Porto. " + FILLER * 30
    shown = marked(best_passage(text, random_words("porto")), text)
    assert shown.startswith("\u2026 Porto.")
    assert shown.endswith(" \u2026")
    assert marked(best_passage(text, random_words("tea")), text).startswith("The meeting")
    assert marked(best_passage("tea", random_words("tea")), "tea") == "tea"
