"""Record the turns of files that their sessions do not have yet: streaming, in transactions of bounded size."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache, partial
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from mnemolog.adapters.importers.formats import flat
from mnemolog.adapters.importers.read import counted_files, files_in, open_file, read_turns
from mnemolog.adapters.importers.source import Source
from mnemolog.adapters.importers.turn import DAMAGED, DUPLICATE, ImportedTurn, event_of, parse_field_map, redacted
from mnemolog.adapters.support.store_access import log_of, visible_of
from mnemolog.application.facts import FactHow
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors, session
from mnemolog.domain.display import counted
from mnemolog.domain.events import IMPORTED_KEY, Forgotten, TurnRecorded
from mnemolog.domain.request import request_key
from mnemolog.domain.scope import Scope
from mnemolog.domain.session import checked_key, session_stream
from mnemolog.domain.spelling import spelled
from mnemolog.domain.values import Micros, Position, to_datetime
from mnemolog.infra.log.event_log import EventLog
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
    field_map = parse_field_map(fields)
    report = ImportReport()
    sessions = set[str]()
    left_out = Counter[str]()
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
                if opened.format is flat.SUBJECT:
                    _record_facts(store, path)
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


def _record_facts(store: MemoryStore, path: Path) -> None:
    """Assert the facts of a person's file, whose turns are recorded; those of before are not asserted again."""
    with Source(path) as source:
        for number, row in source.rows():
            if row.get("record") == "fact" and row.get("state") != "distrusted":
                try:
                    _assert(store, row)
                except (KeyError, TypeError, ValueError) as error:
                    raise errors.ImportRefused(path, number, f"it is no fact: {error!r}") from error


def _assert(store: MemoryStore, row: dict[str, Any]) -> None:
    found = (log_of(store).position_of(session.session_stream(of), key) for of, key in row["evidence"])
    because = [position for position in found if position is not None]
    how: FactHow = {"because": because, "valid_from": row["valid_from"], "maker": row["maker"]}
    with request_key(row["place"]):
        made = store.assert_fact(row["key"], row["value"], scope=row["scope"], **how)
    if row["retracted"] is not None:
        store.retract_fact(made.position, reason=row["reason"])


def with_defaults(turns: Iterable[ImportedTurn], *, scope: str | None, agent: str | None) -> Iterator[ImportedTurn]:
    """Yield turns with this scope and agent where the file names none."""
    for turn in turns:
        yield msgspec.structs.replace(turn, scope=turn.scope or scope or "", agent=turn.agent or agent or DEFAULT_AGENT)


def _as_spelled(visible: VisibleEvents, name: str, scope: str) -> tuple[str, str]:
    """Return a session and a scope as the log spells them (`mnemolog.domain.spelling`)."""
    return spelled(name, visible.states.holds), scope and visible.boundary.narrow((Scope(scope),))[0]


def _record(tx: Transaction, item: "Item", recording: "Recording", *, states: SessionStates) -> bool:
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


TURNS_SHOWN: Final = 3


class TurnPreview(msgspec.Struct, frozen=True, kw_only=True):
    """A turn as it would be recorded."""

    where: str
    """`line 12`, or `message 12` in a JSON document."""
    session: str
    session_title: str
    scope: str
    agent: str
    role: str
    speaker: str | None
    said_at: datetime | None
    """None if the file does not say: then it is the time of the import."""
    text: str


class FilePreview(msgspec.Struct, frozen=True, kw_only=True):
    """What an import of one file would record."""

    path: str
    format: str = ""
    """Empty for a file of a folder or an archive that holds no conversations."""
    kind: str
    """What files of this format are, for people."""
    turns: int = 0
    sessions: int = 0
    mapping: dict[str, str] = {}
    """By part of a turn the fields of the file that it comes from. Empty for a transcript."""
    first: tuple[TurnPreview, ...] = ()
    """The first three turns."""
    refused: tuple[str, ...] = ()
    """Lines that cannot be recorded, each as `path:line: why`."""
    left_out: dict[str, int] = {}
    """By reason, what is no turn, as in `ImportReport`."""


