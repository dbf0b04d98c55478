"""Record the missing turns of a transcript that an agent repeatedly passes as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final

from mnemolog.adapters.support.store_access import sessions_of, visible_of
from mnemolog.application.session_service import checked_turn, retry_on_conflict
from mnemolog.domain import errors
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.limits import TURNS_PER_CALL_MAX, check_count
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.read_models import Turn
from mnemolog.results import NewTurn
from mnemolog.session import Session

PAGE: Final = 1_000

Message = tuple[TurnRecorded, str | None]


def reconcile(session: Session, messages: Sequence[Mapping[str, Any] | NewTurn]) -> list[Turn]:
    """Record the messages of a whole transcript that the session does not see yet. Return the turns added.

    Each message is a dict as `Session.record` takes it, or a `NewTurn`, whose `session` is ignored. Messages are
    compared with the turns that the session sees: by key where they have one, else by role and text. Missing ones are
    added at the end, in the order given, in one transaction. If the messages have keys, or are only ever added at the
    end, passing the same transcript again adds nothing; docs/messages.md has the rule. Raises as `Session.record` does,
    and `LimitExceeded` beyond 10,000 messages.
    """
    check_count("messages", len(messages), limit=TURNS_PER_CALL_MAX, unit="messages")
    redaction = visible_of(session).log.redaction()
    given = [_message(place, message, session=session.id) for place, message in enumerate(messages)]
    wanted = [(redaction.event(turn), key) for turn, key in given]

    def record_missing() -> list[Turn]:
        version = visible_of(session).version(session.id)
        added = missing(list(turns_after(session, ORIGIN)), wanted)
        recorded = sessions_of(session).record_behind(session.id, added, expected=version) if added else []
        return [item.turn() for item in recorded if not item.deduplicated]

    return retry_on_conflict(record_missing)


def missing(seen: Sequence[Turn], wanted: Sequence[Message]) -> list[Message]:
    """Return those of `wanted` that `seen` lacks, in their order.

    The two are aligned by their longest common runs (Ratcliff and Obershelp, as `difflib` does it), so that
    a sentence that is said twice is recorded twice. A message that the alignment leaves over is not missing if
    `seen` has it out of order, after the start of the transcript: an earlier call recorded a message that was
    missing in the middle there. A message whose key is in `seen` is never missing.
    """
    known_keys = {turn.key for turn in seen if turn.key is not None} & {key for _, key in wanted}
    unkeyed = [(turn, key) for turn, key in wanted if key not in known_keys]
    left = [(turn.role.value, turn.text) for turn in seen if turn.key not in known_keys]
    right = [(turn.role, turn.text) for turn, _ in unkeyed]
    if right[: len(left)] == left:  # Only added at the end, as usual. The alignment would take quadratic time.
        return unkeyed[len(left) :]
    opcodes = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    begins = next((start for tag, start, _, _, _ in opcodes if tag == "equal"), len(left))
    out_of_order = Counter(
        item for tag, start, end, _, _ in opcodes if tag != "equal" for item in left[max(start, begins) : end]
    )
    added: list[Message] = []
    for tag, _, _, start, end in opcodes:
        if tag in ("insert", "replace"):
            for place in range(start, end):
                if out_of_order[right[place]]:
                    out_of_order[right[place]] -= 1
                else:
                    added.append(unkeyed[place])
    return added


def turns_after(session: Session, after: Position) -> Iterator[Turn]:
    """Yield the turns that a session sees after a position, a page at a time."""
    while page := session.turns(after=after, limit=PAGE):
        yield from page
        after = page[-1].position


def _message(place: int, message: Mapping[str, Any] | NewTurn, *, session: str) -> Message:
    try:
        new = message if isinstance(message, NewTurn) else NewTurn.of(message, session=session)
        return checked_turn(new)
    except errors.InvalidInput as error:
        error.at_place(f"messages[{place}]")
        raise
