"""Render pages with Jinja2. Everything is escaped; no template marks stored text as HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from mnemolog.domain.clock import local_time
from mnemolog.domain.display import counted, dated, one_line, visible, visible_json, visible_lines
from mnemolog.domain.encoding import to_printable_json
from mnemolog.server.console.assets import address_of
from mnemolog.server.console.event_words import KINDS
from mnemolog.server.http.hints import as_plain, as_requests

FOLDER: Final = Path(__file__).parent
TEXT_CHARACTERS_MAX: Final = 4_000
"""A longer text of a turn is cut; the page of its event has all of it."""
EXCERPT_CHARACTERS_MAX: Final = 160
RAW_CHARACTERS_MAX: Final = 64_000
"""A longer event is cut on its page; the page as JSON has all of it."""


def environment() -> Environment:
    """Return the environment of the templates, with the filters and functions that they use."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        visible=visible,
        requests=as_requests,
        with_code=lambda text: Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(text)))),
        lines=visible_lines,
        line=one_line,
        number=lambda value: f"{value:,}",
        size=size,
        moment=moment,
        when=when,
        json=shown_json,
        compact=lambda value: to_printable_json(value).decode(),
    )
    made.globals.update(counted=counted, asset=address_of, url=url)
    made.globals.update(event_kinds=sorted(KINDS.items(), key=lambda item: item[1]))
    made.globals.update(text_max=TEXT_CHARACTERS_MAX, raw_max=RAW_CHARACTERS_MAX)
    return made


def excerpt(text: str) -> str:
    """Return the beginning of a text, on one line, for a list."""
    return one_line(text, characters_max=EXCERPT_CHARACTERS_MAX)


def url(path: str, query: Mapping[str, Any]) -> str:
    """Return a path with a query; what is empty or None is left out."""
    encoded = urlencode({name: value for name, value in query.items() if value not in (None, "")}, doseq=True)
    return f"{path}?{encoded}" if encoded else path


def size(count: int) -> str:
    """Return a number of bytes in the largest unit that keeps it above one."""
    amount, units = float(count), ["bytes", "KB", "MB", "GB", "TB"]
    while amount >= 1_000 and len(units) > 1:
        amount, units = amount / 1_000, units[1:]
    return f"{count} bytes" if units[0] == "bytes" else f"{amount:.1f} {units[0]}"


def moment(value: datetime | None, *, exact: bool = False) -> str:
    """Return a time in the server's zone, to the second, or `exact` with the parts of one; empty for None."""
    if value is None:
        return ""
    return local_time(value).replace(tzinfo=None).isoformat(" ") if exact else dated(value, seconds=True)


def when(value: datetime | None, *, exact: bool = False) -> Markup:
    """Return a time as an element that has it in full for machines, and as `moment` does for people."""
    if value is None:
        return Markup()
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        value.astimezone(UTC).isoformat(), local_time(value).isoformat(), moment(value, exact=exact)
    )


def shown_json(value: Any, indent: int = 2) -> str:
    """Return a value as JSON for people to read, with escapes for characters that change how text is shown."""
    return visible_json(msgspec.json.format(to_printable_json(value, enc_hook=as_plain), indent=indent).decode())
