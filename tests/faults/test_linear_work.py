"""Input that cannot hurt: the work on a text is linear in its size, whatever characters it has."""

import json
import re
from itertools import count
from pathlib import Path

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.importers import read_turns
from mnemolog.domain.display import cut, one_line, visible, visible_json, visible_lines
from mnemolog.domain.values import QUERY_BYTES_MAX, TEXT_BYTES_MAX
from mnemolog.infra.embedding.chunking import chunk
from tests.counted_work import Work

FILES = sorted(Path(__file__).parents[1].joinpath("integration/data/importing").glob("*.json*"))
TEXT_FIELDS = ("text", "content", "parts", "memory", "message", "value", "input_text", "name")
LANGUAGES = ("en", "de", "es", "fr")
TURNS_OF_A_STORE = 40

UNITS = {
    "words": ("the ferry leaves at nine ",),
    "one mark": ("\u0301",),
    "marks of two classes": ("\u0301\u0323", "\u0323\u0301\u0327", "e\u0301\u0323"),
    "marks of many classes": ("\u0301\u0334\u0327\u0345\u05b0\u0591\u064b\u093c\u094d\u0e38\u3099",),
    "marks that decompose": ("\u0f73\u0f71", "\u0344\u0323", "\u0301\uff9e", "\u0f81\u0f73"),
    "as many marks as are allowed": ("e" + "\u0301\u0323" * 15,),
    "Hangul": ("\u1100\u1161\u11a8", "\u1100", "\uac01", "\u1161\u1100"),
    "conjuncts": ("\u0915\u094d\u0937\u094d", "\u0915\u093c\u0323", "\u1000\u1039", "\u0e01\u0e38\u0e48"),
    "emoji": ("👨\u200d👩\u200d👧\u200d👦", "🇩", "❤\ufe0f", "👋🏽"),
    "right to left": ("\u202e\u2066a\u2069", "שלום ", "ש\u05c1\u05b8\u0591", "بِسْمِ "),
    "spaces": ("x" + " " * 999, "\u00a0", "\u3000a", "\t", "\u2003x"),
    "line breaks": ("a\n", "\n", "\r\n", "\r", "\u2028", "\x0b\x0c\x85"),
    "punctuation": ("!?.,;:", ".", "-", "a-", "=", "─", "…", "、"),
    "one long word": ("a", "é", "ж", "ü", "ae", "í", "ational", "sses", "_", "ß"),
    "digits": ("1", "1234567890", "٣", "½"),
    "dates": ("2024-01-", "1 may 2024 ", "on last this ", "3 days ", "12 days ago ", "of may 1 "),
    "quotes": ('"', "a's ", "\\", "“”", "`", "`a"),
    "brackets": ("[", "([", '{"a":', "<environment_context>", "]"),
    "markdown": ("```\n", "**_", "* ", "|-|", "#"),
    "short words": ("a b c d ", "i ", "x1 "),
    "case": ("aB", "İ", "ΣΣς ", "Straße "),
    "what expands": ("\ufdfa", "\ufb03", "㍿", "ŉ", "ΐ"),
    "ideographs": ("里斯本", "中", "が", "a中", "\U0002f800", "ภาษาไทย"),
    "control characters": ("\x1b[31m", "\x01", "\x7f", "\ufffd", "\ue000", "\ufeff"),
    "code": ("<a>", "&amp;", ",", "http://a.b/", "a/", "%s", "$.", "\U0001d49c"),
}
BASE, FOR_A_BYTE = 60_000, 45
"""Calls for any text, most for the transactions of the store; and for each byte: most for a sign that stands for 4."""


@pytest.fixture
def work(monkeypatch):
    work = Work()
    work.watch(monkeypatch)
    return work


@pytest.fixture
def stores(tmp_path):
    """Returns a store in a language, a new one from time to time, so that none holds much."""
    opened, uses = {}, count()

    def store_in(language):
        if next(uses) % TURNS_OF_A_STORE == 0:
            close()
        if language not in opened:
            folder = tmp_path / f"store-{next(uses)}"
            opened[language] = MemoryStore.open(
                folder, model=None, background=False, synchronous="NORMAL", language=language
            )
        return opened[language]

    def close():
        while opened:
            opened.popitem()[1].close()

    yield store_in
    close()


