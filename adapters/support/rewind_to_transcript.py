"""Hiding what a transcript has no more: an undo of which nobody has said how far it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mnemolog.application.retry_on_conflict import retry_on_conflict
from mnemolog.domain import errors
from mnemolog.domain.role import Role
from mnemolog.results import NewTurn

if TYPE_CHECKING:
    from mnemolog.application.session_service import Sessions
    from mnemolog.session import Session

LOOKED_BACK_MAX: Final = 1_000
"""Turns of the session that are compared."""

Message = Mapping[str, Any] | NewTurn


def rewind_to_transcript(
    session: Session, sessions: Sessions, messages: Sequence[Message], *, before: str | None
) -> int:
    """Hide what `messages` have no more. See `Session.rewind_to_transcript`."""
    roles = [_role(place, message) for place, message in enumerate(messages)]
    texts = [_text(message) if role == Role.USER else "" for role, message in zip(roles, messages, strict=True)]
    users = [place for place, role in enumerate(roles) if role == Role.USER]
    end = len(messages)
    if before is not None:
        newest = users[-1] if users else end
        end = next((place for place in reversed(users) if texts[place] == before.strip()), newest)
    kept = [texts[place] for place in users if place < end]
    said = any(role in (Role.USER, Role.ASSISTANT) for role in roles[:end])

    def hide_gone() -> int:
        version = sessions.version(session.id)
        turns = session.turns(newest_first=True, limit=LOOKED_BACK_MAX)[::-1]
        places = [place for place, turn in enumerate(turns) if turn.role is Role.USER]
        first = first_gone([turns[place].text.strip() for place in places], kept, said=said)
        gone = 0 if first is None else len(turns) - places[first]
        sessions.settle_undone(session.id, turns=gone, expected=version)
        return gone

    return retry_on_conflict(hide_gone)


def first_gone(seen: Sequence[str], kept: Sequence[str], *, said: bool) -> int | None:
    """Return the place of the first text of `seen` that was taken back, where `kept` is left of it; None if none was.

    The newest text of `kept` that is in `seen` is looked for there; of several places the one with the longest run
    in common counts. Texts of `kept` that were never recorded are passed over. Where there is nothing in common, all
    of `seen` was taken back if nothing was `said` in the transcript; else there is nothing that would tell.
    """
    left = list(kept)
    while left and left[-1] not in seen:
        left.pop()
    if not left and said:
        return None
    ends = [end for end in range(1, len(seen) + 1) if left and seen[end - 1] == left[-1]] or [0]
    # Where both begin together, the run is no coincidence; else the later one hides less.
    end = max(ends, key=lambda end: (_run(seen[:end], left), end == len(left), end))
    return end if end < len(seen) else None


def _run(left: Sequence[str], right: Sequence[str]) -> int:
    pairs = zip(reversed(left), reversed(right), strict=False)
    return next((length for length, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def _role(place: int, message: Message) -> str:
    if isinstance(message, NewTurn):
        return message.role
    if not isinstance(message, Mapping):
        raise errors.InvalidInput(f"messages[{place}]", f"expected a mapping, got {type(message).__name__}")
    return str(message.get("role", ""))


def _text(message: Message) -> str:
    if isinstance(message, NewTurn):
        return message.text.strip()
    content = message.get("text", message.get("content")) or ""
    if isinstance(content, str):
        return content.strip()
    texts = [part if isinstance(part, str) else str(part.get("text") or "") for part in content]
    return "\n".join(text for text in texts if text).strip()
