"""Tools that combine several methods of the library, and their answers."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mnemolog.adapters.support.agent_tools.memory import Memory
from mnemolog.aio.session import AsyncSession
from mnemolog.projections.read_models import SessionSummary


class SessionNow(msgspec.Struct, frozen=True, kw_only=True):
    """A session with its ancestors: `lineage` is root first, and ends with the session itself."""

    session: str
    title: str
    agent: str
    scope: str
    lineage: list[str]


class StatusNow(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the store: `model` is `loading`, `ready`, or why there is none."""

    log_id: str
    digest: str
    sessions: int
    turns: int
    model: str
    vectors: dict[str, str]
    projector: str
    warnings: tuple[str, ...]
    read_only: bool


async def session_list(
    memory: Memory,
    *,
    scope: str | list[str] = "",
    limit: Annotated[int, Meta(description="Maximum number; the newest are returned.", ge=1, le=1_000)] = 100,
) -> list[SessionSummary]:
    """Return sessions in the order in which they were started."""
    return (await memory.store.sessions(scope=scope))[-limit:]


async def session_current(memory: Memory, *, agent: str) -> SessionNow | None:
    """Return the session that an agent was last switched to."""
    found = await memory.store.current(agent)
    return None if found is None else await session_now(found)


async def status(memory: Memory) -> StatusNow:
    """Return the state of the store."""
    found = await memory.store.status()
    return StatusNow(
        log_id=found.log_id,
        digest=found.digest,
        sessions=found.sessions,
        turns=found.turns,
        model=memory.model,
        vectors={vectors.model: vectors.state for vectors in found.vectors},
        projector=found.projector.state,
        warnings=found.warnings,
        read_only=memory.read_only,
    )


async def session_now(session: AsyncSession) -> SessionNow:
    """Return a session as an answer."""
    lineage = await session.lineage()
    return SessionNow(
        session=session.id, title=session.title, agent=session.agent, scope=session.scope, lineage=lineage
    )
