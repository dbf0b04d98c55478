"""Keep the store: what is up to date and what would mend it, and the tokens that let callers in."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Literal

from starlette.responses import Response

from mnemolog.domain.display import counted
from mnemolog.domain.errors import sentence
from mnemolog.domain.result import Result
from mnemolog.domain.tokens import VALID_FOR, VERBS, Token, Verb, ends_soon
from mnemolog.domain.values import Position, to_datetime
from mnemolog.operations.backup_files import failed_commands, last_backup
from mnemolog.operations.doctor import DoctorReport
from mnemolog.operations.service import Status
from mnemolog.projections.maintenance.context import PRESENT
from mnemolog.projections.quarantine import MEANS, Drift, QuarantinedItem
from mnemolog.results import Model
from mnemolog.server.console.jobs import start_job
from mnemolog.server.console.page import ConsoleRequest, PageRequest, action, redirect, view
from mnemolog.store import MemoryStore

QUARANTINED_MAX: Final = 100
"""Items of the quarantine that are listed."""
_MEANS: Final[Mapping[Any, str]] = {
    **MEANS,
    Drift.BEHIND: "The log has newer events: it reads them with the next question.",
    PRESENT: "It exists.",
}
"""What each state means, in words."""


class Part(Result, frozen=True, kw_only=True):
    """Something derived from the log, and whether it is up to date."""

    name: str
    """In words."""
    state: str
    good: bool
    position: Position | None
    """How far it has read the log; None for a cache, which does not follow it."""
    behind_events: int
    bytes: int | None
    means: str
    action: str
    """What to do; empty if there is nothing to do."""


class HealthPage(Result, frozen=True, kw_only=True):
    """The health of a store."""

    healthy: bool
    says: tuple[str, ...]
    """In plain words."""
    status: Status
    last_backup: datetime | None
    """When the newest one was made that this server knows of and that is still there."""
    parts: tuple[Part, ...]
    report: DoctorReport | None
    """What `doctor` finds, without mending anything; None for a caller who may not ask it."""
    quarantined: tuple[QuarantinedItem, ...]
    models: tuple[Model, ...]
    """Those with vectors on disk, and those that were ever active."""
    has_model: bool
    """Whether this server was started with a model."""


@view("/health", title="Health", template="health.html", whole=True)
def health(store: MemoryStore, asked: PageRequest) -> HealthPage:
    """Show the health of the whole store. It is that of now: projections have no past."""
    status, ask_doctor = store.status(), asked.caller.may("admin")
    # Not in the threads for long work: the page does not wait for a job.
    report = store.admin.doctor() if ask_doctor else None
    quarantined = store.admin.quarantine().items() if ask_doctor else ()
    parts, backup = tuple(parts_of(status)), last_backup(store.path)
    ending = to_attend(store) if ask_doctor else ()
    return HealthPage(
        healthy=(report is None or report.healthy) and not status.warnings,
        says=(*_summary(status, report, parts), *ending),
        status=status,
        last_backup=None if backup is None else backup.created_at,
        parts=parts,
        report=report,
        quarantined=tuple(quarantined[:QUARANTINED_MAX]),
        models=tuple(store.models.list()),
        has_model=store.parts.projections.has_model,
    )


def to_attend(store: MemoryStore) -> Iterator[str]:
    """Yield a sentence on backups whose command failed, and on each token that is not valid for much longer."""
    if failed := failed_commands(store.path):
        yield f"The command after the last {counted(failed, 'backup')} failed (`mnemolog backup --after-backup`)."
    now = to_datetime(store.parts.clock.now())
    for token in store.admin.tokens():
        if ends_soon(token, now) and token.expires_at is not None:
            days = counted((token.expires_at - now).days, "day")
            yield f"The token {token.id} of {token.actor} ends in {days}: make another one for its holder."


def parts_of(status: Status) -> Iterator[Part]:
    """Yield what is derived from the log, and whether it is up to date."""
    views = status.views
    yield _part("sessions, turns and words (views.db)", views, position=views.position, behind=views.behind_events)
    for table in status.tables:
        yield _part(f"tables of adapters ({table.name})", table, position=table.position, behind=table.behind_events)
    for made in status.vectors:
        name = f"vectors of {made.model or 'a model'}{f' ({made.generation})' if made.generation else ''}"
        yield _part(name, made, position=made.covers, behind=made.behind_events, size=made.bytes)
    for cache in status.caches:
        yield _part(f"cache ({cache.name})", cache, position=None, behind=0, size=cache.bytes)


def _part(name: str, found: Any, *, position: Position | None, behind: int, size: int | None = None) -> Part:
    nothing_to_do = found.action.startswith("Nothing to do")
    is_made_later = found.state == Drift.MISSING and nothing_to_do
    means = "It is built when it is needed." if is_made_later else _MEANS.get(found.state, "")
    return Part(
        name=name,
        state=found.state,
        good=is_made_later or found.state in (Drift.CURRENT, Drift.BEHIND, Drift.OTHER_MODEL, PRESENT),
        position=position,
        behind_events=behind,
        bytes=size,
        means=" ".join(filter(None, (means, getattr(found, "why", "")))),
        action="" if nothing_to_do else found.action,
    )


def _summary(status: Status, report: DoctorReport | None, parts: tuple[Part, ...]) -> Iterator[str]:
    findings = () if report is None else report.findings
    problems = sum(issue.severity != "note" for issue in findings) or sum(not part.good for part in parts)
    if report is not None and report.log_damaged:
        yield "The log or its keys are in doubt. Keep everything as it is, and look at what was found below."
    elif problems:
        yield f"{counted(problems, 'problem')} found. The log itself, which everything is derived from, is not touched."
    else:
        yield "Nothing is wrong: what was recorded is there, and everything derived from it can be used."
    if late := [part.name for part in parts if part.behind_events and part.state == Drift.BEHIND]:
        yield f"The newest events are read with the next question by: {', '.join(late)}."
    if (trouble := status.projector.trouble) is not None:
        yield f"New turns are not embedded now: {trouble}."
    if status.quarantine.items:
        yield f"{counted(status.quarantine.items, 'unusable file is', 'unusable files are')} kept apart, in quarantine."
    if status.forgetting.pending:
        yield f"{counted(len(status.forgetting.pending), 'request')} to forget not carried out everywhere yet."
    yield from map(sentence, status.warnings)


@action("/health/check", title="Full check", verb="admin", needs_write=False, whole=True)
async def check(asked: ConsoleRequest) -> Response:
    """Read every byte of the projections, in the background. Mends nothing."""
    work = partial(asked.caller.store.admin.doctor, deep=True)
    return await start_job(asked, "Checking every byte", work, back="/health")


@action("/health/fix", title="Mend", verb="admin", whole=True)
async def fix(asked: ConsoleRequest) -> Response:
    """Mend what `doctor` can mend, in the background."""
    work = partial(asked.caller.store.admin.doctor, fix=True)
    return await start_job(asked, "Mending what can be mended", work, back="/health")


DAYS_MAX: Final = 3_650

State = Literal["valid", "expired", "revoked"]


class TokenLine(Result, frozen=True, kw_only=True):
    """A token with its state."""

    token: Token
    state: State


class TokenList(Result, frozen=True, kw_only=True):
    """All tokens, the newest first."""

    tokens: tuple[TokenLine, ...]

    @property
    def verbs(self) -> list[tuple[Verb, str]]:
        """What a token can allow, in words."""
        return [(verb, _WORDS[verb]) for verb in VERBS]


class NewToken(Result, frozen=True, kw_only=True):
    """A token that was made just now. Its secret is shown once."""

    secret: str
    token: Token


@view("/tokens", title="Tokens", template="tokens.html", verb="admin", whole=True)
def tokens(store: MemoryStore, _: PageRequest) -> TokenList:
    """Show all tokens, in their state of now."""
    now = to_datetime(store.parts.clock.now())
    found = reversed(store.admin.tokens())
    return TokenList(tokens=tuple(TokenLine(token=token, state=_state(token, now)) for token in found))


def _state(token: Token, now: datetime) -> State:
    if token.revoked_at is not None:
        return "revoked"
    return "valid" if token.is_valid(now) else "expired"


@action("/tokens", title="A new token", verb="admin", template="token_made.html", whole=True)
async def create(asked: ConsoleRequest) -> NewToken:
    """Make a token, and show its secret once."""
    days = asked.whole("days", VALID_FOR.days, most=DAYS_MAX)
    verbs = [str(verb) for verb in asked.fields.getlist("verb")]
    asked.caller.require_all(verb for verb in VERBS if verb in verbs)
    made = await asked.caller.store.admin.create_token(
        asked.text("actor"),
        verbs=verbs,
        scopes=asked.several("scopes", apart="\n"),
        expires_in=timedelta(days=days) if days else None,
    )
    return NewToken(secret=made.secret, token=made.token)


@action("/tokens/revoke", title="Tokens", verb="admin", whole=True)
async def revoke(asked: ConsoleRequest) -> Response:
    """Revoke a token."""
    await asked.caller.store.admin.revoke_token(asked.text("id"))
    return redirect("/tokens")


_WORDS: Final[dict[Verb, str]] = {
    "read": "look at everything in its scopes",
    "record": "add turns, values and sessions",
    "propose": "propose what somebody else approves",
    "approve": "approve and decline proposals, whatever they do",
    "forget": "erase content for good",
    "admin": "what concerns the whole store, tokens among it",
    "metrics": "read the measurements of this server, which hold no content",
}
