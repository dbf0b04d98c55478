"""Text for people: counts with their nouns, times, and stored text that is safe to print.

Text that was stored may hold characters that steer a terminal or are invisible. Everything that prints it shows
them as escapes.
"""

import re
from datetime import UTC, datetime
from typing import Final

LINE_CHARACTERS_MAX: Final = 200
"""What is longer is cut, with an ellipsis."""

TEXT_CHARACTERS_MAX: Final = 500
"""A longer text is cut, unless the command was given `--full`."""
TEXT_CHARACTERS_SHOWN: Final = 400
TAB: Final = "    "
_NAMED: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
# A flag of a part of a country, such as Scotland: a black flag, its code in tag characters, and their end.
_FLAG: Final = "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f"
# Separators of lines and paragraphs, bidirectional overrides, and what only hides text: spaces and operators without a
# width, tags outside of a flag. Joiners (U+200C, U+200D) and variation selectors are parts of words and of emoji.
_UNSEEN: Final = "\u200b\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f"
# Those, control characters (C0, DEL, C1), lone surrogates.
ESCAPED: Final = re.compile(f"{_FLAG}|[\x00-\x1f\x7f-\x9f{_UNSEEN}\ud800-\udfff]")
"""What is shown as an escape, and flags of regions, which are not: a black flag and tags."""
_ESCAPED_IN_JSON: Final = re.compile(f"{_FLAG}|[\x7f-\x9f{_UNSEEN}]")


class Bytes(int):
    """A number of bytes: what a `progress` counts that has one as its total."""


def counted(number: int, thing: str, things: str = "") -> str:
    """Return a count with its noun, such as `1 turn` or `2,965 turns`; `things` is the plural without an s."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def named(session: str, title: str) -> str:
    """Return the id of a session, with its title if it has one."""
    return f"{session} ({visible(title)})" if title else session


def visible(text: str) -> str:
    r"""Return a text on one line, with what would steer a terminal or is unseen as escapes: `\x1b`, `\n`, `\u200b`."""
    return text if text.isprintable() else ESCAPED.sub(_escape, text)


def visible_lines(text: str) -> str:
    """Return a text with its line breaks, and everything else that would steer a terminal or is unseen as escapes."""
    return "\n".join(map(visible, text.replace("\r\n", "\n").replace("\t", TAB).split("\n")))


def visible_json(document: str) -> str:
    """Return a JSON document with what would steer a terminal or is unseen as JSON escapes; it means the same."""
    return document if document.isascii() and "\x7f" not in document else _ESCAPED_IN_JSON.sub(_json_escape, document)


def one_line(text: str, *, characters_max: int | None = LINE_CHARACTERS_MAX) -> str:
    """Return a text with its white space folded, safe to print; cut to `characters_max`, or whole for None."""
    folded = visible(" ".join(text.split()))
    return folded if characters_max is None or len(folded) <= characters_max else folded[: characters_max - 1] + "…"


def cut(text: str, *, full: bool = False) -> str:
    """Return a text, cut where it is long, unless `full`, with the number of characters left out."""
    if full or len(text) <= TEXT_CHARACTERS_MAX:
        return text
    return f"{text[:TEXT_CHARACTERS_SHOWN]}… +{len(text) - TEXT_CHARACTERS_SHOWN:,} characters, --full shows them"


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if len(character) > 1:  # A flag.
        return character
    code = ord(character)
    number = f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    return _NAMED.get(character, number)


def _json_escape(found: re.Match[str]) -> str:
    if len(found[0]) > 1:
        return found[0]
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def dated(moment: datetime, *, seconds: bool = False) -> str:
    """Return a time to the minute or second, in UTC, such as `2026-03-16 14:00Z`: it can be given as it is printed."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ" if seconds else "%Y-%m-%d %H:%MZ")
