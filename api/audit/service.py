"""The audit service of a store: history, differences, receipts and exports."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from msgspec.structs import replace

from mnemolog.application.visible_events import VisibleEvents, gated, reading
from mnemolog.audit.diff import Diff, diff
from mnemolog.audit.effects import Effects, effects
from mnemolog.audit.exports import LogExport, export_log
from mnemolog.audit.receipt_audit import LIMIT, Judgement, ReceiptAudit, audit_receipts, judge, judgements
from mnemolog.audit.secret_scan import Secret, scan_secrets
from mnemolog.audit.subject import Subject, SubjectFile
from mnemolog.audit.verification import StoredEvent, append_head, event_at
from mnemolog.domain import errors
from mnemolog.domain.events import ContextServed, RecallServed
from mnemolog.domain.head import Head, Known, known_at, position_at, positions_between
from mnemolog.domain.result import Results
from mnemolog.domain.scope import parse_scopes
from mnemolog.domain.session import SessionLike, session_id_of
from mnemolog.domain.values import ORIGIN, By, Clock, Position, Time, When, checked_by, checked_whole, parse_time
from mnemolog.forgetting.history import Erasure, ForgottenEvent, PendingErasure, forgotten
from mnemolog.forgetting.service import Forgetting
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.runtime.files import local_path
from mnemolog.projections.context.packing import Tokenizer
from mnemolog.projections.context.service import Contexts
from mnemolog.projections.history.timeline import Moment, timeline
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet

DIFF_TURNS_MAX: Final = 1_000


@gated("audit.")
class AuditService:
    """Shows the history of a store, compares it and exports it: `store.audit`."""

    def __init__(
        self,
        log: EventLog,
        visible: VisibleEvents,
        clock: Clock,
        projections: ProjectionSet,
        contexts: Contexts,
        forgetting: Forgetting,
    ) -> None:
        self._log = log
        self._visible = visible
        self._contexts = contexts
        self._forgetting = forgetting
        self._projections, self._clock = projections, clock

    def append_head(self, file: str | Path) -> Head:
        """Append the head of the log to a file of heads (JSON Lines), which `verify(heads=file)` checks.

        - `file`: the file; keep it where writers of the store cannot change it

        The head is durable on return. Raises `LogDamaged` where the last head in the file contradicts the log,
        `WitnessUnreadable` for an invalid line, `StoreNotWritable`: nothing was written.
        """
        self._visible.boundary.require_none("audit.append_head")
        appended = append_head(self._log, local_path("file", file), now=self._clock.now())
        return Head(position=appended.position, digest=appended.digest)

    def timeline(
        self,
        *,
        after: When = ORIGIN,
        upto: When | None = None,
        session: SessionLike | None = None,
        since: Time | None = None,
        until: Time | None = None,
        by: By = "recorded",
        progress: Progress | None = None,
    ) -> Iterator[Moment]:
        """Yield what happened in a part of the log, event by event, in words.

        - `after`: only events after this position or time of recording
        - `upto`: only events up to this position or time, included; None for the head
        - `session`: only events of this session
        - `since`: only events of this time or later; see `by`
        - `until`: only events before this time; see `by`
        - `by`: whether these times are those of recording (`recorded`), or those when turns were `said`; other events
          count as said when they were recorded
        - `progress`: called now and then with what is done and what there is to do

        Holds one batch of events in memory, however long the log is. Raises `InvalidInput` for a position past the
        head, `UnknownSession`, `UndecodableEvent`.
        """
        first, last = self._range("after", after, "upto", upto)
        of = None if session is None else self._visible.state(session_id_of(session)).session
        begin = None if since is None else parse_time("since", since)
        end = None if until is None else parse_time("until", until)
        if checked_by(by) == "recorded":
            earliest, latest = positions_between(begin, end, self._log)
            first = max(first, earliest or ORIGIN)
            last = last if latest is None else min(last, latest)
            begin = end = None
        return timeline(
            self._log,
            self._visible.read,
            after=first,
            upto=last,
            session=of,
            said_since=begin,
            said_until=end,
            progress=progress,
        )

    def event(self, position: int) -> StoredEvent:
        """Return one event: its stored columns, whether its digest is valid, and its decoded content.

        - `position`: its position

        Of a damaged event everything readable is returned. In a store for scopes, an event that refers to what lies
        outside has neither these references nor its stored state. Raises `InvalidInput` for a position outside the log,
        `LogDamaged` if the event at that position is gone.
        """
        found = event_at(self._log, position)
        if isinstance(found.event, RecallServed | ContextServed):
            is_shown = self._visible.shows_receipt(found.event)
        else:
            is_shown = self._visible.shows_stream(found.stream)
        if not is_shown:
            raise self._visible.boundary.outside(f"position {position} is outside of it")
        shown = self._visible.admitted(found)
        return found if shown.event == found.event else replace(shown, state=b"")

    def diff(
        self,
        before: When,
        after: When | None = None,
        *,
        turns_max: int = DIFF_TURNS_MAX,
        progress: Progress | None = None,
    ) -> Diff:
        """Return what changed between two positions or times of recording.

        - `before`: the earlier one
        - `after`: the later one; None for the head
        - `turns_max`: how many of the turns recorded in between are listed; the others are counted
        - `progress`: called now and then with what is done and what there is to do

        Raises `InvalidInput` for a position past the head or a range that runs backwards, `UndecodableEvent`.
        """
        first, last = self._range("before", before, "after", after)
        return diff(
            self._visible,
            self._projections,
            before=first,
            after=last,
            turns_max=checked_whole("turns_max", turns_max),
            progress=progress,
        )

    def scan_secrets(
        self, *, after: When = ORIGIN, upto: When | None = None, progress: Progress | None = None
    ) -> Results[Secret]:
        """Return the secrets in a part of the log, as redaction knows them.

            store = MemoryStore.open("memory/", model=None)
            store.session("trip").record("user", "the database is postgres://ada:lovelace@db")
            store.audit.scan_secrets()[0].kind  # -> 'url-password'

        - `after`: only events after this position or time of recording
        - `upto`: only events up to this position or time, included; None for the head
        - `progress`: called now and then with what is done and what there is to do

        The answer says where secrets are and how long, not what they are (docs/redaction.md). Raises `InvalidInput`,
        `UndecodableEvent`.
        """
        first, last = self._range("after", after, "upto", upto)
        found = scan_secrets(self._log, self._visible.read, after=first, upto=last, progress=progress)
        return Results(found)

    def export(
        self,
        file: str | Path | BinaryIO,
        *,
        after: When = ORIGIN,
        upto: When | None = None,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> LogExport:
        """Write the log as JSON Lines with all digests.

        - `file`: a path, or an open binary file
        - `after`: only events after this position or time of recording
        - `upto`: only events up to this position or time, included; None for the head
        - `replace`: replace a file that exists
        - `progress`: called now and then with what is done and what there is to do

        The export can be verified without mnemolog (docs/verify_export.py) and turned into a store (`import_log`).
        Encrypted content stays encrypted. Given a path, the file is created complete or not at all, readable by its
        owner only; an open file is written to directly. Raises `InvalidInput` if the path exists and `replace` is
        not set, `LogDamaged` at the first event whose digest is invalid, `StoreNotWritable`, `StorageFull`.
        """
        first, last = self._to_export(after, upto)
        target = local_path("file", file) if isinstance(file, str | Path) else file
        return export_log(self._log, target, after=first, upto=last, replace=replace, progress=progress)

    def subject(
        self,
        file: str | Path | BinaryIO,
        *,
        scope: str | Sequence[str],
        as_of: When | None = None,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> SubjectFile:
        """Write what is stored of a person as a zip archive: to read, for programs, and to import (docs/subject.md).

            store = MemoryStore.open("memory/", model=None)
            store.session("trip", scope="acme/alice").record("user", "I live in Porto.")
            store.audit.subject("alice.zip", scope="acme/alice").records["turn"]  # -> 1

        - `file`: a path, or an open binary file
        - `scope`: the scope of the person, or several: all at or below them is in the file, and nothing of others
        - `as_of`: what was stored at this position or time of recording; None for now
        - `replace`: replace a file that exists
        - `progress`: called now and then with what is done and what there is to do

        Given a path, the file is created complete or not at all, readable by its owner only. Raises `InvalidInput` if
        the path exists and `replace` is not set, and for a scope that covers everything; `OutsideScope`, `LogDamaged`,
        `UndecodableEvent`, `StoreNotWritable`, `StorageFull`.
        """
        scopes = self._visible.boundary.narrow(parse_scopes(scope))
        if not scopes:
            raise errors.InvalidInput("scope", "name the scope of a person; `export` writes everything")
        known = Known(self._log.head().position, self._clock.now())
        if as_of is not None:
            known = known_at("as_of", as_of, self._log)
        target = local_path("file", file) if isinstance(file, str | Path) else file
        person = Subject(self._visible, self._projections, self._contexts, scopes, known)
        with reading(self._visible, "audit.subject", scope=scopes) as shown:
            return person.write(target, show=shown.add, replace=replace, progress=progress)

    def receipts(
        self,
        *,
        since: Time | None = None,
        after: When = ORIGIN,
        limit: int = LIMIT,
        tokenizer: Tokenizer | None = None,
        progress: Progress | None = None,
    ) -> ReceiptAudit:
        """Repeat the recall of every receipt, or build its context again, as of its head and now.

        - `since`: only receipts made at this time or later
        - `after`: only receipts after this position or time of recording
        - `limit`: maximum number of receipts
        - `tokenizer`: the function that counted the tokens of contexts, for those whose tokens the caller counted
        - `progress`: called now and then with what is done and what there is to do

        In a store within a scope these are the receipts of questions that were asked inside of it. Reports for each
        whether its answer or its text is reproduced, and which turns it would gain and lose today. If the model that
        answered is not available, the report says so. Raises `InvalidInput`; differences do not raise.
        """
        return audit_receipts(
            self._visible,
            self._contexts,
            since=None if since is None else parse_time("since", since),
            after=position_at("after", after, self._log),
            limit=limit,
            tokenizer=tokenizer,
            progress=progress,
        )

    def effects(self, position: int, *, as_of: When | None = None) -> Effects:
        """Return what a turn led to (docs/provenance.md).

            store = MemoryStore.open("memory/", model=None, receipts=True)
            heard = store.session("trip").record("tool", "The ferry is free on Mondays.")
            store.recall("ferry")
            [item.query for item in store.audit.effects(heard.position).shown_in]  # -> ['ferry']

        - `position`: the position of the turn
        - `as_of`: what it had led to at this position or time of recording; None for now

        `shown_in` are the recalls and contexts whose receipts show it, `rests_on` the facts asserted because of it:
        both are exact. `came_after` are the turns of sessions that had it before them: what may be due to it. A store
        for a scope lists what is inside. Raises `InvalidInput` for what is no turn.
        """
        return effects(self._visible, self._projections, self._clock, position, as_of)

    def judge(
        self,
        receipt: int,
        *,
        good: Sequence[int] = (),
        bad: Sequence[int] = (),
        nothing: bool = False,
        by: str = "",
    ) -> Judgement:
        """Record which turns answered the question of a receipt (`recall.judged`).

        - `receipt`: the position of a receipt, `Recall.receipt` or `Context.receipt`
        - `good`: positions of turns that answer the question, also of turns that the recall did not find
        - `bad`: positions of hits that do not answer it
        - `nothing`: True if no turn of the store answers it
        - `by`: who judged

        A later judgement of the same receipt replaces an earlier one. Raises `InvalidInput` if there is no such
        receipt, if its question or a turn was forgotten, or if a position is no turn or no hit; nothing was written.
        """
        self._visible.boundary.require_none("audit.judge")
        return judge(self._log, receipt, good=good, bad=bad, nothing=nothing, by=by)

    def judgements(self) -> Results[Judgement]:
        """Return the last judgement of every judged receipt, in the order of the receipts.

        If the question of a receipt was forgotten, or a right answer, `Judgement.unusable` says so.
        """
        self._visible.boundary.require_none("audit.judgements")
        return Results(judgements(self._log))

    def forgotten(self) -> Results[ForgottenEvent]:
        """Return every event whose content was forgotten, in the order of the requests. Needs no keys."""
        self._visible.boundary.require_none("audit.forgotten")
        return Results(forgotten(self._log))

    def erasures(self) -> Results[Erasure]:
        """Return all requests to forget, and all revoked tokens. They hold no content and no secret.

        Keep them apart from backups of log and keys, and pass them to `restore_backup`.
        """
        self._visible.boundary.require_none("audit.erasures")
        return Results(self._forgetting.erasures())

    def pending_erasures(self) -> Results[PendingErasure]:
        """Return the requests to forget that are not carried out everywhere, with the nodes that have not confirmed.

        A node serves nothing that was forgotten, confirmed or not.
        """
        self._visible.boundary.require_none("audit.pending_erasures")
        return Results(self._forgetting.pending_erasures())

    def _to_export(self, after: When, upto: When | None) -> tuple[Position, Position]:
        """Return the positions after and up to which the log is exported: all in between are shown."""
        with reading(self._visible, "audit.export") as shown:
            self._visible.boundary.require_none("audit.export")
            first, last = self._range("after", after, "upto", upto)
            if last > first:
                shown.add(first + 1, last)
        return first, last

    def _range(self, first: str, after: When, last: str, upto: When | None) -> tuple[Position, Position]:
        begin = position_at(first, after, self._log)
        end = self._log.head().position if upto is None else position_at(last, upto, self._log)
        if begin > end:
            raise errors.InvalidInput(
                last, f"position {end} comes before the beginning of the range; give the earlier one first"
            )
        return begin, end
