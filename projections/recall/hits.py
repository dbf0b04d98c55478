"""The exchange around a hit: the reply to a user's turn, or what the user said before an assistant's turn."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from mnemolog.domain.position import Position
from mnemolog.domain.role import Role
from mnemolog.domain.scope import Scope, covers
from mnemolog.domain.spans import Spans
from mnemolog.projections.read_models import Turn
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.span_queries import positions_in

REACH: Final = 40
"""How many turns before or after a hit are looked at: outputs of tools may lie between a question and its reply."""
EXCHANGE_TURNS_MAX: Final = 4
"""An exchange has at most so many turns besides the hit: the last ones of a reply, the last ones before it."""


def exchange_of(connection: sa.Connection, turn: Turn, *, seen: Spans, scope: Scope) -> tuple[Turn, ...]:
    """Return the other side of the exchange that a turn belongs to, in order; empty if there is none.

    For a user's turn, the assistant's turns after it, up to the next one of the user; for an assistant's turn, the
    user's turns before it. Turns of tools and of the system are passed over. All of them lie in `seen` and at or below
    `scope`. A turn outside of `seen` has no exchange.
    """
    wanted = {Role.USER: Role.ASSISTANT, Role.ASSISTANT: Role.USER}.get(turn.role)
    if wanted is None or not any(span.holds(turn.session, turn.position) for span in seen):
        return ()
    if back := wanted is Role.USER:
        near = positions_in(connection, seen, before=turn.position, newest_first=True, limit=REACH)
    else:
        near = positions_in(connection, seen, after=turn.position, limit=REACH)
    roles, found = queries.roles_at(connection, near), list[Position]()
    for position in near:
        role = roles.get(position)
        if role is wanted:
            found.append(position)
        elif role is turn.role and found:
            break
    chosen = found[:EXCHANGE_TURNS_MAX][::-1] if back else found[-EXCHANGE_TURNS_MAX:]
    turns = queries.turns_at(connection, chosen)
    return tuple(turns[at] for at in chosen if at in turns and covers(scope, Scope(turns[at].scope)))
