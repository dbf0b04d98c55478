"""A handle on one session: record into it, recall from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.session import new_turn
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall import Mode, Recall

if TYPE_CHECKING:
    from mnemolog.store import MemoryStore


class Session:
    """A conversation. Cheap to hold; it keeps no turns and no connection of its own."""

    def __init__(self, store: MemoryStore, *, session_id: str, name: str, agent: str, scope: str) -> None:
        self._store = store
        self.id, self.name, self.agent, self.scope = session_id, name, agent, scope

    def __repr__(self) -> str:
        return f"Session({self.id!r}, name={self.name!r}, agent={self.agent!r}, scope={self.scope!r})"

    def record(
        self,
        role: str,
        text: str,
        *,
        key: str | None = None,
        said_at: datetime | None = None,
        speaker: str | None = None,
        tool_calls: Sequence[Any] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Record what somebody said. Durable when this returns.

        `key` makes a retry safe: the same key with the same content adds nothing and returns the turn
        that is there; with other content it raises `DuplicateKey`. `role` is `user`, `assistant`,
        `system` or `tool`; `said_at` needs a time zone; `text` holds up to 1 MiB of UTF-8, `metadata` and
        `tool_calls` up to 64 KiB each.

        Raises `InvalidInput`, `SessionEnded`, `DuplicateKey`, `LogBusy`, `StorageFull`, `StoreClosed`: in
        each case nothing was written.
        """
        turn = new_turn(
            role=role, text=text, speaker=speaker, said_at=said_at, tool_calls=tool_calls, metadata=metadata
        )
        return self._store.append_turn(self.id, turn, key=key)

    def recall(self, query: str, *, k: int = 5, mode: Mode = "hybrid") -> Recall:
        """Recall from this session only. See `MemoryStore.recall`."""
        return self._store.recall(query, k=k, session=self.id, mode=mode)

    def turns(self, *, after: Position = ORIGIN, limit: int = 1_000) -> list[Turn]:
        """Return up to `limit` turns behind position `after`, in order."""
        return self._store.turns(self.id, after=after, limit=limit)

    def end(self, *, reason: str = "ended") -> None:
        """End the session: it takes no more turns. Ending it again changes nothing."""
        self._store.end_session(self.id, reason=reason)
