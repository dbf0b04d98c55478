"""Sessions that a framework names and ends: start or resume one by its id, record turns reported after its end."""

from __future__ import annotations

from collections.abc import Sequence

from mnemolog.adapters.support.store_access import begin_session, enter_session, sessions_of, visible_of
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain.switching import SwitchReason, parse_switch_reason
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
