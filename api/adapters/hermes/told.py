"""What Hermes tells, and what becomes of it in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from mnemolog.adapters.hermes.undo import turns_undone
from mnemolog.domain.errors import SessionEnded, UnknownSession
from mnemolog.domain.switching import SwitchReason
from mnemolog.results import NewTurn
from mnemolog.session import Session
from mnemolog.store import MemoryStore

IN_DOUBT: Final = "hermes.undo"
"""The value of a session's memory that says: something was undone, and the next transcript will show what."""

_REASONS: Final = {
    "reset": SwitchReason.RESET,
    "branch": SwitchReason.BRANCH,
    "compression": SwitchReason.COMPRESS,
}


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """Whose sessions, as the store knows them."""

    agent: str = "hermes"
    scope: str = "hermes"


class Told(msgspec.Struct, kw_only=True):
    """One thing that Hermes told. Written again after a failure, it is in the log once."""

    session: str
    who: Who

    def write(self, store: MemoryStore) -> None:
        """Put it into the log."""
        raise NotImplementedError

    def _entered(self, store: MemoryStore) -> Session:
        """Return the session, started if Hermes has not told of it before."""
        try:
            return store.session(self.session)
        except UnknownSession:
            return store.start_session(
                self.session, agent=self.who.agent, scope=self.who.scope, session_id=self.session
            )


class Entered(Told, kw_only=True):
    """The agent is in this session from now on."""

    left: str = ""
    reason: str = ""

    def write(self, store: MemoryStore) -> None:
        """A session that is there is resumed, or compressed in place; else `reason` says how it begins."""
        there, left = _is_there(store, self.session), self.left if _is_there(store, self.left) else None
        if not there and left is None:
            self._entered(store)
            return
        told = _REASONS.get(self.reason, SwitchReason.NEW)
        if there and not (told is SwitchReason.COMPRESS and left == self.session):
            told = SwitchReason.RESUME
        store.switch(
            self.session,
            reason=told,
            session=left or self.session,
            agent=self.who.agent,
            name=self.session,
            scope=self.who.scope,
        )


class Undone(Told, kw_only=True):
    """Turns of this session were taken back. Hermes does not say which: the next transcript shows what is left."""

    def write(self, store: MemoryStore) -> None:
        """Break the stamps of what was prefetched, and leave a note for the next turn."""
        store.switch(self._entered(store).id, reason=SwitchReason.RESUME, session=self.session, agent=self.who.agent)
        store.session(self.session).set(IN_DOUBT, True)


class Said(Told, kw_only=True):
    """Turns that were said, all of them or none, and the transcript that they end, if Hermes sent it."""

    turns: Sequence[NewTurn]
    messages: Sequence[Mapping[str, Any]] | None = None

    def write(self, store: MemoryStore) -> None:
        """A turn goes to the session it was said in, even if that has ended meanwhile: then it ends once more."""
        session = self._entered(store)
        try:
            self._record(store, session)
        except SessionEnded:
            store.switch(self.session, reason=SwitchReason.RESUME, session=self.session, agent=f"{self.who.agent}/late")
            self._record(store, session)
            session.end(reason="a late turn")

    def _record(self, store: MemoryStore, session: Session) -> None:
        if self.messages is not None and session.exists(IN_DOUBT):
            undone = turns_undone(session, self.messages, said=self.turns[0].text)
            if undone:
                session.rewind(turns=undone)
            session.delete(IN_DOUBT)
        store.record_many(self.turns)


def _is_there(store: MemoryStore, session: str) -> bool:
    try:
        return bool(session and store.session(session))
    except UnknownSession:
        return False
