"""What people see and set: text that cannot steer a terminal, settings in a file, options of a typed dict."""

import inspect
import json
import re
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog import AsyncMemoryStore, AsyncSession, InvalidInput, MemoryStore, Session
from mnemolog.adapters.hermes import config
from mnemolog.adapters.hermes.config import Config
from mnemolog.domain.display import cut, one_line, visible, visible_json, visible_lines
from mnemolog.domain.options import ELSEWHERE, options_of
from mnemolog.projections.recall.question import RecallOptions, TurnFilters

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


TAKES = [
    (MemoryStore.recall, RecallOptions),
    (Session.recall, RecallOptions),
    (AsyncMemoryStore.recall, RecallOptions),
    (AsyncSession.recall, RecallOptions),
    (MemoryStore.find, TurnFilters),
    (MemoryStore.context, TurnFilters),
    (Session.context, TurnFilters),
    (Session.prefetch, TurnFilters),
]


@pytest.mark.parametrize(("method", "fields"), TAKES, ids=lambda value: getattr(value, "__qualname__", None))
def test_a_method_shows_each_option_with_its_type_default_and_description(method, fields):
    """In its signature, its type hints and its docstring, which `help`, the site and the API show."""
    parameters, hints, lines = inspect.signature(method).parameters, get_type_hints(method), inspect.getdoc(method)
    for name, (kind, option) in options_of(fields).items():
        assert parameters[name].annotation == hints[name] == kind
        assert parameters[name].default is option.default
        assert f"- `{name}`: {option.means}" in lines.splitlines()
    assert not any(item.kind is item.VAR_KEYWORD for item in parameters.values())


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
def test_a_name_of_another_memory_is_answered_with_the_name_here(elsewhere):
    """A method of the store or the session, or an option. Names that mean nothing here get no advice."""
    here = ELSEWHERE[elsewhere]
    classes = [of for of in (MemoryStore, Session, AsyncMemoryStore, AsyncSession) if not hasattr(of, elsewhere)]
    owners = [of for of in classes if hasattr(of, here)]
    for of in owners:
        with pytest.raises(AttributeError, match=f"no attribute '{elsewhere}'; here it is '{here}'"):
            getattr(of.__new__(of), elsewhere)
    if not owners:
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{elsewhere}'; here it is '{here}'"):
            (MemoryStore.switch if here == "agent" else MemoryStore.recall)(None, **{elsewhere: 1})
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        MemoryStore.__new__(MemoryStore).nonsense  # noqa: B018


def test_what_is_chosen_is_kept_and_the_rest_stays_as_it_was(tmp_path):
    """Numbers may be text: panels know nothing else. Before, there are the defaults."""
    path = tmp_path / "new" / "config.json"
    assert config.read(path) == Config()
    assert config.change(path, {"hits": "7"}) == Config(hits=7)
    assert config.change(path, {"folder": "here"}) == config.read(path) == Config(folder="here", hits=7)


@pytest.mark.parametrize("values", [{"hits": 0}, {"hits": "many"}, {"folder": None}])
def test_what_cannot_be_chosen_is_refused_and_changes_nothing(tmp_path, values):
    """The file is as it was, to the byte."""
    path = tmp_path / "config.json"
    config.change(path, {"hits": 7})
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match=r"config\.json"):
        config.change(path, values)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["{", "[]", '{"hits": 0}', "\udcff"])
def test_a_file_that_holds_no_settings_is_named(tmp_path, text):
    """It stays for whoever wants to repair it."""
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInput, match=r"config\.json"):
        config.read(path)
    assert path.exists()
