"""Distrust: sources of which nothing is shown as an answer, until that is undone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import SourceDistrusted
from mnemolog.domain.limits import LABEL_BYTES_MAX, checked_label, checked_text
from mnemolog.domain.moments import checked_position
from mnemolog.domain.scope import Scopes

DISTRUST_STREAM: Final = "distrust"
"""The stream of what is distrusted, and of what is trusted again."""


def new_distrust(
    *, turns: Iterable[int], sessions: Iterable[str], actor: str, maker: str, scopes: Scopes, reason: str
) -> SourceDistrusted:
    """Return the event that distrusts these sources, checked. Raises `InvalidInput`, `LimitExceeded`."""
    turns, sessions = set(turns), set(sessions)
    if not (turns or sessions or actor or maker):
        raise InvalidInput("positions", "say what is distrusted: positions of turns, sessions, an actor or a maker")
    return SourceDistrusted(
        turns=sorted(checked_position("positions", position) for position in turns),
        sessions=sorted(sessions),
        appended_by=checked_label("actor", actor) if actor else "",
        maker=checked_label("maker", maker) if maker else "",
        scopes=list(scopes),
        reason=checked_reason(reason),
    )


def checked_reason(reason: str) -> str:
    """Return a reason, which may not be empty. Raises `InvalidInput`, `LimitExceeded`."""
    if not reason or reason.isspace():
        raise InvalidInput("reason", "say why: who reads the history later has nothing else to go by")
    return checked_text("reason", reason, bytes_max=LABEL_BYTES_MAX)
