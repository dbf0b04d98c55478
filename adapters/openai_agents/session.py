"""A session of the OpenAI Agents SDK kept in a store, and its tools for a model."""

import json
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from typing import Any, Final

import msgspec
from agents import FunctionTool, TResponseInputItem, function_tool
from agents.memory.session_settings import SessionSettings, coerce_session_settings, resolve_session_limit

from mnemolog.adapters.support.agent_tools import Memory, Tool, offered
from mnemolog.adapters.support.store_access import (
    begin_session,
    sessions_of,
    switches_of,
    trusted,
    visible_of,
    with_pools,
)
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.scope import parse_scope
from mnemolog.domain.session import Original, checked_session_id, original_of
from mnemolog.domain.values import INTEGER_MAX, LABEL_BYTES_MAX, TEXT_BYTES_MAX, checked_label, without_unseen
from mnemolog.projections.recall.answer import Hit
from mnemolog.results import NewTurn
from mnemolog.store import MemoryStore

_CALLS_BEFORE: Final = 64
"""The latest items among which the call of an output is looked for. The SDK puts both at once, or soon after."""


class MnemologSession:
    """The history of one conversation, for `Runner.run(..., session=)`: the SDK's `Session` protocol.

    It is the session with that id in the store, started with the first item. Each item is a turn, kept without loss.
    Popped and cleared items are hidden by a rewind and stay in the log. The object is cheap and has no state: any
    number of them, in threads, event loops and processes, may share one session. No call blocks the event loop. A call
    that changes something completes even if it is cancelled; the cancellation is raised after it.

    Raises `InvalidInput` for an invalid id, scope or agent, and from `add_items` for items that are not JSON;
    `LimitExceeded` beyond 64 MiB an item or 10,000 items a call; `SessionAlreadyEnded`, and the errors of every append.
    In all these cases nothing was written.
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        store: MemoryStore | AsyncMemoryStore,
        *,
        scope: str = "",
        agent: str = DEFAULT_AGENT,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        """Use `scope` and `agent` if the session has to be started. `store` stays open."""
        self.session_id = checked_session_id(session_id)
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self._agent, self._scope = checked_label("agent", agent), parse_scope(scope)
        self._store, self._pools = with_pools(store)
        self._sessions, self._switches = sessions_of(self._store), switches_of(self._store)
        self._visible = visible_of(self._store)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the latest `limit` items, in order. The default limit is that of the settings.

        0 returns none; a negative limit, or no limit at all, returns all items.
        """
        most = resolve_session_limit(limit, self.session_settings)
        return await self._pools.read(partial(self._items, None if most is None or most < 0 else most))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items: all of them or none."""
        await self._pools.write.to_completion(partial(self._add, list(items), self._store.record_many))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove and return the last item, None if there is none. No two callers get the same item."""
        return await self._pools.write.to_completion(self._pop)

    async def clear_session(self) -> None:
        """Remove all items. The session stays open, empty."""
        await self._pools.write.to_completion(self._clear)

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        """Replace all items in one append. The SDK's compaction calls this."""
        await self._pools.write.to_completion(
            partial(self._add, list(items), lambda turns: self._sessions.rewrite(self._id, turns))
        )
        return True

    @property
    def _id(self) -> str:
        return self._visible.states.id_of(self.session_id, self._scope or None)

    def _exists(self) -> bool:
        return self._visible.states.latest(self._id) is not None

    def _items(self, limit: int | None) -> list[TResponseInputItem]:
        if not self._exists():
            return []
        seen = trusted(self._store, self._visible.seen(self._id, limit=limit))
        return [item_of(recorded.event) for recorded in seen if isinstance(recorded.event, TurnRecorded)]

    def _add(self, items: list[TResponseInputItem], record: Callable[..., Any]) -> None:
        has_outputs = any(isinstance(item, dict) and item.get("type") == CALL_OUTPUT for item in items)
        asking = memory_calls([*self._items(_CALLS_BEFORE), *items]) if has_outputs else ()
        turns = [turn_of(self._id, item, asking=asking) for item in items]
        if turns or self._exists():
            begin_session(self._store, self._id, agent=self._agent, scope=self._scope)
            record(turns)

    def _pop(self) -> TResponseInputItem | None:
        taken = self._switches.take_back(self._id) if self._exists() else None
        return item_of(taken.event) if taken is not None and isinstance(taken.event, TurnRecorded) else None

    def _clear(self) -> None:
        if self._exists():
            self._switches.rewind(self._id, turns=INTEGER_MAX, to=None)


FORM: Final = "openai-agents.item"
ROLES: Final = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
METADATA_FIELDS: Final = ("type", "call_id", "id")
"""Fields of items other than messages that are copied to metadata: for filters, and to find the call of an output."""
SAYING: Final = (
    *("name", "arguments", "input", "action", "query", "queries", "command", "commands", "code"),
    *("summary", "content", "text", "refusal", "transcript", "filename", "output", "stdout", "stderr", "error"),
)
"""Fields whose strings form the text of an item, in this order. Ids, kinds and base64 are left out."""


