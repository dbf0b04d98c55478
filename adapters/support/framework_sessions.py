"""Sessions that a framework names and ends, and whose transcript it keeps: start, resume, reconcile and rewind them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final

from mnemolog.adapters.support.store_access import begin_session, enter_session, sessions_of, switches_of, visible_of
from mnemolog.application.session_service import checked_turn, retry_on_conflict
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain import errors, working_memory
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.message import Role
from mnemolog.domain.switching import SwitchReason, parse_switch_reason
from mnemolog.domain.values import ORIGIN, TURNS_PER_CALL_MAX, Position, check_count
from mnemolog.projections.read_models import Turn
from mnemolog.results import NewTurn
from mnemolog.session import Session
from mnemolog.store import MemoryStore


def get_or_start_session(
    store: MemoryStore,
    session_id: str,
    *,
    reason: SwitchReason | str = SwitchReason.NEW,
    left: str | None = None,
    agent: str = DEFAULT_AGENT,
    scope: str = "",
) -> Session:
    """Resume the session of that id, or start it if the store does not have it yet.

    An existing session is resumed; or compressed in place, if it is `left` as well and `reason` is `compress`. A new
    one is started by a switch from `left` with that `reason` (`new` for `resume`); or without a switch, if `left` is
    None or unknown. Raises as `MemoryStore.switch` does: nothing was written.
    """
    states, why = visible_of(store).states, parse_switch_reason(reason)
    session_id, left = states.id_of(session_id, scope or None), left and states.id_of(left)
    exists = states.latest(session_id) is not None
    known_left = None if left is None or states.latest(left) is None else left
    if not exists and known_left is None:
        return begin_session(store, session_id, agent=agent, scope=scope)
    stays = known_left == session_id and why is not SwitchReason.COMPRESS
    if known_left is None or stays or why is SwitchReason.RESUME:
        why = SwitchReason.RESUME if exists else SwitchReason.NEW
    return enter_session(store, session_id, reason=why, session=known_left or session_id, agent=agent, scope=scope)


def record_many_reopening(store: MemoryStore, turns: Sequence[NewTurn]) -> list[Turn]:
    """Record turns as `MemoryStore.record_many` does; sessions that have ended are resumed for theirs and ended again.

    All of it is one append. A retry that finds all its turns by their keys reopens nothing.
    """
    return [recorded.turn() for recorded in sessions_of(store).record_many(turns, reopen_ended=True)]


PAGE: Final = 1_000

Keyed = tuple[TurnRecorded, str | None]


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


def missing(seen: Sequence[Turn], wanted: Sequence[Keyed]) -> list[Keyed]:
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
    added: list[Keyed] = []
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


def _message(place: int, message: Mapping[str, Any] | NewTurn, *, session: str) -> Keyed:
    try:
        new = message if isinstance(message, NewTurn) else NewTurn.of(message, session=session)
        return checked_turn(new)
    except errors.InvalidInput as error:
        error.at_place(f"messages[{place}]")
        raise


LOOKED_BACK_MAX: Final = 1_000
"""Turns of the session that are compared."""

Message = Mapping[str, Any] | NewTurn


def flag_pending_undo(session: Session) -> None:
    """Record that turns were undone, but not which; `rewind_to_transcript` clears the flag.

    While it is set, `context_for` finds nothing that this session sees, in any process. What was prefetched is
    dropped. A session that has ended is resumed. Raises what every append raises.
    """
    switches_of(session).flag_pending_undo(session.id, agent=session.agent)
    session._parts.prefetcher.discard(session.id)


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
