"""Import: upload a file of another program, look at what would be recorded, and confirm."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from mnemolog.adapters.importers.detection import FORMATS
from mnemolog.adapters.importers.formats import chroma
from mnemolog.adapters.importers.import_files import ImportReport, import_files_async
from mnemolog.adapters.importers.preview import FilePreview, preview_files
from mnemolog.adapters.importers.read import read_turns
from mnemolog.adapters.support.store_access import read
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain import errors
from mnemolog.domain.display import counted, one_line
from mnemolog.domain.result import Result
from mnemolog.projections.ports import Progress
from mnemolog.server.console import parameters
from mnemolog.server.console.console import Refused
from mnemolog.server.console.jobs import Jobs, jobs_of, owner_of
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import Redirect, action, page
from mnemolog.server.console.rendering import url
from mnemolog.server.http.access import Caller
from mnemolog.server.http.problems import Problem

UPLOAD_BYTES_MAX: Final = 15 << 20
"""The largest file: with its form it fits into the largest request that the server takes, unless that was changed."""
TURNS_SHOWN: Final = 100
SESSIONS_SHOWN: Final = 100
REFUSED_SHOWN: Final = 100
_TEXT_CHARACTERS: Final = 200
_NAME_CHARACTERS: Final = 100
_UNREADABLE_HERE: Final = {b"\x1f\x8b": "It is compressed", b"SQLite format 3\x00": "It is a database"}
"""How files begin that are read from disk only: what they unpack to has no limit, or they are not text."""
_FORMATS: Final = tuple(name for name in FORMATS if name != chroma.FORMAT.name)


class PreviewTurn(Result, frozen=True, kw_only=True):
    """A turn as it would be recorded."""

    where: str
    session: str
    role: str
    speaker: str | None
    text: str


class PreviewSession(Result, frozen=True, kw_only=True):
    """A session that turns would be recorded in."""

    session: str
    title: str
    turns: int


class ImportPreview(Result, frozen=True, kw_only=True):
    """What would be recorded of an upload."""

    file: str
    """Names the upload until it is imported or deleted."""
    name: str
    format: str
    kind: str
    turns: int
    sessions_in_all: int
    sessions: tuple[PreviewSession, ...]
    first: tuple[PreviewTurn, ...]
    mapping: dict[str, str]
    unread: tuple[str, ...]
    refused: tuple[str, ...]
    """Lines that would be skipped, each with the reason."""
    refused_more: int
    scope: str
    agent: str
    chosen_format: str


class ImportPage(Result, frozen=True, kw_only=True):
    """The form of an upload, or what would be recorded of one."""

    formats: tuple[str, ...]
    bytes_max: int
    preview: ImportPreview | None = None


class Imported(Result, frozen=True, kw_only=True):
    """What was recorded."""

    name: str
    says: str
    report: ImportReport


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """A file that waits to be imported, and how it is to be read."""

    file: str
    path: Path
    name: str
    format: str
    scope: str
    agent: str

    def how(self) -> dict[str, Any]:
        """Return the arguments of an import."""
        return {"format": self.format or None, "scope": self.scope or None, "agent": self.agent or None}


@page("/import", title="Import", template="import.html", verb="record", whole=True)
async def import_(request: Request, caller: Caller, _at: AsOf) -> ImportPage:
    """Show the form of an upload, or with `?file=` what would be recorded of one."""
    asked = request.query_params
    if not parameters.text(asked, "file"):
        return ImportPage(formats=_FORMATS, bytes_max=UPLOAD_BYTES_MAX)
    upload = _upload(jobs_of(request), caller, asked)
    preview = await preview_of(caller.store, upload)
    return ImportPage(formats=_FORMATS, bytes_max=UPLOAD_BYTES_MAX, preview=preview)


def _upload(jobs: Jobs, caller: Caller, asked: parameters.Asked) -> Upload:
    file = parameters.text(asked, "file")
    chosen = parameters.text(asked, "format")
    return Upload(
        file=file,
        path=jobs.files.find(owner_of(caller), file),
        name=one_line(parameters.text(asked, "name", "the file"), characters_max=_NAME_CHARACTERS),
        format=parameters.one_of("format", chosen, ("", *_FORMATS)),
        scope=parameters.text(asked, "into"),
        agent=parameters.text(asked, "agent"),
    )


async def preview_of(store: AsyncMemoryStore, upload: Upload) -> ImportPreview:
    """Return what would be recorded of an upload. Writes nothing.

    Raises `ImportRefused` for a file that cannot be read as a whole, and `InvalidInput`.
    """
    try:
        return await read(store, lambda _: _preview(upload))
    except errors.ImportRefused as error:
        raise _named_error(error, upload) from error


def _preview(upload: Upload) -> ImportPreview:
    (found,) = preview_files(upload.path, **upload.how())
    sessions: dict[str, PreviewSession] = {}
    first: list[PreviewTurn] = []
    turns = read_turns(upload.path, format=upload.format or None, on_refused=lambda _error: None)
    for turn in turns:
        known = sessions.get(turn.session)
        if known is None and len(sessions) == SESSIONS_SHOWN:
            continue
        title = turn.session_title if known is None else known.title
        count = 1 if known is None else known.turns + 1
        sessions[turn.session] = PreviewSession(session=turn.session, title=title, turns=count)
        if len(first) < TURNS_SHOWN:
            text = one_line(turn.text, characters_max=_TEXT_CHARACTERS)
            first.append(
                PreviewTurn(where=turn.where, session=turn.session, role=turn.role, speaker=turn.speaker, text=text)
            )
    refused = _named(found, upload)
    return ImportPreview(
        file=upload.file,
        name=upload.name,
        format=found.format,
        kind=found.kind,
        turns=found.turns,
        sessions_in_all=found.sessions,
        sessions=tuple(sessions.values()),
        first=tuple(first),
        mapping=found.mapping,
        unread=found.unread,
        refused=tuple(islice(refused, REFUSED_SHOWN)),
        refused_more=max(len(refused) - REFUSED_SHOWN, 0),
        scope=upload.scope,
        agent=upload.agent,
        chosen_format=upload.format,
    )


def _named(found: FilePreview, upload: Upload) -> list[str]:
    """Return the lines that are refused, with the name that the user knows instead of ours."""
    return [line.replace(str(upload.path), upload.name) for line in found.refused]


@action("/import/upload", title="Import", verb="record", whole=True, files_max=1)
async def upload(request: Request, caller: Caller, form: FormData) -> Redirect:
    """Keep an upload for a few minutes and show what would be recorded of it."""
    given = form.get("upload")
    if not isinstance(given, UploadFile) or not given.filename:
        raise Refused(_NO_FILE)
    _require_text(given.file)
    file, _ = await jobs_of(request).files.keep(owner_of(caller), given.file, bytes_max=UPLOAD_BYTES_MAX)
    chosen = {name: parameters.text(form, name) for name in ("format", "into", "agent")}
    name = Path(given.filename).name[:_NAME_CHARACTERS]
    return Redirect(url("/import", {"file": file, "name": name, **chosen}))


def _require_text(upload: BinaryIO) -> None:
    head = upload.read(16)
    upload.seek(0)
    for begin, what in _UNREADABLE_HERE.items():
        if head.startswith(begin):
            raise Refused(msgspec.structs.replace(_NOT_HERE, detail=f"{what}, which this page does not take."))


@action("/import/confirm", title="Import", verb="record", whole=True)
async def confirm(request: Request, caller: Caller, form: FormData) -> Redirect:
    """Record an upload, in the background, and delete the file."""
    jobs = jobs_of(request)
    chosen = _upload(jobs, caller, form)
    skip_bad = bool(parameters.text(form, "skip_bad"))

    async def work(progress: Progress) -> Imported:
        return await record(caller.store, jobs, chosen, skip_bad=skip_bad, progress=progress)

    return await jobs.start(request, caller, f"Importing {chosen.name}", work, back="/import")


async def record(
    store: AsyncMemoryStore, jobs: Jobs, chosen: Upload, *, skip_bad: bool, progress: Progress
) -> Imported:
    """Record an upload. The file is deleted afterwards, also when something went wrong."""
    try:
        report = await import_files_async(store, chosen.path, **chosen.how(), skip_bad=skip_bad, progress=progress)
    except errors.ImportRefused as error:
        raise _named_error(error, chosen) from error
    finally:
        jobs.files.remove(chosen.file)
    says = f"{counted(report.recorded, 'turn was', 'turns were')} recorded in {counted(report.sessions, 'session')}"
    there = f"; {counted(report.already_there, 'turn was', 'turns were')} there before" if report.already_there else ""
    return Imported(name=chosen.name, says=f"{says}{there}.", report=report)


def _named_error(error: errors.ImportRefused, chosen: Upload) -> errors.ImportRefused:
    """Return an error that has the name which the user knows instead of ours."""
    why = str(error).removeprefix(f"{error.path}:{error.line}: ")
    named = errors.ImportRefused(Path(chosen.name), error.line, why, skippable=error.skippable)
    for note in getattr(error, "__notes__", ()):
        named.add_note(note)
    return named


@action("/import/discard", title="Import", verb="record", whole=True)
async def discard(request: Request, caller: Caller, form: FormData) -> Redirect:
    """Delete an upload without importing it."""
    jobs, file = jobs_of(request), parameters.text(form, "file")
    jobs.files.find(owner_of(caller), file)
    jobs.files.remove(file)
    return Redirect("/import")


_NO_FILE: Final = Problem(
    status=400, title="No file was chosen", detail="Nothing was uploaded.", hint="Go back and choose a file."
)
_NOT_HERE: Final = Problem(
    status=400,
    title="This file cannot be uploaded",
    detail="",
    hint="Unpack it first, or run `mnemolog import DIR FILE` on the machine of the server.",
)
