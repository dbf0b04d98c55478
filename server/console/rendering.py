"""Render pages, with times in the zone of the reader, and serve the files that they link to. No stored text is HTML.

The script of the console puts the name of the zone into a cookie. Without one, pages are in UTC.
"""

import hashlib
import re
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from mnemolog.domain import events, items, threads
from mnemolog.domain.display import counted, dated, one_line, visible, visible_json, visible_lines
from mnemolog.domain.encoding import to_printable_json
from mnemolog.infra.runtime.files import read_file
from mnemolog.server.http.problems import as_plain, as_requests

COOKIE: Final = "mnemolog_zone"
_ZONE: Final[ContextVar[tzinfo]] = ContextVar("mnemolog_zone", default=UTC)


def use_zone_of(cookies: Mapping[str, str]) -> None:
    """Answer this request, which has a context of its own, in the zone that its cookies name."""
    try:
        zone: tzinfo = ZoneInfo(cookies[COOKIE])
    except (KeyError, ZoneInfoNotFoundError, ValueError, OSError):
        zone = UTC
    _ZONE.set(zone)


def zone() -> tzinfo:
    """Return the zone of the request that is answered."""
    return _ZONE.get()


def shown(time: datetime, *, exact: bool = False) -> tuple[str, str]:
    """Return a time as it is shown, and in UTC to stand beside it; that is empty where both are the same.

    Both are to the second, or `exact` with the parts of one; then the last microsecond of a day is its end.
    """
    utc = f"{time.replace(tzinfo=None).isoformat(' ')}Z" if exact else dated(time, seconds=True)
    here, day = _here(time), _day_ended_by(time) if exact else ""
    if not here.utcoffset():
        return f"the end of {day}" if day else utc, ""
    if day:
        return f"the end of {day}", utc
    local = here.replace(tzinfo=None).isoformat(" ", timespec="auto" if exact else "seconds")
    same_day = local[:10] == utc[:10]
    return local, utc[11:] if same_day else utc


def as_typed(text: str) -> str:
    """Return a moment of a URL as a box has it: a time in UTC is in the reader's zone, anything else is as it is."""
    try:
        time = datetime.fromisoformat(text if text.endswith("Z") else "")
    except ValueError:
        return text
    here = _here(time)
    if here.fold:  # The second of two hours with the same names.
        return text
    timespec = "auto" if here.second or here.microsecond else "minutes"
    return _day_ended_by(time) or here.replace(tzinfo=None).isoformat(" ", timespec=timespec)


def _day_ended_by(time: datetime) -> str:
    """Return the day that a time is the last microsecond of; empty for any other time."""
    here = _here(time)
    return f"{here:%Y-%m-%d}" if here.time() == datetime.max.time() else ""


def _here(time: datetime) -> datetime:
    try:
        return time.astimezone(_ZONE.get())
    except OverflowError:  # At an end of the calendar, which other zones reach earlier or later.
        return time


FOLDER: Final = Path(__file__).parent
TEXT_CHARACTERS_MAX: Final = 4_000
"""A longer text of a turn is cut; the page of its event has all of it."""
EXCERPT_CHARACTERS_MAX: Final = 160
STATIC: Final = FOLDER / "static"
"""Our own style and script, and the vendored libraries (`vendor/vendor.json`)."""
RAW_CHARACTERS_MAX: Final = 64_000
"""A longer event is cut on its page; the page as JSON has all of it."""


