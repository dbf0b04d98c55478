"""Tools that combine several methods of the library, and their answers."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from mnemolog.adapters.support.agent_tools.memory import Memory
from mnemolog.adapters.support.store_access import known_async_session
from mnemolog.aio.session import AsyncSession
from mnemolog.projections.read_models import SessionSummary
from mnemolog.results import Checkpoint, Note, Task

TURNS_MAX: Final = 50
"""Turns in the answer about a session."""


class SessionNow(msgspec.Struct, frozen=True, kw_only=True):
    """A session with its ancestors: `lineage` is root first, and ends with the session itself."""

    session: str
    title: str
    agent: str
    scope: str
    lineage: list[str]


class Mind(msgspec.Struct, frozen=True, kw_only=True):
    """The working memory of a session."""

    values: dict[str, Any]
    task: Task | None
    notes: list[Note]
    checkpoints: list[Checkpoint]


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


async def session_whole(memory: Memory, session_id: str, as_of: int | None) -> dict[str, Any]:
    """Return a session with its working memory and the newest turns that it sees, now or as of a position."""
    position = (await memory.store.head()).position
    session = await known_async_session(memory.store, session_id)
    view = session if as_of is None else await session.at(as_of)
    turns = await view.turns(last=TURNS_MAX)
    mind = Mind(
        values=await view.all(),
        task=await view.task(),
        notes=await view.notes(with_times=True),
        checkpoints=await view.checkpoints(),
    )
    about: dict[str, Any] = msgspec.to_builtins(await session_now(session)) | msgspec.to_builtins(mind)
    return about | {"position": position if as_of is None else as_of, "turns": turns}
