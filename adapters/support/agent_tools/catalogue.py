"""All tools, with advice on when to use them. Most call one method of the library, which makes all checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from mnemolog.adapters.support.agent_tools import core
from mnemolog.adapters.support.agent_tools.memory import Memory
from mnemolog.adapters.support.agent_tools.tool import PARAMETERS, Effect, Tool, made
from mnemolog.adapters.support.store_access import known_async_session
from mnemolog.aio.store import AsyncSession
from mnemolog.domain.result import Results
from mnemolog.projections.read_models import SessionSummary
from mnemolog.results import Checkpoint
from mnemolog.session import Session


def _of_session(name: str, effect: Effect, method: Callable[..., Any], description: str, **how: Any) -> Tool:
    async def call(memory: Memory, *, session: str, **given: Any) -> Any:
        result = await getattr(await known_async_session(memory.store, session), method.__name__)(**given)
        return await _session_now(result) if isinstance(result, AsyncSession) else result

    return made(name, effect, call, description, like=method, **{"session": PARAMETERS["session"], **how})


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


async def _session_list(
    memory: Memory,
    *,
    scope: str | list[str] = "",
    limit: Annotated[int, Meta(description="Maximum number; the newest are returned.", ge=1, le=1_000)] = 100,
    before: Annotated[int | None, Meta(description="Only started before this position: the next page.")] = None,
) -> Results[SessionSummary]:
    """Return sessions in the order in which they were started."""
    listed = await memory.store.sessions(scope=scope)
    known = [item for item in listed if before is None or item.started_position < before]
    found = Results(known[-limit:])
    found.next = found[0].started_position if len(known) > limit else None
    return found


async def _session_current(
    memory: Memory,
    *,
    agent: Annotated[str | None, Meta(description="Null: the default agent of this server.")] = None,
) -> SessionNow | None:
    """Return the session that an agent was last switched to."""
    found = await memory.store.current(agent or memory.agent)
    return None if found is None else await _session_now(found)


async def _status(memory: Memory) -> StatusNow:
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


async def _session_now(session: AsyncSession) -> SessionNow:
    """Return a session as an answer."""
    lineage = await session.lineage()
    return SessionNow(
        session=session.id, title=session.title, agent=session.agent, scope=session.scope, lineage=lineage
    )


_Key = Annotated[str, Meta(description="Name of the value.")]
_BranchAt = Annotated[int | str | None, Meta(description="A position, or the id or name of a checkpoint. Null: here.")]

INSTRUCTIONS: Final = """\
A memory that keeps every turn and knows what was known at any time. Record what is said with `remember`. Look with
`recall` before you answer about anything that may have been discussed before. Nothing here deletes: if the user wants
something forgotten for good, tell them the command to run: mnemolog forget {folder} --session ID (or --position N).\
"""
"""Instructions for the model that gets these tools; `folder` is that of the store."""

TOOLS: Final[dict[str, Tool]] = {
    tool.name: tool
    for tool in (
        made(
            "remember",
            "adds",
            core.remember,
            """Record what was said, word for word. Starts the session if needed. Use it for every message, the
            user's and your own. If it says that something is or has become so, give key and value; look for the key
            in facts first.""",
        ),
        made(
            "recall",
            "reads",
            core.recall,
            """Find turns that answer a question. Use it before you answer about anything discussed before.""",
        ),
        made(
            "context",
            "reads",
            core.context,
            """Return working memory and earlier turns as one text, in order of time. Use it at the start of a task, or
            to read up on a subject; recall finds the turn that answers a question.""",
        ),
        made(
            "facts",
            "reads",
            core.facts,
            """List facts by key: what holds, since when, by which turns. Use it for what may have changed.""",
        ),
        made(
            "propose_fact",
            "adds",
            core.propose_fact,
            """Propose a fact to a person who decides. Use it for what you may not settle; it does not hold before.""",
        ),
        made(
            "timeline",
            "reads",
            core.timeline,
            """List what happened in a time, in order, with positions. Use it for "what did we say on Tuesday?".""",
        ),
        made(
            "working_memory",
            "hides",
            core.working_memory,
            """Read or change values, task and notes of a session. Use it for facts that the task needs. Without changes
            it only reads.""",
            reads_too=True,
        ),
        made(
            "switch",
            "hides",
            core.switch,
            """Move to another session. Use it when the conversation changes: new (another topic), reset (end the old
            one), resume, branch (try something), compress (after a summary), rewind (hide turns).""",
        ),
        _of_session(
            "session_branch",
            "adds",
            Session.branch,
            """Start a session that continues another. That one does not change, and the agent stays in its session.
            Use it to try something out, or to hand a task to a second agent with all that is known so far.""",
            at=_BranchAt,
            returns=SessionNow,
        ),
        _of_session(
            "session_end",
            "settles",
            Session.end,
            """End a session: it accepts no more turns, and recall still finds it. Use it when a conversation is over
            for good.""",
        ),
        made(
            "session_list",
            "reads",
            _session_list,
            """List the sessions in the order in which they were started. Use it to find an earlier conversation.""",
        ),
        made(
            "session_current",
            "reads",
            _session_current,
            """Return the current session of an agent, null before its first switch. Use it after a restart, to continue
            where the agent was.""",
        ),
        _of_session(
            "memory_set",
            "adds",
            Session.set,
            """Set a value of a session's working memory. Use it for facts that the task needs, such as a budget or a
            choice. Use record for what was said.""",
            key=_Key,
        ),
        _of_session(
            "task_update",
            "adds",
            Session.update_task,
            """Change step, total, percent or status of the task. Use it whenever a step is done.""",
        ),
        _of_session(
            "notes_clear",
            "hides",
            Session.clear_notes,
            """Empty a session's scratchpad. Use it when a task is done and its notes would mislead the next.""",
        ),
        _of_session(
            "checkpoint_create",
            "adds",
            Session.checkpoint,
            """Name the current state of a session, to return to it later. It costs next to nothing. Use it before a
            step that may fail or be undone.""",
        ),
        _of_session(
            "checkpoint_list",
            "reads",
            Session.checkpoints,
            """List the checkpoints of a session, oldest first. Use it to choose one for checkpoint_restore or
            session_branch.""",
        ),
        _of_session(
            "checkpoint_restore",
            "hides",
            Session.restore,
            """Restore values, task and notes from a checkpoint, and hide the turns after it. Use it to undo everything
            since. Nothing is lost: later checkpoints and the history stay.""",
            leave_out=("dry_run",),
            returns=Checkpoint,
        ),
        made(
            "status",
            "reads",
            _status,
            """Return the state of the log, the vectors and the model, and warnings. Use it when answers look
            incomplete.""",
        ),
    )
}


PROPOSE: Final = "propose_fact"
CORE: Final = ("remember", "recall", "context", "facts", "timeline", "working_memory", "switch")
"""The tools that are offered by default."""
Toolset = Literal["core", "full"]


def offered(toolset: Toolset = "full", *, read_only: bool = False, proposes: bool = True) -> dict[str, Tool]:
    """Return the tools of a memory; of a read-only one, those that can only read, and if it `proposes`, that one."""
    found = {name: TOOLS[name] for name in (CORE if toolset == "core" else TOOLS) if name != PROPOSE}
    kept = {name: tool for name, tool in found.items() if not read_only or tool.effect == "reads" or tool.reads_too}
    return kept | {PROPOSE: TOOLS[PROPOSE]} if proposes and (read_only or toolset == "full") else kept
