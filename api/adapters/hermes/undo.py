"""Which turns an undo took back: those that the session sees and the transcript after it has no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mnemolog.domain.role import Role
from mnemolog.session import Session

LOOKED_BACK_MAX: Final = 1_000
"""Turns of the session that are compared."""


def turns_undone(session: Session, messages: Sequence[Mapping[str, Any]], *, said: str) -> int:
    """Return how many of the turns that `session` sees are gone from the transcript, counted from the newest.

    The transcript ends with the turn in which the user `said` something, which is not recorded yet. What the user said
    before it is looked for in the session, from the newest back; of several places the one with the longest run in
    common counts. Messages that were never recorded (interrupted, of a skill, a summary) are passed over.
    """
    users = [place for place, message in enumerate(messages) if message.get("role") == "user"]
    now = next((place for place in reversed(users) if text_of(messages[place]) == said.strip()), (users or [0])[-1])
    kept = [text_of(messages[place]) for place in users if place < now]
    seen = session.turns(newest_first=True, limit=LOOKED_BACK_MAX)[::-1]
    places = [place for place, turn in enumerate(seen) if turn.role is Role.USER]
    mine = [seen[place].text.strip() for place in places]
    while kept and kept[-1] not in mine:
        kept.pop()
    if not kept and any(message.get("role") in ("user", "assistant") for message in messages[:now]):
        return 0  # A summary, say: there is nothing in common that would tell.
    ends = [end for end in range(1, len(mine) + 1) if kept and mine[end - 1] == kept[-1]] or [0]
    # Where both begin together, the run is no coincidence; else the later one hides less.
    end = max(ends, key=lambda end: (_run(mine[:end], kept), end == len(kept), end))
    return len(seen) - places[end] if end < len(places) else 0


def _run(left: list[str], right: list[str]) -> int:
    pairs = zip(reversed(left), reversed(right), strict=False)
    return next((length for length, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message, whose content may be a list of parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content.strip()
    texts = [part if isinstance(part, str) else str(part.get("text") or "") for part in content]
    return "\n".join(text for text in texts if text).strip()
