"""Text for people: what would steer a terminal is shown, everything else stays as it is."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog.domain.display import cut, one_line, visible, visible_json, visible_lines

STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060-\u2069\ufeff]")
TAGS = "".join(chr(0xE0000 + ord(letter)) for letter in "gbsct\x7f")
SCOTLAND = f"\U0001f3f4{TAGS}"


@given(st.text())
def test_no_text_can_steer_a_terminal(text):
    """Whatever it holds, on one line or on several."""
    assert not STEERING.search(visible(text) + one_line(text) + visible_lines(text))
    assert "\n" not in visible(text) + one_line(text)
    assert visible_lines(text).count("\n") == text.count("\n")


@given(st.text())
def test_a_json_document_means_the_same_with_escapes(text):
    """It is decoded to the same text."""
    shown = visible_json(json.dumps({text: text}, ensure_ascii=False))
    assert json.loads(shown) == {text: text}
    assert not STEERING.search(shown)


@pytest.mark.parametrize(
    "text",
    ["日本語、ｶﾅ", "👩‍👩‍👧 family", "مرحبا بالعالم", "naïve café ß", "a\\x1b is typed", "می‌خواهم", "❤️", SCOTLAND],
)
def test_text_of_any_language_is_left_alone(text):
    """Joiners of emoji and of Persian are no control characters."""
    assert visible(text) == visible_lines(text) == text


def test_escapes_name_the_character():
    """As a program would write it."""
    assert visible("\x1b[31m\x9b\u202e\n\t\r") == r"\x1b[31m\x9b\u202e\n\t\r"
    assert visible_lines("a\r\n\tb\rc") == "a\n    b\\rc"


def test_what_only_hides_text_is_shown():
    """Words between characters without a width, and instructions in tags, with or without a flag before them."""
    assert visible("no\u200bthing\u2060\u2064\ufeff") == r"no\u200bthing\u2060\u2064\ufeff"
    assert visible(TAGS).count(r"\U000e00") == 6
    assert visible(f"\U0001f3f4{TAGS[:-1] * 2}{TAGS[-1]}").count(r"\U000e00") == 11
    assert visible_json(json.dumps({"a": TAGS}, ensure_ascii=False)).isascii()
    assert visible_json(json.dumps(SCOTLAND, ensure_ascii=False)) == f'"{SCOTLAND}"'


def test_a_long_text_is_cut_with_the_number_of_characters_left():
    """Not for a handful of characters."""
    assert cut("x" * 500) == "x" * 500
    assert cut("x" * 12_745) == "x" * 400 + "… +12,345 characters, --full shows them"
    assert cut("x" * 12_745, full=True) == "x" * 12_745
