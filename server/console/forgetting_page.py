"""Forgetting: what it would take, a typed confirmation, the certificate; and what is forgotten at an age, or held."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from mnemolog.adapters.support.store_access import known_session, read
from mnemolog.domain.choices import Retention
from mnemolog.domain.events import RETENTION_STREAM, ForgetRequested
from mnemolog.domain.result import Result
from mnemolog.domain.scope import ROOT, covered
from mnemolog.domain.session import session_of
from mnemolog.domain.values import ORIGIN, Position, to_datetime
from mnemolog.forgetting import history
from mnemolog.forgetting.history import Certificate, ForgetReport, Requested
from mnemolog.server.console.history_page import EventLine
from mnemolog.server.console.jobs import start_job
from mnemolog.server.console.page import ConsoleRequest, PageRequest, Refused, action, redirect, view
from mnemolog.server.console.rendering import excerpt, in_words
from mnemolog.store import MemoryStore

PER_PAGE: Final = 100
LINES_OF_EACH: Final = 5
"""Turns that are shown of each session, if there are several."""


class Selection(Result, frozen=True, kw_only=True):
    """What is to be forgotten."""

    sessions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()
    keep_questions: bool = False
    """Whether questions asked above or beside it, which may quote it, stay."""
    reason: str = ""

    @classmethod
    def of(cls, asked: ConsoleRequest) -> "Selection":
        """Return what a URL or a form names. Raises `InvalidInput`."""
        return cls(
            sessions=asked.several("sessions", apart="\n"),
            scopes=asked.several("scopes", apart="\n"),
            positions=asked.positions("positions"),
            keep_questions=asked.several("questions") == ("keep",),  # A box that is ticked adds a value.
            reason=asked.text("reason"),
        )

    def __bool__(self) -> bool:
        return bool(self.sessions or self.scopes or self.positions)

    def call(self) -> dict[str, Any]:
        """Return the arguments of `MemoryStore.forget`."""
        named = {"session": self.sessions, "scope": self.scopes, "positions": self.positions}
        return {**named, "questions": not self.keep_questions, "reason": self.reason}

    @property
    def name(self) -> str:
        """The name that confirms it; empty if several things, or single events, are to be forgotten."""
        named = (*self.sessions, *self.scopes)
        return named[0] if len(named) == 1 and not self.positions else ""


class PreviewLine(Result, frozen=True, kw_only=True):
    """Something that would become unreadable."""

    position: Position | None
    kind: str
    """`turn`, `value`, `task` or `note`."""
    who: str
    text: str


class SessionPreview(Result, frozen=True, kw_only=True):
    """A session whose content would become unreadable."""

    session: str
    title: str
    scope: str
    agent: str
    turns: int
    lines: tuple[PreviewLine, ...]
    """Its first turns, then what its working memory holds."""
    later: Position | None
    """Pass it as `after` for the turns that follow those that are listed; None if there are none."""


class ForgetPreview(Result, frozen=True, kw_only=True):
    """What would become unreadable."""

    report: ForgetReport
    sessions: tuple[SessionPreview, ...]
    """The first `PER_PAGE`."""
    events: tuple[EventLine, ...]
    """Single events that were named."""


class PastErasure(Requested, frozen=True, kw_only=True):
    """A request to forget."""

    position: Position
    """Position of the request in the log."""
    events: int
    completed: bool


class ForgettingPage(Result, frozen=True, kw_only=True):
    """What is to be forgotten, what that would take, and what was forgotten before."""

    selection: Selection
    preview: ForgetPreview | None
    """None before anything was named."""
    encrypted: bool
    """Whether this store can forget: content of one without encryption cannot be erased."""
    erasures: tuple[PastErasure, ...]
    """The last ones, newest first."""
    erasures_more: int


class CertificatePage(Result, frozen=True, kw_only=True):
    """What an erasure took, and what remains."""

    certificate: Certificate
    """To keep, and to check with an export of the log."""

    erasure: PastErasure
    counts: dict[str, int]
    """By kind of event, in words."""
    streams: tuple[tuple[str, int], ...]
    """The sessions and streams that they were part of, and how many events of each."""
    erased_at: datetime | None
    completed_at: datetime | None


@view("/forgetting", title="Forgetting", template="forgetting.html")
def forgetting(store: MemoryStore, asked: PageRequest) -> ForgettingPage:
    """Show what would become unreadable, and what was forgotten up to the moment."""
    selection, after = Selection.of(asked), asked.position("after") or ORIGIN
    found = [_past(item) for item in _visible(store, asked.at.position)]
    return ForgettingPage(
        selection=selection,
        preview=_preview(store, selection, after=after) if selection else None,
        encrypted=store.parts.log.keyring is not None,
        erasures=tuple(reversed(found[-PER_PAGE:])),
        erasures_more=max(len(found) - PER_PAGE, 0),
    )


def _preview(store: MemoryStore, selection: Selection, *, after: int) -> ForgetPreview:
    """Return what would become unreadable. Of a single session the turns after position `after` are listed."""
    report = store.forget(**selection.call(), dry_run=True)
    shown = report.sessions[:PER_PAGE]
    begin, lines = (after, PER_PAGE) if len(shown) == 1 else (ORIGIN, LINES_OF_EACH)
    turns = {item.session: item.turns for item in store.sessions()} if shown else {}
    return ForgetPreview(
        report=report,
        sessions=tuple(
            _session_preview(store, name, turns=turns.get(name, 0), after=begin, most=lines) for name in shown
        ),
        events=_lines(store, selection.positions[:PER_PAGE]),
    )


def _lines(store: MemoryStore, positions: Iterable[int]) -> tuple[EventLine, ...]:
    return tuple(EventLine.of(item) for at in positions for item in store.audit.timeline(after=at - 1, upto=at))


def _session_preview(store: MemoryStore, session_id: str, *, turns: int, after: int, most: int) -> SessionPreview:
    session = known_session(store, session_id)
    listed = store.turns(session_id, after=after, limit=most)
    lines = [
        PreviewLine(position=turn.position, kind="turn", who=turn.speaker or turn.role.value, text=excerpt(turn.text))
        for turn in listed
    ]
    if (task := session.task()) is not None:
        lines.append(PreviewLine(position=None, kind="task", who="", text=excerpt(task.description)))
    values = list(session.all().items())[:most]
    lines += [PreviewLine(position=None, kind="value", who=key, text=excerpt(repr(value))) for key, value in values]
    lines += [PreviewLine(position=None, kind="note", who="", text=excerpt(note)) for note in session.notes()[:most]]
    return SessionPreview(
        session=session_id,
        title=session.title,
        scope=session.scope,
        agent=session.agent,
        turns=turns,
        lines=tuple(lines),
        later=listed.next,
    )


@action("/forgetting", title="Forgetting", verb="forget")
async def forget(asked: ConsoleRequest) -> Response:
    """Forget what a form names, if it was confirmed in writing. Answers with the certificate."""
    selection, typed = Selection.of(asked), asked.text("confirm")
    report = await read(asked.caller.store, lambda store: store.forget(**selection.call(), dry_run=True))
    if asked.text("events") != str(report.events):
        what = "More, or less, would be forgotten than the page showed. Nothing was forgotten."
        raise Refused(409, "It has changed meanwhile", what, "Go back, reload the page, and look at it again.")
    if typed.replace(",", "") != str(report.events) and (not selection.name or typed != selection.name):
        what = "What was typed is neither the name of what is to be forgotten nor the number of events."
        hint = "Go back and type one of the two, exactly as it is shown."
        raise Refused(400, "Not confirmed", f"{what} Nothing was forgotten.", hint)
    work = partial(asked.caller.store.forget, **selection.call())
    return await start_job(
        asked,
        "Forgetting",
        work,
        back="/forgetting",
        shown_at=lambda _job, report: f"/forgetting/{quote(report.request or '', safe='')}".rstrip("/"),
    )


@view("/forgetting/{request}", title="Certificate of an erasure", template="certificate.html")
def certificate(store: MemoryStore, asked: PageRequest) -> CertificatePage:
    """Show the certificate of an erasure."""
    named = asked.request.path_params["request"]
    found = next((item for item in _visible(store, None) if item.event.id == named), None)
    made = None if found is None else store.parts.forgetting.certificate(named)
    if found is None or made is None:
        what = "No request to forget has this id."
        raise Refused(404, "There is no such erasure", what, "The page of forgetting lists all of them.")
    log = store.parts.log
    return CertificatePage(
        certificate=made,
        erasure=_past(found),
        counts=in_words(_total(found.event)),
        streams=tuple(
            (session_of(target.stream) or target.stream, sum(target.counts.values()))
            for target in found.event.targets[:PER_PAGE]
        ),
        erased_at=None if found.erased_at is None else to_datetime(log.recorded_at(found.erased_at)),
        completed_at=None if found.completed_at is None else to_datetime(log.recorded_at(found.completed_at)),
    )


def _visible(store: MemoryStore, at: Position | None) -> Iterator[history.Request]:
    """Yield the requests up to a position that were made within the store's scope."""
    for found in history.requests(store.parts.log).values():
        inside = all(covered(store.parts.boundary.scopes, scope) for scope in found.event.scopes or [ROOT])
        if inside and (at is None or found.recorded.position <= at):
            yield found


