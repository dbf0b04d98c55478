"""Unicode normalisation: the same result as Python's, in linear time, in one place."""

import ast
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog.domain import spelling
from mnemolog.domain.spelling import RUN_MAX, in_one_case, normalized, without_accents
from tests.counted_work import marks_exchanged
from tests.unit.test_layers import ROOT, SOURCES, nodes_of

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
CHARACTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def are_marks(text):
    return all(map(unicodedata.combining, text))


MARKS = [character for character in CHARACTERS if are_marks(unicodedata.normalize("NFKD", character))]
COMPOSED = [character for character in CHARACTERS if unicodedata.decomposition(character)]


@given(st.sampled_from(FORMS), st.lists(st.sampled_from(COMPOSED), max_size=5), st.randoms(), st.integers(0, 120))
def test_the_result_is_that_of_python_for_every_text(form, composed, random, count):
    """Runs of marks of any length and classes, between characters that decompose to others."""
    text = "".join([*composed, *random.choices(MARKS, k=count), *composed, *random.choices(MARKS[:60], k=count)])
    assert normalized(form, text) == unicodedata.normalize(form, text)


@pytest.mark.parametrize("form", FORMS)
def test_the_result_is_that_of_python_for_every_character(form):
    """So also for those that Unicode added later than this was written."""
    assert [c for c in CHARACTERS if normalized(form, c) != unicodedata.normalize(form, c)] == []


def test_every_mark_is_seen_in_a_long_run():
    """Also a character that is no mark itself, but decomposes to marks alone."""
    half_width = {narrow for narrow, _ in spelling._HALF_WIDTH}
    unseen = [mark for mark in MARKS if not spelling._LONG_RUN.fullmatch(mark * (RUN_MAX + 1))]
    assert set(unseen) == half_width


@pytest.mark.parametrize("pair", ["\u0301\u0323", "\u0f73", "\u0301\uff9e", "\u05b0\u0591", "\u0344\u0323"])
@pytest.mark.parametrize("form", FORMS)
def test_python_has_no_long_run_to_sort(form, pair, monkeypatch):
    """The pairs that it exchanges grow with the text, not with its square."""
    handed = []

    def counted(form, text):
        handed.append(marks_exchanged(form, text))
        return unicodedata.normalize(form, text)

    monkeypatch.setattr(spelling, "normalize", counted)
    for count in (100, 10_000):
        handed.clear()
        normalized(form, pair * count)
        without_accents(pair * count)
        assert sum(handed) <= 2 * RUN_MAX * count


def test_accents_are_dropped_and_voicing_marks_are_kept():
    """Whatever order they come in, and however many there are."""
    assert without_accents("Ca\u0301fe\u0301 " + "\u0301\u0323" * 100_000) == "Cafe "
    assert without_accents("か\u0301\u3099") == "が"
    assert without_accents("ｶﾞ ﬁ ﷺ").split() == ["ガ", "fi", "صلى", "الله", "عليه", "وسلم"]


def test_case_is_ignored_as_a_regular_expression_ignores_it():
    """But for six letters that Python takes for pairs of the same. Places stay the same."""
    pairs = {"\u0390", "\u1fd3", "\u03b0", "\u1fe3", "\ufb05", "\ufb06"}
    with_case = {one for one in CHARACTERS if one.lower() != one or one.upper() != one or one.casefold() != one}
    for character in with_case - pairs:
        one = in_one_case(character)
        assert len(one) == 1
        for other in {character.lower()[0], character.upper(), character.casefold()}:
            if len(other) == 1:
                same = re.fullmatch(re.escape(character), other, re.IGNORECASE) is not None
                assert (in_one_case(other) == one) is same, (character, other)
    assert in_one_case("İstanbul ΣΊΣΥΦΟΣ \u017f") == "istanbul σίσυφοσ s"


def test_no_other_module_normalises():
    """`unicodedata.normalize` takes quadratic time: only one module calls it."""
    found = set()
    for path in SOURCES:
        for node in nodes_of(path):
            named = node.names if isinstance(node, ast.ImportFrom) else []
            if {getattr(node, "attr", None), *(alias.name for alias in named)} & {"normalize", "is_normalized"}:
                found.add(str(path.relative_to(ROOT)))
    assert found == {"domain/spelling.py"}
