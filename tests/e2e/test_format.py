"""docs/format.md says what is stored: its tables, its example and its layout are held against the code."""

import re
from hashlib import blake2b
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.domain import export
from mnemolog.domain.events import EVENT_TYPES, Event
from mnemolog.infra.keys.keys_file import KEYS_FILE
from mnemolog.infra.log.sqlite.engine import LOG_FILE

pytestmark = pytest.mark.local

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
COMMON = {field.name: field for field in msgspec.structs.fields(Event)}
"""The fields of every event have one row."""
WORDS = {
    "str": "text",
    "int": "integer",
    "float": "float",
    "bool": "boolean",
    "bytes": "bytes",
    "None": "nil",
    "Any": "any",
    "list": "array",
    "dict": "map",
    "NoneType": "nil",
    "Role": "text",
}


def type_in_words(annotation):
    """A Python type as the page names it."""
    text = re.sub(r"<(?:class|enum) '([\w.]+)'>", r"\1", str(annotation)).replace("typing.", "")
    text = re.sub(r"(?:\w+\.)+(\w+)", r"\1", text)
    text = re.sub(r"Optional\[(\w+)\]", r"\1 | None", text)
    text = re.sub(r"Literal\['(\w+)', '(\w+)'\]", r"`\1` | `\2`", text)
    text = re.sub(r"\w+", lambda word: WORDS.get(word[0], word[0]), text)
    return text.replace(" | ", " or ").replace("[", " of ").replace("]", "").replace("text, ", "text to ")


def default_in_words(field):
    if field.default is not msgspec.NODEFAULT:
        return f"`{msgspec.json.encode(field.default).decode()}`"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{msgspec.json.encode(field.default_factory()).decode()}`"
    return "always stored"


def rows(topic):
    """The rows of the page's table for a topic, made from the code."""
    kind = EVENT_TYPES[topic]
    hints = get_type_hints(kind)
    return [
        f"| `{topic}` | `{field.encode_name}` | {type_in_words(hints[field.name])} | {default_in_words(field)} |"
        for field in msgspec.structs.fields(kind)
        if field.name not in COMMON
    ] or [f"| `{topic}` | | | |"]


def test_the_page_has_every_field_of_every_event_and_of_an_export():
    """Its name as stored, its type, its default: who adds an event or a field writes it down.

    The fields that every event has stand once, above those of single topics.
    """
    for topic in EVENT_TYPES:
        written = [line for line in PAGE.splitlines() if line.startswith(f"| `{topic}` |")]
        assert written == rows(topic), topic
    written = [line for line in PAGE.splitlines() if line.startswith("| every topic |")]
    hints = get_type_hints(Event)
    assert written == [
        f"| every topic | `{name}` | {type_in_words(hints[name])} | {default_in_words(COMMON[name])} |"
        for name in COMMON
    ]
    for line in (export.ExportHeader, export.ExportedEvent, export.ExportTrailer):
        tag = line.__struct_config__.tag
        for name in line.__struct_encode_fields__:
            assert re.search(rf"^\| `{tag}` \| `{name}` \|", PAGE, re.MULTILINE), name


def test_the_page_has_the_layout_of_the_file(tmp_path):
    """Every table, index and trigger, word for word."""
    with MemoryStore.open(tmp_path, model=None):
        pass
    connection = dbapi2.connect(str(tmp_path / LOG_FILE))
    made = [row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    connection.close()
    page = " ".join(PAGE.split())
    for statement in made:
        if "sqlite_sequence" not in statement:
            assert " ".join(statement.split()) in page


def test_a_sealed_state_opens_as_the_page_says(tmp_path):
    """By the columns of two files, BLAKE2b and AES-GCM alone: what somebody else would write from the page."""
    with MemoryStore.open(tmp_path, model=None) as store:
        store.start_session("s1", title="trip").record("user", "hi")
        log_id = store.status().log_id
    log, keys = (dbapi2.connect(str(tmp_path / name)) for name in (LOG_FILE, KEYS_FILE))
    stream, version, topic, state = log.execute(
        "SELECT stream, version, topic, state FROM events WHERE topic = 'turn.recorded.v1'"
    ).fetchone()
    ((series, depth, prefix, material),) = keys.execute("SELECT series, depth, prefix, material FROM nodes")
    assert (state[:3], depth, prefix) == (bytes((0xC1, 1, series)), 0, 0)
    for level in range(31, -1, -1):
        halves = blake2b(material, digest_size=64, person=b"mnemolog/node/1").digest()
        material = halves[32:] if version >> level & 1 else halves[:32]
    place = b"mnemolog/sealed/1\x00" + log_id.encode() + len(stream).to_bytes(4, "big") + stream.encode()
    opened = AESGCM(material).decrypt(state[3:15], state[15:], place + version.to_bytes(8, "big") + topic.encode())
    assert msgspec.msgpack.decode(opened) == {"role": "user", "text": "hi"}
    keys.close()
    log.close()
