"""What a line of a transcript means for sessions: whose its turns are, and what an agent has done between turns.

docs/adr/0024-transcripts-of-coding-agents.md has the rules. What is decided is decided once: a turn that is in the log
already stays where it is, so that reading a file anew ends in the same sessions.

Nothing here touches a store: what is in the log is asked of `Known`, and what is to be done is said in steps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, MutableMapping
from typing import Final

from mnemolog.adapters.importers.transcript import Compacted, Entry, Undone
from mnemolog.adapters.importers.transcripts.place import SIDE, Anchor, Place, Tip
from mnemolog.adapters.importers.transcripts.ports import Known
from mnemolog.adapters.importers.transcripts.scopes import scope_of
from mnemolog.adapters.importers.transcripts.steps import AlreadyThere, Branch, Say, Settle, Start, Step, Switch
from mnemolog.domain.position import Position
from mnemolog.infra.runtime.lru_cache import LruCache
from mnemolog.projections.read_models import Turn

RECENT_MAX: Final = 1_000

Steps = Iterator[Step]


class Decisions:
    """Decides on the lines of one transcript, in their order.

    `place` and `links` are what is noted of the lines before; it is noted there. `links` are lines by name: those
    without turns, with what they go on from, and copies, with what they are copies of. `scope` is that of all
    sessions, in place of the folder that each works in.
    """

    def __init__(
        self, known: Known, place: Place, links: MutableMapping[str, Anchor], *, agent: str, scope: str | None = None
    ) -> None:
        self._known, self._place, self._links = known, place, links
        self._agent, self._scope = agent, scope
        self._recent: LruCache[str, str] = LruCache(RECENT_MAX)
        self._copies: Iterator[Turn] | None = None

    def on(self, entry: Entry) -> Steps:
        """Yield what a line has to be done.

        Each step is to be taken before the next is asked for, which may look up what it led to. Who cannot take one
        drops the others: the line then is as if it had not been there.
        """
        tip = self._place.tips.get(entry.session)
        if isinstance(entry.move, Compacted):
            yield Settle()
            self._compacted(entry, entry.move, tip)
        elif isinstance(entry.move, Undone):
            yield Settle()
            yield from self._undo(entry, entry.move, tip)
        elif not entry.turns:
            self._pass_over(entry, tip)
        else:
            yield from self._say(entry, tip)

    def _say(self, entry: Entry, tip: Tip | None) -> Steps:
        home: str | None = None
        if tip is not None and tip.home is not None and entry.follows == (tip.line if entry.name else None):
            home = tip.home
        elif self._stands_above(entry, tip):
            yield AlreadyThere(len(entry.turns))
            return
        elif not entry.asks and entry.follows is not None:
            home = self._recent.get(entry.follows)
            if home is not None and home.partition(SIDE)[0] != entry.session:
                home = None
        if home is None:
            yield Settle()
            if entry.asks:  # From here on lines that go on from earlier ones may be of what was left.
                self._recent.clear()
            home = yield from self._home(entry, tip)
        if home is None:  # A copy, and noted as that.
            yield AlreadyThere(len(entry.turns))
            return
        if home in self._place.compacted:
            yield Settle()
            yield from self._compress(home, self._place.compacted.pop(home))
        first = entry.turns[0].key
        yield Say(home, entry.turns)
        self._place.tips[entry.session] = Tip(entry.name, home, Anchor(home, first))
        if entry.name is not None:
            self._recent.put(entry.name, home)

    def _stands_above(self, entry: Entry, tip: Tip | None) -> bool:
        """Whether a line is written once more: it stands before the one that the transcript has come to."""
        if tip is None or tip.home is None or entry.name is None:
            return False
        if entry.name in self._recent or entry.name in self._links:
            return True
        return self._is_above(self._known.at(tip.home, entry.turns[0].key), tip)

    def _is_above(self, at: Position | None, tip: Tip) -> bool:
        """Whether something lies before what a transcript has come to. What is not in the log yet comes last."""
        if at is None or tip.anchor is None:
            return False
        if not tip.anchor.key and not tip.anchor.at:  # The end of the session: all there is lies before.
            return True
        last = self._known.end_of_line(tip.anchor)
        return last is None or at < last

    def _home(self, entry: Entry, tip: Tip | None) -> Generator[Step, None, str | None]:
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
            if tip is not None and (anchor is None or not entry.asks):
                # It goes on from what nobody knows, or answers one of the calls that were copied: where the copies end.
                anchor = tip.anchor
            return (yield from self._begin(entry, anchor))
        at = None if anchor is None else self._known.end_of_line(anchor)
        if anchor is None or at is None:  # It goes on from what nobody knows, or from the end.
            return tip.home if tip is not None and tip.home in own else own[0]
        for name in own:
            if self._known.sees(name, anchor.session, at):
                if entry.asks and self._known.asked_behind(name, at):
                    yield Switch(reason="rewind", left=name, at=at, key=f"{name}/{first}")
                return name
        side = f"{entry.session}{SIDE}{first}"
        yield Switch(reason="branch", to=side, left=anchor.session, at=at)
        return side

    def _begin(self, entry: Entry, anchor: Anchor | None) -> Generator[Step, None, str]:
        """Start the session of a line, as what goes on from another one, or as a new one."""
        name = entry.turns[0].session_name
        at = None if anchor is None else self._known.end_of_line(anchor)
        if anchor is not None and not anchor.key and not anchor.at:
            at = self._known.head()
        if entry.works_for is not None and (at is None or not entry.recounted):
            yield from self._start_for(entry, entry.works_for)
        elif anchor is None or at is None:
            yield Switch(reason="new", to=entry.session, name=name, scope=self._scope_of(entry))
        elif entry.works_for is not None:
            yield Branch(session=entry.session, name=name, left=anchor.session, at=at)
        elif anchor.session in self._place.compacted and self._known.is_end(anchor.session, at):
            *earlier, key = self._place.compacted.pop(anchor.session)
            yield from self._compress(anchor.session, earlier)
            yield Switch(reason="compress", to=entry.session, left=anchor.session, name=name, key=key)
        else:
            self._place.compacted.pop(anchor.session, None)
            yield Switch(reason="branch", to=entry.session, left=anchor.session, at=at, name=name)
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
            self._copies = self._known.turns(entry.copied_from, Position(behind or 0))
        turn = next(self._copies, None)
        return Anchor(turn.session, first) if turn is not None and turn.key == first else None

    def _copied(self, entry: Entry, anchor: Anchor | None) -> None:
        self._place.tips[entry.session] = Tip(entry.name, None, anchor)
        if entry.name is not None and anchor is not None:
            self._links[entry.name] = anchor

    def _anchor(self, entry: Entry, tip: Tip | None, own: list[str]) -> Anchor | None:
        """Return the turn that a line goes on from, None where nobody knows."""
        if entry.follows is None and entry.name is not None:
            return None
        if entry.follows is None or (tip is not None and entry.follows == tip.line):
            return None if tip is None else tip.anchor
        if (link := self._links.get(entry.follows)) is not None:
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
            self._links[entry.name] = anchor
        if tip is not None and is_next:
            tip.line = entry.name

    def _compacted(self, entry: Entry, move: Compacted, tip: Tip | None) -> None:
        """Remember a compaction. The turn after it tells whether this session goes on, or another one."""
        if tip is not None and tip.home is not None and entry.name in self._links:
            return  # It is written once more.
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
            self._links[entry.name] = anchor
        if tip is not None:
            self._place.tips[entry.session] = Tip(entry.name or tip.line, tip.home, anchor)

    def _undo(self, entry: Entry, move: Undone, tip: Tip | None) -> Steps:
        """Hide what a user has taken back."""
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
            yield Switch(reason="rewind", left=name, at=Position(at - 1), key=_key_in(name, move))

    def _undone_there(self, other: str, move: Undone, tip: Tip, own: list[str]) -> Anchor | None:
        """Return where the session that a line was copied from took back the same, or where this one goes on without.

        None where the line is no copy and the session has begun: it is for this one to take back.
        """
        behind = None if tip.anchor is None else self._known.end_of_line(tip.anchor)
        for name in (other, *self._known.ancestors(other)):
            made = self._known.switched(self._agent, _key_in(name, move))
            if made is not None and behind is not None and behind < made:
                later = next(self._known.turns(other, behind), None)
                if later is None or later.position > made:
                    return Anchor(name, "", made)
        first = None if own else self._known.reached(other, move.first)
        return None if first is None else Anchor(other, "", first - 1)

    def _start_for(self, entry: Entry, other: str) -> Steps:
        name, scope = entry.turns[0].session_name, self._scope_of(entry)
        if not self._known.of(other):
            yield Start(session=other, name=name, scope=scope)
        yield Start(session=entry.session, name=name, scope=scope, parent=other)

    def _compress(self, name: str, keys: list[str]) -> Steps:
        for key in keys:
            if self._known.switched(self._agent, key) is None:
                yield Switch(reason="compress", left=name, key=key)

    def _scope_of(self, entry: Entry) -> str:
        if self._scope is not None:
            return self._scope
        return entry.turns[0].scope or scope_of(entry.folder)


def _key_in(name: str, move: Compacted | Undone) -> str:
    """Return the key of a switch. Those of an agent share a stream, whatever session they are of."""
    return f"{name}/{move.key}"