CALL_OUTPUT: Final = "function_call_output"
MEMORY_TOOLS: Final = frozenset({"recall", "context", "timeline", "facts", "working_memory"})
"""Tools whose output repeats what is in the memory already: it is kept with its item, and is no text for search."""


def memory_calls(items: Iterable[Any]) -> set[str]:
    """Return the ids of those calls that ask the memory."""
    calls = [item for item in items if isinstance(item, dict) and item.get("type") == "function_call"]
    return {str(call.get("call_id")) for call in calls if call.get("name") in MEMORY_TOOLS}


def turn_of(session: str, item: Any, *, asking: Container[str] = ()) -> NewTurn:
    """Return an item as a turn: a message with its role, anything else with the role tool. Raises `InvalidInput`.

    `asking` has the ids of calls that ask the memory: their output has no text of its own.
    """
    try:
        data = json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("item", f"it is not JSON: {error}") from error
    fields = item if isinstance(item, dict) else {}
    role = ROLES.get(str(fields.get("role")), "tool")
    repeats = fields.get("type") == CALL_OUTPUT and str(fields.get("call_id")) in asking
    text = "" if repeats else _text(item)
    return NewTurn(
        session=session,
        role=role,
        text=text or f"({_label(fields.get('type')) or ('item' if role == 'tool' else 'message')})",
        metadata={name: label for name in METADATA_FIELDS if role == "tool" and (label := _label(fields.get(name)))},
        original=Original(form=FORM, data=data),
    )


def item_of(turn: TurnRecorded) -> Any:
    """Return the item of a turn; for a turn that was recorded by other means, a message with the same text."""
    original = original_of(turn)
    if original is None or original.form != FORM:
        return {"role": "assistant" if turn.role == "tool" else turn.role, "content": turn.text}
    return json.loads(original.data.decode("utf-8", "surrogatepass"))


def _text(item: Any) -> str:
    """Return the text of an item for a turn: valid Unicode, cut at 1 MiB; empty if it is blank."""
    said = "\n".join(_said(item)).replace("\x00", "\ufffd").encode("utf-8", "replace")
    text = said[:TEXT_BYTES_MAX].decode("utf-8", "ignore")
    return "" if text.isspace() else text


def _said(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _said(part)
    elif isinstance(value, dict):
        for name in SAYING:
            yield from _said(value.get(name))


def _label(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= LABEL_BYTES_MAX and without_unseen(value) == value else ""


SHOWN_MAX: Final = 2_000
"""Characters of a turn that the agent sees."""


def recall_tool(
    store: MemoryStore | AsyncMemoryStore, *, scope: str = "", k: int = 5, name: str = "recall", **filters: Any
) -> FunctionTool:
    """Return a tool that finds what was said in a scope before, in any session.

    `filters` are further arguments of `MemoryStore.recall`. Without `roles`, only turns of users and assistants are
    found: outputs of tools, this one included, would look like something that was said.
    """
    recalled, pools = with_pools(store)
    ask = partial(recalled.recall, k=k, scope=scope, **{"roles": ("user", "assistant"), **filters})

    async def recall(query: str) -> str:
        """Find what was said in earlier conversations. Use it before you answer about anything discussed before.

        Args:
            query: What to look for: a question, or words that were used.
        """
        found = await pools.recall(partial(ask, query))
        return "\n".join(map(_line, found.hits)) or "Nothing was found."

    return function_tool(recall, name_override=name)


def memory_tools(memory: Memory, *names: str) -> list[FunctionTool]:
    """Return the tools of a memory with these names, or all: remember, recall, working memory, checkpoints ...

    They are the tools of the MCP server, and answer in text. Raises `InvalidInput` for an unknown name.
    """
    there = offered(read_only=memory.read_only, proposes=memory.proposes)
    if unknown := set(names) - there.keys():
        raise InvalidInput("names", f"there is no tool {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    return [
        FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=tool.input_schema,
            on_invoke_tool=partial(_ask, memory, tool),
            strict_json_schema=False,  # Arguments are optional.
        )
        for tool in (there[name] for name in names or there)
    ]


async def _ask(memory: Memory, tool: Tool, _context: Any, arguments: str) -> str:
    try:
        given = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError as error:
        return f"InvalidArguments: {error}"
    return str(await tool.ask(memory, given))


def _line(hit: Hit) -> str:
    text = hit.text if len(hit.text) <= SHOWN_MAX else f"{hit.text[:SHOWN_MAX]}…"
    place = f"session {hit.session}, position {hit.position}"
    return f"[{hit.said_at:%Y-%m-%d}, {place}, relevance {hit.relevance:.2f}] {hit.role}: {text}"
