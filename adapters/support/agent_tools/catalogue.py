"""All tools, with advice on when to use them. Most call one method of the library, which makes all checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from msgspec import Meta

from mnemolog.adapters.support.agent_tools import answers
from mnemolog.adapters.support.agent_tools.memory import Memory
from mnemolog.adapters.support.agent_tools.tool import PARAMETERS, Effect, Tool, made
from mnemolog.adapters.support.store_access import known_async_session
from mnemolog.aio.session import AsyncSession
from mnemolog.domain.switching import SwitchReason
from mnemolog.results import Checkpoint
from mnemolog.session import Session
from mnemolog.store import MemoryStore


def _of_store(name: str, effect: Effect, method: Callable[..., Any], description: str, **how: Any) -> Tool:
    async def call(memory: Memory, **given: Any) -> Any:
        return await _answer_of(await getattr(memory.store, method.__name__)(**given))

    return made(name, effect, call, description, like=method, **how)


def _of_session(name: str, effect: Effect, method: Callable[..., Any], description: str, **how: Any) -> Tool:
    async def call(memory: Memory, *, session: str, **given: Any) -> Any:
        return await _answer_of(
            await getattr(await known_async_session(memory.store, session), method.__name__)(**given)
        )

    return made(name, effect, call, description, like=method, **{"session": PARAMETERS["session"], **how})


async def _answer_of(result: Any) -> Any:
    return await answers.session_now(result) if isinstance(result, AsyncSession) else result


_To = Annotated[str | None, Meta(description="The session to resume, or an id for the one to start. Null: generated.")]
_Left = Annotated[str | None, Meta(description="The session to leave. Null: the agent's current one.")]
_Among = Annotated[str | None, Meta(description="Recall only what this session sees. Null: every session.")]
_Key = Annotated[str, Meta(description="Name of the value.")]
_RetryKey = Annotated[str | None, Meta(description="Makes a retry safe: the same key adds nothing.")]
_After = Annotated[str | None, Meta(description="`next` of the previous page; keep all other arguments the same.")]
_BranchAt = Annotated[int | str | None, Meta(description="A position, or the id or name of a checkpoint. Null: here.")]
_LEFT_OUT: Final = ("lineage", "weights", "min_position", "timeout_s", "receipt", "wait_for_model")

INSTRUCTIONS: Final = """\
A memory that keeps every turn and knows what was known at any position of its log. Begin with session_current or
session_start. Record every turn as it is said. Recall before you answer about anything that may have been discussed
before. Positions in answers are positions in the log: pass one as `as_of` to get the state at that time.\
"""
"""Instructions for the model that gets these tools."""

TOOLS: Final[dict[str, Tool]] = {
    tool.name: tool
    for tool in (
        _of_session(
            "record",
            "adds",
            Session.record,
            """Record a turn of a conversation. It is durable when this returns. Use it for every message, the user's
            and your own, word for word, as it is said: what is not recorded cannot be recalled.""",
            key=_RetryKey,
        ),
        made(
            "recall",
            "reads",
            answers.recall,
            """Find the turns that answer a question, each with its position. Use it before you answer about anything
            that may have been discussed before. With as_of it finds what would have been found at that position.
            unavailable_legs lists search paths that did not answer: while the model loads, only text search does.""",
            like=MemoryStore.recall,
            leave_out=_LEFT_OUT,
            session=_Among,
            after=_After,
        ),
        made(
            "timeline",
            "reads",
            answers.timeline,
            """List what happened, in order: turns, values, notes, checkpoints, restores, switches, with positions.
            Use it to see how the current state came about, and to find the position for an as_of.""",
        ),
        _of_store(
            "session_start",
            "adds",
            MemoryStore.session,
            """Start a session: a conversation with turns and a working memory of its own; if there is one with that id,
            return it. Use it when a conversation begins, before the first record. To leave another session for it, use
            session_switch.""",
            result=answers.SessionNow,
            scope=str | None,
        ),
        _of_store(
            "session_switch",
            "hides",
            MemoryStore.switch,
            """Move the agent to another session, atomically. Use it when the conversation changes: new (another topic),
            reset (start over, end the old one), resume (continue `to`), branch (try something from here, or from
            position `at`), compress (continue after a summary), rewind (undo `turns` turns, or all after position
            `at`: they are hidden, not lost).""",
            result=answers.SessionNow,
            to=_To,
            reason=SwitchReason,
            session=_Left,
            scope=str | None,
        ),
        _of_session(
            "session_branch",
            "adds",
            Session.branch,
            """Start a session that continues another. That one does not change, and the agent stays in its session.
            Use it to try something out, or to hand a task to a second agent with all that is known so far.""",
            result=answers.SessionNow,
            at=_BranchAt,
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
            answers.session_list,
            """List the sessions in the order in which they were started. Use it to find an earlier conversation.""",
        ),
        made(
            "session_current",
            "reads",
            answers.session_current,
            """Return the current session of an agent, null before its first switch. Use it after a restart, to continue
            where the agent was.""",
        ),
        made(
            "memory_read",
            "reads",
            answers.memory_read,
            """Return the working memory of a session: values, task, notes, checkpoints; now or as of a position. Use it
            at the beginning, and after a switch or a restore, to know the current state.""",
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
            "memory_delete",
            "hides",
            Session.delete,
            """Delete a value of a session's working memory; returns whether it existed. Use it when a value no longer
            holds.""",
            key=_Key,
        ),
        _of_session(
            "task_set",
            "adds",
            Session.set_task,
            """Set the task of a session, replacing the old one. Use it when a task begins.""",
        ),
        _of_session(
            "task_update",
            "adds",
            Session.update_task,
            """Change step, total, percent or status of the task. Use it whenever a step is done.""",
        ),
        _of_session(
            "note_add",
            "adds",
            Session.note,
            """Add a note to a session's scratchpad. Use it for findings and decisions on the way.""",
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
            result=Checkpoint,
        ),
        made(
            "status",
            "reads",
            answers.status,
            """Return the state of the log, the vectors and the model, and warnings. Use it when answers look
            incomplete.""",
        ),
    )
}


def offered(memory: Memory) -> dict[str, Tool]:
    """Return the tools of a memory; of a read-only one, those that only read."""
    return {name: tool for name, tool in TOOLS.items() if tool.effect == "reads" or not memory.read_only}