def within(text, size):
    """The beginning of a text that has at most `size` bytes."""
    return text if len(text) * 4 <= size else text.encode()[:size].decode(errors="ignore")


def made_of(units, size, rng):
    """A text of one kind of character, or of several: one unit again and again, or at random."""
    if rng.random() < 0.7:
        units = [rng.choice(units)]
    parts, length = [], 0
    while length < size:
        part = rng.choice(units) * rng.choice((1, 2, 29, 30, 31, 32, 1_000))
        parts.append(part)
        length += len(part.encode())
    return "x" + within("".join(parts), size - 2) + "y"


def filled(value, text, key=""):
    """An example of a format with the text in place of each of its texts."""
    if isinstance(value, dict):
        return {name: filled(item, text, name) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item, text, key) for item in value]
    return text if isinstance(value, str) and key in TEXT_FIELDS and len(value) > 8 else value


def tasks(store, text, file, folder):
    """What is done with a text: name, bytes that it may cost, and the call."""
    session = store.session("s")
    query, phrase = within(text, QUERY_BYTES_MAX), within(text, QUERY_BYTES_MAX // 2) + "\x01#"
    turn = None

    def record():
        nonlocal turn
        turn = session.record("user", text)

    def recall():
        answer = store.recall(query, session="s", since=turn.said_at)
        answer.explain()
        repr(answer)

    def import_():
        refused = []
        read = [len(found.text) for found in read_turns(path, on_refused=refused.append)]
        assert read or refused

    content = file.read_text(encoding="utf-8")
    parts = (
        [json.loads(line) for line in content.split("\n") if line.strip()]
        if file.suffix == ".jsonl"
        else [json.loads(content)]
    )
    path = folder / file.name
    path.write_text("\n".join(json.dumps(filled(part, text)) for part in parts), encoding="utf-8")
    size = len(text.encode())
    yield "record", size, record
    yield "view", size, lambda: store.recall("nothing", session="s", since=turn.said_at)
    yield "chunk", size, lambda: chunk(text, tokenized, window=254)
    yield "recall", size, recall
    yield "find", size, lambda: store.find(phrase, session="s", since=turn.said_at)
    yield "import", path.stat().st_size, import_
    yield (
        "show",
        size,
        lambda: (
            [show(text) for show in (visible, visible_lines, visible_json, one_line, cut)],
            cut(text, full=True),
        ),
    )


def tokenized(text):
    """Tokens as a model has them: up to four characters of a word, and every other character."""
    return [found.span() for found in re.finditer(r"\w{1,4}|\S", text)]


def excess(work, language, text, file, stores, folder):
    """What costs more than a linear amount of work."""
    found = []
    for name, size, task in tasks(stores(language), text, file, folder):
        before = work.done
        with work.counting():
            task()
        if (done := work.done - before) > BASE + FOR_A_BYTE * size:
            found.append(f"{name}: {done:,} for {size:,} bytes")
    return found


@pytest.mark.timeout(7200)
@pytest.mark.promise("P23", "texts")
def test_the_work_on_a_text_is_linear_in_its_size_whatever_its_characters(work, stores, tmp_path, rng, seed, tries):
    """Recorded, viewed, cut into chunks, recalled, found, imported and shown, in every language of the index."""
    kinds = list(UNITS)
    for number in range(tries):
        kind, language = kinds[number % len(kinds)], rng.choice(LANGUAGES)
        size = TEXT_BYTES_MAX if number % 100 == 99 else int(2 ** rng.uniform(10, 15.5))
        text = made_of(UNITS[kind], size, rng)
        file = FILES[number % len(FILES)]
        found = excess(work, language, text, file, stores, tmp_path)
        assert found == [], f"{kind}, {language}, {file.name}, {text[:40]!r}, seed {seed}"


@pytest.mark.promise("P23")
@pytest.mark.parametrize("mark", ["\u0301\u0323", "\u0f73\u0f71", "\u0301\uff9e"], ids=ascii)
def test_a_mebibyte_of_marks_stalls_no_caller(work, stores, tmp_path, mark):
    """Nor does the longest query of them."""
    size = TEXT_BYTES_MAX // len(mark.encode()) * len(mark.encode())
    text = mark * (size // len(mark.encode()))
    assert excess(work, "en", text, FILES[0], stores, tmp_path) == []