def preview_files(
    paths: str | Path | Sequence[str | Path],
    *,
    format: str | None = None,  # noqa: A002
    fields: Sequence[str] = (),
    scope: str | None = None,
    agent: str | None = None,
    progress: Progress | None = None,
) -> list[FilePreview]:
    """Return for each file what `import_files` would record of it. Reads the files to their end; writes nothing.

    The arguments are those of `import_files`. Lines that cannot be recorded are listed. Raises `InvalidInput` for
    arguments that do not fit, and `ImportRefused` for a file that cannot be read as a whole.
    """
    field_map, previews = parse_field_map(fields), []
    files = files_in(paths, format=format, fields=field_map)
    for path, tell in counted_files(files.found, progress):
        refused: list[errors.ImportRefused] = []
        with open_file(path, format=format, fields=field_map, progress=tell, on_refused=refused.append) as opened:
            turns = with_defaults(opened.turns, scope=scope, agent=agent)
            first = list(islice(turns, TURNS_SHOWN))
            count = 0
            sessions = set()
            keys = set()
            for count, turn in enumerate(chain(first, turns), start=1):  # noqa: B007
                sessions.add(turn.session)
                keys.add(hash((turn.session, turn.key, turn.text)))
            lookup = None if opened.reader is None else opened.reader.lookup
            previews.append(
                FilePreview(
                    path=str(path),
                    format=opened.format.name,
                    kind=opened.format.kind,
                    turns=count,
                    sessions=len(sessions),
                    mapping={} if lookup is None else lookup.mapping(),
                    first=tuple(map(_turn, first)),
                    refused=tuple(map(str, refused)),
                    left_out=opened.left_out + Counter({DAMAGED: len(refused), DUPLICATE: count - len(keys)}),
                )
            )
    return previews + [FilePreview(path=path, kind="no conversations; skipped") for path in files.skipped]


def holds_turns(
    paths: Sequence[Path],
    *,
    format: str | None = None,  # noqa: A002
    fields: Sequence[str] = (),
    skip_bad: bool = False,
) -> bool:
    """Whether files have at least one turn. Raises `ImportRefused` for one that cannot be read up to there."""
    field_map, on_refused = parse_field_map(fields), (lambda _error: None) if skip_bad else None
    files = files_in(paths, format=format, fields=field_map)
    turns = (read_turns(file, format=format, fields=field_map, on_refused=on_refused) for file in files.found)
    return next(chain.from_iterable(turns), None) is not None


def _turn(turn: ImportedTurn) -> TurnPreview:
    shared = ("where", "session", "session_title", "scope", "role", "speaker", "text")
    said_at = None if turn.said_at is None else to_datetime(Micros(turn.said_at))
    return TurnPreview(**{name: getattr(turn, name) for name in shared}, agent=turn.agent or "", said_at=said_at)


BATCH_MAX: Final = 500
BATCH_CHARACTERS_MAX: Final = 4 << 20

Said = tuple[bytes, int | None]
"""Digest of role, speaker and text, and the time of saying. Only in memory."""
Outcome = bool | None | errors.ImportRefused
"""Whether a turn was recorded; None for a forgotten one, which stays forgotten."""


class Item(NamedTuple):
    """A turn to record in a session."""

    session: str
    turn: ImportedTurn
    number: int
    """Among the turns of this run that say the same. 0 if its key alone can tell whether the session has it."""


