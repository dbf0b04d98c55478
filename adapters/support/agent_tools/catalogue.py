"""All tools, with advice on when to use them, and the calls behind them. Most are one method of the library."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, TypedDict

import msgspec
from msgspec import Meta

from mnemolog.adapters.support.agent_tools.tool import NO_MODEL, PARAMETERS, Effect, Memory, Shown, Tool, made
from mnemolog.adapters.support.store_access import (
    begin_session,
    enter_session,
    in_async_session,
    known_async_session,
    with_pools,
)
from mnemolog.aio.store import AsyncSession
from mnemolog.application.session_service import checked_turn
from mnemolog.domain.display import dated
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import AssertFact
from mnemolog.domain.facts import new_fact
from mnemolog.domain.result import Results
from mnemolog.domain.switching import SwitchReason
from mnemolog.domain.values import (
    VALUE_KEY_BYTES_MAX,
    Position,
    checked_text,
    parse_position_or_time,
    parse_relative_time,
)
from mnemolog.projections.context.answer import WhyLeftOut
from mnemolog.projections.context.service import TOKENS
from mnemolog.projections.history.timeline import Moment
from mnemolog.projections.read_models import SessionSummary, Turn
from mnemolog.projections.recall.answer import Hit
from mnemolog.projections.recall.passages import marked
from mnemolog.results import Checkpoint, NewTurn, Task
from mnemolog.session import Session
from mnemolog.store import MemoryStore

LINE_MAX: Final = 600
"""Characters of an event in a timeline."""
SCANNED_MAX: Final = 5_000
"""Positions that a timeline without `since` and `after` looks back."""
NOTHING: Final = "Nothing was found."
PASSAGES: Final = "a text with of_characters is the best passage of a longer turn; full=true returns whole turns"

_MESSAGES: Final = msgspec.json.Decoder(list[dict[str, Any]])

When = int | str
InSession = Annotated[str | None, Meta(description="Id, chosen by you. Default: the conversation you are in.")]
Among = Annotated[str | None, Meta(description="Only this session and what it inherits. Default: all.")]
Since = Annotated[str | None, Meta(description="Said since: 2026-03-16, yesterday 14:00, tuesday.")]
Until = Annotated[str | None, Meta(description="Said before.")]
AsOf = Annotated[When | None, Meta(description="As of this time or log position.")]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A turn beside a hit."""

    text: str
    who: str
    position: Position


class RecalledTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A hit as a model gets it."""

    title: str
    of_characters: int | None
    """The length of the turn, if `text` is a passage of it."""
    text: str
    relevance: float
    who: str
    when: str
    session: str
    position: Position
    said_times: int | None
    said_later: Line | None
    exchange: list[Line]


class Recalled(Shown, frozen=True, kw_only=True):
    """The answer of `recall`."""

    hits: Sequence[RecalledTurn] = ()
    note: str


class Remembered(Shown, frozen=True, kw_only=True):
    """The answer of `remember`. `keys_like_it` are the nearest other keys of facts."""

    session: str
    positions: list[Position]
    fact: Position | None = None
    keys_like_it: Sequence[str] = ()


class HeldFact(TypedDict):
    """A fact as a model gets it."""

    key: str
    value: Any
    because: Sequence[Position]
    position: Position
    scope: str
    since: str


class HeldFacts(Shown, frozen=True, kw_only=True):
    """The answer of `facts`."""

    facts: Sequence[HeldFact] = ()
    note: str = ""


class Mind(Shown, frozen=True, kw_only=True):
    """The answer of `working_memory`."""

    values: Mapping[str, Any] = {}
    task: Task | None = None
    notes: Sequence[str] = ()


class Entered(Shown, frozen=True, kw_only=True):
    """The answer of `switch`."""

    session: str
    title: str
    scope: str


async def remember(
    memory: Memory,
    *,
    text: Annotated[str | list[dict[str, Any]], Meta(description="A message, or a list of {role, content}.")],
    role: Annotated[str, Meta(description="user, assistant, system or tool.")] = "user",
    session: InSession = None,
    speaker: str | None = None,
    said_at: Annotated[str | None, Meta(description="ISO time. Default: now.")] = None,
    key: Annotated[
        str | None, Meta(description="With value: the fact's path, such as user/city. Else makes a retry safe.")
    ] = None,
    value: Annotated[Any, Meta(description="What key has from now on, by this message. null: ended.")] = msgspec.UNSET,
    valid_from: Annotated[str | None, Meta(description="Since when it is true: 2026-03.")] = None,
    scope: Annotated[str | None, Meta(description="Owner of a new session, such as acme/alice.")] = None,
) -> Remembered:
    """Record messages in a session, and start the session if there is none; with `value` also a fact."""
    fact, text = {"value": value, "valid_from": valid_from}, _messages_in(text) if isinstance(text, str) else text
    if value is not msgspec.UNSET:  # Before the message is recorded.
        new_fact(key=checked_text("key", key or "", bytes_max=VALUE_KEY_BYTES_MAX), **fact)
        fact["key"], key = key, None
    elif valid_from is not None:
        raise InvalidInput("valid_from", "belongs to a fact; give its key and value, too")
    if isinstance(text, list):
        if key is not None or said_at is not None or speaker is not None:
            raise InvalidInput("text", "in a list, each message has its own key, said_at and speaker")
        messages = text
    else:
        given = {"role": role, "content": text, "key": key, "speaker": speaker, **_times(memory, said_at=said_at)}
        messages = [{name: value for name, value in given.items() if value is not None}]
    for message in messages:  # Before a session is started for them.
        checked_turn(NewTurn.of(message, session="any"))
    held = await _held(memory, session, scope=scope)
    recorded = await memory.store.record_many(messages, session=held.id)
    answer = Remembered(session=held.id, positions=[turn.position for turn in recorded])
    if "key" not in fact:
        return answer
    asserted = await held.assert_fact(**fact, because=recorded)
    return msgspec.structs.replace(answer, fact=asserted.position, keys_like_it=asserted.nearest)


async def facts(
    memory: Memory,
    *,
    pattern: Annotated[str, Meta(description="Of keys: user/*.")] = "*",
    scope: str | list[str] = "",
    as_of: AsOf = None,
    valid_at: Annotated[str | None, Meta(description="What is true then: 2026-03.")] = None,
) -> HeldFacts:
    """Return what keys have, since when, and the turns that say so."""
    found = await memory.store.facts(pattern, scope=scope, valid_at=valid_at, **_times(memory, as_of=as_of))
    held = [
        HeldFact(
            key=fact.key,
            value=fact.value,
            because=fact.because,
            position=fact.position,
            scope=fact.scope,
            since=dated(fact.valid_from),
        )
        for fact in found
    ]
    return HeldFacts(facts=held, note="" if held else NOTHING)


class ProposedFact(Shown, frozen=True, kw_only=True):
    """The answer of `propose_fact`. `proposal` is its position."""

    proposal: Position
    state: str


async def propose_fact(
    memory: Memory,
    *,
    key: Annotated[str, Meta(description="The fact's path, such as user/city.")],
    value: Annotated[Any, Meta(description="What key would have. null: ended.")],
    why: Annotated[str, Meta(description="For the person who decides.")] = "",
    because: Annotated[list[int], Meta(description="Positions of the turns that say so.")] = [],  # noqa: B006
    valid_from: Annotated[str | None, Meta(description="Since when it is true: 2026-03.")] = None,
    scope: Annotated[str | None, Meta(description="Owner of the fact, such as acme/alice.")] = None,
) -> ProposedFact:
    """Propose a fact: it holds once a person has approved it."""
    made = await memory.store.propose(AssertFact(key, value, valid_from), why=why, because=because, scope=scope)
    return ProposedFact(proposal=made.position, state=made.state)


async def recall(
    memory: Memory,
    *,
    query: str,
    k: Annotated[int, Meta(ge=1, le=100)] = 5,
    session: Among = None,
    scope: str | list[str] = "",
    since: Since = None,
    until: Until = None,
    as_of: AsOf = None,
    min_relevance: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None, Meta(description="Leave out turns of less relevance; 0 for none.")
    ] = None,
    order: Annotated[
        Literal["relevance", "time"] | None, Meta(description="time: in which order the user said things.")
    ] = None,
    about: Annotated[
        Literal["said", "answered"] | None, Meta(description="Prefer words of the user, or answers.")
    ] = None,
    full: Annotated[bool, Meta(description="Whole turns, not their best passages.")] = False,
    exchange: Annotated[bool, Meta(description="Add the reply to a hit, or what it replies to.")] = False,
) -> Recalled:
    """Return the turns that answer a question. By text search only while the model takes long to load."""
    limits = _times(memory, since=since, until=until, as_of=as_of)
    found = await memory.store.recall(
        query,
        k,
        scope=scope,
        session=session,
        lineage=session is not None,
        min_relevance=min_relevance,
        order=order,
        about=about,
        exchange=exchange,
        asked_in=await _found(memory, None) if session is None else session,
        wait_for_model=await memory.is_loaded(),
        **limits,
    )
    below = f"{found.left_out} left out: relevance below {found.min_relevance:g}" if found.left_out else ""
    if not found.hits:
        return Recalled(note=f"{NOTHING} ({below})" if below else NOTHING)
    hits = [_hit(hit, full=full) for hit in found.hits]
    notes = [] if memory.model == NO_MODEL else list(found.unavailable_legs.values())
    if found.stale is not None:
        notes.append(f"from projections alone, {found.stale}")
    if any(hit.of_characters is not None for hit in hits):
        notes.append(PASSAGES)
    if below:
        notes.append(below)
    return Recalled(hits=hits, note="; ".join(notes))


async def context(
    memory: Memory,
    *,
    query: str,
    session: Among = None,
    scope: str | list[str] = "",
    tokens: Annotated[int, Meta(description="Maximum size of the answer.", ge=100, le=100_000)] = TOKENS,
    as_of: AsOf = None,
    cover: Annotated[bool | None, Meta(description="true: much on a topic, each turn in short.")] = None,
) -> str:
    """Return the working memory of the session, and what was said that has to do with the query, as text."""
    held = await _found(memory, session)
    how: dict[str, Any] = {
        "scope": scope,
        "cover": cover,
        "wait_for_model": await memory.is_loaded(),
        **_times(memory, as_of=as_of),
    }
    if session is None and held is not None:
        found = await held.context(query, tokens, **how)
    else:
        found = await memory.store.context(query, tokens, session=held, asked_in=held, lineage=held is not None, **how)
    left_out = sum(item.why is WhyLeftOut.NO_ROOM for item in found.left_out)
    more = f"\n({left_out} more did not fit into {tokens} tokens)" if left_out else ""
    return (found.text or NOTHING) + more


async def timeline(
    memory: Memory,
    *,
    since: Since = None,
    until: Until = None,
    session: Among = None,
    limit: Annotated[int, Meta(ge=1, le=500)] = 50,
    after: Annotated[int | None, Meta(description="Only after this position: the next page.")] = None,
) -> str:
    """Return what happened in a time, in order of recording; without `since` and `after` the newest.

    Turns count when they were said, everything else when it was recorded.
    """
    forward, start = since is not None or after is not None, after or 0
    if not forward and until is None:
        start = max(0, (await memory.store.head()).position - SCANNED_MAX)
    span = _times(memory, since=since, until=until)
    events = memory.store.audit.timeline(after=Position(start), session=session, by="said", **span)
    kept: deque[Moment] = deque(maxlen=2 * limit + 1)  # Two pages: the one before these begins after the first.
    more = False
    async for moment in events:
        if forward and len(kept) == limit:
            more = True
            break
        kept.append(moment)
    lines = [
        f"@{item.position} {dated(item.said_at or item.at)} {item.session or item.who}: {_cut(item.what, LINE_MAX)}"
        for item in [*kept][-limit:]
    ] or [NOTHING]
    if more:
        lines.append(f"(more: after={kept[-1].position})")
    elif not forward and (len(kept) > limit or start):
        before = kept[0].position if len(kept) > 2 * limit else start - (SCANNED_MAX if len(kept) <= limit else 0)
        lines.insert(0, f"(earlier: after={max(before, 0)})")
    return "\n".join(lines)


async def working_memory(
    memory: Memory,
    *,
    session: InSession = None,
    values: Annotated[dict[str, Any], Meta(description="Values to set, by key.")] = {},  # noqa: B006
    delete: Annotated[list[str], Meta(description="Keys to delete.")] = [],  # noqa: B006
    task: Annotated[str | None, Meta(description="What you are working on.")] = None,
    note: Annotated[str | None, Meta(description="A line for the notes.")] = None,
    as_of: AsOf = None,
) -> Mind:
    """Change the working memory of a session, and return it."""
    if not (values or delete or task is not None or note is not None):
        held = await _found(memory, session)
        return Mind() if held is None else await _mind(held, **_times(memory, as_of=as_of))
    if memory.read_only:
        raise InvalidInput("values", "this server is read-only")
    if as_of is not None:
        raise InvalidInput("as_of", "the past cannot be changed; leave it out")
    held = await _held(memory, session)
    for key in delete:
        await held.delete(key)
    for key, value in values.items():
        await held.set(key, value)
    if task is not None:
        await held.set_task(task)
    if note is not None:
        await held.note(note)
    return await _mind(held, as_of=None)


async def switch(
    memory: Memory,
    *,
    to: Annotated[str | None, Meta(description="To resume or to start. Default: a new id.")] = None,
    reason: Annotated[
        Literal["new", "reset", "resume", "branch", "compress", "rewind"] | None,
        Meta(description="Default: resume `to` if there is one, else new."),
    ] = None,
    turns: Annotated[int | None, Meta(description="rewind: how many turns to hide.")] = None,
    at: Annotated[When | None, Meta(description="branch, rewind: from this position or time.")] = None,
    title: str | None = None,
    scope: Annotated[str | None, Meta(description="Scope of a new session.")] = None,
) -> Entered:
    """Move the agent to another session."""
    exists = to is not None and await memory.store.find_session(to) is not None
    entered = await in_async_session(
        enter_session if reason is None else MemoryStore.switch,
        memory.store,
        to,
        reason=reason or (SwitchReason.RESUME if exists else SwitchReason.NEW),
        agent=memory.agent,
        turns=turns,
        title=title,
        scope=scope,
        **_times(memory, at=at),
    )
    return Entered(session=entered.id, title=entered.title, scope=entered.scope)


def _times(memory: Memory, **given: When | None) -> dict[str, Any]:
    """Return times as the library takes them. Models give them as people do on the command line."""
    clock = with_pools(memory.store)[0].parts.clock
    read = {"as_of": parse_position_or_time, "at": parse_position_or_time}
    return {
        name: read.get(name, parse_relative_time)(name, value, clock=clock) if isinstance(value, str) else value
        for name, value in given.items()
    }


def _messages_in(text: str) -> str | list[dict[str, Any]]:
    """Return the messages that a text is the JSON of, else the text."""
    with suppress(msgspec.DecodeError, msgspec.ValidationError):
        messages = _MESSAGES.decode(text)
        if messages and all("role" in message for message in messages):
            return messages
    return text


async def _found(memory: Memory, session: str | None) -> AsyncSession | None:
    """Return the session that a call means, None if there is none yet. Raises `UnknownSession` for an unknown id."""
    if session is not None:
        return await known_async_session(memory.store, session)
    current = await memory.store.current(memory.agent)
    return current or await memory.store.find_session(memory.agent)


async def _held(memory: Memory, session: str | None, *, scope: str | None = None) -> AsyncSession:
    """Return the session that a call means, started if there is none; one without an id has that of the agent."""
    found = await (memory.store.find_session(session) if session is not None else _found(memory, None))
    if found is not None:
        return found
    return await in_async_session(begin_session, memory.store, session or memory.agent, agent=memory.agent, scope=scope)


async def _mind(session: AsyncSession, *, as_of: When | None) -> Mind:
    view = session if as_of is None else await session.at(as_of)
    return Mind(values=await view.all(), task=await view.task(), notes=await view.notes())


def _hit(hit: Hit, *, full: bool) -> RecalledTurn:
    text = hit.text if full else marked(hit.passage, hit.text)
    return RecalledTurn(
        title=hit.session_title,
        of_characters=None if text == hit.text else len(hit.text),
        text=text,
        relevance=round(hit.relevance, 2),
        who=hit.speaker or hit.role.value,
        when=dated(hit.said_at),
        session=hit.session,
        position=hit.position,
        said_times=len(hit.repeated) + 1 if hit.repeated else None,
        said_later=None if hit.newer is None else _line(hit.newer, full=full),
        exchange=[_line(turn, full=full) for turn in hit.exchange],
    )


def _line(turn: Turn, *, full: bool) -> Line:
    text = turn.text if full else _cut(turn.text, LINE_MAX)
    return Line(text=text, who=turn.speaker or turn.role.value, position=turn.position)


def _cut(text: str, characters_max: int) -> str:
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}… (+{len(text) - characters_max:,} characters)"


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
            remember,
            """Record what was said, word for word. Starts the session if needed. Use it for every message, the
            user's and your own. If it says that something is or has become so, give key and value; look for the key
            in facts first.""",
        ),
        made(
            "recall",
            "reads",
            recall,
            """Find turns that answer a question. Use it before you answer about anything discussed before.""",
        ),
        made(
            "context",
            "reads",
            context,
            """Return working memory and earlier turns as one text, in order of time. Use it at the start of a task, or
            to read up on a subject; recall finds the turn that answers a question.""",
        ),
        made(
            "facts",
            "reads",
            facts,
            """List facts by key: what holds, since when, by which turns. Use it for what may have changed.""",
        ),
        made(
            "propose_fact",
            "adds",
            propose_fact,
            """Propose a fact to a person who decides. Use it for what you may not settle; it does not hold before.""",
        ),
        made(
            "timeline",
            "reads",
            timeline,
            """List what happened in a time, in order, with positions. Use it for "what did we say on Tuesday?".""",
        ),
        made(
            "working_memory",
            "hides",
            working_memory,
            """Read or change values, task and notes of a session. Use it for facts that the task needs. Without changes
            it only reads.""",
            reads_too=True,
        ),
        made(
            "switch",
            "hides",
            switch,
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
