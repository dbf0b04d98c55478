"""Handle an undo of unknown extent: flag it, then hide the turns that are no longer in the transcript."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mnemolog.adapters.support.store_access import discard_prefetch, switches_of, visible_of
from mnemolog.application.session_service import retry_on_conflict
from mnemolog.domain import errors, working_memory
from mnemolog.domain.message import Role
from mnemolog.results import NewTurn
from mnemolog.session import Session

LOOKED_BACK_MAX: Final = 1_000
"""Turns of the session that are compared."""

Message = Mapping[str, Any] | NewTurn


def flag_pending_undo(session: Session) -> None:
    """Record that turns were undone, but not which; `rewind_to_transcript` clears the flag.

    While it is set, `context_for` finds nothing that this session sees, in any process. What was prefetched is
    dropped. A session that has ended is resumed. Raises what every append raises.
    """
    switches_of(session).flag_pending_undo(session.id, agent=session.agent)
    discard_prefetch(session)


def has_pending_undo(session: Session) -> bool:
    """Whether turns were undone and it is not known which: flagged, and not resolved by `rewind_to_transcript`."""
    return working_memory.is_undo_pending(visible_of(session).state(session.id))


def rewind_to_transcript(session: Session, messages: Sequence[Message], *, before: str | None = None) -> int:
    """Hide the newest turns that a transcript no longer has, and resolve a pending undo, in one append.

    The counterpart of `reconcile`, with the same messages; a text may be a list of parts. With `before` the
    transcript counts up to the newest message in which the user said this: it is not recorded yet. Only texts of
    users are compared, in the last 1,000 turns; docs/frameworks.md has the rule. A transcript that has nothing in
    common with the session, such as a summary, hides nothing.

    Returns how many turns were hidden. A session that has ended stays ended. Raises what every append raises.
    """
    roles = [_role(place, message) for place, message in enumerate(messages)]
    text = visible_of(session).log.redaction().text
    texts = [text(_text(message)) if role == Role.USER else "" for role, message in zip(roles, messages, strict=True)]
    users = [place for place, role in enumerate(roles) if role == Role.USER]
    end = len(messages)
    if before is not None:
        newest = users[-1] if users else end
        end = next((place for place in reversed(users) if texts[place] == text(before.strip())), newest)
    kept = [texts[place] for place in users if place < end]
    said = any(role in (Role.USER, Role.ASSISTANT) for role in roles[:end])

    def hide_gone() -> int:
        version = visible_of(session).version(session.id)
        turns = session.turns(last=LOOKED_BACK_MAX)
        places = [place for place, turn in enumerate(turns) if turn.role is Role.USER]
        first = first_gone([turns[place].text.strip() for place in places], kept, said=said)
        gone = 0 if first is None else len(turns) - places[first]
        switches_of(session).resolve_pending_undo(session.id, turns=gone, expected=version)
        return gone

    return retry_on_conflict(hide_gone)


def first_gone(seen: Sequence[str], kept: Sequence[str], *, said: bool) -> int | None:
    """Return the place of the first text of `seen` that was undone, given the texts `kept`; None if none was.

    The newest text of `kept` that is in `seen` is searched there; of several places the one with the longest common
    run is used. Texts of `kept` that were never recorded are skipped. If the two have nothing in common, all of
    `seen` was undone if nothing was `said` in the transcript; else it is unknown, and None is returned.
    """
    left = list(kept)
    while left and left[-1] not in seen:
        left.pop()
    if not left and said:
        return None
    ends = [end for end in range(1, len(seen) + 1) if left and seen[end - 1] == left[-1]] or [0]
    # A run from the start of both is no coincidence; else the later place hides less.
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
