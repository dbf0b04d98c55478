"""Every tool, with when to use it. Most are methods of the library, which checks and decides all that they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from msgspec import Meta

from mnemolog.adapters.support.agent_tools import answers
from mnemolog.adapters.support.agent_tools.memory import Memory
from mnemolog.adapters.support.agent_tools.tool import PARAMETERS, Effect, Tool, made
from mnemolog.aio.session import AsyncSession
from mnemolog.domain.switching import SwitchReason
from mnemolog.session import Session
from mnemolog.store import MemoryStore


def _of_store(name: str, effect: Effect, method: Callable[..., Any], description: str, **how: Any) -> Tool:
    async def call(memory: Memory, **given: Any) -> Any:
        return await _told(await getattr(memory.store, method.__name__)(**given))

    return made(name, effect, call, description, like=method, **how)


def _of_session(name: str, effect: Effect, method: Callable[..., Any], description: str, **how: Any) -> Tool:
    async def call(memory: Memory, *, session: str, **given: Any) -> Any:
        return await _told(await getattr(await memory.store.session(session), method.__name__)(**given))

    return made(name, effect, call, description, like=method, **{"session": PARAMETERS["session"], **how})


async def _told(result: Any) -> Any:
    return await answers.session_now(result) if isinstance(result, AsyncSession) else result


_To = Annotated[str | None, Meta(description="The session to resume, or an id for the one to start. Null: made up.")]
_Left = Annotated[str | None, Meta(description="The session that is left. Null: the one that the agent is in.")]
_Among = Annotated[str | None, Meta(description="Only what this session sees. Null: every session.")]
_Key = Annotated[str, Meta(description="Name of the value.")]
_RetryKey = Annotated[str | None, Meta(description="Makes a retry safe: the same key adds nothing.")]
_After = Annotated[str | None, Meta(description="`next` of the page before, with all else the same.")]
_BranchAt = Annotated[int | str | None, Meta(description="A position, or id or name of a checkpoint. Null: here.")]
_NOT_TOLD: Final = ("lineage", "weights", "min_position", "timeout_s", "receipt", "wait_for_model")

INSTRUCTIONS: Final = """\
A memory that keeps every turn for ever, and can tell what was known at any position of its log. Begin with
session_current or session_start. Record every turn as it is said. Recall before you answer what may have been talked
about before. Positions in answers are places in the log: give one as `as_of` to ask again as of then.\
"""
"""What who is given these tools is told of them as a whole."""

TOOLS: Final[dict[str, Tool]] = {
    tool.name: tool
    for tool in (
        _of_session(
            "record",
            "adds",
            Session.record,
            """Record a turn of a conversation. It is durable when this answers. Use it for every message of the user
            and of yourself, word for word, as it is said: what is not recorded cannot be recalled.""",
            key=_RetryKey,
        ),
        made(
            "recall",
            "reads",
            answers.recall,
            """Find the turns that answer a question, each with the position it stands at. Use it before you answer
            what may have been talked about before. With as_of it finds what would have been found at that position.
            unavailable_legs says what took no part: while the model is loading, words alone are looked for.""",
            like=MemoryStore.recall,
            leave_out=_NOT_TOLD,
            session=_Among,
            after=_After,
        ),
        made(
            "timeline",
            "reads",
            answers.timeline,
            """List what happened, in order: turns, values, notes, checkpoints, restores, switches, with positions.
            Use it to see how things came to be as they are, and to find the position for an as_of.""",
        ),
        _of_store(
            "session_start",
            "adds",
            MemoryStore.start_session,
            """Start a session: a conversation with turns and a working memory of its own. Use it when a conversation
            begins, before the first record. To leave another session for it, use session_switch.""",
            result=answers.SessionNow,
        ),
        _of_store(
            "session_switch",
            "hides",
            MemoryStore.switch,
            """Move the agent to another session, all at once or not at all. Use it when the conversation changes: new
            (another topic), reset (begin anew, end the old one), resume (go on with `to`), branch (try something from
            here, or from position `at`), compress (go on behind a summary), rewind (take back `turns` turns, or all
            behind position `at`: they are hidden, not lost).""",
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
            """Start a session that goes on from another, which stays as it is; so does the agent. Use it to try
            something out, or to hand a task to a second agent with all that is known so far.""",
            result=answers.SessionNow,
            at=_BranchAt,
        ),
        _of_session(
            "session_end",
            "settles",
            Session.end,
            """End a session: it takes no more turns, and can be recalled all the same. Use it when a conversation is
            over for good.""",
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
            """Say which session an agent is in, null before its first switch. Use it after a restart, to go on
            where the agent was.""",
        ),
        made(
            "memory_read",
            "reads",
            answers.memory_read,
            """Return what a session has in mind: values, task, notes, checkpoints; now or as of a position. Use it
            when you begin, and after a switch or a restore, to know what is going on.""",
        ),
        _of_session(
            "memory_set",
            "adds",
            Session.set,
            """Set a value of a session's working memory. Use it for what the task needs at hand, such as a budget or
            a choice. What was said belongs into record.""",
            key=_Key,
        ),
        _of_session(
            "memory_delete",
            "hides",
            Session.delete,
            """Delete a value of a session's working memory; says whether it was there. Use it when a value no longer
            holds.""",
            key=_Key,
        ),
        _of_session(
            "task_set",
            "adds",
            Session.set_task,
            """Say what a session works on, in place of what it was. Use it when a task begins.""",
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
            """Add a note to a session's scratchpad. Use it for what was found out or decided on the way.""",
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
            """Name this moment of a session, to come back to it. It costs next to nothing. Use it before something
            that may go wrong or be taken back.""",
        ),
        _of_session(
            "checkpoint_list",
            "reads",
            Session.checkpoints,
            """List the checkpoints of a session, oldest first. Use it to see where checkpoint_restore and
            session_branch could go.""",
        ),
        _of_session(
            "checkpoint_restore",
            "hides",
            Session.restore,
            """Bring values, task and notes back to a checkpoint, and hide the turns behind it. Use it to undo what was
            done since. Nothing is lost: later checkpoints and the history stay.""",
        ),
        made(
            "status",
            "reads",
            answers.status,
            """Say how far the log goes, how the vectors follow it, whether the model is loaded and what is wrong. Use
            it when answers look incomplete.""",
        ),
    )
}


def offered(memory: Memory) -> dict[str, Tool]:
    """Return the tools that a memory has: where it is read-only, those that only read."""
    return {name: tool for name, tool in TOOLS.items() if tool.effect == "reads" or not memory.read_only}
