"""One person's data in one file: what is stored in their scopes, and nothing of others (docs/subject.md)."""

import hashlib
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import lru_cache, partial
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from mnemolog.application.facts import Distrusts, retention_at
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.audit.receipt_audit import Receipt
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.errors import as_plain
from mnemolog.domain.events import (
    RECALLS_STREAM,
    ContextServed,
    FactAsserted,
    Forgotten,
    RecallServed,
    RecordedEvent,
    SessionStarted,
    TurnRecorded,
)
from mnemolog.domain.facts import facts_scope
from mnemolog.domain.head import Known
from mnemolog.domain.result import Result
from mnemolog.domain.scope import Boundary, Scopes, covered
from mnemolog.domain.session import original_of, session_of
from mnemolog.domain.values import ORIGIN, Position, UtcTime, to_datetime
from mnemolog.domain.working_memory import all_values, notes
from mnemolog.infra.runtime.files import file_to_write
from mnemolog.projections.context.service import Contexts
from mnemolog.projections.history.timeline import describe
from mnemolog.projections.ports import Progress, tell
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.read_models import turn_of
from mnemolog.projections.recall.question import question
from mnemolog.projections.sql import distrust, fact_queries, queries, shown
from mnemolog.results import Note, Task

STREAMS_KEPT_MAX: Final = 10_000
"""Streams for which it is remembered whose they are; that of another one is read again."""
_HEADINGS: Final = {
    **dict.fromkeys(("turn", "event", "forgotten"), "What was said and done"),
    "session": "What sessions hold",
    "fact": "Facts, with all that was believed before",
    "standing": "What holds for all answers",
    "shown": "Where it was shown",
    "distrust": "What is not trusted",
    "retention": "How long it is kept",
}
"""Of the parts of the page, by the records in them."""
_NAMED: Final = ("said_at", "served_at", "valid_from", "at", "speaker", "role", "key", "session", "scope")
"""Fields in the head of a record on the page; one that was said is a paragraph, and the others stand below."""
_PAGE: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>What is stored of {0}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body {{ font: 1rem/1.5 sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem }}
article {{ border-top: 1px solid #ccc; padding: .5rem 0; break-inside: avoid; overflow-wrap: anywhere }}
header, small {{ color: #555; font-size: .85rem }} p {{ margin: .25rem 0; white-space: pre-wrap }}
</style></head><body><h1>What is stored of {0}</h1>
<p>As of {1}. The same is in data.jsonl, for programs; manifest.json says what is left out.</p>
"""


class SubjectFile(Result, frozen=True, kw_only=True):
    """A person's file, as its `manifest.json` says."""

    format: str = "mnemolog-subject/1"
    log_id: str
    scopes: Scopes
    """Whose data it has: all at or below these."""
    head: str
    """The position of the log that it was made at, with the digest there: `POSITION:DIGEST`."""
    at: UtcTime
    """When the event there was recorded."""
    records: dict[str, int]
    """How many lines of `data.jsonl` there are of each kind: `turn`, `fact`, `shown` and others."""
    files: dict[str, str]
    """The SHA-256 of each other file of the archive, in hexadecimal, by name."""
    left_out: tuple[str, ...]
    """What is not in the file, and why; with numbers, as far as the caller may see it."""


class _Own(VisibleEvents):
    """What belongs to a person: what is inside of the scopes, and visible.

    Of a session there that continues one of another scope only its own turns do.
    """

    def __init__(self, visible: VisibleEvents, scopes: Scopes) -> None:
        super().__init__(visible.log, visible.states.within(Boundary(scopes, visible.boundary.has)), dict)
        self._seen, self.shared = visible, set[str]()
        """The streams of sessions that continue one of another scope."""
        self.scope_of = lru_cache(STREAMS_KEPT_MAX)(self._scope_of)
        """Returns the scope of the session that a stream is of; None for one outside, and for another stream."""

    def shows_stream(self, stream: str) -> bool:
        """Whether the turns or facts of a stream belong to the person."""
        return self.scope_of(stream) is not None or super().shows_stream(stream)

    def shows(self, recorded: RecordedEvent) -> bool:
        """Whether an event belongs to the person."""
        is_turn = isinstance(recorded.event, TurnRecorded | Forgotten)
        return super().shows(recorded) and (is_turn or recorded.stream not in self.shared)

    def _scope_of(self, stream: str) -> str | None:
        first = self.log.first_event(stream) if session_of(stream) is not None else None
        if first is None or not isinstance(start := first.event, SessionStarted):
            return None
        if not covered(self.boundary.scopes, start.scope) or not self._seen.shows_stream(stream):
            return None
        if not super().shows_stream(stream):
            self.shared.add(stream)
        return start.scope


class Subject:
    """What is stored of a person at a position of the log, and about a time."""

    def __init__(
        self, visible: VisibleEvents, projections: ProjectionSet, contexts: Contexts, scopes: Scopes, known: Known
    ) -> None:
        self._visible = visible
        self._own = _Own(visible, scopes)
        self._log = visible.log
        self._projections = projections
        self._contexts = contexts
        self._scopes = scopes
        self._known = known
        self._sessions, self._keys = dict[str, None](), dict[tuple[str, str], None]()
        self._covers = dict[int, set[Position]]()
        """What is distrusted, by the position of the distrust."""

    def write(
        self,
        target: Path | BinaryIO,
        *,
        show: Callable[[int, int], None],
        replace: bool = False,
        progress: Progress | None = None,
    ) -> SubjectFile:
        """Write the file, renamed when it is complete, or to an open one. `show` gets the positions in it.

        What is forgotten after the data was written is not on the page any more. Raises as `export_log` does; then no
        file is left.
        """
        at = to_datetime(self._log.recorded_at(self._known.upto))
        files = dict[str, str]()
        counts = Counter[str]()
        page = partial(_page, _PAGE.format(escape(", ".join(self._scopes)), at.isoformat()))
        with (
            file_to_write(target, replace=replace) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name, made in (("data.jsonl", _lines), ("index.html", page)):
                counts, digest = Counter[str](), hashlib.sha256()
                with archive.open(name, "w", force_zip64=True) as member:
                    for part in made(self._records(counts, show, progress)):
                        digest.update(part)
                        member.write(part)
                files[name] = digest.hexdigest()
            about = SubjectFile(
                log_id=self._log.log_id,
                scopes=self._scopes,
                head=str(self._log.head_at(self._known.upto)),
                at=at,
                records=dict(counts),
                files=files,
                left_out=(
                    "who asked in other scopes, and what: it is about others",
                    f"all but the turns of {len(self._own.shared)} sessions that continue one of another scope",
                    "what is referred to in other scopes, and what refers here from there: it is about others",
                    "why more than these scopes was distrusted, and judgements of answers: they may be about others",
                    "receipts that were forgotten, documents and threads of adapters: they have no scope",
                    "vectors and indexes: they are made of what is here",
                ),
            )
            archive.writestr("manifest.json", about.to_json(2))
        return about

    def _records(
        self, counts: Counter[str], show: Callable[[int, int], None], progress: Progress | None
    ) -> Iterator[dict[str, Any]]:
        """Yield the records: the history, what followed from it, and what was done with it. `record` is the kind."""
        self._projections.caught_up()
        later = (self._memories, self._facts, self._standing, self._shown, self._distrusts, self._kept)
        for record in chain(self._history(progress), chain.from_iterable(part() for part in later)):
            counts[record["record"]] += 1
            if position := record.get("position"):
                show(position, position)
            yield record

    def _history(self, progress: Progress | None) -> Iterator[dict[str, Any]]:
        for reached, batch in self._own.read(after=ORIGIN, upto=self._known.upto):
            for item in batch:
                if isinstance(item.event, FactAsserted):  # A record of its own.
                    self._keys[facts_scope(item.stream) or "", item.event.key] = None
                else:
                    yield self._happened(item)
            with self._projections.views().database.reading() as connection:
                for made, position in distrust.about(connection, [item.position for item in batch]):
                    self._covers.setdefault(made, set()).add(position)
            tell(progress, reached, self._known.upto)

    def _happened(self, item: RecordedEvent) -> dict[str, Any]:
        event = item.event
        session = session_of(item.stream)
        scope = self._own.scope_of(item.stream)
        if isinstance(event, TurnRecorded) and session is not None and scope is not None:
            turn = turn_of(item, session=session, scope=scope).to_dict()
            return {"record": "turn", "place": self._place(item.position), **turn, "original": original_of(event)}
        if isinstance(event, SessionStarted) and session is not None:
            self._sessions[session] = None
        place = {"position": item.position, "at": to_datetime(item.recorded_at), "session": session, "scope": scope}
        if isinstance(event, Forgotten):
            return {"record": "forgotten", **place, "what": event.was}
        return {"record": "event", **place, "topic": event.topic, "what": describe(event), "event": event}

    def _place(self, position: int) -> str:
        """Return what stands for the key of a turn without one, where the file is imported."""
        return f"{self._log.log_id[:12]}@{position}"

    def _memories(self) -> Iterator[dict[str, Any]]:
        for session in self._sessions:
            state = self._own.state_at(session, self._known.upto, is_in_log=True)
            yield {
                "record": "session",
                "session": session,
                "scope": state.started.scope,
                "title": state.started.title,
                "agent": state.started.agent,
                "task": state.task and Task.of(state.task),
                "values": all_values(state, self._known.valid_at),
                "notes": list(map(Note.of, notes(state))),
            }

    def _facts(self) -> Iterator[dict[str, Any]]:
        for scope, key in self._keys:
            with self._projections.views().database.reading() as connection:
                facts = [*map(self._own.admitted, fact_queries.history(connection, scope, key, self._known))]
                turns = queries.turns_at(connection, [position for fact in facts for position in fact.because])
            for fact in facts:
                said = [turns[position] for position in fact.because if position in turns]
                evidence = [(turn.session, turn.key or self._place(turn.position)) for turn in said]
                yield {"record": "fact", "place": self._place(fact.position), **fact.to_dict(), "evidence": evidence}

    def _standing(self) -> Iterator[dict[str, Any]]:
        asked = msgspec.structs.replace(question("*", k=1, scope=self._scopes), query="", mode="text")
        found = self._contexts.standing(asked, as_of=self._known.upto)
        inside = self._own.inside(item.position for item in found)
        for item in found:
            if item.position in inside:
                yield {"record": "standing", **self._own.admitted(item).to_dict()}

    def _shown(self) -> Iterator[dict[str, Any]]:
        for item in chain.from_iterable(self._log.read_stream(RECALLS_STREAM, upto=self._known.upto)):
            if isinstance(item.event, RecallServed | ContextServed):
                receipt, turns = Receipt.of(item, item.event), sorted(self._own.inside(shown.shown_by(item.event)))
                if self._own.shows_receipt(item.event):
                    yield {"record": "shown", **self._own.admitted(receipt).to_dict(), "turns": turns}
                elif turns and self._visible.shows_receipt(item.event):
                    yield {"record": "shown", "kind": receipt.kind, "served_at": receipt.served_at, "turns": turns}

    def _distrusts(self) -> Iterator[dict[str, Any]]:
        for found in Distrusts(self._visible, self._projections).all():
            made, source = found.position or ORIGIN, found.source
            if made in self._covers and made <= self._known.upto:
                within = all(covered(self._scopes, scope) for scope in source.scopes or [""])
                names_own = self._own.admitted(source) == source and not (source.appended_by or source.maker)
                yield {
                    "record": "distrust",
                    "position": made,
                    "at": found.at,
                    "ended": found.undone is not None and found.undone <= self._known.upto,
                    "covers": sorted(self._covers[made]),
                    "what": source.reason if within or names_own else None,
                }

    def _kept(self) -> Iterator[dict[str, Any]]:
        kept = retention_at(self._log, self._known.upto)
        for scope in self._scopes:
            rule = kept.rule_of(scope)
            least = kept.min_age_of(scope)
            is_held = bool(kept.holds_on([scope], [scope]))
            yield {
                "record": "retention",
                "scope": scope,
                "max_age": rule and rule.max_age,
                "min_age": timedelta(microseconds=least) if least else None,
                "keep_facts": rule and rule.keep_facts,
                "held": is_held,
            }


def _lines(records: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    return (to_printable_json(record, enc_hook=as_plain) + b"\n" for record in records)


def _page(head: str, records: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Yield the page, given what it begins with. Nothing that was recorded is markup."""
    yield head.encode()
    heading = ""
    for record in records:
        kind = record.pop("record")
        if heading != _HEADINGS.get(kind, kind):
            heading = _HEADINGS.get(kind, kind)
            yield f"<h2>{escape(heading)}</h2>\n".encode()
        shown = {name: value for name, value in record.items() if value not in (None, "", [], {}, ())}
        text = {
            name: escape(value if isinstance(value, str) else to_printable_json(value, enc_hook=as_plain).decode())
            for name, value in shown.items()
            if name not in ("original", "place", "evidence")
        }
        above = " ".join(f"<bdi>{text.pop(name)}</bdi>" for name in _NAMED if name in text)
        said = [f'<p dir="auto">{text.pop(name)}</p>' for name in ("text", "what", "query", "value") if name in text]
        below = ", ".join(f"{name}: <bdi>{value}</bdi>" for name, value in text.items())
        yield f"<article><header>{above}</header>{''.join(said)}<small>{below}</small></article>\n".encode()
    yield b"</body></html>\n"
