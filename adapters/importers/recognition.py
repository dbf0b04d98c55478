"""Record the turns of files that their sessions do not have yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

from mnemolog.adapters.importers.turn import ImportedTurn
from mnemolog.domain import errors
from mnemolog.domain.encrypted_content import IMPORTED_KEY
from mnemolog.domain.events import Forgotten, TurnRecorded
from mnemolog.domain.position import Position
from mnemolog.domain.session import checked_key, session_stream
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.transaction import Transaction

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

    def __init__(self, log: EventLog, upto: Position, write: Callable[[Transaction, Item, Recording], bool]) -> None:
        self._log, self._upto, self._write = log, upto, write
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
