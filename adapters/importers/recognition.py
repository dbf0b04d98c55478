"""Record the turns of files that a session does not have yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from mnemolog.adapters.importers.turn import ImportedTurn
from mnemolog.domain import errors
from mnemolog.domain.encrypted_content import IMPORTED_KEY
from mnemolog.domain.events import Forgotten, TurnRecorded
from mnemolog.domain.position import Position
from mnemolog.domain.session import checked_key, session_stream
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.transaction import Transaction

Said = tuple[bytes, int | None]
"""Digest of role, speaker and text, and the time of saying. Only in memory."""
Outcome = bool | None | errors.ImportRefused
"""Whether a turn was recorded; None for a forgotten one, which stays forgotten."""


class Numbered(NamedTuple):
    """A turn to record in a session, with its number among the turns of this run that say the same there."""

    session: str
    turn: ImportedTurn
    number: int = 0
    """0 if only the key can tell whether it is recorded: it is an id, or the session is new."""


class Recording:
    """Records turns that sessions do not have. A turn without an id may have been recorded under another key.

    Its place in the file has changed, or an earlier version of mnemolog made its key from its text. So sessions are
    read up to the position `upto`, once a turn is not found by its key. Needs about a hundred bytes of memory per turn
    of sessions that existed there.
    """

    def __init__(self, log: EventLog, upto: Position) -> None:
        self._log, self._upto = log, upto
        self._secret = b"" if log.keyring is None else log.keyring.secret()
        self._numbers: dict[str, Counter[Said] | None] = {}
        """None for a session that began later."""
        self._held: dict[str, Counter[Said]] = {}
        self._forgotten: dict[str, set[bytes]] = {}
        """Digests in the keys of forgotten turns."""

    @property
    def has_read(self) -> bool:
        """Whether it has read a session that held turns."""
        return any(self._held.values())

    def numbered(self, session: str, turn: ImportedTurn) -> Numbered:
        """Return a turn with its number. Call it once for each turn, in the order of the file."""
        if turn.by_place and session not in self._numbers:
            first = self._log.first_event(session_stream(session))
            self._numbers[session] = None if first is None or first.position > self._upto else Counter()
        numbers = self._numbers.get(session) if turn.by_place else None
        if numbers is None:
            return Numbered(session, turn)
        said = self._said(turn)
        numbers[said] += 1
        return Numbered(session, turn, numbers[said])

    def record_batch(
        self, batch: list[Numbered], write: Callable[[Transaction, Numbered], bool], *, skip: bool = True
    ) -> list[Outcome]:
        """Call `write` for turns in one transaction, up to the first that it refuses, or with `skip` for all."""

        def work(tx: Transaction) -> list[Outcome]:
            outcomes: list[Outcome] = []
            for item in batch:
                try:
                    outcomes.append(write(tx, item))
                except errors.ContentForgotten:
                    outcomes.append(None)
                except (errors.InvalidInput, errors.SessionError) as error:
                    turn = item.turn
                    outcomes.append(errors.ImportRefused(turn.path, turn.line, str(error), skippable=True))
                    if not skip:
                        break
            return outcomes

        last = batch[-1]
        if last.number and self._log.position_of(session_stream(last.session), last.turn.key) is None:
            self._read(last.session)  # A file that has grown: read before the transaction, which stops other writers.
        return self._log.appends.transact(work)

    def new_key(self, tx: Transaction, item: Numbered) -> str | None:
        """Return the key to record a turn under, None if the session has the turn.

        If the text has changed since it was recorded, that is the next free one of `KEY`, `KEY-2`, `KEY-3`. Raises
        `ContentForgotten`: nothing tells whether the text is the forgotten one, so it must not be recorded.
        """
        turn, stream = item.turn, session_stream(item.session)
        key, number = turn.key, 1
        while (known := tx.find(stream, checked_key(key))) is not None:
            if isinstance(known.event, Forgotten):
                raise errors.ContentForgotten(stream=stream, key=key, position=known.position)
            is_same = isinstance(known.event, TurnRecorded) and _words(known.event) == _words(turn)
            if is_same or turn.is_final:
                return None
            number += 1
            key = f"{turn.key}-{number}"
        if item.number:
            self._read(item.session)
            said = self._said(turn)
            if item.number <= self._held[item.session][said]:
                return None
            if said[0] in self._forgotten[item.session]:
                raise errors.ContentForgotten(stream=stream, key=key, position=self._upto)
        return key

    def _read(self, session: str) -> None:
        if session in self._held:
            return
        held, forgotten = Counter[Said](), set[bytes]()
        for events in self._log.read_stream(session_stream(session), upto=self._upto):
            for recorded in events:
                if isinstance(recorded.event, TurnRecorded):
                    held[self._said(recorded.event)] += 1
                elif IMPORTED_KEY.fullmatch(key := (recorded.key or "").encode()):
                    forgotten.add(bytes.fromhex(key[:24].decode()))
        self._held[session], self._forgotten[session] = held, forgotten

    def _said(self, turn: ImportedTurn | TurnRecorded) -> Said:
        # Keys were made from this digest, so those of forgotten turns still tell which text must not come back.
        said = "\0".join(_words(turn)).encode()
        return blake2b(said, key=self._secret, digest_size=12).digest(), turn.said_at


def _words(turn: ImportedTurn | TurnRecorded) -> tuple[str, str, str]:
    return turn.role, turn.speaker or "", turn.text
