"""Record turns from files: streaming, in transactions of bounded size. Safe to repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final

import msgspec

from mnemolog.adapters.importers.fields import parse_field_map
from mnemolog.adapters.importers.files import counted_files, files_in
from mnemolog.adapters.importers.read import open_file
from mnemolog.adapters.importers.recognition import Item, Recording
from mnemolog.adapters.importers.turn import DAMAGED, ImportedTurn, event_of, redacted
from mnemolog.adapters.support.store_access import log_of, visible_of
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors, session
from mnemolog.domain.display import counted
from mnemolog.domain.scope import Scope
from mnemolog.domain.spelling import spelled
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.runtime import cancellation
from mnemolog.projections.history.states import SessionStates, evolve
from mnemolog.projections.ports import Progress
from mnemolog.store import MemoryStore

DEFAULT_AGENT: Final = "imported"

OnRefused = Callable[[errors.ImportRefused], None]


class ImportReport(msgspec.Struct, kw_only=True):
    """The result of an import, or of its beginning while it runs."""

    files: int = 0
    turns: int = 0
    """Turns read from the files."""
    recorded: int = 0
    already_there: int = 0
    forgotten: int = 0
    """Turns in the place of forgotten content. They are not recorded again."""
    sessions: int = 0
    """Number of sessions that the turns belong to."""
    refused: list[str] = []
    """Skipped lines, each as `path:line: why`. Empty without `skip_bad`."""
    empty: list[str] = []
    """Files without a turn."""
    left_out: dict[str, int] = {}
    """By reason, what is in no turn: `empty`, `not said`, `on another branch`, `damaged`, `field mood`, and others
    (docs/import.md)."""
    skipped: list[str] = []
    """Files that hold no conversations, of folders, archives and patterns."""

    @property
    def so_far(self) -> str:
        """How many turns were recorded, in words."""
        there = f", {counted(self.already_there, 'turn')} were there before" if self.already_there else ""
        return f"{counted(self.recorded, 'turn')} recorded{there}"


def import_files(
    store: MemoryStore,
    paths: str | Path | Sequence[str | Path],
    *,
    format: str | None = None,  # noqa: A002
    fields: Sequence[str] = (),
    scope: str | None = None,
    agent: str | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Record the turns of files that other programs wrote (docs/import.md), also of folders and zip archives.

    `fields` names fields as `--field` does (`target=name`). `scope` and `agent` are used where a file names none. A
    turn that is recorded is skipped, and a forgotten one is only counted, so an interrupted import can be repeated. A
    text that has changed since is recorded as another turn. The first line that cannot be recorded raises
    `ImportRefused` (lines before it are recorded); with `skip_bad` such lines are listed in the report instead.
    Whatever stops an import has a note that says how many turns were recorded. `progress` receives bytes read and bytes
    in all.
    """
    log = log_of(store)
    field_map, report, sessions, left_out = parse_field_map(fields), ImportReport(), set[str](), Counter[str]()
    files = files_in(paths, format=format, fields=field_map)
    report.skipped = files.skipped
    on_refused: OnRefused | None = (lambda error: report.refused.append(str(error))) if skip_bad else None
    redaction, as_spelled = log.redaction(), cache(partial(_as_spelled, visible_of(store)))
    recording = Recording(log, log.head().position, partial(_record, states=visible_of(store).states))

    def record() -> None:
        cancellation.check()
        for item, outcome in recording.record_batch(skip=skip_bad):
            if not isinstance(outcome, errors.ImportRefused):
                report.turns += 1
                report.recorded += outcome is True
                report.already_there += outcome is False
                report.forgotten += outcome is None
                sessions.add(item.session)
            elif on_refused is None:
                raise outcome
            else:
                on_refused(outcome)

    try:
        for path, tell in counted_files(files.found, progress):
            turns_before = report.turns
            with open_file(path, format=format, fields=field_map, progress=tell, on_refused=on_refused) as opened:
                try:
                    for turn in with_defaults(opened.turns, scope=scope, agent=agent):
                        turn = redacted(turn, redaction)
                        if not turn.session.isascii() or not turn.scope.isascii():
                            name, within = as_spelled(turn.session, turn.scope)
                            turn = msgspec.structs.replace(turn, session=name, scope=within)
                        recording.add(turn.session, turn)
                        if recording.is_full:
                            record()
                except errors.ImportRefused:
                    record()  # The lines before it.
                    raise
                record()
                left_out.update(opened.left_out)
            report.files += 1
            if report.turns == turns_before:
                report.empty.append(str(path))
    except BaseException as error:
        error.add_note(report.so_far)
        raise
    report.sessions = len(sessions)
    report.left_out = dict(left_out + Counter({DAMAGED: len(report.refused)}))
    return report


def with_defaults(turns: Iterable[ImportedTurn], *, scope: str | None, agent: str | None) -> Iterator[ImportedTurn]:
    """Yield turns with this scope and agent where the file names none."""
    for turn in turns:
        if (scope and not turn.scope) or not turn.agent:
            yield msgspec.structs.replace(
                turn, scope=turn.scope or scope or "", agent=turn.agent or agent or DEFAULT_AGENT
            )
        else:
            yield turn


def _as_spelled(visible: VisibleEvents, name: str, scope: str) -> tuple[str, str]:
    """Return a session and a scope as the log spells them (`mnemolog.domain.spelling`)."""
    return spelled(name, visible.states.holds), scope and visible.boundary.narrow((Scope(scope),))[0]


def _record(tx: Transaction, item: Item, recording: Recording, *, states: SessionStates) -> bool:
    """Record a turn that its session does not have. Return whether it was recorded."""
    turn, stream = item.turn, session.session_stream(session.checked_session_id(item.session))
    state = tx.fold(stream, evolve, states.known)
    if state is None:
        started = session.new_session(title=turn.session_title, agent=turn.agent or DEFAULT_AGENT, scope=turn.scope)
        tx.append(stream, started)
    elif turn.scope and state.started.scope != turn.scope:
        raise errors.SessionExists(turn.session)
    if (key := recording.new_key(tx, item)) is None:
        return False
    if state is not None:
        session.opened(turn.session, state)
    tx.append(stream, event_of(turn), key=key)
    return True