def _past(found: history.Request) -> PastErasure:
    return PastErasure(
        request=found.event.id,
        requested_at=to_datetime(found.recorded.recorded_at),
        position=found.recorded.position,
        reason=found.event.reason,
        actor=found.event.actor,
        events=sum(_total(found.event).values()),
        completed=found.completed_at is not None,
    )


def _total(event: ForgetRequested) -> Counter[str]:
    return sum((Counter(target.counts) for target in event.targets), Counter())


class RetentionPage(Result, frozen=True, kw_only=True):
    """How long what is said in each scope is kept, and what has to stay."""

    retention: Retention
    decisions: tuple[EventLine, ...]
    """The last rules that were set, and holds that were placed or lifted, newest first."""


@view("/retention", title="Retention", template="retention.html", whole=True)
def retention(store: MemoryStore, asked: PageRequest) -> RetentionPage:
    """Show the rules and the holds as of the moment, and who decided on them."""
    events = chain.from_iterable(store.parts.log.read_stream(RETENTION_STREAM, upto=asked.at.position))
    last = deque((item.position for item in events), PER_PAGE)
    found = store.admin.retention(as_of=asked.at.when)
    return RetentionPage(retention=found, decisions=_lines(store, reversed(last)))


@action("/retention", title="Retention", verb="admin", whole=True)
async def set_ages(asked: ConsoleRequest) -> Response:
    """Set how long what is said in a scope is kept."""
    await asked.caller.store.admin.set_retention(
        asked.text("scope"),
        max_age=asked.text("max_age") or None,
        min_age=asked.text("min_age") or None,
        by="recorded" if asked.text("recorded") else "said",
        keep_facts=bool(asked.text("keep_facts")),
    )
    return redirect("/retention")


@action("/retention/hold", title="Retention", verb="admin", whole=True)
async def hold(asked: ConsoleRequest) -> Response:
    """Place a hold on a scope."""
    await asked.caller.store.admin.hold(asked.text("scope"), reason=asked.text("reason"))
    return redirect("/retention")


@action("/retention/lift", title="Retention", verb="admin", whole=True)
async def lift_hold(asked: ConsoleRequest) -> Response:
    """Lift a hold."""
    await asked.caller.store.admin.lift_hold(asked.position("hold") or ORIGIN, reason=asked.text("reason"))
    return redirect("/retention")


@action("/retention/preview", title="Retention", verb="forget", needs_write=False, whole=True)
async def preview_retention(asked: ConsoleRequest) -> Response:
    """Look at what a run would forget now, in the background. Changes nothing."""
    work = partial(asked.caller.store.admin.apply_retention, dry_run=True)
    return await start_job(asked, "What retention would forget now", work, back="/retention")