KINDS: Final[Mapping[str, str]] = {
    events.TurnRecorded.topic: "turns said",
    events.SessionStarted.topic: "sessions started",
    events.SessionEnded.topic: "sessions ended",
    events.SessionResumed.topic: "sessions resumed",
    events.SessionSwitched.topic: "switches to another session",
    events.TurnsRewound.topic: "rewinds that hid turns",
    events.ValueSet.topic: "values set",
    events.ValueDeleted.topic: "values deleted",
    events.ValuesCleared.topic: "times all values were deleted",
    events.TaskChanged.topic: "changes of a task",
    events.NoteAdded.topic: "notes added",
    events.NotesCleared.topic: "times all notes were deleted",
    events.CheckpointCreated.topic: "checkpoints made",
    events.CheckpointDeleted.topic: "checkpoints deleted",
    events.CheckpointRestored.topic: "checkpoints restored",
    events.RecallServed.topic: "recalls with a receipt",
    events.ContextServed.topic: "contexts with a receipt",
    events.RecallJudged.topic: "judgements of a recall",
    events.ModelActivated.topic: "models activated",
    events.LanguageChosen.topic: "languages chosen",
    events.RedactionChosen.topic: "redactions switched",
    events.ForgetRequested.topic: "requests to forget",
    events.ContentErased.topic: "erasures of content",
    events.ForgetCompleted.topic: "completed requests to forget",
    events.ProposalMade.topic: "proposals",
    events.ProposalDecided.topic: "decisions on proposals",
    events.TokenCreated.topic: "tokens made",
    events.TokenRevoked.topic: "tokens revoked",
    events.RetentionChosen.topic: "ages chosen for scopes",
    events.HoldPlaced.topic: "holds placed",
    events.HoldLifted.topic: "holds lifted",
    events.LossAccepted.topic: "losses accepted",
    threads.ThreadCheckpointed.topic: "checkpoints of a graph",
    threads.ThreadWritten.topic: "writes of a graph",
    threads.ThreadPruned.topic: "times checkpoints of a graph were pruned",
    threads.ThreadDeleted.topic: "threads of a graph deleted",
    threads.ThreadCopied.topic: "threads of a graph copied",
    events.FactAsserted.topic: "facts asserted",
    events.FactRetracted.topic: "facts retracted",
    events.StandingEnded.topic: "standing statements ended",
    events.SourceDistrusted.topic: "sources distrusted",
    events.SourceTrusted.topic: "sources trusted again",
    items.ItemPut.topic: "items put",
    items.ItemTouched.topic: "items touched",
    items.ItemDeleted.topic: "items deleted",
}
"""What kinds of events are called, by topic. In the plural, as in `3 turns said`."""


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
        typed=as_typed,
        moment=moment,
        when=when,
        in_words=lambda counts: in_words(counts).items(),
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


def moment(value: datetime | None, *, exact: bool = False) -> str:
    """Return a time in the zone of the reader, with UTC beside it; empty for None. See `shown`."""
    if value is None:
        return ""
    here, utc = shown(value, exact=exact)
    return f"{here} ({utc})" if utc else here


def when(value: datetime | None, *, exact: bool = False) -> Markup:
    """Return a time as an element that has it in full for machines, and as `moment` does for people."""
    if value is None:
        return Markup()
    here, utc = shown(value, exact=exact)
    beside = Markup(' <span class="utc">{}</span>').format(utc) if utc else ""
    return Markup('<time datetime="{}">{}{}</time>').format(value.isoformat(), here, beside)


def shown_json(value: Any, indent: int = 2) -> str:
    """Return a value as JSON for people to read, with escapes for characters that change how text is shown."""
    return visible_json(msgspec.json.format(to_printable_json(value, enc_hook=as_plain), indent=indent).decode())


def in_words(counts: Mapping[str, int]) -> dict[str, int]:
    """Return numbers of events by the words for their topics, the largest first."""
    return {KINDS.get(topic, topic): count for topic, count in sorted(counts.items(), key=lambda item: -item[1])}


@cache
def address_of(name: str) -> str:
    """Return the URL of a file, which changes with its content."""
    return f"/static/{name}?v={hashlib.sha256(read_file(STATIC / name, follow=True)).hexdigest()[:12]}"


class Assets(StaticFiles):
    """The files, which browsers may keep for a year."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC)

    def file_response(self, *given: Any, **options: Any) -> Response:
        """Return the answer to a request for a file."""
        response = super().file_response(*given, **options)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response