class Recording:
    """Records turns in batches, by `write`, which asks `new_key` whether the session has a turn.

    A turn without an id may have been recorded under another key: its place in the file has changed, or an earlier
    version of mnemolog made its key from its text. So a session is read up to the position `upto` once such a turn is
    not found by its key. Needs about a hundred bytes of memory per turn of sessions that existed there.
    """

    def __init__(self, log: EventLog, upto: Position, write: "Callable[[Transaction, Item, Recording], bool]") -> None:
        self._log = log
        self._upto = upto
        self._write = write
        self._secret = b"" if log.keyring is None else log.keyring.secret()
        self._batch: list[Item] = []
        self._characters = 0
        self._began: dict[str, bool] = {}
        """Whether a session began before `upto`."""
        self._numbers: Counter[tuple[str, Said]] = Counter()
        self._read: dict[str, tuple[Counter[Said], set[bytes]]] = {}
        """Of sessions: what they said, and of the keys of forgotten turns the digests and the moments."""

    @property
    def is_full(self) -> bool:
        """Whether it is time to record the batch."""
        return len(self._batch) >= BATCH_MAX or self._characters >= BATCH_CHARACTERS_MAX

    @property
    def has_read(self) -> bool:
        """Whether it has read a session that held turns."""
        return any(said for said, _ in self._read.values())

    def add(self, session: str, turn: ImportedTurn) -> None:
        """Add a turn to the batch. Turns come in the order of their file."""
        number = 0
        if turn.by_place:
            if session not in self._began:
                first = self._log.first_event(session_stream(session))
                self._began[session] = first is not None and first.position <= self._upto
            if self._began[session]:
                said = session, self._said(turn)
                number = self._numbers[said] = self._numbers[said] + 1
        self._batch.append(Item(session, turn, number))
        self._characters += len(turn.text)

    def record_batch(self, *, skip: bool = True) -> list[tuple[Item, Outcome]]:
        """Record the batch in one transaction, up to the first turn that is refused, or without such turns."""
        batch, self._batch, self._characters = self._batch, [], 0
        if not batch:
            return []
        last = batch[-1]
        if last.number and self._log.position_of(session_stream(last.session), last.turn.key) is None:
            self._before(last.session)  # A file that has grown: read before the transaction, which stops other writers.

        def work(tx: Transaction) -> list[tuple[Item, Outcome]]:
            outcomes: list[tuple[Item, Outcome]] = []
            for item in batch:
                try:
                    outcomes.append((item, self._write(tx, item, self)))
                except errors.ContentForgotten:
                    outcomes.append((item, None))
                except (errors.InvalidInput, errors.SessionError) as error:
                    turn = item.turn
                    outcomes.append((item, errors.ImportRefused(turn.path, turn.line, str(error), skippable=True)))
                    if not skip:
                        break
            return outcomes

        return self._log.appends.transact(work)

    def new_key(self, tx: Transaction, item: Item) -> str | None:
        """Return the key to record a turn under, None if the session has the turn.

        If the text has changed since it was recorded, that is the next free one of `KEY`, `KEY-2`, `KEY-3`. Raises
        `ContentForgotten`: nothing tells whether the text is the forgotten one, so it must not be recorded.
        """
        turn, stream = item.turn, session_stream(item.session)
        key, number = turn.key, 1
        while (known := tx.find(stream, checked_key(key))) is not None:
            if isinstance(known.event, Forgotten):
                raise errors.ContentForgotten(stream=stream, key=key, position=known.position)
            if turn.is_final or (isinstance(known.event, TurnRecorded) and _words(known.event) == _words(turn)):
                return None
            number += 1
            key = f"{turn.key}-{number}"
        if item.number:
            (said, forgotten), wanted = self._before(item.session), self._said(turn)
            if item.number <= said[wanted]:
                return None
            if wanted[0] in forgotten or turn.key.rpartition("/")[0].encode() in forgotten:
                raise errors.ContentForgotten(stream=stream, key=key, position=self._upto)
        return key

    def _before(self, session: str) -> tuple[Counter[Said], set[bytes]]:
        if session not in self._read:
            said, forgotten = Counter[Said](), set[bytes]()
            for events in self._log.read_stream(session_stream(session), upto=self._upto):
                for recorded in events:
                    key = recorded.key or ""
                    if isinstance(recorded.event, TurnRecorded):
                        said[self._said(recorded.event)] += 1
                    elif IMPORTED_KEY.fullmatch(key.encode()):
                        forgotten.add(bytes.fromhex(key[:24]))
                    elif isinstance(recorded.event, Forgotten) and "@" in key:
                        forgotten.add(key.rpartition("/")[0].encode())
            self._read[session] = said, forgotten
        return self._read[session]

    def _said(self, turn: ImportedTurn | TurnRecorded) -> Said:
        # Keys were made from this digest, so those of forgotten turns still tell which text must not come back.
        digest = blake2b("\0".join(_words(turn)).encode(), key=self._secret, digest_size=12).digest()
        return digest, turn.said_at


def _words(turn: ImportedTurn | TurnRecorded) -> tuple[str, str, str]:
    return turn.role, turn.speaker or "", turn.text
