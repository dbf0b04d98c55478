"""Interpret the lines of a transcript: which session a turn belongs to, and what happened between turns.

docs/adr/0024-transcripts-of-coding-agents.md has the rules. Decisions are final: a turn that is in the log stays in its
session, so reading a file again leads to the same sessions.
"""

from collections.abc import Iterator
from typing import Final

from mnemolog.adapters.importers.transcripts.recording import (
    SIDE,
    Anchor,
    LineCursor,
    Links,
    ReadState,
    Recorder,
    StoreLookup,
    is_copy,
)
from mnemolog.adapters.importers.turn import Compacted, Entry, Undone
from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.session import session_of
from mnemolog.domain.values import SCOPE_BYTES_MAX, Position, without_unseen
from mnemolog.infra.runtime.lru_cache import LruCache

RECENT_MAX: Final = 1_000


class TranscriptInterpreter:
    """Interprets the lines of one transcript, in order.

    `state` and `links` hold what is known of earlier lines, and are updated here. `links` maps the names of lines
    without turns to the turns they continue, and those of copies to the turns they copy. `scope` applies to all
    sessions, instead of the folder that each one works in.
    """

    def __init__(
        self,
        lookup: StoreLookup,
        recorder: Recorder,
        state: ReadState,
        links: Links,
        *,
        scope: str | None = None,
    ) -> None:
        self._lookup = lookup
        self._recorder = recorder
        self._state = state
        self._links = links
        self._scope = scope
        self._recent: LruCache[str, str] = LruCache(RECENT_MAX)
        self._copies: Iterator[RecordedEvent] | None = None

    def take(self, entry: Entry) -> None:
        """Record what a line says and does. Its turns may be recorded together with those of later lines.

        Raises `InvalidInput`, `SessionError` if the store refuses it: the line is skipped.
        """
        cursor = self._state.cursors.get(entry.session)
        if isinstance(entry.move, Compacted):
            self._recorder.flush()
            self._compacted(entry, entry.move, cursor)
        elif isinstance(entry.move, Undone):
            self._recorder.flush()
            self._undo(entry, entry.move, cursor)
        elif not entry.turns:
            self._pass_over(entry, cursor)
        else:
            self._say(entry, cursor)

    def _say(self, entry: Entry, cursor: LineCursor | None) -> None:
        home: str | None = None
        if cursor is not None and cursor.home is not None and entry.follows == (cursor.line if entry.name else None):
            home = cursor.home
        elif self._is_repeated(entry, cursor):
            self._recorder.report.already_there += len(entry.turns)
            return
        elif not entry.asks and entry.follows is not None:
            home = self._recent.get(entry.follows)
            if home is not None and home.partition(SIDE)[0] != entry.session:
                home = None
        if home is None:
            self._recorder.flush()
            if entry.asks:  # From here on, lines that continue earlier ones may belong to the old line.
                self._recent.clear()
            home = self._home(entry, cursor)
        if home is None:  # A copy; `_home` has linked it.
            self._recorder.report.already_there += len(entry.turns)
            return
        if home in self._state.compacted:
            self._recorder.flush()
            self._compress(home, self._state.compacted.pop(home))
        first = entry.turns[0].key
        for turn in entry.turns:  # Perhaps recorded together with those of later lines.
            self._recorder.recording.add(home, turn)
        self._state.cursors[entry.session] = LineCursor(entry.name, home, Anchor(home, first))
        if entry.name is not None:
            self._recent.put(entry.name, home)

    def _is_repeated(self, entry: Entry, cursor: LineCursor | None) -> bool:
        """Whether a line is a repetition: it comes before the last line that was read."""
        if cursor is None or cursor.home is None or entry.name is None:
            return False
        if entry.name in self._recent or self._links.get(entry.name) is not None:
            return True
        return self._is_above(self._lookup.at(cursor.home, entry.turns[0].key), cursor)

    def _is_above(self, at: Position | None, cursor: LineCursor) -> bool:
        """Whether a position is before that of the last line. A line that is not in the log yet comes last."""
        if at is None or cursor.anchor is None:
            return False
        if not cursor.anchor.key and not cursor.anchor.at:  # The end of the session comes after everything.
            return True
        last = self._lookup.end_of_line(cursor.anchor)
        return last is None or at < last

    def _home(self, entry: Entry, cursor: LineCursor | None) -> str | None:
        """Return the session that the turns of a line belong to; None if they are copies.

        Call it when the batch is flushed, so that the log has all earlier turns.
        """
        first, own = entry.turns[0].key, self._lookup.of(entry.session)
        if cursor is not None and cursor.home in own:
            own.sort(key=lambda name: name != cursor.home)
        for name in own:
            if self._lookup.at(name, first) is not None:
                return name
        anchor = self._anchor(entry, cursor, own)
        if (copied := self._copy(entry, anchor, cursor, own)) is not None:
            self._copied(entry, copied)
            return None
        if not own:
            if cursor is not None and (anchor is None or not entry.asks):
                # It continues an unknown line, or answers a copied tool call: it belongs where the copies end.
                anchor = cursor.anchor
            return self._begin(entry, anchor)
        at = None if anchor is None else self._lookup.end_of_line(anchor)
        if anchor is None or at is None:  # It continues an unknown line, or the end of the session.
            return cursor.home if cursor is not None and cursor.home in own else own[0]
        for name in own:
            if self._lookup.sees(name, anchor.session, at):
                if entry.asks and not entry.recounted and self._lookup.user_spoke_after(name, at):
                    self._recorder.switch("rewind", left=name, at=at, key=f"{name}/{first}")
                return name
        side = f"{entry.session}{SIDE}{first}"
        self._recorder.switch("branch", side, left=anchor.session, at=at)
        return side

    def _begin(self, entry: Entry, anchor: Anchor | None) -> str:
        """Start the session of a line: a continuation of another session, or a new one."""
        title = entry.turns[0].session_title
        at = None if anchor is None else self._lookup.end_of_line(anchor)
        if anchor is not None and not anchor.key and not anchor.at:
            at = self._lookup.log.head().position
        if entry.works_for is not None and (at is None or not entry.recounted):
            how = {"title": title, "scope": self._scope_of(entry)}
            if not self._lookup.of(entry.works_for):
                self._recorder.start(entry.works_for, **how)
            self._recorder.start(entry.session, **how, parent=entry.works_for)
        elif anchor is None or at is None:
            self._recorder.switch("new", entry.session, title=title, scope=self._scope_of(entry))
        elif entry.works_for is not None:
            self._recorder.branch(entry.session, left=anchor.session, at=at, title=title)
        elif anchor.session in self._state.compacted and self._lookup.is_end(anchor.session, at):
            *earlier, key = self._state.compacted.pop(anchor.session)
            self._compress(anchor.session, earlier)
            self._recorder.switch("compress", entry.session, left=anchor.session, title=title, key=key)
        else:
            self._state.compacted.pop(anchor.session, None)
            self._recorder.switch("branch", entry.session, left=anchor.session, at=at, title=title)
        return entry.session

    def _copy(self, entry: Entry, anchor: Anchor | None, cursor: LineCursor | None, own: list[str]) -> Anchor | None:
        """Return the turn of another session that a line copies, None if it says something new."""
        first = entry.turns[0].key
        if not entry.recounted:
            if own:
                inherited = (self._lookup.inherited(name, first) for name in own)
                found = next((name for name in inherited if name is not None), None)
            elif (
                cursor is not None
                and cursor.anchor is not None
                and self._lookup.at(cursor.anchor.session, first) is not None
            ):
                found = cursor.anchor.session
            else:
                found = self._lookup.anywhere(first)
            return None if found is None else Anchor(found, first)
        if entry.copied_from is None or (cursor is not None and cursor.home is not None):
            return None
        if not self._lookup.of(entry.copied_from):
            return None
        if self._copies is None:
            after = None if anchor is None else self._lookup.end_of_line(anchor)
            self._copies = self._lookup.turns(entry.copied_from, Position(after or 0))
        turn = next(self._copies, None)
        if turn is None or not is_copy(entry.turns[0], turn):
            return None
        return Anchor(session_of(turn.stream) or "", turn.key or "", turn.position)

    def _copied(self, entry: Entry, anchor: Anchor | None) -> None:
        self._state.cursors[entry.session] = LineCursor(entry.name, None, anchor)
        name = entry.name or (entry.turns[0].key if entry.turns else None)
        if name is not None and anchor is not None:
            self._links.fresh[name] = anchor

    def _anchor(self, entry: Entry, cursor: LineCursor | None, own: list[str]) -> Anchor | None:
        """Return the turn that a line continues, None if it is unknown."""
        if entry.follows is None and entry.name is not None:
            return None
        if entry.follows is None or (cursor is not None and entry.follows == cursor.line):
            return None if cursor is None else cursor.anchor
        if (link := self._links.get(entry.follows)) is not None:
            return link
        if (recent := self._recent.get(entry.follows)) is not None:
            return Anchor(recent, entry.follows)
        for name in own:
            if self._lookup.at(name, entry.follows) is not None:
                return Anchor(name, entry.follows)
        found = self._lookup.anywhere(entry.follows)
        return None if found is None else Anchor(found, entry.follows)

    def _pass_over(self, entry: Entry, cursor: LineCursor | None) -> None:
        """Remember which turn a line without turns continues: later lines may continue this line."""
        if entry.name is None or entry.follows is None:
            return
        is_next = cursor is not None and entry.follows == cursor.line
        anchor = self._anchor(entry, cursor, [] if is_next else self._lookup.of(entry.session))
        if anchor is not None:
            self._links.fresh[entry.name] = anchor
        if cursor is not None and is_next:
            cursor.line = entry.name

    def _compacted(self, entry: Entry, move: Compacted, cursor: LineCursor | None) -> None:
        """Remember a compaction. The turn after it shows whether this session continues, or another one starts."""
        if cursor is not None and cursor.home is not None and self._links.get(entry.name) is not None:
            return  # It is repeated.
        own = self._lookup.of(entry.session)
        anchor = self._anchor(entry, cursor, own) if cursor is None else cursor.anchor
        home = cursor.home if cursor is not None else own[0] if own else None
        if home is not None:
            # Programs may name any earlier line as the parent of what follows. It continues the end.
            anchor = Anchor(home, "")
        left = anchor.session if anchor is not None else entry.session
        key = _key_in(left, move)
        made = self._lookup.switched(self._recorder.agent, key)
        if cursor is not None and self._is_above(made, cursor):
            return
        if made is None and (cursor is None or cursor.home is not None):
            self._state.compacted.setdefault(left, []).append(key)
        if entry.name is not None and anchor is not None:
            self._links.fresh[entry.name] = anchor
        if cursor is not None:
            self._state.cursors[entry.session] = LineCursor(entry.name or cursor.line, cursor.home, anchor)

    def _undo(self, entry: Entry, move: Undone, cursor: LineCursor | None) -> None:
        """Hide the turns that a user has undone."""
        own = self._lookup.of(entry.session)
        if cursor is not None and cursor.home is None and entry.copied_from is not None:
            copied = self._undone_there(entry.copied_from, move, cursor, own)
            if copied is not None or not own:
                self._copied(entry, copied or cursor.anchor)
                return
        if not own:
            return
        name = cursor.home if cursor is not None and cursor.home in own else own[0]
        first = self._reached(name, move.first)
        if first is not None and self._lookup.switched(self._recorder.agent, _key_in(name, move)) is None:
            self._recorder.switch("rewind", left=name, at=Position(first.at - 1), key=_key_in(name, move))

    def _undone_there(self, other: str, move: Undone, cursor: LineCursor, own: list[str]) -> Anchor | None:
        """Return where the session that a line was copied from undid the same turns, or where this one diverges.

        None if the line is not a copy and the session has started: then this session undoes the turns.
        """
        after = None if cursor.anchor is None else self._lookup.end_of_line(cursor.anchor)
        for name in (other, *self._lookup.state(other).ancestors):
            made = self._lookup.switched(self._recorder.agent, _key_in(name, move))
            if made is not None and after is not None and after < made:
                later = next(self._lookup.turns(other, after), None)
                if later is None or later.position > made:
                    return Anchor(name, "", made)
        first = None if own else self._reached(other, move.first)
        return None if first is None else Anchor(first.session, "", first.at - 1)

    def _reached(self, session: str, key: str) -> Anchor | None:
        """Return a turn that a session has, or sees as a copy."""
        copied = self._links.get(key)
        return self._lookup.reached(session, key if copied is None else copied.key)

    def _compress(self, name: str, keys: list[str]) -> None:
        for key in keys:
            if self._lookup.switched(self._recorder.agent, key) is None:
                self._recorder.switch("compress", left=name, key=key)

    def _scope_of(self, entry: Entry) -> str:
        if self._scope is not None:
            return self._scope
        return entry.turns[0].scope or scope_of(entry.folder)


def _key_in(name: str, move: Compacted | Undone) -> str:
    """Return the key of a switch. All switches of an agent share one stream, so it has the session's name."""
    return f"{name}/{move.key}"


def scope_of(folder: str) -> str:
    """Return a folder as a scope, cut at the front to the limit of a scope."""
    kept: list[str] = []
    for segment in reversed(folder.replace("\\", "/").split("/")):
        clean = without_unseen(segment).strip()
        if clean and clean not in (".", "..", "*", "**"):
            if len("/".join([clean, *kept]).encode(errors="replace")) > SCOPE_BYTES_MAX:
                break
            kept.insert(0, clean)
    return "/".join(kept)
