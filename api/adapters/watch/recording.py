"""From the lines of one transcript to the log: which session a turn belongs to, and what an agent did between turns.

docs/adr/0024-transcripts-of-coding-agents.md has the rules. What is decided is decided once: a turn that is in the log
already stays where it is, so that reading a file anew ends in the same sessions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from mnemolog.adapters.watch.places import Anchor, Place, Places, Tip
from mnemolog.adapters.watch.report import Report
from mnemolog.adapters.watch.sessions import SIDE, KnownSessions
from mnemolog.commands import state_in
from mnemolog.domain import errors, session
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.limits import SCOPE_BYTES_MAX
from mnemolog.domain.position import Micros, Position
from mnemolog.importing.transcript import Compacted, Entry, Undone
from mnemolog.importing.turn import ImportedTurn
from mnemolog.infra.transaction import Transaction
from mnemolog.projections.read_models import Turn
from mnemolog.seam import sessions_of

BATCH_MAX: Final = 500
BATCH_CHARACTERS_MAX: Final = 4 << 20
RECENT_MAX: Final = 1_000


class Recorder:
    """Records one transcript. `flush` ends a batch; what was taken before it is in the log then."""

    def __init__(
        self,
        known: KnownSessions,
        places: Places,
        number: int | None,
        place: Place,
        report: Report,
        *,
        agent: str,
        scope: str | None,
    ) -> None:
        self._known, self._store, self._report = known, known.store, report
        self._places, self.number, self._place = places, number, place
        self._agent, self._scope = agent, scope
        self._batch: list[tuple[str, ImportedTurn]] = []
        self._characters = 0
        self._recent: OrderedDict[str, str] = OrderedDict()
        self._copies: Iterator[Turn] | None = None
        self.links: dict[str, Anchor] = {}
        """Lines without turns that were met since the place was saved."""

    @property
    def is_full(self) -> bool:
        """Whether it is time to flush."""
        return len(self._batch) >= BATCH_MAX or self._characters >= BATCH_CHARACTERS_MAX

    def take(self, entry: Entry) -> None:
        """Take in a line. Its turns may be recorded with those of the lines after it."""
        tip = self._place.tips.get(entry.session)
        if isinstance(entry.move, Compacted):
            self._compacted(entry, entry.move, tip)
        elif isinstance(entry.move, Undone):
            self._undo(entry, entry.move, tip)
        elif not entry.turns:
            self._pass_over(entry, tip)
        else:
            self._say(entry, tip)

    def flush(self) -> None:
        """Record what was taken."""
        batch, self._batch, self._characters = self._batch, [], 0
        if batch:
            fresh, there, refused = sessions_of(self._store).log.transact(lambda tx: self._record(tx, batch))
            self._report.recorded += fresh
            self._report.already_there += there
            for error in refused:
                self._report.refuse(error)

    def _say(self, entry: Entry, tip: Tip | None) -> None:
        home: str | None = None
        if tip is not None and tip.home is not None and entry.follows == (tip.line if entry.name else None):
            home = tip.home
        elif self._stands_above(entry, tip):
            self._report.already_there += len(entry.turns)
            return
        elif not entry.asks and entry.follows is not None:
            home = self._recent.get(entry.follows)
            if home is not None and home.partition(SIDE)[0] != entry.session:
                home = None
        if home is None:
            self.flush()
            if entry.asks:  # From here on lines that go on from earlier ones may be of what was left.
                self._recent.clear()
            home = self._home(entry, tip)
        if home is None:  # A copy, and noted as that.
            self._report.already_there += len(entry.turns)
            return
        if home in self._place.compacted:
            self.flush()
            self._compress(home, self._place.compacted.pop(home))
        first = entry.turns[0].key
        self._batch += [(home, turn) for turn in entry.turns]
        self._characters += sum(len(turn.text) for turn in entry.turns)
        self._place.tips[entry.session] = Tip(entry.name, home, Anchor(home, first))
        if entry.name is not None:
            self._recent[entry.name] = home
            if len(self._recent) > RECENT_MAX:
                self._recent.popitem(last=False)

    def _stands_above(self, entry: Entry, tip: Tip | None) -> bool:
        """Whether a line is written once more: it was recorded before the one that the transcript has come to."""
        if tip is None or tip.home is None or entry.name is None:
            return False
        if entry.name in self._recent:
            return True
        return self._is_above(self._known.at(tip.home, entry.turns[0].key), tip)

    def _is_above(self, at: Position | None, tip: Tip) -> bool:
        """Whether something lies before what a transcript has come to. What is not in the log yet comes last."""
        if at is None or tip.anchor is None or not tip.anchor.key:
            return False
        last = self._known.end_of_line(tip.anchor)
        return last is None or at < last

    def _home(self, entry: Entry, tip: Tip | None) -> str | None:
        """Return the session that the turns of a line are, or are to be, in; None where they are copies.

        Nothing waits to be recorded when this is asked, so that the log has all that came before.
        """
        first, own = entry.turns[0].key, self._known.of(entry.session)
        if tip is not None and tip.home in own:
            own.sort(key=lambda name: name != tip.home)
        for name in own:
            if self._known.at(name, first) is not None:
                return name
        anchor = self._anchor(entry, tip, own)
        if (copied := self._copy(entry, anchor, tip, own)) is not None:
            self._copied(entry, copied)
            return None
        if not own:
            return self._begin(entry, anchor)
        at = None if anchor is None else self._known.end_of_line(anchor)
        if anchor is None or at is None:  # It goes on from what nobody knows, or from the end.
            return tip.home if tip is not None and tip.home in own else own[0]
        for name in own:
            if self._known.sees(name, anchor.session, at):
                if entry.asks and self._known.asked_behind(name, at):
                    self._rewind(name, at, key=f"{name}/{first}")
                return name
        return self._branch(f"{entry.session}{SIDE}{first}", anchor.session, at)

    def _begin(self, entry: Entry, anchor: Anchor | None) -> str:
        """Start the session of a line, as what goes on from another one, or as a new one."""
        turn = entry.turns[0]
        at = None if anchor is None else self._known.end_of_line(anchor)
        if anchor is not None and not anchor.key and not anchor.at:
            at = self._known.log.head().position
        if entry.works_for is not None and (at is None or not entry.recounted):
            self._start_for(entry, entry.works_for)
        elif anchor is None or at is None:
            self._switch(entry.session, "new", name=turn.session_name, scope=self._scope_of(entry))
        elif entry.works_for is not None:
            self._store.session(anchor.session).branch(entry.session, at=at, name=turn.session_name)
            self._report.sessions += 1
        elif anchor.session in self._place.compacted and self._known.is_end(anchor.session, at):
            *earlier, key = self._place.compacted.pop(anchor.session)
            self._compress(anchor.session, earlier)
            self._switch(entry.session, "compress", session=anchor.session, name=turn.session_name, key=key)
        else:
            self._place.compacted.pop(anchor.session, None)
            self._branch(entry.session, anchor.session, at, name=turn.session_name)
        return entry.session

    def _copy(self, entry: Entry, anchor: Anchor | None, tip: Tip | None, own: list[str]) -> Anchor | None:
        """Return the turn of another session that a line repeats, None where it says something itself."""
        first = entry.turns[0].key
        if not entry.recounted:
            if own:
                inherited = (self._known.inherited(name, first) for name in own)
                found = next((name for name in inherited if name is not None), None)
            elif tip is not None and tip.anchor is not None and self._known.at(tip.anchor.session, first) is not None:
                found = tip.anchor.session
            else:
                found = self._known.anywhere(first)
            return None if found is None else Anchor(found, first)
        if entry.copied_from is None or (tip is not None and tip.home is not None):
            return None
        if not self._known.of(entry.copied_from):
            return None
        if self._copies is None:
            behind = None if anchor is None else self._known.end_of_line(anchor)
            self._copies = self._turns_of(entry.copied_from, Position(behind or 0))
        turn = next(self._copies, None)
        return Anchor(turn.session, first) if turn is not None and turn.key == first else None

    def _turns_of(self, name: str, after: Position) -> Iterator[Turn]:
        handle = self._store.session(name)
        while page := handle.turns(after=after, limit=BATCH_MAX, hidden=True):
            yield from page
            after = page[-1].position

    def _copied(self, entry: Entry, anchor: Anchor | None) -> None:
        self._place.tips[entry.session] = Tip(entry.name, None, anchor)

    def _anchor(self, entry: Entry, tip: Tip | None, own: list[str]) -> Anchor | None:
        """Return the turn that a line goes on from, None where nobody knows."""
        if entry.follows is None and entry.name is not None:
            return None
        if entry.follows is None or (tip is not None and entry.follows == tip.line):
            return None if tip is None else tip.anchor
        link = self.links.get(entry.follows)
        if link is None and self.number is not None:
            link = self._places.link(self.number, entry.follows)
        if link is not None:
            return link
        if (recent := self._recent.get(entry.follows)) is not None:
            return Anchor(recent, entry.follows)
        for name in own:
            if self._known.at(name, entry.follows) is not None:
                return Anchor(name, entry.follows)
        found = self._known.anywhere(entry.follows)
        return None if found is None else Anchor(found, entry.follows)

    def _pass_over(self, entry: Entry, tip: Tip | None) -> None:
        """Note what a line without turns goes on from: later lines may go on from it."""
        if entry.name is None or entry.follows is None:
            return
        is_next = tip is not None and entry.follows == tip.line
        anchor = self._anchor(entry, tip, [] if is_next else self._known.of(entry.session))
        if anchor is not None:
            self.links[entry.name] = anchor
        if tip is not None and is_next:
            tip.line = entry.name

    def _compacted(self, entry: Entry, move: Compacted, tip: Tip | None) -> None:
        """Remember a compaction. The turn after it tells whether this session goes on, or another one."""
        self.flush()
        own = self._known.of(entry.session)
        anchor = self._anchor(entry, tip, own) if tip is None else tip.anchor
        home = tip.home if tip is not None else own[0] if own else None
        if home is not None:
            # Programs let what follows go on from any earlier line here. It goes on from the end.
            anchor = Anchor(home, "")
        left = anchor.session if anchor is not None else entry.session
        key = _key_in(left, move)
        made = self._known.switched(self._agent, key)
        if tip is not None and self._is_above(made, tip):
            return
        if made is None and (tip is None or tip.home is not None):
            self._place.compacted.setdefault(left, []).append(key)
        if entry.name is not None and anchor is not None:
            self.links[entry.name] = anchor
        if tip is not None:
            self._place.tips[entry.session] = Tip(entry.name or tip.line, tip.home, anchor)

    def _undo(self, entry: Entry, move: Undone, tip: Tip | None) -> None:
        """Hide what a user has taken back."""
        self.flush()
        own = self._known.of(entry.session)
        if tip is not None and tip.home is None and entry.copied_from is not None:
            copied = self._undone_there(entry.copied_from, move, tip, own)
            if copied is not None or not own:
                self._copied(entry, copied or tip.anchor)
                return
        if not own:
            return
        name = tip.home if tip is not None and tip.home in own else own[0]
        at = self._known.reached(name, move.first)
        if at is not None and self._known.switched(self._agent, _key_in(name, move)) is None:
            self._rewind(name, Position(at - 1), key=_key_in(name, move))

    def _undone_there(self, other: str, move: Undone, tip: Tip, own: list[str]) -> Anchor | None:
        """Return where the session that a line was copied from took back the same, or where this one goes on without.

        None where the line is no copy and the session has begun: it is for this one to take back.
        """
        behind = None if tip.anchor is None else self._known.end_of_line(tip.anchor)
        for name in (other, *self._known.state(other).ancestors):
            made = self._known.switched(self._agent, _key_in(name, move))
            if made is not None and behind is not None and behind < made:
                later = next(self._turns_of(other, behind), None)
                if later is None or later.position > made:
                    return Anchor(name, "", made)
        first = None if own else self._known.reached(other, move.first)
        return None if first is None else Anchor(other, "", first - 1)

    def _start_for(self, entry: Entry, other: str) -> None:
        scope, turn = self._scope_of(entry), entry.turns[0]
        if not self._known.of(other):
            self._store.start_session(turn.session_name, agent=self._agent, scope=scope, session_id=other)
            self._report.sessions += 1
        self._store.start_session(
            turn.session_name, agent=self._agent, scope=scope, session_id=entry.session, parent=other
        )
        self._report.sessions += 1

    def _branch(self, to: str, from_: str, at: Position, *, name: str | None = None) -> str:
        self._switch(to, "branch", session=from_, at=at, name=name)
        return to

    def _rewind(self, name: str, at: Position, *, key: str) -> None:
        self._reopen(name)
        self._store.switch(reason="rewind", session=name, agent=self._agent, at=at, key=key)
        self._report.switched("rewind")

    def _compress(self, name: str, keys: list[str]) -> None:
        for key in keys:
            if self._known.switched(self._agent, key) is None:
                self._reopen(name)
                self._store.switch(reason="compress", session=name, agent=self._agent, key=key)
                self._report.switched("compress")

    def _switch(self, to: str, reason: str, **how: Any) -> None:
        self._store.switch(to, reason=reason, agent=self._agent, **how)
        self._report.sessions += 1
        self._report.switched(reason)

    def _reopen(self, name: str) -> None:
        sessions_of(self._store).decide(name, lambda state, _: list(session.resume(name, state)))

    def _scope_of(self, entry: Entry) -> str:
        if self._scope is not None:
            return self._scope
        return entry.turns[0].scope or scope_of(entry.folder)

    def _record(
        self, tx: Transaction, batch: list[tuple[str, ImportedTurn]]
    ) -> tuple[int, int, list[errors.ImportRefused]]:
        """Record a batch in one transaction. Each turn is recorded, there, or refused without a trace."""
        states = sessions_of(self._store).states
        fresh, there, refused = 0, 0, list[errors.ImportRefused]()
        for name, turn in batch:
            stream = session.session_stream(name)
            try:
                if tx.position_of(stream, turn.key) is not None:
                    there += 1
                    continue
                for event in session.resume(name, state_in(tx, name, states)):
                    tx.append(stream, event)
                new = session.new_turn(
                    role=turn.role,
                    text=turn.text,
                    speaker=turn.speaker,
                    said_at=None if turn.said_at is None else to_datetime(Micros(turn.said_at)),
                    tool_calls=turn.tool_calls,
                    metadata=turn.metadata,
                )
                tx.append(stream, new, key=turn.key)
                fresh += 1
            except (errors.InvalidInput, errors.SessionError) as error:
                refused.append(errors.ImportRefused(turn.path, turn.line, str(error)))
        return fresh, there, refused


def scope_of(folder: str) -> str:
    """Return the folder that is worked in as a scope, as much of its end as a scope holds."""
    kept: list[str] = []
    for segment in reversed(folder.replace("\\", "/").split("/")):
        clean = "".join(letter if letter.isprintable() else "_" for letter in segment)
        if clean and clean not in (".", "..", "*", "**"):
            if len("/".join([clean, *kept]).encode(errors="replace")) > SCOPE_BYTES_MAX:
                break
            kept.insert(0, clean)
    return "/".join(kept)


def _key_in(name: str, move: Compacted | Undone) -> str:
    """Return the key of a switch. Those of an agent share a stream, whatever session they are of."""
    return f"{name}/{move.key}"
